// Package completion types at real shells, with the completion files of this
// tree, against a real queue.
package completion
