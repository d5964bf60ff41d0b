package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
)

// drawSpread draws a few small hosts with jobs, and a beneficiary of some form.
func drawSpread(t *rapid.T, wide bool) (*farm, *job) {
	n := func(what string, least, most int) int { return rapid.IntRange(least, most).Draw(t, what) }
	snapshot := &backends.Snapshot{At: noon}
	for i := range n("hosts", 1, 4) {
		h := backends.Host{Name: fmt.Sprintf("n%d", i+1), Slots: n("host slots", 1, 5), Has: []backends.Amount{{Name: "gpu", Count: n("gpus", 0, 2)}}}
		h.Memory = int64(n("host memory", 0, 1) * h.Slots)
		snapshot.Hosts = append(snapshot.Hosts, h)
	}
	f := &farm{cycle: &cycle{state: State{Farm: snapshot}, now: noon}, occupancy: newOccupancy(snapshot, nil), shapes: map[shape]*choices{}}
	for i := range n("jobs", 0, 8) {
		bj := &backends.Job{ID: backends.ID{Job: int64(100 - i)}, State: backends.Running, Started: noon.Add(-time.Duration(i) * time.Minute), NoRequeue: n("spared", 0, 5) == 0}
		j := &job{Job: bj, State: backends.Running, worth: [5]int64{int64(i / 2)}, lost: float64(n("lost", 0, 3)), perSlot: int64(n("memory", 0, 1))}
		if n("suspends", 0, 4) == 0 {
			j.preempt = backends.PreemptSuspend
		}
		bj.Needs = []backends.Amount{{Name: "gpu", Count: n("holds", 0, 1)}}
		first := n("host", 0, len(f.hosts)-1)
		for k := range n("spans", 1, map[bool]int{false: 1, true: 2}[wide]) {
			h := f.hosts[(first+k)%len(f.hosts)]
			slots := min(h.free, n("slots", 1, 3))
			if slots <= 0 || k > 0 && len(f.hosts) == 1 || j.perSlot > 0 && h.Memory > 0 && h.freeMem < int64(slots) || !h.offers(h.freeHas, j) {
				continue
			}
			bj.Hosts = append(bj.Hosts, backends.Placement{Host: h.Name, Slots: slots})
			j.Slots += slots
		}
		if bj.Slots = j.Slots; j.Slots == 0 {
			continue
		}
		f.occupy(j, true)
		for _, p := range bj.Hosts {
			if h := f.byName[p.Host]; !bj.NoRequeue {
				b := books{farm: f}
				h.victims = append(h.victims, b.itemOn(h, j))
			}
		}
	}
	for _, h := range f.hosts {
		slices.SortFunc(h.victims, func(x, y item) int { return leastValued(x.job, y.job) })
	}
	unit := n("unit", 1, 2)
	bj := &backends.Job{ID: backends.ID{Job: 1}, State: backends.Pending, Slots: unit * n("units", 1, 5), Unit: unit, MinHosts: n("least", 0, 3)}
	switch n("form", 0, 3) {
	case 0:
		bj.MaxHosts = max(bj.MinHosts, 2)
	case 1:
		bj.PerHost, bj.MinHosts = unit*n("per host", 1, 2), 0
	case 2:
		bj.Exclusive = true
	}
	if n("gpu job", 0, 2) == 0 {
		bj.Needs = []backends.Amount{{Name: "gpu", Count: 1}}
	}
	b := &job{Job: bj, State: backends.Pending, Slots: bj.Slots, perSlot: int64(n("memory", 0, 1)), budget: 100}
	bj.Memory = b.perSlot * int64(b.Slots)
	return f, b
}

