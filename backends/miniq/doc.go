// Package miniq is the client of the bundled queue: a backends.Backend that talks
// to its daemon.
package miniq
