// Package split cuts work into tasks by the measure of each host, runs each as a job
// pinned to its host on any queue, and gives the results out in the order of the
// items, each once, whatever is killed meanwhile. Core decides; the rest stores,
// submits, waits and hands out.
package split
