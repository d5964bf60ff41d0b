package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
)

// R45: asub --advise submits nothing. It looks at the user's own jobs of the last 30 days: those of the same project,
// step and name but for its numbers that were done.
func TestAdvise(t *testing.T) {
	q := fake.NewQueue()
	var asked backends.PastQuery
	jobs := 9
	q.Extra.History = func(_ context.Context, p backends.PastQuery) (backends.PastJobs, error) {
		asked = p
		var all []backends.Past
		for i := range jobs {
			start := fake.Now().Add(-time.Hour)
			past := backends.Past{
				Job: backends.Job{Name: fmt.Sprint("run_", i), Project: "chipA", Step: "syn", State: backends.Done, Slots: 1, Started: start},
				Record: &backends.Record{Runs: []backends.RunRecord{
					{Run: 1, Started: start, Ended: start.Add(10 * time.Minute), User: 9 * time.Minute, MaxRSS: int64(900+10*i) << 20},
				}},
			}
			switch i {
			case 6:
				past.Job.State, past.Record.Runs[0].MaxRSS = backends.Exited, 1<<50
			case 7:
				past.Job.Step = "place"
			case 8:
				past.Record = nil // not the caller's to see
			}
			if p.Keep(&past.Job) {
				all = append(all, past)
			}
		}
		return backends.PastJobs{Jobs: all}, nil
	}
	got := bob(t, q, "", "asub", "--advise", "-P", "chipA:syn", "-J", "run_77", "-n", "4", "-M", "64G", "./run")
	const want = "6 jobs of project chipA:syn, run_#, were done since 2026-10-22.\n" +
		"-M 1088M   they used 900M to 950M; this one asks for 65536M\n" +
		"-n 1       they kept 0.9 to 0.9 processors busy; this one asks for 4\n" +
		"-W 0:12    they took 0:10 to 0:10; this one has none\n"
	if got.code != 0 || got.stdout != want || got.stderr != "" {
		t.Errorf("%+v\nwant %q", got, want)
	}
	if asked.User != "bob" || !asked.Since.Equal(fake.Now().AddDate(0, 0, -30)) || asked.Most == 0 || len(asked.IDs) > 0 {
		t.Errorf("%+v", asked)
	}
	if len(q.Submitted) != 0 {
		t.Errorf("it submits %+v", q.Submitted)
	}
	for line, want := range map[string]string{
		"asub --advise -P chipA:syn -J other true":     "0 jobs of project chipA:syn, other, were done since 2026-10-22: advice takes 5 at least.\n",
		"asub --advise true":                           "0 jobs of no project, true, were done since",
		"asub --advise --advise -P chipA -J \x1b true": "0 jobs of project chipA, \\x1b, were done since",
	} {
		if got := bob(t, q, "", strings.Fields(line)...); got.code != 0 || !strings.HasPrefix(got.stdout, want) {
			t.Errorf("%q: %+v, want %q", line, got, want)
		}
	}
	q.Extra.History = nil
	if got := bob(t, q, "", "asub", "--advise", "true"); got.code == 0 || !strings.Contains(got.stderr, "keeps no past jobs") {
		t.Errorf("%+v", got)
	}
}
