package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/ask"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
)

// ahist -l shows what the hosts of a job keep, in their order, and the runs by the queue alone.
func TestPastStatesOfHosts(t *testing.T) {
	at := fake.Now().Add(-time.Hour)
	hosts := &backends.Record{
		Runs:     []backends.RunRecord{{Run: 7, Host: "h7", Started: at, Ended: at, ExitCode: -1}},
		Settings: []backends.SettingRecord{{Key: "phase", Value: "solve \x1b[31m", At: at, Run: 2, Host: "h2"}},
		Files:    []backends.FileRecord{{Name: "clean-up", Size: 40, Executable: true, At: at, Run: 1, Host: "h1"}},
		History: []backends.HistoryLine{
			{At: at, Run: 1, Event: "started", Detail: "on h1", Host: "h1"},
			{At: at.Add(time.Minute), Run: 1, Event: "progress", Detail: "40 half", Host: "h1"},
			{At: at.Add(2 * time.Minute), Run: 2, Event: "started", Detail: "on h2", Host: "h2"},
			{At: at, Event: "submitted"},
		},
	}
	q := fake.NewQueue()
	records := []*backends.Record{{Runs: []backends.RunRecord{{Run: 1, Host: "h1", Started: at, Ended: at.Add(time.Minute)}}}, nil}
	q.Extra.History = func(context.Context, backends.PastQuery) (backends.PastJobs, error) {
		var all backends.PastJobs
		for i, r := range records {
			all.Jobs = append(all.Jobs, backends.Past{Job: backends.Job{ID: backends.ID{Job: int64(i + 1)}, User: "bob", State: backends.Done, Slots: 1, Submitted: at, Ended: at.Add(time.Minute)}, Record: r})
		}
		return all, nil
	}
	asked := 0
	types := func(failure error, words ...string) (string, string) {
		t.Helper()
		var out, problem bytes.Buffer
		p := bobsProcess(q, &out, &problem)
		p.stateOf = func(ctx context.Context, _ backends.ID) (*backends.Record, error) {
			asked++
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("it waits for allotd without a bound")
			}
			return hosts, failure
		}
		if code := run(words, p); code != 0 {
			t.Errorf("%q: exit code %d, %s", words, code, problem.String())
		}
		return out.String(), problem.String()
	}
	plain, problem := types(ask.ErrNone, "ahist", "-l")
	if asked != 1 || problem != "" || strings.Contains(plain, "HISTORY") {
		t.Errorf("without allotd: asked %d times, %s%s", asked, problem, plain)
	}
	out, problem := types(nil, "ahist", "-l")
	last := -1
	for _, want := range []string{"Run 1 started on <h1>;", "In all it waited", "SETTINGS:\n  phase: solve \\x1b[31m (", "run 2 on h2)", "FILES:\n  clean-up: 40 B, a program (", "HISTORY:", "h1: run 1: started, on h1;", "h1: run 1: progress, 40 half;", "h2: run 2: started, on h2;"} {
		i := strings.Index(out, want)
		if i <= last || problem != "" {
			t.Errorf("no %q behind what is before it in\n%s%s", want, out, problem)
		}
		last = i
	}
	if strings.Contains(out, "h7") || strings.Contains(out, "submitted;") || strings.Count(out, "SETTINGS") != 1 {
		t.Errorf("of whom is that?\n%s", out)
	}
	for failure, want := range map[error]string{ask.ErrNotFound: "", errors.New("not yours \x1b[31m"): "ahist: what the hosts of job <1> keep of it can't be read: not yours \\x1b[31m\n"} {
		if out, problem := types(failure, "ahist", "-l"); problem != want || out != plain {
			t.Errorf("%v: %q, %s", failure, problem, out)
		}
	}
	asked = 0
	types(nil, "ahist")
	q.Extra.Set = func(context.Context, backends.ID, string, string) error { return nil }
	types(nil, "ahist", "-l")
	if asked != 0 {
		t.Errorf("allotd is asked %d times for nothing", asked)
	}
}

// ajobs -l shows what the hosts of a job keep, where the queue keeps nothing of that.
func TestStatesOfHosts(t *testing.T) {
	at := fake.Now().Add(-time.Hour)
	hosts := &backends.Record{
		Settings: []backends.SettingRecord{{Key: "phase", Value: "solve", At: at, Run: 2, Host: "h2"}, {Key: "progress", Value: "40 half", At: at, Run: 2, Host: "h2"}},
		Files:    []backends.FileRecord{{Name: "clean-up", Size: 40, Executable: true, At: at}},
		History:  []backends.HistoryLine{{At: at.Add(time.Minute), Run: 2, Event: "started", Host: "h2"}},
	}
	q := fake.NewQueue()
	q.Content.Jobs = []backends.Job{{ID: backends.ID{Job: 1}, User: "bob", State: backends.Running, Slots: 1, Submitted: at}}
	q.Extra.Record = func(context.Context, backends.ID) (*backends.Record, error) {
		return &backends.Record{Spec: backends.Spec{Command: []string{"true"}}, History: []backends.HistoryLine{{At: at, Event: "submitted"}, {At: at.Add(time.Hour), Event: "requeued"}}}, nil
	}
	types := func(failure error, words ...string) (string, string) {
		t.Helper()
		var out, problem bytes.Buffer
		p := bobsProcess(q, &out, &problem)
		p.stateOf = func(context.Context, backends.ID) (*backends.Record, error) { return hosts, failure }
		if code := run(words, p); code != 0 {
			t.Errorf("%q: exit code %d, %s", words, code, problem.String())
		}
		return out.String(), problem.String()
	}
	out, problem := types(nil, "ajobs", "-l", "1")
	last := -1
	for _, want := range []string{"progress 40% half", "phase: solve (", "run 2 on h2)", "clean-up: 40 B, a program", "submitted;", "h2: run 2: started;", "requeued;"} {
		i := strings.Index(out, want)
		if i <= last || problem != "" {
			t.Errorf("no %q behind what is before it in\n%s%s", want, out, problem)
		}
		last = i
	}
	out, _ = types(nil, "ajobs", "-l", "--json", "1")
	var read []detailJSON
	if err := json.Unmarshal([]byte(out), &read); err != nil || len(read) != 1 || read[0].Progress != "40 half" || len(read[0].Settings) != 2 || len(read[0].Files) != 1 || len(read[0].History) != 3 {
		t.Errorf("%s, %v", out, err)
	}
	for _, c := range []struct {
		failure error
		want    string
	}{
		{ask.ErrNone, ""},
		{ask.ErrNotFound, ""},
		{errors.New("not yours \x1b[31m"), "ajobs: what the hosts of job <1> keep of it can't be read: not yours \\x1b[31m\n"},
	} {
		if out, problem := types(c.failure, "ajobs", "-l", "1"); problem != c.want || strings.Contains(out, "phase") {
			t.Errorf("%v: %q, %s", c.failure, problem, out)
		}
	}
	q.Extra.Set = func(context.Context, backends.ID, string, string) error { return nil } // the queue's record has it
	if out, _ := types(nil, "ajobs", "-l", "1"); strings.Contains(out, "phase") {
		t.Errorf("the agents are asked on a queue that keeps the state itself: %s", out)
	}
}
