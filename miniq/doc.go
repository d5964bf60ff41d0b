// Package miniq is what the programs of the bundled queue and its client share:
// the config section, the messages of the socket, and the names of its files. The
// queue itself is below it: manager decides, daemon remembers and carries out, a
// node offers one host and starts keepers, a keeper watches over one run of a job.
package miniq
