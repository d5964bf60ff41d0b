package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
)

// requeuedJob ran twice; the queue says no more than how the first run ended.
func requeuedJob(id int64, why string) backends.Past {
	at := func(minutes int) time.Time { return fake.Now().Add(time.Duration(minutes-60) * time.Minute) }
	return backends.Past{
		Job: backends.Job{ID: backends.ID{Job: id}, User: "bob", State: backends.Done, Submitted: at(0), Started: at(20), Ended: at(30), Slots: 1, Requeues: 1},
		Record: &backends.Record{Runs: []backends.RunRecord{
			{Run: 1, Host: "n1", Started: at(1), Ended: at(10), Why: why}, {Run: 2, Host: "n1", Started: at(20), Ended: at(30)},
		}},
	}
}

// storyOf is what pba's ledger has of a job: it lost the run that began at a time.
func storyOf(t *testing.T, id string, started time.Time, more string) story {
	t.Helper()
	var s story
	text := fmt.Sprintf(`{"id": %q, "reclaims": [
		{"id": 7, "beneficiary": %[1]q, "project": "other", "victims": [{"job": "99", "mode": "requeue", "fate": "taken", "run_started": %[2]q}]},
		{"id": 8, "beneficiary": "41", "project": "chipA", "victims": [{"job": "98"}, {"job": %[1]q, "run_started": %[2]q, %[3]s}]}]}`, id, started.Format(time.RFC3339), more)
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// The ledger says why a run was requeued where the queue does not keep that.
func TestRequeuesAreExplained(t *testing.T) {
	const taken = `"mode": "requeue", "fate": "taken"`
	first := requeuedJob(1, "").Record.Runs[0].Started
	for name, x := range map[string]struct {
		why     string // the queue's
		started time.Time
		more    string
		want    string
	}{
		"by pba":             {backends.RequeuedOnly, first, taken, "requeued for job 41 of chipA by pba (reclaim 8)"},
		"seen in minutes":    {backends.RequeuedByAdmin, first.Add(-59 * time.Second), taken, "requeued for job 41 of chipA by pba (reclaim 8)"},
		"saved":              {backends.RequeuedOnly, first, taken + `, "saved": "saved"`, "requeued for job 41 of chipA by pba (reclaim 8); its checkpoint was made"},
		"not saved":          {backends.RequeuedOnly, first, taken + `, "saved": "failed"`, "requeued for job 41 of chipA by pba (reclaim 8); its checkpoint failed"},
		"another run":        {backends.RequeuedOnly, first.Add(time.Minute), taken, backends.RequeuedOnly},
		"it was suspended":   {backends.RequeuedOnly, first, `"mode": "suspend", "fate": "taken"`, backends.RequeuedOnly},
		"it was spared":      {backends.RequeuedOnly, first, `"mode": "requeue", "fate": "spared"`, backends.RequeuedOnly},
		"the queue says why": {"requeued by its owner", first, taken, "requeued by its owner"},
	} {
		one := requeuedJob(1, x.why)
		asked := 0
		p := process{explained: func(_ context.Context, ids []backends.ID, past bool) map[backends.ID]story {
			if asked++; !past || len(ids) != 1 {
				t.Errorf("%s: asked about %v, of the past %v", name, ids, past)
			}
			return map[backends.ID]story{{Job: 1}: storyOf(t, "1", x.started, x.more)}
		}}
		all := []backends.Past{one, {Job: backends.Job{ID: backends.ID{Job: 2}}}}
		p.explainRequeues(t.Context(), all)
		if got := all[0].Record.Runs[0].Why; got != x.want || all[0].Record.Runs[1].Why != "" {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
		if unclear := x.why != "requeued by its owner"; (asked == 1) != unclear {
			t.Errorf("%s: pba was asked %d times", name, asked)
		}
		if saved := name == "saved"; (all[0].Lost() == 0) != saved {
			t.Errorf("%s: lost %v", name, all[0].Lost())
		}
	}
}

// ahist asks once, about the last jobs alone; what comes back is no escape sequence.
func TestHistoryExplainsRequeues(t *testing.T) {
	q := fake.NewQueue()
	q.Extra.History = func(context.Context, backends.PastQuery) (backends.PastJobs, error) {
		var all []backends.Past
		for i := range 120 {
			all = append(all, requeuedJob(int64(i+1), backends.RequeuedOnly))
		}
		return backends.Newest(all, len(all)), nil
	}
	asked := 0
	explained := func(_ context.Context, ids []backends.ID, _ bool) map[backends.ID]story {
		asked++
		if len(ids) != 100 || ids[0].Job != 120 {
			t.Errorf("asked about %v", ids)
		}
		s := storyOf(t, "120", requeuedJob(1, "").Record.Runs[0].Started, `"mode": "requeue", "fate": "taken"`)
		s.Reclaims[1].Project = "chip\x1b[31mA"
		return map[backends.ID]story{{Job: 120}: s}
	}
	for _, line := range []string{"ahist -w", "ahist -l"} {
		var out, errs bytes.Buffer
		p := bobsProcess(q, &out, &errs)
		p.explained = explained
		code := run(strings.Fields(line), p)
		if strings.Count(out.String(), `requeued for job 41 of chip\x1b[31mA by pba (reclaim 8)`) != 1 || code != 0 || errs.Len() > 0 {
			t.Errorf("%s: %d, %s%s", line, code, out.String(), errs.String())
		}
	}
	if asked != 2 {
		t.Errorf("pba was asked %d times by 2 commands", asked)
	}
}

// ajobs -l asks pba once about all jobs that wait, ten at most.
func TestOutlookIsOneCommand(t *testing.T) {
	said := standInForPBA(t, `
[ $# -gt 3 ] || { echo '{"id": "1", "outlook": {"text": "alone"}}'; exit; }
echo '[{"id": "1", "outlook": {"text": "first"}}, {"id": "2[3]", "outlook": null}]'
echo 'pba: explain job 3: nobody knows it' >&2
exit 1
`)
	jobs := []backends.Job{{ID: backends.ID{Job: 1}}, {ID: backends.ID{Job: 9}, State: backends.Running}, {ID: backends.ID{Job: 2, Index: 3}}}
	for i := range 20 {
		jobs = append(jobs, backends.Job{ID: backends.ID{Job: int64(100 + i)}})
	}
	for i := range jobs {
		if jobs[i].State != backends.Running {
			jobs[i].State = backends.Pending
		}
	}
	known := outlook(t.Context(), jobs)
	if got := said(); got != "explain --json 1 2[3] 100 101 102 103 104 105 106 107\n" {
		t.Errorf("pba was called with %q", got)
	}
	if got := fmt.Sprint(known[jobs[0].ID], "|", known[jobs[2].ID], "|", known[jobs[5].ID]); got != "first||" {
		t.Errorf("got %q", got)
	}
	if got := outlook(t.Context(), jobs[:1])[jobs[0].ID]; got != "alone" {
		t.Errorf("got %q of one job", got)
	}
	if got := outlook(t.Context(), jobs[1:2]); len(got) > 0 {
		t.Errorf("got %v of a job that runs", got)
	}
	if got := parseStories([]byte(`[{"id": "1"`), true); len(got) > 0 {
		t.Errorf("got %v of half an answer", got)
	}
}

// Where pba fails, or its farm has none, nothing is known, and that is no error.
func TestExplainedOfThePast(t *testing.T) {
	said := standInForPBA(t, "echo 'pba: read the ledger: no such file' >&2\nexit 1\n")
	if got := explained(t.Context(), []backends.ID{{Job: 1}, {Job: 2, Index: 3}}, true); len(got) > 0 || said() != "explain --json --past 1 2[3]\n" {
		t.Errorf("got %v, pba was called with %q", got, said())
	}
	t.Setenv("PATH", t.TempDir())
	if got := explained(t.Context(), []backends.ID{{Job: 1}}, true); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// standInForPBA puts a script called pba into PATH, and returns what reads the arguments of its calls.
func standInForPBA(t *testing.T, script string) (said func() string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	record := filepath.Join(dir, "said")
	if err := os.WriteFile(filepath.Join(dir, "pba"), []byte("#!/bin/sh\necho \"$*\" >>"+record+"\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return func() string {
		text, err := os.ReadFile(record)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
}

func FuzzParseStories(f *testing.F) {
	f.Add([]byte(`{"id": "1", "outlook": {"text": "alone"}}`), false)
	f.Add([]byte(`[{"id": "2[3]", "outlook": null}, {"id": "x"}]`), true)
	f.Add([]byte(`[{"id": "2", "reclaims": [{"id": 7, "beneficiary": "41", "victims": [{"job": "2", "run_started": "2026-11-20T13:00:00Z"}]}]}]`), true)
	f.Fuzz(func(t *testing.T, data []byte, several bool) {
		for id, s := range parseStories(data, several) {
			if back, err := backends.ParseID(s.ID); err != nil || back != id {
				t.Errorf("%q is listed as %v: %v", s.ID, id, err)
			}
			one := requeuedJob(id.Job, backends.RequeuedOnly)
			s.explainRuns(&one)
		}
	})
}
