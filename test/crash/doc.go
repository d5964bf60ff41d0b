// Package crash tests what the bundled queue must survive: processes that are killed at
// any instant (TestKilledProcesses), a machine that loses power and a disk that fails
// (TestPowerFailures), and a disk that is full (TestFullDisk). What was acknowledged must
// be there, and each job must have ended exactly once, by what the jobs themselves wrote.
// test/breaks breaks the program on purpose: these tests must fail then.
//
//	make test-crash
//	CRASH_SEED=7 CRASH_JOBS=4000 CRASH_KILLS=100 go test -v ./test/crash
package crash
