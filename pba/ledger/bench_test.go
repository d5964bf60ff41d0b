package ledger

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// BenchmarkCycle is what the ledger costs a cycle that remembers 2,000 jobs, of
// which the clocks of 50 went on, and does 10 things.
func BenchmarkCycle(b *testing.B) {
	l, err := Create(filepath.Join(b.TempDir(), "ledger.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	ctx := context.Background()
	m := plan.Memory{Jobs: map[backends.ID]plan.JobMemory{}}
	for i := range 2000 {
		m.Jobs[job(i+1)] = plan.JobMemory{Pool: 1, Entered: at(0), WrittenAt: at(0), History: []plan.Point{{At: at(0), Priority: 5120, Why: "it entered chipA"}}}
	}
	p := plan.Plan{Memory: m, Actions: make([]plan.Action, 10)}
	for b.Loop() {
		was, err := l.Load(ctx)
		if err != nil {
			b.Fatal(err)
		}
		p.Memory = was
		p.Memory.Jobs = map[backends.ID]plan.JobMemory{}
		for id, j := range m.Jobs {
			if id.Job <= 50 {
				j.Clock += time.Second
				m.Jobs[id] = j
			}
			p.Memory.Jobs[id] = j
		}
		id, err := l.Intend(ctx, Cycle{Mode: Live}, p)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Outcome(ctx, id, []Outcome{{Action: 1, Result: Done, At: at(1)}}); err != nil {
			b.Fatal(err)
		}
		if err := l.Finish(ctx, id, at(2), ""); err != nil {
			b.Fatal(err)
		}
	}
}
