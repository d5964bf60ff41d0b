package plan

import (
	"math"

	"github.com/allotment-hpc/allotment/backends"
)

// occupancy is what is free on the managed hosts that are up. The jobs of the farm occupy
// their hosts once; after that only vacate, nominate and withdraw change it, as this plan
// assigns slots.
type occupancy struct {
	hosts      []*host          // by name; a host's at is its index
	byName     map[string]*host // the same
	slots      int              // of hosts
	down       int              // slots of managed hosts that are not up
	leastShare int64            // bytes that go with a slot, on the host where that is least

	// Changes in order, for choices, which keep data for each host. They read on from
	// where they stopped, so these only grow, by recordChange and recordFreed alone.
	changed []*host // what could be preempted there, or what is free, changed
	freed   []*host // of changed: where something came free
}

// host is a managed host that is up. Its slots are, at any time, those of the jobs that
// occupy it, nominated ones, aside, soft and free. Free is negative where more slots are
// nominated than there are.
type host struct {
	backends.Host
	at      int
	part    *part // nil: there are no host sets
	free    int   // slots
	freeMem int64 // bytes; only meaningful if Memory > 0
	stuck   int64 // bytes of suspended jobs, which no reclaim frees; part of what is occupied
	aside   int   // slots set aside for jobs that reserve this host: for no other job in this plan
	soft    int   // slots tentatively reserved; earlier beneficiaries may take them
	softMem int64 // bytes that go with soft
	asleep  int   // suspended jobs

	// Of each resource of Has, in that order: as free, stuck and soft.
	freeHas, stuckHas, softHas []int

	version int // grows with each entry in changed; from 1 on
	running []*job
	victims []item // of running: those that may be preempted now; in order from leastFirst on
	sorted  bool
}

func newOccupancy(farm *backends.Snapshot, managed []string) occupancy {
	hosts, slots, down := farm.Managed(managed)
	o := occupancy{byName: make(map[string]*host, len(hosts)), slots: slots, down: down, leastShare: math.MaxInt64}
	for i, h := range hosts {
		mine := emptyHost(h)
		mine.at = i
		if h.Memory > 0 && h.Slots > 0 {
			o.leastShare = min(o.leastShare, h.Memory/int64(h.Slots))
		}
		o.hosts = append(o.hosts, mine)
		o.byName[h.Name] = mine
	}
	return o
}

// emptyHost returns a host where no job runs.
func emptyHost(of backends.Host) *host {
	h := &host{Host: of, free: of.Slots, freeMem: of.Memory, version: 1}
	if n := len(of.Has); n > 0 {
		h.freeHas, h.stuckHas, h.softHas = make([]int, n), make([]int, n), make([]int, n)
		for i, a := range of.Has {
			h.freeHas[i] = a.Count
		}
	}
	return h
}

// occupy subtracts a job's slots, memory and resources from its hosts' free ones.
// Suspension frees slots where the queue says so, and never memory or resources.
func (o *occupancy) occupy(j *job, suspendFrees bool) {
	slotsToo := j.State == backends.Running || j.State == backends.Suspended && !suspendFrees
	if !slotsToo && j.State != backends.Suspended {
		return
	}
	for _, p := range j.Hosts {
		h := o.byName[p.Host]
		if h == nil {
			continue
		}
		if slotsToo {
			h.free -= h.slotsFor(j, p)
		}
		if j.State == backends.Running {
			h.running = append(h.running, j)
		}
		h.freeMem -= j.perSlot * int64(p.Slots)
		h.addNeeds(h.freeHas, j, -1)
		if j.State == backends.Suspended {
			h.asleep++
			h.stuck += j.perSlot * int64(p.Slots)
			h.addNeeds(h.stuckHas, j, 1)
		}
	}
}

// vacate counts as free the slots, memory and resources of a job that is about to leave
// its hosts.
func (o *occupancy) vacate(j *job) {
	for _, p := range j.Hosts {
		if h := o.byName[p.Host]; h != nil {
			h.leave(j, p, j.Ending || j.preempt != backends.PreemptSuspend)
			o.recordFreed(h)
		}
	}
}

