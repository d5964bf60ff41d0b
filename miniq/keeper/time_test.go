package keeper

import (
	"os/exec"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/internal/proc"
)

// A start time that is read off the clock is the one that /proc has.
func TestStartTimeMatchesProc(t *testing.T) {
	slow := func(pause time.Duration) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "/bin/sleep", "60")
		var k supervisor
		var pid int
		done := k.recordStart(&pid)
		time.Sleep(pause)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid = cmd.Process.Pid
		done()
		want := proc.StartTime(pid)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if k.began != want || want == 0 {
			t.Errorf("began at %d, /proc has %d", k.began, want)
		}
	}
	for range 100 {
		slow(0)
	}
	slow(20 * time.Millisecond) // the clock alone is not enough
}
