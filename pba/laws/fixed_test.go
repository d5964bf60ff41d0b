package laws

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// The law of jobs that can't be preempted (R22), on farms of their own: many jobs are of
// that kind, and the submit filter holds them. The tests of four other laws run on these
// farms, too: see obeyedOnOthers.

// Jobs of no pool that can't be preempted are released as far as their share has room, one
// user's as far as half of it has.
func TestLawShareOfFixedJobsHolds(t *testing.T) { obeyedBy(t, allFixed(), fixedFarms(), lawShare) }

// TestLawsOfFixedFarmsWerePutToTheTest checks that enough farms could have broken the laws.
func TestLawsOfFixedFarmsWerePutToTheTest(t *testing.T) {
	checkShares(t, allFixed(), map[share]float64{waited: 50})
}

// fixedShare is the share of these farms that jobs that can't be preempted may hold.
const fixedShare = 0.3

// fixedFarms draws farms as they are drawn for the other laws. Half of the jobs of those
// that can be preempted can't be.
func fixedFarms() *rapid.Generator[farm] {
	base := farms()
	return rapid.Custom(func(t *rapid.T) farm {
		f := base.Draw(t, "farm")
		f.Fixed, f.Considers, f.Forms, f.Outages = true, considersNever, false, nil
		f.HoldLimit = max(f.HoldLimit, 300) // it outlasts cycles that are missed
		for i := range f.Jobs {
			j := &f.Jobs[i]
			if j.Hold = false; rapid.Bool().Draw(t, "not to be requeued") {
				j.NoRequeue, j.Suspend = true, false
			}
		}
		return f
	})
}

// cantPreempt reports whether a job of these farms can't be preempted once it runs.
func (j *jobCase) cantPreempt() bool {
	return j.Interactive || j.Exclusive || j.NoRequeue && !j.Suspend
}

// heldFixed sets the submit filter's hold of a job that can't be preempted.
func (d *drive) heldFixed(s *backends.Spec, j *jobCase) {
	if d.Fixed && j.cantPreempt() {
		s.HeldUntil = d.world.Now().Add(seconds(d.HoldLimit)).Truncate(time.Second)
		s.Description = backends.Tag{Held: s.HeldUntil.Unix(), Fixed: true}.String()
	}
}

// judgeFixed adds up, from the queue's own jobs, what jobs of no pool that can't be preempted
// hold, and what the plan adds to it.
func (d *drive) judgeFixed(farm *backends.Snapshot, p *plan.Plan) {
	slots, held, by := 0, 0, map[string]int{}
	for _, h := range farm.Hosts {
		slots += h.Slots
	}
	most := max(1, int(fixedShare*float64(slots)))
	jobs := map[backends.ID]*backends.Job{}
	counts := func(j *backends.Job) bool {
		m := p.Memory.Jobs[j.ID]
		return (j.Interactive || j.Exclusive || j.NoRequeue && !suspends(j)) && (m.Pool == 0 || m.Kept > 0)
	}
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		jobs[j.ID] = j
		if counts(j) && (j.State == backends.Running || j.State == backends.Suspended || j.State == backends.Pending && j.HeldUntil.IsZero()) {
			held += j.Slots
			by[j.User] += j.Slots
		}
	}
	for _, a := range p.Actions {
		j := jobs[a.Job]
		if j == nil || j.State != backends.Pending || !counts(j) {
			continue
		}
		switch a.Verb {
		case plan.Hold:
			d.met[waited] = true
			if j.HeldUntil.IsZero() {
				held -= j.Slots
				by[j.User] -= j.Slots
			}
		case plan.Release:
			if held > 0 && held+j.Slots > most {
				d.breach(lawShare, "job %v of %d slots is released, and such jobs hold %d of %d", j.ID, j.Slots, held, most)
			}
			if by[j.User] > 0 && by[j.User]+j.Slots > max(1, most/2) {
				d.breach(lawShare, "job %v of %d slots is released, and %s holds %d of half of %d", j.ID, j.Slots, j.User, by[j.User], most)
			}
			held += j.Slots
			by[j.User] += j.Slots
		}
	}
}

func suspends(j *backends.Job) bool {
	tag, _, err := backends.ParseTag(j.Tag)
	return err == nil && tag.Preempt == backends.PreemptSuspend
}
