package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
)

// withHistory is the fake queue with a history of its ended jobs, and what it was asked.
func withHistory(asked *backends.PastQuery) *fake.Queue {
	q := fake.NewQueue()
	q.Extra.History = func(_ context.Context, p backends.PastQuery) (backends.PastJobs, error) {
		*asked = p
		var all []backends.Past
		for _, j := range q.Content.Ended {
			named := len(p.IDs) == 0 && !j.Ended.Before(p.Since) || slices.Contains(p.IDs, j.ID) || slices.Contains(p.IDs, backends.ID{Job: j.ID.Job})
			if named && p.Wants(&j) {
				all = append(all, backends.Past{Job: j, Record: &backends.Record{Runs: []backends.RunRecord{{Run: 1, Host: "n1", Started: j.Started, Ended: j.Ended, ExitCode: j.ExitCode}}}})
			}
		}
		return backends.Newest(all, p.Most), q.Down
	}
	return q
}

func TestHistoryOptionsSelectJobs(t *testing.T) {
	for line, want := range map[string]struct {
		jobs  string
		user  string
		since time.Duration
		most  int
	}{
		"ahist":                             {"5[3] 8", "bob", 7 * 24 * time.Hour, 1000},
		"ahist --since 1h":                  {"8", "bob", time.Hour, 1000},
		"ahist -u all":                      {"5[3] 8", "", 7 * 24 * time.Hour, 1000},
		"ahist -u alice":                    {"", "alice", 7 * 24 * time.Hour, 1000},
		"ahist --limit 1":                   {"8", "bob", 7 * 24 * time.Hour, 1},
		"ahist -J arr":                      {"5[3]", "bob", 7 * 24 * time.Hour, 1000},
		"ahist -q none":                     {"", "bob", 7 * 24 * time.Hour, 1000},
		"ahist 8 5":                         {"5[3] 8", "", 7 * 24 * time.Hour, 1000},
		"ahist --since 1h 5[3]":             {"5[3]", "", time.Hour, 1000},
		"ahist arr":                         {"5[3]", "bob", 7 * 24 * time.Hour, 1000},
		"ahist arr 8":                       {"5[3] 8", "bob", 7 * 24 * time.Hour, 1000},
		"ahist --sort -job":                 {"8 5[3]", "bob", 7 * 24 * time.Hour, 1000},
		"ahist -noheader -w -o job -m none": {"", "bob", 7 * 24 * time.Hour, 1000},
	} {
		var asked backends.PastQuery
		got := bob(t, withHistory(&asked), append(strings.Fields(line), "-o", "job", "-noheader")...)
		if strings.Contains(line, " -o ") {
			got = bob(t, withHistory(&asked), strings.Fields(line)...)
		}
		if strings.Join(strings.Fields(got.stdout), " ") != want.jobs || got.code != 0 || asked.User != want.user || !asked.Since.Equal(fake.Now().Add(-want.since)) || asked.Most != want.most {
			t.Errorf("%s: %+v, asked for %+v; want %+v", line, got, asked, want)
		}
	}
}

func TestHistoryErrors(t *testing.T) {
	for line, want := range map[string]answer{
		"ahist -J zz":         {0, "", "No job is found that ended or was requeued within 7d: --since takes a longer time\n"},
		"ahist 99":            {1, "", "Job <99> is not found: no job of this ID or name has ended or was requeued, as far as the queue keeps it\n"},
		"ahist n\x1bo":        {1, "", "Job <n\\x1bo> is not found: no job of this ID or name has ended or was requeued, as far as the queue keeps it\n"},
		"ahist --json -o job": {2, "", "ahist: --json has all fields: it can't be combined with -o\n"},
		"ahist -l --json":     {2, "", "ahist: -l prints all of each job: it can't be combined with -o, -w, -noheader or --json\n"},
		"ahist --limit 0":     {2, "", "ahist: option --limit: 0: want a number from 1 to 100000\n"},
		"ahist --sort nam":    {2, "", "ahist: option --sort: unknown field \"nam\" (did you mean name?)\n"},
		"ahist --since 0h":    {2, "", "ahist: option --since: \"0h\" is not a duration; write it like 12h, 2d or 1w\n"},
		"ahist -u ":           {2, "", "ahist: option -u: empty name\n"},
		"ahist -o":            {2, "", "ahist: option -o needs a value\n"},
	} {
		var asked backends.PastQuery
		if got := bob(t, withHistory(&asked), strings.Split(line, " ")...); got != want && !strings.HasPrefix(line, "ahist -o") || got.code != want.code {
			t.Errorf("%s: %+v, want %+v", line, got, want)
		}
	}
	if got := bob(t, fake.NewQueue(), "ahist"); got.code != 1 || got.stderr != "ahist: show what became of jobs: "+backends.ErrUnable.Error()+"\n" {
		t.Errorf("a queue that keeps nothing: %+v", got)
	}
	var asked backends.PastQuery
	down := withHistory(&asked)
	down.Down = errors.New("sacct: no accounting")
	for _, line := range []string{"ahist", "ahist 8", "ahist arr", "ahist -l", "ahist --json"} {
		if got := bob(t, down, strings.Fields(line)...); got.code != 1 || got.stdout != "" || got.stderr != "ahist: sacct: no accounting\n" {
			t.Errorf("%s of a queue that fails: %+v", line, got)
		}
	}
}

// The sum is printed with the usual columns alone.
func TestHistorySums(t *testing.T) {
	var asked backends.PastQuery
	got := bob(t, withHistory(&asked), "ahist")
	if !strings.HasPrefix(got.stdout, "JOB ") || !strings.Contains(got.stdout, "\n2 jobs: 1 done, 1 exited; processor time 0.0s; average wait ") || strings.Contains(got.stdout, "USER") {
		t.Errorf("%+v", got)
	}
	if got := bob(t, withHistory(&asked), "ahist", "-u", "all"); !strings.Contains(got.stdout, "USER") {
		t.Errorf("%+v", got)
	}
	if got := bob(t, withHistory(&asked), "ahist", "-noheader"); strings.Contains(got.stdout, "JOB") || strings.Contains(got.stdout, "done") {
		t.Errorf("%+v", got)
	}
	if got := bob(t, withHistory(&asked), "ahist", "-l"); strings.Count(got.stdout, "Run 1 ended after ") != 2 || strings.Count(got.stdout, "-----\n") != 1 {
		t.Errorf("%+v", got)
	}
}

// What the queue could not read is said in one line, and what it did read is listed.
func TestHistoryPrintsItsNote(t *testing.T) {
	q := fake.NewQueue()
	q.Extra.History = func(context.Context, backends.PastQuery) (backends.PastJobs, error) {
		found := backends.Newest([]backends.Past{{Job: q.Content.Ended[0]}}, 10)
		found.Note = "lsb.events: permission\ndenied\x1b"
		return found, nil
	}
	for _, line := range []string{"ahist", "ahist -l", "ahist --json"} {
		if got := bob(t, q, strings.Fields(line)...); got.code != 0 || got.stdout == "" || got.stderr != "ahist: lsb.events: permission; denied\\x1b\n" {
			t.Errorf("%s: %+v", line, got)
		}
	}
}
