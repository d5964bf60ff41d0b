package plan

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// SLA is what a pool's slots are guaranteed for (R26).
type SLA string

// The kinds of SLA. Velocity, the default, is all slots at any time; throughput
// is a number of jobs in the week, for which fewer slots may do.
const (
	Velocity   SLA = "velocity"
	Throughput SLA = "throughput"
)

// ThroughputMemory is what is remembered of a throughput pool's week.
type ThroughputMemory struct {
	Week        time.Time // that it counts, by its begin
	Finished    int       // jobs that ended in it
	SlotSeconds float64   // that they took
	Guarantee   int       // as of the last cycle
	Fell        time.Time // when it fell last
}

const (
	throughputSample = 30   // jobs that must have finished before a mean means anything
	throughputMargin = 0.95 // of the remaining time is counted on
	throughputStep   = time.Hour
)

// throughput returns a pool's guarantee for now (R26): until 30 jobs have finished all
// slots; then what the remaining jobs need at the mean of those so far, at most
// the slots. It rises at once, falls at most hourly, and never below what runs.
func (f *farm) throughput(a Allocation) int {
	m := f.state.Memory.Throughput[a.ID]
	if !m.Week.Equal(a.Begin) {
		m = ThroughputMemory{Week: a.Begin, Guarantee: a.Guarantee}
	}
	running, elapsed := f.chargedTo(a.ID)
	need := needed(a, m, running, elapsed, f.now)
	f.undone[a.ID] = undone(a, m, running, elapsed, f.now)
	next := min(max(need, running.slots), a.Guarantee)
	if next < m.Guarantee {
		if f.now.Sub(m.Fell) < throughputStep {
			next = min(m.Guarantee, a.Guarantee)
		} else {
			m.Fell = f.now
		}
	}
	m.Guarantee = next
	f.throughputs[a.ID] = m
	return next
}

type runs struct{ jobs, slots int }

// chargedTo adds up what runs on a pool's charge, and its slot-seconds so far.
func (f *farm) chargedTo(id int64) (runs, float64) {
	var r runs
	elapsed := 0.0
	for i := range f.state.Farm.Jobs {
		j := &f.state.Farm.Jobs[i]
		if j.State != backends.Running || f.state.Memory.Jobs[j.ID].Pool != id {
			continue
		}
		r.jobs++
		r.slots += j.Slots
		elapsed += float64(j.Slots) * (j.RanFor + f.now.Sub(j.Started)).Seconds()
	}
	return r, elapsed
}

// needed returns the slots that a throughput pool's remaining jobs need: remaining
// jobs × mean slot-seconds / 95 % of the remaining time. Running jobs count into the
// mean where they raise it: else long jobs, which end last, would be left out of it.
func needed(a Allocation, m ThroughputMemory, running runs, elapsed float64, now time.Time) int {
	left := a.Jobs - m.Finished
	switch {
	case m.Finished < throughputSample:
		return a.Guarantee
	case left <= 0:
		return 0
	}
	mean := meanOf(m, running, elapsed)
	seconds := throughputMargin * a.End.Sub(now).Seconds()
	if seconds <= 0 {
		return a.Guarantee
	}
	return int(math.Ceil(min(float64(left)*mean/seconds, float64(a.Guarantee))))
}

// meanOf returns the slot-seconds of a job, of which some must have finished.
func meanOf(m ThroughputMemory, running runs, elapsed float64) float64 {
	return max(m.SlotSeconds/float64(m.Finished), (m.SlotSeconds+elapsed)/float64(m.Finished+running.jobs))
}

// undone returns the number of a throughput pool's jobs that can't be done in the week any more
// if each takes the mean slot-seconds: all of the pool's slots for all of the remaining time are
// not enough for them. 0 until 30 jobs have finished: no mean is known.
func undone(a Allocation, m ThroughputMemory, running runs, elapsed float64, now time.Time) int {
	left := a.Jobs - m.Finished
	if m.Finished < throughputSample || left <= 0 {
		return 0
	}
	mean := meanOf(m, running, elapsed)
	if mean <= 0 {
		return 0
	}
	can := (float64(a.Guarantee)*max(0, a.End.Sub(now).Seconds()) + elapsed) / mean
	return left - int(math.Ceil(min(can, float64(left))))
}

// finish counts an ended job into its pool's week.
func (f *farm) finish(p *pool, j *backends.Job) {
	m, ok := f.throughputs[p.ID]
	if !ok || j.Ended.Before(m.Week) {
		return
	}
	m.Finished++
	m.SlotSeconds += float64(j.Slots) * (j.RanFor + j.Ended.Sub(j.Started)).Seconds()
	f.throughputs[p.ID] = m
}

// spareLowered spares the surplus of pools that were lowered in mid-week, for
// lowered_grace (R25): as many slots as were taken off, of the running jobs that
// they had charged or would have, those that started first.
func (f *farm) spareLowered() map[backends.ID]string {
	spared := map[backends.ID]string{}
	for _, p := range f.pools {
		age := f.now.Sub(p.LoweredAt)
		if p.Lowered <= 0 || p.LoweredAt.IsZero() || age < 0 || age >= f.policy.LoweredGrace {
			continue
		}
		var surplus []*job
		for _, j := range f.running {
			if j.pool == nil && spared[j.ID] == "" && j.Started.Before(p.LoweredAt) && j.matches(p) && f.on(p, j.Hosts) {
				surplus = append(surplus, j)
			}
		}
		slices.SortFunc(surplus, byStart)
		left := p.Lowered
		for _, j := range surplus {
			if j.Slots > left {
				continue
			}
			left -= j.Slots
			spared[j.ID] = fmt.Sprintf("its pool was lowered %s ago (lowered_grace %s)", age.Round(time.Minute), f.policy.LoweredGrace)
		}
	}
	return spared
}
