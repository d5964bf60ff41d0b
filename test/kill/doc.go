// Package kill kills the engine at every call that it makes, on a real queue and a real
// ledger, and judges the jobs' ends.
package kill
