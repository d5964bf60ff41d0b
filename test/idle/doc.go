// Package idle tests that a queue which has nothing to do does nothing.
package idle