// leave counts as free what a job has on a host: its slots, and the rest if its run ends.
func (h *host) leave(j *job, p backends.Placement, ends bool) {
	h.free += h.slotsFor(j, p)
	if ends {
		h.freeMem += j.perSlot * int64(p.Slots)
		h.addNeeds(h.freeHas, j, 1)
	}
}

// nominate subtracts slots, with what goes with them, from the free ones, for a job that
// is about to start in them.
func (o *occupancy) nominate(j *job, at []backends.Placement) {
	for _, p := range at {
		h := o.byName[p.Host]
		h.assign(j, p, h.slotsFor(j, p))
		o.recordChange(h)
	}
}

// withdraw undoes nominate.
func (o *occupancy) withdraw(j *job, at []backends.Placement) {
	for _, p := range at {
		h := o.byName[p.Host]
		h.unassign(j, p, h.slotsFor(j, p))
		o.recordFreed(h)
	}
}

func (h *host) assign(j *job, p backends.Placement, slots int) {
	h.free -= slots
	h.freeMem -= j.memoryFor(p)
	if j.State != backends.Suspended { // which holds its resources already
		h.addNeeds(h.freeHas, j, -1)
	}
}

func (h *host) unassign(j *job, p backends.Placement, slots int) {
	h.free += slots
	h.freeMem += j.memoryFor(p)
	if j.State != backends.Suspended {
		h.addNeeds(h.freeHas, j, 1)
	}
}

// slotsFor returns how many slots of a host a job makes use of: an exclusive one keeps
// others from all of them.
func (h *host) slotsFor(j *job, p backends.Placement) int {
	if j.Exclusive {
		return h.Slots
	}
	return p.Slots
}

// recordChange records that what is free, or could be preempted, changed on a host.
func (o *occupancy) recordChange(h *host) {
	h.version++
	o.changed = append(o.changed, h)
}

// recordFreed records that something came free on a host.
func (o *occupancy) recordFreed(h *host) {
	o.freed = append(o.freed, h)
	o.recordChange(h)
}

// memoryFor returns the bytes that a job takes of a host's free memory with these slots.
// A suspended job holds its memory already.
func (j *job) memoryFor(p backends.Placement) int64 {
	if j.State == backends.Suspended {
		return 0
	}
	return j.perSlot * int64(p.Slots)
}

// yielding returns the host as it would be without the slots that are tentatively
// reserved.
func (h *host) yielding() *host {
	if h.soft == 0 {
		return h
	}
	after := *h
	after.free += h.soft
	after.freeMem += h.softMem
	after.freeHas = plus(h.freeHas, h.softHas)
	return &after
}

// fits returns how many of a job's slots a host has free, memory included.
func (h *host) fits(j *job) int {
	n := max(h.free, 0)
	if j.Exclusive && h.free < h.Slots {
		return 0
	}
	if m := j.perSlot; m > 0 && h.Memory > 0 && j.State != backends.Suspended {
		n = min(n, int(max(h.freeMem, 0)/m))
	}
	if len(j.Needs) > 0 && j.State != backends.Suspended && !h.offers(h.freeHas, j) {
		return 0
	}
	return n
}

// couldOffer returns how many of a job's slots a host would have if no job ran there.
func (h *host) couldOffer(j *job) int {
	n := h.Slots
	if m := j.perSlot; m > 0 && h.Memory > 0 {
		n = min(n, int(max(h.Memory-h.stuck, 0)/m))
	}
	if len(j.Needs) > 0 && !h.offers(h.freeableHas(), j) || j.Exclusive && h.asleep > 0 {
		return 0
	}
	return n
}

// contested reports whether another job could take the slots preempted on a host: a job
// that reserves the host starts in what is free there, and where more slots are nominated
// than are free, those jobs come first.
func (h *host) contested() bool { return h.aside > 0 || h.free < 0 }
