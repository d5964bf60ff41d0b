package lsf

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
	"github.com/allotment-hpc/allotment/test/programs"
)

// R21, R22: a burst of exclusive jobs on an idle farm, submitted through the filter. Of the
// 8 slots that an exclusive one leaves such jobs may hold 2, one user 1. Their owner's begin
// times count, and a member of a pool with room does not wait.
func TestFixedJobsWait(t *testing.T) {
	if os.Getenv("ALLOTMENT_TEST_LSF") == "" {
		t.Skip("skipped: LSF counts begin times in minutes; ALLOTMENT_TEST_LSF=minutes waits for them (make test-lsf)")
	}
	built := programs.Build(t, "pba")
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		t.Run(fmt.Sprint(flavour), func(t *testing.T) {
			t.Parallel()
			w := newWhereTest(t, filepath.Join(built, "pba"), flavour)
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute) // a begin time shortly ahead is up to two minutes ahead
			defer cancel()
			w.ctx = ctx
			w.replaceSection("pba: {every: 1s, hold_limit: 4m, unpreemptable: {max_share: 25%}}")
			filter := fmt.Sprintf("#!/bin/sh\nALLOTMENT_HOME=%s exec %s/esub \"$@\"\n", w.home, built)
			if err := os.WriteFile(filepath.Join(w.ServerDir(), "esub"), []byte(filter), 0o755); err != nil {
				t.Fatal(err)
			}
			stop := farm.StartForTest(t, w.command("rebalance", "--every", "1s", "--for", "10m", "--verbose"))
			w.await("the first cycle", func() bool { return strings.Contains(w.mustPba("status"), "last cycle") })
			for i := range 3 {
				w.bsub(fmt.Sprintf("burst%d", i), "-x")
			}
			w.await("one of them", func() bool { return w.count(lsfstandin.RUN) == 1 })
			waits := w.jobs()["burst1"]
			if out := w.mustPba("explain", fmt.Sprint(waits.ID)); !strings.Contains(out, "it can't be preempted, and waits: of the 2 slots that such jobs may hold, one user may hold 1") {
				t.Errorf("pba explain: %s", out)
			}
			lifted := time.Now().Add(30 * time.Minute)
			if out, message, rc := w.Cluster.Run("bmod", "-b", lifted.Format("15:04"), fmt.Sprint(waits.ID)); rc != 0 {
				t.Fatalf("bmod -b: %s%s", out, message)
			}
			w.bsub("member", "-x", "-P", "chipa") // its pool has room
			w.await("the member's", func() bool { return w.jobs()["member"].Stat == lsfstandin.RUN })
			if n := w.count(lsfstandin.RUN); n != 2 {
				t.Errorf("%d jobs run", n)
			}
			if out, message, rc := w.Cluster.Run("bkill", fmt.Sprint(w.jobs()["burst0"].ID)); rc != 0 {
				t.Fatalf("bkill: %s%s", out, message)
			}
			w.await("the next one", func() bool { return w.jobs()["burst2"].Stat == lsfstandin.RUN })
			stop()
		})
	}
}

// replaceSection replaces the section pba of the config.
func (w *whereTest) replaceSection(section string) {
	w.Helper()
	path := filepath.Join(w.home, "config.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		w.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "pba:") {
			line = section + "\n"
		}
		lines = append(lines, line)
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		w.Fatal(err)
	}
}
