package laws

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// The laws of dummy jobs (R28–R31), on farms of their own: their queue gives out slots
// and does not manage memory.

// The memory that a host's running jobs ask for fits it at every moment: so no two heavy
// jobs share a host that can't hold both.
func TestHeavyLawMemoryFits(t *testing.T) { obeyedBy(t, allHeavy(), heavyFarms(), lawMemory) }

// Every heavy job runs in the end, engine alive or not.
func TestHeavyLawHeavyJobsRun(t *testing.T) { obeyedBy(t, allHeavy(), heavyFarms(), lawFlow) }

// A dummy job is gone a cycle after its job, and none is left at the end.
func TestHeavyLawNoDummyOutlivesItsJob(t *testing.T) { obeyedBy(t, allHeavy(), heavyFarms(), lawStray) }

// No job is preempted where dummies that gather for a normal job could end instead.
func TestHeavyLawGatheringGivesWay(t *testing.T) { obeyedBy(t, allHeavy(), heavyFarms(), lawGiveWay) }

// A heavy job and its dummies are charged as one, and preempted as one.
func TestHeavyLawOneWithItsDummies(t *testing.T) {
	obeyedBy(t, allHeavy(), heavyFarms(), lawUnit)
}

// Laws of every farm hold on these farms, too.
func TestHeavyLawsOfEveryFarm(t *testing.T) {
	for _, l := range []law{lawSame, lawStable, lawReleased, lawCapacity, crash} {
		obeyedBy(t, allHeavy(), heavyFarms(), l)
	}
}

// TestHeavyLawsWerePutToTheTest checks that enough farms could have broken the laws.
func TestHeavyLawsWerePutToTheTest(t *testing.T) {
	checkShares(t, allHeavy(), map[share]float64{gathered: 60, lightened: 15, heavyPBA: 15, heavyPreempted: 5, gaveWay: 1})
}

// heavyFarms draws farms with as many heavy and light jobs as others.
func heavyFarms() *rapid.Generator[farm] {
	d := newDice()
	return rapid.Custom(func(t *rapid.T) farm {
		f := farm{Heavy: true}
		total := 0
		for range 1 + d.hosts.Draw(t, "hosts")/3 {
			h := hostCase{Slots: []int{4, 2, 8, 4}[d.percent.Draw(t, "slots")%4]}
			h.Memory = h.Slots * []int{4, 4, 4, 8}[d.percent.Draw(t, "memory per slot")%4]
			f.Hosts = append(f.Hosts, h)
			total += h.Slots
		}
		f.drawPools(t, d, total)
		cycles := d.cycles.Draw(t, "cycles")
		n := min(80, max(3, total*d.load.Draw(t, "load")))
		for i := range n {
			f.Jobs = append(f.Jobs, f.drawHeavy(t, d, i < n/2, cycles))
		}
		f.drawEngine(t, d, cycles)
		f.HoldLimit = max(f.HoldLimit, 300) // it outlasts cycles that are missed
		f.Gather = []int{120, 600, 3600}[d.percent.Draw(t, "gather timeout")%3]
		f.MaxGathering = []int{5, 25, 50}[d.percent.Draw(t, "max gathering")%3]
		return f
	})
}

// drawHeavy draws a job that is heavy, light or neither. It is never suspended: the
// memory that a suspended job keeps is not managed on these farms.
func (f *farm) drawHeavy(t *rapid.T, d dice, early bool, cycles int) jobCase {
	j := f.drawJob(t, d, early, cycles)
	j.Suspend, j.Exclusive, j.Stopped, j.OneHost = false, false, 0, true
	least, most := 1<<20, 0
	for i, h := range f.Hosts {
		if j.Host < 0 || i == j.Host {
			least, most = min(least, h.Memory/h.Slots), max(most, h.Memory)
		}
	}
	for _, h := range f.Hosts {
		if j.Host < 0 && h.Memory == most {
			j.Slots = min(j.Slots, h.Slots)
		}
	}
	switch kind := d.percent.Draw(t, "kind"); {
	case kind < 35: // heavy, where a share is least
		j.Slots = min(j.Slots, 1+kind%2)
		own := least * j.Slots
		j.Memory = min(most, own+1+d.percent.Draw(t, "beyond its own")*most/150)
	case kind < 65:
		j.Slots, j.Memory = 1, 1
	case kind < 90:
		j.Memory = least * j.Slots
	default:
		j.Memory = 0
	}
	return j
}

// dummies is the farm's policy for heavy jobs.
func (f *farm) dummies() dummy.Policy {
	if !f.Heavy {
		return dummy.Policy{}
	}
	return dummy.Policy{
		Mode: dummy.Reserve, MaxGathering: float64(f.MaxGathering) / 100, GatherTimeout: seconds(f.Gather),
		LightFraction: 0.25, Limit: 10 * time.Minute,
	}
}

func (f *farm) leastShare() int64 {
	least := int64(0)
	for _, h := range f.Hosts {
		if share := int64(h.Memory) * gigabyte / int64(h.Slots); least == 0 || share < least {
			least = share
		}
	}
	return least
}

// held sets the submit filter's hold of a heavy job.
func (f *farm) held(s *backends.Spec, now time.Time) {
	if f.Heavy && s.Memory > f.leastShare()*int64(s.Slots) {
		s.HeldUntil = now.Add(seconds(f.HoldLimit))
	}
}

