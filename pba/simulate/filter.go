package simulate

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// publish updates the submit filter with the pools and their standing.
func (d *driver) publish(_ context.Context, s ledger.Standing) error {
	if !d.acts() {
		return nil
	}
	allocations, _ := d.calendar.inForce(s.At)
	return d.filter.update(d, allocations, s)
}

// filter is the submit filter, with its snapshot in memory.
type filter struct {
	allocations []plan.Allocation // of the snapshot
	snapshot    []byte
	reader      *esub.Reader
	standing    esub.Standing
	generation  esub.Generation
}

// update writes snapshot and generation anew where they changed.
func (f *filter) update(d *driver, allocations []plan.Allocation, s ledger.Standing) error {
	changed := f.reader == nil || !slices.Equal(allocations, f.allocations)
	if changed {
		rules, err := d.rules(d.ctx, s.At)
		if err != nil {
			return err
		}
		policy := pba.FilterPolicy(rules.Policy, d.Filter, nil)
		for i := range policy.Projects {
			policy.Projects[i].Mark = rules.Policy.Marks(policy.Projects[i].Name)
		}
		f.snapshot = esub.Encode(policy)
		f.allocations = allocations
		if f.reader, err = esub.Open(bytes.NewReader(f.snapshot), int64(len(f.snapshot))); err != nil {
			return err
		}
	}
	if !changed && f.standing.LowerUnpreemptable == s.LowerUnpreemptable && f.standing.FixedShare == s.FixedShare && maps.Equal(f.standing.Below, s.Below) {
		return nil
	}
	f.standing = s.Standing
	encoded, err := esub.EncodeGeneration(f.snapshot, f.standing)
	if err != nil {
		return err
	}
	f.generation, err = esub.OpenGeneration(encoded)
	return err
}

// decide runs the filter on a job, and reports whether it leaves a mark. The engine is alive,
// even where its cycles are skipped.
func (f *filter) decide(a *arrival, spec *backends.Spec) (marks bool, err error) {
	if f.reader == nil {
		return false, nil // before the first cycle
	}
	req := esub.Request{User: a.user, UID: esub.Unknown, Project: spec.Project, Slots: a.slots, Memory: a.memory}
	if a.suspend {
		req.Preempt = backends.PreemptSuspend.String()
	}
	decision, err := esub.Decide(req, f.reader, f.generation, f.generation.At)
	if err != nil {
		return false, err
	}
	if decision.Priority != 0 {
		spec.Priority = decision.Priority
	}
	spec.Queue = decision.Queue
	spec.Description = decision.Description()
	return decision.Mark, nil
}
