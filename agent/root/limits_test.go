package root

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
)

// slurmGroup makes the control group of a job of Slurm, and returns the file that freezes its processes, with the
// values that it has when they are frozen and when they are not; it skips where it can't. Of version 2 these have a
// group beside that of slurmstepd, which must never be frozen.
func slurmGroup(t *testing.T, id int64) (file, on, off string) {
	t.Helper()
	top, path := "/sys/fs/cgroup/freezer", fmt.Sprintf("slurm_allotment_%d/uid_1000/job_%d", os.Getpid(), id)
	file, on, off = "freezer.state", "FROZEN", "THAWED"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		top, path = "/sys/fs/cgroup", fmt.Sprintf("system.slice/allotment%d_slurmstepd.scope/job_%d", os.Getpid(), id)
		file, on, off = "cgroup.freeze", "1", "0"
	}
	dir := filepath.Join(top, path)
	own := filepath.Join(dir, "step_batch/slurm")
	if v2 := file == "cgroup.freeze"; v2 {
		dir = filepath.Join(dir, "step_batch/user")
		_ = os.MkdirAll(own, 0o755)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Skipf("skip: no control group can be made here: %v", err)
	}
	frozen := filepath.Join(dir, file)
	t.Cleanup(func() {
		os.Remove(own)
		for range 5 { // and those above it that are empty then
			os.Remove(dir)
			dir = filepath.Dir(dir)
		}
	})
	return frozen, on, off
}

// R47: a client has limits set by jobs' IDs, and learns why one is not; all are lifted by the next request
// that does not have them, and by a helper that begins after one that was killed.
func TestLimits(t *testing.T) {
	id := backends.ID{Job: 1<<40 + int64(os.Getpid())}
	file, on, off := slurmGroup(t, id.Job)
	is := func(want string) {
		t.Helper()
		text, err := os.ReadFile(file)
		if got := strings.TrimSpace(string(text)); err != nil || got != want {
			t.Errorf("%s is %q, want %q: %v", file, got, want, err)
		}
	}
	limits := []Limit{
		{Queue: measure.Slurm, ID: id, Resource: supervise.Memory, Rung: supervise.Freeze},
		{Queue: measure.LSF, ID: id, Resource: supervise.Memory, Rung: supervise.Freeze},
		{Queue: measure.Slurm, ID: id, Resource: supervise.Network, Rung: supervise.Weight, Value: 5},
	}
	begin := func() (end int, c *Client, ended chan error) {
		t.Helper()
		s, end, ended := served(t, nil)
		if err := s.ClearLimits(); err != nil {
			t.Fatal(err)
		}
		is(off)
		s.start(ended)
		c, err := Connect(end)
		if err != nil {
			t.Fatal(err)
		}
		return end, c, ended
	}
	end, c, ended := begin()
	why, err := c.SetLimits(limits)
	if err != nil || len(why) != 3 || why[0] != "" || !strings.Contains(why[1], "no control group") || !strings.Contains(why[2], "no such limit") {
		t.Fatalf("%q, %v", why, err)
	}
	is(on)
	for _, dir := range []string{"../slurm", "../.."} { // of version 2
		if text, err := os.ReadFile(filepath.Join(filepath.Dir(file), dir, "cgroup.freeze")); err == nil && strings.TrimSpace(string(text)) != off {
			t.Errorf("%s of it is %s", dir, text)
		}
	}
	if why, err := c.SetLimits(nil); err != nil || len(why) != 0 {
		t.Fatalf("%q, %v", why, err)
	}
	is(off)
	if _, err := c.SetLimits(limits); err != nil {
		t.Fatal(err)
	}
	is(on)
	leave := func() {
		t.Helper()
		unix.Close(end)
		if err := <-ended; !errors.Is(err, io.EOF) {
			t.Errorf("it ended by %v", err)
		}
	}
	leave() // it lifts nothing: it was killed
	is(on)
	end, c, ended = begin()
	if _, err := c.SetLimits(limits); err != nil {
		t.Fatal(err)
	}
	leave()
	is(on)
	if code := Run([]string{liftLimits}, nil, io.Discard, t.Output()); code != 0 {
		t.Errorf("exit code %d", code)
	}
	is(off)
}

// A helper that has no right to set limits says so.
func TestNoLimits(t *testing.T) {
	end, ended := pair(t)
	c, err := Connect(end)
	if err != nil {
		t.Fatal(err)
	}
	why, err := c.SetLimits(make([]Limit, 1))
	if err == nil {
		t.Errorf("a limit of no job: %q", why)
	}
	if err := <-ended; !errors.Is(err, errMalformed) {
		t.Errorf("it ended by %v", err)
	}
	unix.Close(end)
	end, ended = pair(t)
	if c, err = Connect(end); err != nil {
		t.Fatal(err)
	}
	why, err = c.SetLimits([]Limit{{Queue: measure.LSF, ID: backends.ID{Job: 1}, Resource: supervise.CPU, Rung: supervise.Rate, Value: 1}})
	if err != nil || len(why) != 1 || !strings.Contains(why[0], "sets no limits") {
		t.Errorf("%q, %v", why, err)
	}
	unix.Close(end)
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("it ended by %v", err)
	}
}
