// Package crash puts the bundled queue through what a queue must survive:
// processes that are killed at any instant (TestKilledProcesses), a machine that
// loses power, and disks that fail (TestPowerFailures, TestFailingDisk), one that
// is full (TestFullDisk). What was acknowledged must be there, and each job must
// have ended exactly once, by what the jobs themselves wrote. What breaks
// the program on purpose is in test/breaks: the tests that should notice must fail.
//
//	make test-crash
//	CRASH_SEED=7 CRASH_JOBS=4000 CRASH_KILLS=100 go test -v ./test/crash
package crash
