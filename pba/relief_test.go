package pba_test

import (
	"context"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// R47: a job that had more memory than it asked for leaves the host that asks for that, asks for more, and starts
// again. A plea that is repeated while it waits, and one of a job within its request, do nothing. An engine that died
// between the two acts lost nothing: another one goes on by what the ledger has.
func TestLifeRelieved(t *testing.T) {
	l := newLife(t)
	l.engine.Pleas = l.ledger.Pleas
	hog := l.submit("bob", "B", backends.Spec{Memory: 1 << 30}, simulate.Work{Takes: time.Hour})
	other := l.submit("bob", "B", backends.Spec{Memory: 12 << 30}, simulate.Work{Takes: time.Hour})
	l.run(2 * time.Minute)
	ask := func() {
		err := l.ledger.SetPleas(context.Background(), "n1", l.world.Now(), []plan.Plea{
			{Job: hog, Verb: plan.Requeue, Used: 3 << 30, Frozen: 4 * time.Second},
			{Job: other, Verb: plan.Requeue, Used: 12 << 30, Frozen: 4 * time.Second},
		})
		if err != nil {
			t.Fatal(err)
		}
		l.logf("n1 asks to requeue jobs %v and %v", hog, other)
	}
	ask()
	l.run(20 * time.Second)
	if j := l.job(hog); j.Mark != plan.ReliefMark || j.HeldUntil.IsZero() || j.Memory != 1<<30 {
		t.Errorf("after the first cycle: %+v", j)
	}
	ask()
	l.run(time.Minute)
	if j := l.job(hog); j.State != backends.Running || j.Requeues != 1 || j.Memory != 3840<<20 {
		t.Errorf("in the end: %+v", j)
	}
	l.run(time.Minute)
	if m, err := l.ledger.Load(context.Background()); err != nil || m.Jobs[hog].Grew != 0 {
		t.Errorf("it is remembered: %+v, %v", m.Jobs[hog], err)
	}
	if all, err := l.ledger.Pleas(context.Background(), l.world.Now()); err != nil || len(all) != 0 {
		t.Errorf("an old plea counts: %+v, %v", all, err)
	}
	l.finish()
	l.golden("relieved")
}
