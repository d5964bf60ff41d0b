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
