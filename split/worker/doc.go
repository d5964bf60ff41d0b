// Package worker is what goes over the bus between asplit and the standing workers of a split:
// jobs that stay after their first task, and are told which ones they take next. Bus is asplit's
// end, Run a worker. Orders and results are files in the split's directory: a message only says
// that they are there, and what is lost is said again.
package worker