// worth returns how many slots a job stands for on a host, its dummies included.
func (d *drive) worth(j *backends.Job, host string) int {
	for i, h := range d.Hosts {
		if hostName(i) == host {
			share := int64(h.Memory) * gigabyte / int64(h.Slots)
			return min(h.Slots, max(j.Slots, int((j.Memory+share-1)/share)))
		}
	}
	return j.Slots
}

func (d *drive) heavy(j *backends.Job) bool {
	return d.Heavy && !j.IsDummy() && len(j.Hosts) == 1 && d.worth(j, j.Hosts[0].Host) > j.Slots
}

// judgeHeavy checks one cycle against the laws of dummy jobs.
func (d *drive) judgeHeavy(farm *backends.Snapshot, p *plan.Plan) {
	jobs := map[backends.ID]*backends.Job{}
	for i := range farm.Jobs {
		jobs[farm.Jobs[i].ID] = &farm.Jobs[i]
	}
	orphans := map[backends.ID]bool{}
	gathering := map[string]int{}
	for _, j := range jobs {
		heavy := jobs[j.DummyFor]
		switch {
		case !j.IsDummy() || j.Ending:
		case heavy == nil:
			orphans[j.ID] = true
			if d.orphans[j.ID] {
				d.breach(lawStray, "dummy %v is still there a cycle after job %v ended", j.ID, j.DummyFor)
			}
		case heavy.State == backends.Pending && j.State == backends.Running && heavy.Priority.Level() < backends.LevelPBA:
			gathering[j.Hosts[0].Host]++
			d.met[gathered] = true
		}
	}
	d.orphans = orphans
	d.judgeUnits(jobs, p)
	d.judgeGiveWay(jobs, p, gathering)
}

func (d *drive) judgeUnits(jobs map[backends.ID]*backends.Job, p *plan.Plan) {
	charged := map[int64]int{}
	for id, m := range p.Memory.Jobs {
		j := jobs[id]
		if j == nil || j.State != backends.Running || m.Pool == 0 || m.Kept > 0 {
			continue
		}
		n := j.Slots
		if d.heavy(j) {
			n = d.worth(j, j.Hosts[0].Host)
			d.met[heavyPBA] = true
		}
		charged[m.Pool] += n
	}
	for _, pool := range p.Pools {
		if pool.Charged != charged[pool.ID] {
			d.breach(lawUnit, "pool %d is charged %d slots, its jobs and their dummies are %d", pool.ID, pool.Charged, charged[pool.ID])
		}
	}
	for _, a := range p.Actions {
		j := jobs[a.Job]
		if a.Verb != plan.Requeue || j == nil || !d.heavy(j) {
			continue
		}
		d.met[heavyPreempted] = true
		if d.Grace > 0 {
			continue // a later cycle ends its dummies
		}
		for _, other := range jobs {
			if other.DummyFor != a.Job || other.Ending {
				continue
			}
			if !slices.ContainsFunc(p.Actions, func(x plan.Action) bool {
				return x.Verb == plan.Drop && slices.Contains(x.Dummies, other.ID)
			}) {
				d.breach(lawUnit, "job %v is preempted and its dummy %v stays", a.Job, other.ID)
			}
		}
	}
	for id := range p.Memory.Dummies.Lights {
		if j := jobs[id]; j != nil && j.State == backends.Running {
			d.met[lightened] = true
			if p.Memory.Jobs[id].Pool != 0 {
				d.breach(lawUnit, "light job %v is charged to pool %d", id, p.Memory.Jobs[id].Pool)
			}
		}
	}
}

// judgeGiveWay checks plans with one PBA job only: a plan does not show what is nominated for others.
func (d *drive) judgeGiveWay(jobs map[backends.ID]*backends.Job, p *plan.Plan, gathering map[string]int) {
	waiting := 0
	for id, m := range p.Memory.Jobs {
		if j := jobs[id]; j != nil && j.State == backends.Pending && m.Pool != 0 {
			waiting++
		}
	}
	for _, a := range p.Actions {
		switch {
		case a.Verb == plan.Drop && a.Reason == "it gives way to PBA jobs":
			d.met[gaveWay] = true
		case a.Verb == plan.Requeue && waiting == 1:
			b := jobs[a.For]
			if b == nil || b.Memory > d.leastShare()*int64(b.Slots) {
				continue
			}
			for host, n := range gathering {
				if n >= b.Slots && (len(b.Asked) == 0 || slices.Contains(b.Asked, host)) && b.Memory <= d.leastShare()*int64(b.Slots) {
					d.breach(lawGiveWay, "job %v is preempted for %v, and %d dummies gather on %s for a normal job", a.Job, b.ID, n, host)
				}
			}
		}
	}
}

// checkHeavyLeftovers reports the heavy jobs that never ran, and the dummies that are left (R31).
func (d *drive) checkHeavyLeftovers(farm *backends.Snapshot) {
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		switch {
		case j.IsDummy():
			d.breach(lawStray, "dummy %v of job %v is left: %v", j.ID, j.DummyFor, j.State)
		case j.Memory > d.leastShare()*int64(j.Slots):
			d.breach(lawFlow, "heavy job %v never ran: %v, %s; held until %v, pinned to %v", j.ID, j.State, j.Reason, sinceStart(j.HeldUntil), j.Pinned)
		}
	}
}
