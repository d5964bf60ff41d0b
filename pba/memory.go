package pba

import (
	"context"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// MemoryLedger is a Ledger that keeps nothing but what the next cycle needs. The
// zero MemoryLedger is ready to use.
type MemoryLedger struct {
	Memory plan.Memory
	Cycles int64
}

// Load returns the memory that Intend stored last.
func (m *MemoryLedger) Load(context.Context) (plan.Memory, error) { return m.Memory, nil }

// Intend keeps the plan's memory.
func (m *MemoryLedger) Intend(_ context.Context, _ ledger.Cycle, p plan.Plan) (int64, error) {
	m.Memory = p.Memory
	m.Cycles++
	return m.Cycles, nil
}

// Outcome keeps when the last act was.
func (m *MemoryLedger) Outcome(_ context.Context, _ int64, outcomes []ledger.Outcome) error {
	for _, o := range outcomes {
		if o.Acted() {
			m.Memory.LastAction = latest(m.Memory.LastAction, o.At)
		}
	}
	return nil
}

// Finish does nothing.
func (m *MemoryLedger) Finish(context.Context, int64, time.Time, string) error { return nil }

// observed returns what observe mode remembers of a plan that is not carried out:
// pools and clocks as planned, so that a site sees what would happen and when;
// nothing of what would have been written or preempted.
func observed(was, planned plan.Memory) plan.Memory {
	is := planned
	is.Reclaims, is.NextID, is.Dummies, is.Trials = was.Reclaims, was.NextID, was.Dummies, was.Trials
	is.Jobs = make(map[backends.ID]plan.JobMemory, len(planned.Jobs))
	for id, j := range planned.Jobs {
		old := was.Jobs[id]
		j.Requeues, j.Expired, j.Backoff = old.Requeues, old.Expired, old.Backoff
		j.Grew, j.GrewAt = old.Grew, old.GrewAt
		j.Written, j.WrittenAt = old.Written, old.WrittenAt
		j.Reserved, j.ReservedUntil = slices.Clone(old.Reserved), old.ReservedUntil
		j.History = old.History
		is.Jobs[id] = j
	}
	return is
}
