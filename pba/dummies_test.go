package pba

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// dummyQueue is a queue that accepts dummy jobs, and fails what a test wants it to.
type dummyQueue struct {
	backends.Backend
	calls []string
	fail  map[string]error // by host, or by ID
}

func (q *dummyQueue) Abilities() backends.Abilities {
	return backends.Abilities{ForEngine: backends.ForEngine{
		Place: func(_ context.Context, dummies []backends.Dummy) []backends.Submitted {
			all := make([]backends.Submitted, len(dummies))
			for i, d := range dummies {
				q.calls = append(q.calls, fmt.Sprintf("place for %v on %s at %d for %v", d.For, d.Host, d.Priority, d.Limit))
				all[i].Err = q.fail[d.Host]
			}
			return all
		},
		Pin: func(_ context.Context, pins []backends.Pin) backends.Errors {
			q.calls = append(q.calls, fmt.Sprintf("pin %v", pins[0].ID))
			return backends.Errors{q.fail[pins[0].ID.String()]}
		},
		HoldUntil: func(_ context.Context, holds []backends.HoldUntil) backends.Errors {
			for _, h := range holds {
				q.calls = append(q.calls, fmt.Sprintf("release %v", h.ID))
			}
			return make(backends.Errors, len(holds))
		},
	}}
}

func (q *dummyQueue) Kill(_ context.Context, ids []backends.ID) backends.Errors {
	errs := make(backends.Errors, len(ids))
	for i, id := range ids {
		q.calls = append(q.calls, fmt.Sprintf("kill %v", id))
		errs[i] = q.fail[id.String()]
	}
	return errs
}

// applyActions carries out actions on a farm where jobs 11 to 19 are dummy jobs of job 1.
func applyActions(t *testing.T, q *dummyQueue, actions ...plan.Action) []ledger.Outcome {
	t.Helper()
	farm := &backends.Snapshot{}
	for n := range int64(9) {
		farm.Jobs = append(farm.Jobs, backends.Job{ID: id(11 + n), DummyFor: id(1)})
	}
	p := &plan.Plan{Actions: actions}
	a := applier{e: &Engine{Backend: q, Ledger: &MemoryLedger{}}, ctx: t.Context(), plan: p, farm: farm, queueTime: time.Now}
	if err := a.run(); err != nil {
		t.Fatal(err)
	}
	for i := range a.outcomes {
		a.outcomes[i].At = time.Time{}
	}
	return a.outcomes
}

func id(n int64) backends.ID { return backends.ID{Job: n} }

var errRefused = errors.New("refused")

func TestDummyJobsArePlacedAndEnded(t *testing.T) { // R29, R31
	placeAction := func(job int64, host string, n int) plan.Action {
		return plan.Action{Verb: plan.Place, Job: id(job), Hosts: []string{host}, Slots: []int{n}, Priority: 7, Limit: time.Hour}
	}
	dropAction := func(dummies ...backends.ID) plan.Action {
		return plan.Action{Verb: plan.Drop, Job: id(1), Dummies: dummies}
	}
	for name, x := range map[string]struct {
		actions  []plan.Action
		fail     map[string]error
		calls    []string
		outcomes []ledger.Outcome
	}{
		"several jobs' go in one call": {
			[]plan.Action{placeAction(1, "n1", 2), placeAction(2, "n2", 1)},
			nil,
			[]string{"place for 1 on n1 at 7 for 1h0m0s", "place for 1 on n1 at 7 for 1h0m0s", "place for 2 on n2 at 7 for 1h0m0s"},
			[]ledger.Outcome{{Action: 0, Result: ledger.Done}, {Action: 1, Result: ledger.Done}},
		},
		"a refusal is reported for its own job": {
			[]plan.Action{placeAction(1, "n1", 2), placeAction(2, "n2", 1)},
			map[string]error{"n1": errRefused},
			[]string{"place for 1 on n1 at 7 for 1h0m0s", "place for 1 on n1 at 7 for 1h0m0s", "place for 2 on n2 at 7 for 1h0m0s"},
			[]ledger.Outcome{{Action: 0, Result: ledger.Failed, Error: "2 of 2 dummy jobs were not placed: refused"}, {Action: 1, Result: ledger.Done}},
		},
		"one that ended by itself is no failure": {
			[]plan.Action{dropAction(id(11), id(12))},
			map[string]error{"11": backends.ErrWrongState},
			[]string{"kill 11", "kill 12"},
			[]ledger.Outcome{{Action: 0, Result: ledger.Done}},
		},
		"what is no dummy job is left alone": {
			[]plan.Action{dropAction(id(11), id(3))},
			nil,
			[]string{"kill 11"},
			[]ledger.Outcome{{Action: 0, Result: ledger.Failed, Error: "1 of 2 dummy jobs were not ended: it is no dummy job"}},
		},
		"a job that was not pinned is not released": {
			[]plan.Action{
				{Verb: plan.PinTo, Job: id(1), Hosts: []string{"n1"}},
				{Verb: plan.Release, Job: id(2)},
				{Verb: plan.Release, Job: id(1)},
				{Verb: plan.Release, Job: id(3)},
			},
			map[string]error{"1": errRefused},
			[]string{"pin 1", "release 2", "release 3"},
			[]ledger.Outcome{
				{Action: 0, Result: ledger.Failed, Error: "refused"},
				{Action: 1, Result: ledger.Done},
				{Action: 2, Result: ledger.LeftOut, Error: "it was not pinned: refused"},
				{Action: 3, Result: ledger.Done},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := &dummyQueue{fail: x.fail}
			got := applyActions(t, q, x.actions...)
			if d := cmp.Diff(x.outcomes, got); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(x.calls, q.calls); d != "" {
				t.Error(d)
			}
		})
	}
}
