package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// What a queue says in several lines is printed in one, on a line that keeps its indent.
func TestExplainPrintsOneLinePerFact(t *testing.T) {
	var out bytes.Buffer
	printStory(&out, &desk.Story{
		ID: "1", User: "bob", Slots: 1, State: backends.Pending, Reason: "first\nsecond", Class: "normal", Minimum: "2 cores: it does not count", Deadline: "2026-12-01 07:00",
		Acts: []ledger.Act{{Verb: "pin", Outcome: "failed", Reason: "r", Error: "bmod 1: exit status 255: Bad host\nJob not modified.\x1b", Who: "root"}},
	})
	printStory(&out, &desk.Story{ID: "2", User: "bob", Slots: 1, State: backends.Exited, ExitCode: 127, Reason: "run nosuchcommand: no such file or directory"})
	text := out.String()
	for _, want := range []string{"The queue says: first; second\n", "\nMinimum: 2 cores: it does not count.\nDeadline: 2026-12-01 07:00.\n", "exited with 127 at ", "The queue says: run nosuchcommand: no such file or directory\n", "(failed): r: bmod 1: exit status 255: Bad host; Job not modified.\\x1b; by root"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, `\n`) || !strings.Contains(text, "\n  0001-01-01 ") {
		t.Errorf("got\n%s", text)
	}
}

// countedQueue counts what its caller asks of it.
type countedQueue struct {
	*fake.Queue
	asked []string
}

func (q *countedQueue) Snapshot(ctx context.Context, since time.Time) (*backends.Snapshot, error) {
	q.asked = append(q.asked, "snapshot")
	return q.Queue.Snapshot(ctx, since)
}

func (q *countedQueue) Jobs(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	q.asked = append(q.asked, "jobs")
	return q.Queue.Jobs(ctx, ids)
}

// Several jobs are explained from one snapshot; those that are not known cost the others nothing.
func TestExplainSeveralJobs(t *testing.T) {
	q := &countedQueue{Queue: heavyQueue()}
	y := newTestCLI(t, q.Queue)
	y.Open = func(context.Context, configfile.Config) (backends.Backend, error) { return q, nil }
	code, out, errs := y.run("explain --json 1 20 77 21 78")
	var stories []struct{ ID, Class string }
	if err := json.Unmarshal([]byte(out), &stories); err != nil || code != 1 {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	if len(stories) != 3 || stories[0].ID != "1" || stories[1].ID != "20" || stories[1].Class != "dummy" || stories[2].ID != "21" {
		t.Errorf("got %+v", stories)
	}
	if want := "pba: explain job 77: neither the queue nor the ledger knows it: see `ajobs`; and 1 more error\n"; errs != want {
		t.Errorf("stderr is %q, want %q", errs, want)
	}
	if got := strings.Join(q.asked, " "); got != "snapshot jobs" {
		t.Errorf("the queue was asked for %s", got)
	}
	if _, out, _ := y.run("explain 1 20"); !strings.Contains(out, "\n\nJob 20 of ") || !strings.HasPrefix(out, "Job 1 of ") {
		t.Errorf("got\n%s", out)
	}
	if code, out, _ := y.run("explain --json 77 78"); code != 1 || out != "[]\n" {
		t.Errorf("exit code %d of unknown jobs, %q", code, out)
	}
	q.asked = nil
	if code, out, _ := y.run("explain --json --past 1 20"); code != 1 || out != "[]\n" || len(q.asked) > 0 {
		t.Errorf("of the past: exit code %d, %q, the queue was asked for %v", code, out, q.asked)
	}
	if code, _, errs := y.run("explain" + strings.Repeat(" 1", maxExplained+1)); code != 2 || !strings.Contains(errs, "at most 100") {
		t.Errorf("exit code %d of too many jobs, %q", code, errs)
	}
}
