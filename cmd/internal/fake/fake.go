// Package fake is a queue in memory, for the tests of commands.
package fake

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Now is the time in this queue.
func Now() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// Queue is a queue in memory that does as it is asked and records it.
type Queue struct {
	backends.Backend // what is not used here panics
	Content          backends.Snapshot
	Extra            backends.Abilities    // beside those that it always has
	Fail             map[backends.ID]error // what is done to a job
	Down             error                 // everything
	Calls            []string              // what was done, and to which job
	Submitted        []backends.Spec
}

// Close does nothing.
func (q *Queue) Close() error { return nil }

// Abilities are few.
func (q *Queue) Abilities() backends.Abilities {
	abilities := q.Extra
	abilities.SuspendFrees = true
	return abilities
}

// Snapshot is what the queue has.
func (q *Queue) Snapshot(_ context.Context, since time.Time) (*backends.Snapshot, error) {
	f := backends.Snapshot{At: Now(), Hosts: q.Content.Hosts, Jobs: slices.Clone(q.Content.Jobs)}
	for _, j := range q.Content.Ended {
		if !j.Ended.Before(since) {
			f.Ended = append(f.Ended, j)
		}
	}
	return &f, q.Down
}

// Jobs are those of the farm.
func (q *Queue) Jobs(_ context.Context, ids []backends.ID) ([]backends.Job, error) {
	var found []backends.Job
	for _, id := range ids {
		for _, j := range slices.Concat(q.Content.Jobs, q.Content.Ended) {
			if j.ID == id || id.Index == 0 && j.ID.Job == id.Job {
				found = append(found, j)
			}
		}
	}
	return found, q.Down
}

// Submit takes jobs; none of them shows.
func (q *Queue) Submit(_ context.Context, specs []backends.Spec) []backends.Submitted {
	q.Submitted = append(q.Submitted, specs...)
	return []backends.Submitted{{ID: backends.ID{Job: 99}, Err: q.Down}}
}

func (q *Queue) record(verb string, ids []backends.ID) backends.Errors {
	errs := make(backends.Errors, len(ids))
	for i, id := range ids {
		q.Calls = append(q.Calls, fmt.Sprintf("%s %s", verb, id))
		errs[i] = q.Fail[id]
	}
	return errs
}

func actIDs(acts []backends.Act) []backends.ID {
	ids := make([]backends.ID, len(acts))
	for i := range acts {
		ids[i] = acts[i].ID
	}
	return ids
}

// Kill writes down that it was called.
func (q *Queue) Kill(_ context.Context, ids []backends.ID) backends.Errors {
	return q.record("kill", ids)
}

// Hold does so, too.
func (q *Queue) Hold(_ context.Context, ids []backends.ID) backends.Errors {
	return q.record("hold", ids)
}

// Release does so, too.
func (q *Queue) Release(_ context.Context, ids []backends.ID) backends.Errors {
	return q.record("release", ids)
}

// Resume does so, too.
func (q *Queue) Resume(_ context.Context, ids []backends.ID) backends.Errors {
	return q.record("resume", ids)
}

// Suspend does so, too.
func (q *Queue) Suspend(_ context.Context, acts []backends.Act) backends.Errors {
	return q.record("suspend", actIDs(acts))
}

// Requeue does so, too.
func (q *Queue) Requeue(_ context.Context, acts []backends.Act) backends.Errors {
	return q.record("requeue", actIDs(acts))
}

// Reopen does so, too. It is for Extra.
func (q *Queue) Reopen(_ context.Context, ids []backends.ID) backends.Errors {
	return q.record("reopen", ids)
}

// KillNow does so, too. It is for Extra.
func (q *Queue) KillNow(_ context.Context, ids []backends.ID) backends.Errors {
	return q.record("kill now", ids)
}

// InGroup is for Extra, as the bundled queue has it.
func InGroup(_ context.Context, group string) (func(*backends.Job) bool, error) {
	return func(j *backends.Job) bool { return j.Group == group }, nil
}

// OfProfile is for Extra: jobs by the name wait have the profile solver.
func OfProfile(_ context.Context, profile string) (func(*backends.Job) bool, error) {
	return func(j *backends.Job) bool { return profile == "solver" && j.Name == "wait" }, nil
}

// NewQueue is a queue with jobs in every state, of bob and of alice.
func NewQueue() *Queue {
	job := func(id int64, index int, user, name string, state backends.State) backends.Job {
		j := backends.Job{
			ID: backends.ID{Job: id, Index: index}, User: user, Name: name, Project: "chipA", Step: "synthesis", Queue: "normal",
			State: state, Priority: backends.At(backends.LevelNormal, 20), Slots: 1, Submitted: Now().Add(-time.Hour),
		}
		if state == backends.Running || state == backends.Suspended {
			j.Hosts, j.Started = []backends.Placement{{Host: "n1", Slots: 1}}, Now().Add(-time.Minute)
		}
		if state.Ended() {
			j.Started, j.Ended = Now().Add(-time.Minute), Now().Add(-time.Second)
		}
		return j
	}
	q := &Queue{Fail: map[backends.ID]error{}}
	q.Content.Hosts = []backends.Host{{Name: "n1", Slots: 4, Memory: 1 << 30}, {Name: "n2", Slots: 4, State: backends.HostDown}}
	q.Content.Jobs = []backends.Job{
		job(1, 0, "bob", "run", backends.Running),
		job(2, 0, "bob", "wait", backends.Pending),
		job(3, 0, "bob", "stop", backends.Suspended),
		job(4, 0, "bob", "held", backends.Held),
		job(5, 1, "bob", "arr", backends.Running),
		job(5, 2, "bob", "arr", backends.Pending),
		job(6, 0, "alice", "hers", backends.Running),
		job(7, 0, "bob", "urgent", backends.Pending),
	}
	q.Content.Jobs[7].Priority = backends.At(backends.LevelPBA, 120)
	ended := job(8, 0, "bob", "ended", backends.Exited)
	ended.ExitCode = 3
	done := job(5, 3, "bob", "arr", backends.Done)
	done.Ended = Now().Add(-2 * time.Hour)
	q.Content.Ended = []backends.Job{ended, done}
	return q
}
