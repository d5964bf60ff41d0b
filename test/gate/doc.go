// Package gate tests .ci/steps, of which .ci/run is made.
package gate
