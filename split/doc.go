// Package split cuts work into tasks by the measure of each host, runs each as a job
// pinned to its host on any queue, and writes the results in the order of the items,
// each once, also after a kill. Core decides; the rest stores, submits, waits and
// writes.
package split