// lies reports whether a job's slots lie as it asks, on hosts that would have room for them
// without some jobs. It knows nothing of form.
func lies(f *farm, b *job, at []backends.Placement, gone []*job) bool {
	sum, fewer := 0, 0
	for i, p := range at {
		h := f.byName[p.Host]
		free, memory, gpus := h.Slots, h.Memory, h.Has[0].Count
		for _, j := range h.running {
			n := slotsOn(j, h.Name)
			leaves := slices.Contains(gone, j)
			if leaves && b.Exclusive && j.preempt == backends.PreemptSuspend {
				return false
			}
			if !leaves {
				free -= n
			}
			if !leaves || j.preempt == backends.PreemptSuspend {
				memory -= j.perSlot * int64(n)
				gpus -= j.Needs[0].Count
			}
		}
		if b.Exclusive && free < h.Slots || p.Slots > free || h.Memory > 0 && b.perSlot*int64(p.Slots) > memory || len(b.Needs) > 0 && gpus < 1 {
			return false
		}
		if p.Slots <= 0 || p.Slots%b.Unit != 0 || b.PerHost > 0 && p.Slots > b.PerHost {
			return false
		}
		if p.Slots < b.PerHost {
			if fewer++; i < len(at)-1 {
				fewer++
			}
		}
		sum += p.Slots
	}
	return sum == b.Slots && fewer <= 1 && len(at) >= max(b.MinHosts, 1) && (b.MaxHosts == 0 || len(at) <= b.MaxHosts) && (!b.OneHost || len(at) == 1)
}

// couldLie tries all placements.
func couldLie(f *farm, b *job, gone []*job) bool {
	var try func(hosts []*host, left int, at []backends.Placement) bool
	try = func(hosts []*host, left int, at []backends.Placement) bool {
		if left == 0 {
			sorted := slices.Clone(at)
			slices.SortStableFunc(sorted, func(x, y backends.Placement) int { return y.Slots - x.Slots })
			return lies(f, b, sorted, gone)
		}
		if len(hosts) == 0 {
			return false
		}
		for n := 0; n <= min(left, hosts[0].Slots); n++ {
			next := slices.Clone(at)
			if n > 0 {
				next = append(next, backends.Placement{Host: hosts[0].Name, Slots: n})
			}
			if try(hosts[1:], left-n, next) {
				return true
			}
		}
		return false
	}
	return try(f.hosts, b.Slots, nil)
}

// TestSpreadIsAsGoodAsBruteForce compares chooseSpread with all sets of victims (R17): as few
// slots as possible, then the most valued member, then their number, then the work lost.
func TestSpreadIsAsGoodAsBruteForce(t *testing.T) {
	for _, wide := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) {
			f, b := drawSpread(t, wide)
			var all []*job
			for _, h := range f.hosts {
				for _, it := range h.victims {
					all = append(all, it.job)
				}
			}
			slices.SortFunc(all, leastValued)
			all = slices.Compact(all)
			var best *candidate
			for mask := range 1 << len(all) {
				c := &candidate{}
				for i, j := range all {
					if mask>>i&1 == 1 {
						c.victims = append(c.victims, j)
						c.excess += j.Slots
						c.lost += j.lost
					}
				}
				if (best == nil || better(c, best) < 0) && couldLie(f, b, c.victims) {
					best = c
				}
			}
			if never := f.choicesFor(b).never; never != "" {
				if best != nil {
					t.Fatalf("%s; brute force %s", never, show(best))
				}
				return
			}
			s := serving{books: &books{farm: f}}
			if at := f.findFree(b); (at != nil) != (best != nil && len(best.victims) == 0) || at != nil && !lies(f, b, at, nil) {
				t.Fatalf("free slots at %v, brute force %v", at, best)
			} else if at != nil {
				return
			}
			got := s.chooseAnew(b)
			if (got == nil) != (best == nil) {
				t.Fatalf("found %v, brute force %v", got, best)
			}
			if best == nil {
				return
			}
			if !lies(f, b, got.hosts, got.victims) {
				t.Fatalf("%s: it can't run on %v; victims all %d best %s; %+v", show(got), got.hosts, len(all), show(best), b.form())
			}
			for i := range got.victims {
				if couldLie(f, b, slices.Delete(slices.Clone(got.victims), i, i+1)) {
					t.Fatalf("%s: %v is superfluous", show(got), got.victims[i].ID)
				}
			}
			if !wide && !f.choicesFor(b).plain() && (got.excess != best.excess || compareMostValued(got.victims, best.victims) != 0 || len(got.victims) != len(best.victims) || got.lost != best.lost) {
				t.Fatalf("chose %s, brute force %s", show(got), show(best))
			}
		})
	}
}
