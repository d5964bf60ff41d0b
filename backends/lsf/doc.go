// Package lsf is a backends.Backend for IBM Spectrum LSF 10.1, and for queues of the Lava
// line, which speak its language. It uses the queue's own commands.
package lsf
