// Package joined is the queue of asplit where there is no queue: machines of one user that joined.
//
// Offer (asplit worker --join) offers a machine. Its own miniq runs the jobs, and is reached over
// TLS. A record of the machine is in a directory that all machines share, as they share the
// working directory of a split: how it is reached, by which certificate it is known, and a secret
// that opens it. Only its owner reads that, and only its owner's programs run there. Queue is all
// machines of such a directory.
package joined
