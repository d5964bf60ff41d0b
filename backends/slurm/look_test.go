package slurm

import "testing"

// Lines that squeue prints before the cluster is known are read afterwards, all of them
// and in order.
func TestLinesBeforeClusterIsKnown(t *testing.T) {
	out := numbered(t, "squeue.txt")
	want, err := parseJobs(out, len(out))
	if err != nil {
		t.Fatal(err)
	}
	for _, early := range []int{0, len(out) / 2, len(out)} {
		var jobs []*listedJob
		known := make(chan struct{})
		r := reader{lines: jobLines(nonce, farm(), &jobs), known: known}
		_, _ = r.Write(out[:early])
		if len(jobs) > 0 {
			t.Fatal("they were read before anything was known")
		}
		close(known)
		_, _ = r.Write(out[early:])
		if err := r.end(); err != nil || len(jobs) != len(want) || jobs[0].ID != want[0].ID || jobs[len(jobs)-1].ID != want[len(want)-1].ID {
			t.Errorf("%d bytes of %d came early: %d jobs of %d, %v", early, len(out), len(jobs), len(want), err)
		}
	}
}

// A wrong line is an error at the end; all that squeue writes until then is consumed.
func TestMalformedLineIsReportedAtEnd(t *testing.T) {
	var jobs []*listedJob
	known := make(chan struct{})
	close(known)
	r := reader{lines: jobLines(nonce, farm(), &jobs), known: known}
	for _, text := range []string{"8" + nonce + "\n", string(numbered(t, "squeue.txt"))} {
		if n, err := r.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("%d of %d bytes, %v", n, len(text), err)
		}
	}
	if err := r.end(); err == nil {
		t.Errorf("%d jobs were read", len(jobs))
	}
}
