// Package miniq is the bundled queue as others see it: its config section, the
// protocol of its socket, and a client that is a backends.Backend. The queue
// itself is below it: manager decides, daemon remembers and carries out, a node
// offers one host and starts keepers, a keeper watches over one run of a job.
package miniq
