// Package lsf is IBM Spectrum LSF 10.1, or a queue of the Lava line that speaks
// its language, as a backends.Backend, by way of the queue's own commands.
package lsf
