package lsf_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/backendtest"
	"github.com/allotment-hpc/allotment/backends/lsf"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

func TestConformance(t *testing.T) {
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		t.Run(string(flavour), func(t *testing.T) {
			t.Parallel()
			backendtest.Run(t, func(t *testing.T) backendtest.Harness {
				ofMinutes(t, takesMinutes(t.Name(), flavour))
				t.Parallel() // mostly they wait
				return harness(t, lsfstandin.Options{RootMaySubmit: true, Flavour: flavour, Second: second})
			})
		})
	}
}

// ofMinutes skips a test unless it is among those that are asked for: those that take minutes,
// with ALLOTMENT_TEST_LSF=minutes, or the others without.
func ofMinutes(t *testing.T, long bool) {
	t.Helper()
	switch asked := os.Getenv("ALLOTMENT_TEST_LSF") == "minutes"; {
	case long && !asked:
		t.Skip("skipped: LSF counts begin times and run limits in minutes; ALLOTMENT_TEST_LSF=minutes waits for them (make test-lsf)")
	case asked && !long:
		t.Skip("skipped: it is among the tests without ALLOTMENT_TEST_LSF=minutes")
	}
}

// takesMinutes reports whether the case of this name takes minutes.
func takesMinutes(name string, flavour lsfstandin.Flavour) bool {
	name = name[strings.LastIndexByte(name, '/')+1:]
	switch name {
	case "run_limit", "held_from_the_start", "dummy_jobs_end_by_their_limit", "begin_time", "the_engine's_hold", "a_requeued_job_is_held_until_its_time", "a_suspended_job_is_held_until_its_time":
		return true
	case "an_act_on_another_run_is_refused", "jobs_that_have_ended_are_requeued", "requeue_keeps_ID_and_place,_and_counts",
		"asked_by_a_signal:_saved,_and_the_next_run_is_told", "asked_by_a_signal:_finished", "asked_by_a_signal:_failed", "asked_by_a_signal:_out_of_time",
		"asked_by_a_signal:_failed,_failed_again,_then_saved", "asked_by_a_signal:_killed_meanwhile", "asked_by_a_signal:_all_processes_get_it":
		return flavour == lsfstandin.LSF10 // bjobs shows only minutes
	}
	return false
}

// second is how long a second of LSF's daemons takes in the stand-in: long enough that
// the two runs of a requeued job begin in different seconds of the clock.
const second = 500 * time.Millisecond

func harness(t *testing.T, o lsfstandin.Options) backendtest.Harness {
	c := lsfstandin.New(t, o)
	t.Cleanup(func() {
		if t.Failed() {
			jobs, message, _ := c.Run("bjobs", "-u", "all", "-a", "-w")
			t.Logf("its jobs:\n%s%s\n%s", jobs, message, c.Log())
		}
	})
	must := func(t *testing.T, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	coarse := time.Second
	if o.Flavour == lsfstandin.LSF10 {
		coarse = time.Minute // bjobs -o shows "Nov 22 12:04"
	}
	return backendtest.Harness{
		Values:  [2]backends.Priority{10, backends.DefaultValue}, // LSF has one number for 20 and above
		Backend: open(t, c), Dir: t.TempDir(), OtherQueue: "high", LowQueue: "low",
		Shortest: time.Minute, ShortestLimit: time.Minute, Patience: 3 * time.Minute, LosesPlace: true,
		PlainNames: true, Uncounted: true, Untold: true, TimeResolution: coarse,
		Apart:   10, // a bonus: the values between share a number of LSF's
		Kill:    func(t *testing.T) { must(t, c.Kill()) },
		Hang:    func(t *testing.T) { must(t, c.Hang()) },
		Restart: func(t *testing.T) { must(t, c.Restart()) },
	}
}

// open returns the backend of a cluster.
func open(t *testing.T, c *lsfstandin.Cluster) *lsf.Client {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	config := lsf.DefaultConfig()
	config.Bin, config.EnvDir = c.Bin(), c.EnvDir()
	return lsf.Open(lsf.Options{Config: config, Record: filepath.Join(dir, "lsf.json"), LowQueue: "low"})
}
