// Package split tests asplit as a whole: the real programs on a real queue.
package split
