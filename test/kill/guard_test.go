package kill

import (
	"context"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// guard counts the calls that an engine makes to its queue and its ledger, and kills its
// own process before or after one of them.
type guard struct {
	calls int
	at    int // 0: never
	after bool
}

func guardFromEnv() *guard {
	at, _ := strconv.Atoi(os.Getenv(envAt))
	return &guard{at: at, after: os.Getenv(envAfter) == "1"}
}

// call is around each call: defer g.call()().
func (g *guard) call() func() {
	g.calls++
	if g.calls != g.at {
		return func() {}
	}
	if !g.after {
		die()
	}
	return die
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // not one instruction more
}

// queue is the queue behind the guard.
type queue struct {
	backends.Backend
	g *guard
}

func (q queue) Snapshot(ctx context.Context, since time.Time) (*backends.Snapshot, error) {
	defer q.g.call()()
	return q.Backend.Snapshot(ctx, since)
}

func (q queue) Jobs(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	defer q.g.call()()
	return q.Backend.Jobs(ctx, ids)
}

func (q queue) Requeue(ctx context.Context, acts []backends.Act) backends.Errors {
	defer q.g.call()()
	return q.Backend.Requeue(ctx, acts)
}

func (q queue) Suspend(ctx context.Context, acts []backends.Act) backends.Errors {
	defer q.g.call()()
	return q.Backend.Suspend(ctx, acts)
}

func (q queue) Resume(ctx context.Context, ids []backends.ID) backends.Errors {
	defer q.g.call()()
	return q.Backend.Resume(ctx, ids)
}

func (q queue) SetPriority(ctx context.Context, rankings []backends.PriorityChange) backends.Errors {
	defer q.g.call()()
	return q.Backend.SetPriority(ctx, rankings)
}

// Abilities returns the queue's abilities, with guarded functions.
func (q queue) Abilities() backends.Abilities {
	able := q.Backend.Abilities()
	able.Pin = guarded(q.g, able.Pin)
	able.HoldUntil = guarded(q.g, able.HoldUntil)
	able.Reserve = guarded(q.g, able.Reserve)
	return able
}

func guarded[T any](g *guard, f func(context.Context, []T) backends.Errors) func(context.Context, []T) backends.Errors {
	return func(ctx context.Context, all []T) backends.Errors {
		defer g.call()()
		return f(ctx, all)
	}
}

// book is the ledger behind the guard.
type book struct {
	pba.Ledger
	g *guard
}

func (b book) Load(ctx context.Context) (plan.Memory, error) {
	defer b.g.call()()
	return b.Ledger.Load(ctx)
}

func (b book) Intend(ctx context.Context, c ledger.Cycle, p plan.Plan) (int64, error) {
	defer b.g.call()()
	return b.Ledger.Intend(ctx, c, p)
}

func (b book) Outcome(ctx context.Context, cycle int64, outcomes []ledger.Outcome) error {
	defer b.g.call()()
	return b.Ledger.Outcome(ctx, cycle, outcomes)
}

func (b book) Finish(ctx context.Context, cycle int64, at time.Time, note string) error {
	defer b.g.call()()
	return b.Ledger.Finish(ctx, cycle, at, note)
}
