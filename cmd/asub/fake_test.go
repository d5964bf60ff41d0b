package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// now is the time in these tests.
var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// fakeQueue is a queue in memory that does what it is told and writes it down.
type fakeQueue struct {
	backends.Backend // what is not used here panics
	farm             backends.Farm
	fail             map[backends.ID]error
	down             error
	did              []string
	submitted        []backends.Spec
}

func (q *fakeQueue) Close() error                  { return nil }
func (q *fakeQueue) Abilities() backends.Abilities { return backends.Abilities{SuspendFrees: true} }

func (q *fakeQueue) Farm(_ context.Context, since time.Time) (*backends.Farm, error) {
	f := backends.Farm{At: now, Hosts: q.farm.Hosts, Jobs: slices.Clone(q.farm.Jobs)}
	for _, j := range q.farm.Ended {
		if !j.Ended.Before(since) {
			f.Ended = append(f.Ended, j)
		}
	}
	return &f, q.down
}

func (q *fakeQueue) Jobs(_ context.Context, ids []backends.ID) ([]backends.Job, error) {
	var found []backends.Job
	for _, id := range ids {
		for _, j := range slices.Concat(q.farm.Jobs, q.farm.Ended) {
			if j.ID == id || id.Index == 0 && j.ID.Job == id.Job {
				found = append(found, j)
			}
		}
	}
	return found, q.down
}

func (q *fakeQueue) Submit(_ context.Context, specs []backends.Spec) []backends.Submitted {
	q.submitted = append(q.submitted, specs...)
	return []backends.Submitted{{ID: backends.ID{Job: 99}, Err: q.down}}
}

func (q *fakeQueue) do(verb string, ids []backends.ID) backends.Errors {
	errs := make(backends.Errors, len(ids))
	for i, id := range ids {
		q.did = append(q.did, fmt.Sprintf("%s %s", verb, id))
		errs[i] = q.fail[id]
	}
	return errs
}

func acted(acts []backends.Act) []backends.ID {
	ids := make([]backends.ID, len(acts))
	for i := range acts {
		ids[i] = acts[i].ID
	}
	return ids
}

func (q *fakeQueue) Kill(_ context.Context, ids []backends.ID) backends.Errors {
	return q.do("kill", ids)
}

func (q *fakeQueue) Hold(_ context.Context, ids []backends.ID) backends.Errors {
	return q.do("hold", ids)
}

func (q *fakeQueue) Release(_ context.Context, ids []backends.ID) backends.Errors {
	return q.do("release", ids)
}

func (q *fakeQueue) Resume(_ context.Context, ids []backends.ID) backends.Errors {
	return q.do("resume", ids)
}

func (q *fakeQueue) Suspend(_ context.Context, acts []backends.Act) backends.Errors {
	return q.do("suspend", acted(acts))
}

func (q *fakeQueue) Requeue(_ context.Context, acts []backends.Act) backends.Errors {
	return q.do("requeue", acted(acts))
}

// farm is a queue with jobs in every state, of bob and of alice.
func farm() *fakeQueue {
	job := func(id int64, index int, user, name string, state backends.State) backends.Job {
		j := backends.Job{
			ID: backends.ID{Job: id, Index: index}, User: user, Name: name, Project: "chipA", Step: "synthesis", Queue: "normal",
			State: state, Priority: backends.At(backends.LevelNormal, 20), Slots: 1, Submitted: now.Add(-time.Hour),
		}
		if state == backends.Running || state == backends.Suspended {
			j.Hosts, j.Started = []backends.Placement{{Host: "n1", Slots: 1}}, now.Add(-time.Minute)
		}
		if state.Ended() {
			j.Started, j.Ended = now.Add(-time.Minute), now.Add(-time.Second)
		}
		return j
	}
	q := &fakeQueue{fail: map[backends.ID]error{}}
	q.farm.Hosts = []backends.Host{{Name: "n1", Slots: 4, Memory: 1 << 30}, {Name: "n2", Slots: 4, State: backends.HostDown}}
	q.farm.Jobs = []backends.Job{
		job(1, 0, "bob", "run", backends.Running),
		job(2, 0, "bob", "wait", backends.Pending),
		job(3, 0, "bob", "stop", backends.Suspended),
		job(4, 0, "bob", "held", backends.Held),
		job(5, 1, "bob", "arr", backends.Running),
		job(5, 2, "bob", "arr", backends.Pending),
		job(6, 0, "alice", "hers", backends.Running),
		job(7, 0, "bob", "urgent", backends.Pending),
	}
	q.farm.Jobs[7].Priority = backends.At(backends.LevelPBA, 120)
	ended := job(8, 0, "bob", "ended", backends.Exited)
	ended.ExitCode = 3
	done := job(5, 3, "bob", "arr", backends.Done)
	done.Ended = now.Add(-2 * time.Hour)
	q.farm.Ended = []backends.Job{ended, done}
	return q
}

// answer is what a command line of ours printed.
type answer struct {
	code           int
	stdout, stderr string
}

// bob types a command line.
func bob(t *testing.T, q *fakeQueue, stdin string, words ...string) answer {
	t.Helper()
	var stdout, stderr bytes.Buffer
	s := site{
		stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr, env: []string{"A=1"},
		user: func() string { return "bob" }, host: func() string { return "login1" },
		now: func() time.Time { return now }, dir: func() (string, error) { return "/work", nil }, umask: func() uint32 { return 0o27 },
		open: func(context.Context, bool) (backends.Backend, error) { return q, nil },
		submit: func(ctx context.Context, b backends.Backend, specs []backends.Spec, _ io.Writer) []submission {
			var all []submission
			for i, r := range b.Submit(ctx, specs) {
				all = append(all, submission{r.ID, "normal", specs[i].Queue == "", r.Err})
			}
			return all
		},
		filter: func(_ context.Context, c backends.Change, _ io.Writer) (backends.Change, error) { return c, nil },
	}
	code := run(words, s)
	return answer{code, stdout.String(), stderr.String()}
}
