// Package slurm is a Slurm cluster as a backends.Backend, by way of Slurm's own
// commands. What a real one answered, and when, stands beside each use.
package slurm
