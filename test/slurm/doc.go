// Package slurm tests Allotment on a real Slurm: throw-away clusters, real users.
// `make test-slurm` runs it, as root.
package slurm
