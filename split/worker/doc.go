// Package worker is what goes over the bus between asplit and the standing workers of a split:
// jobs that stay after their first task and take further ones by order of asplit. Bus is asplit's
// end, Run a worker. Orders and results are files in the split's directory: a message only says
// that they are there, and a lost one is repeated.
package worker
