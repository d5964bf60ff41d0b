package laws

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// farm is one random farm with all that will happen on it. Times are seconds
// from its start. It is plain data, so that a failure prints as one.
type farm struct {
	Hosts   []hostCase
	Members [][]bool // by project, then user: the user is in its group
	Pools   []poolCase
	Sets    []int // by host: its set, 0: none; nil: there are none
	Jobs    []jobCase
	Shrinks []shrinkCase
	Missed  []bool // by cycle: the engine did not run
	Again   []bool // by cycle: it runs until it has nothing to do (lawStable)
	Threshold, MinRuntime,
	HoldLimit, Grace, MaxVictims, MaxPerProject int
	MaxRequeues int
	Headroom    float64
	Considers   int   // see considering
	Own         []int // by project: its own threshold; -1, or missing: the site's
	EngineDies  bool  // after the last cycle; else it runs on until all is over

	Outages              []outageCase
	Forms                bool  // see judgeForms
	Standby              []int // by project: slots on standby, but in the last cycle; nil: none
	Fixed                bool  // jobs that can't be preempted are held
	Wide                 bool  // see wideFarms
	RunsWide             int   // the cycle from which the site lets jobs run that are too wide; 0: none
	Heavy                bool  // its queue does not manage memory; dummy jobs do
	Gather, MaxGathering int   // gather_timeout; % of the farm
}

type hostCase struct {
	Slots, Memory int  // GiB; 0: not managed
	GPUs          int  // that it has
	Big           bool // it has the feature big
}

type poolCase struct {
	Project, Guarantee int
	User               int // -1: all
	Step               string
	Set                int // the host set that it is limited to; 0: the hosts in none
}

type jobCase struct {
	At, Takes, KillDelay int
	User, Project        int // Project -1: none
	Step                 string
	Slots, Memory        int               // GiB in all
	Host                 int               // the one that it asks for; -1: any
	Killed               int               // by its owner, so long after At; 0: not
	Raised               int               // its priority by its owner, so long after At; 0: not
	Claimed              bool              // its owner submits it with Claim
	Claim                backends.Priority // that its owner sets, then or when it is Raised
	Stopped              int               // by its owner, so long after At, for 100 s; 0: not
	RunLimit             int
	OneHost, Suspend, NoRequeue, Interactive,
	Exclusive, Hold bool

	GPUs  int  // on its host
	Big   bool // it asks for the feature
	Even  int  // slots on each of its hosts, the last one may have fewer; 0: as they come
	Odd   bool // a part of its request is not understood
	Array int  // elements; 0: it is none
	Limit int  // of its array: how many may run at a time; 0: any number

	Saves, SaveTakes, Every int // it says that it saves itself within this, and so often; it takes SaveTakes, 0: it does not
}

type shrinkCase struct{ Cycle, Pool, Guarantee int }

const (
	users    = 4
	cycle    = 20 * time.Second
	gigabyte = 1 << 30
)

func start() time.Time { return time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC) }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// String prints a farm line by line, and of each job only what is not usual.
func (f farm) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "hosts %+v\nsets %v\nmembers %v\npools %+v\nshrinks %+v\n", f.Hosts, f.Sets, f.Members, f.Pools, f.Shrinks)
	fmt.Fprintf(&b, "outages %+v, forms %v, wide %v, runs wide from %d\n", f.Outages, f.Forms, f.Wide, f.RunsWide)
	fmt.Fprintf(&b, "cycles %d, missed %v, again %v, engine dies %v, considers %d\n", len(f.Missed), trues(f.Missed), trues(f.Again), f.EngineDies, f.Considers)
	fmt.Fprintf(&b, "threshold %d own %v min_runtime %d hold_limit %d grace %d max_victims %d per_project %d max_requeues %d headroom %v\n",
		f.Threshold, f.Own, f.MinRuntime, f.HoldLimit, f.Grace, f.MaxVictims, f.MaxPerProject, f.MaxRequeues, f.Headroom)
	for i, j := range f.Jobs {
		fmt.Fprintf(&b, "job %d at %d takes %d u%d p%d slots %d", i+1, j.At, j.Takes, j.User, j.Project, j.Slots)
		for _, field := range []struct {
			name string
			set  bool
			is   any
		}{
			{"step", j.Step != "", j.Step},
			{"memory", j.Memory != 0, j.Memory},
			{"host", j.Host >= 0, j.Host + 1},
			{"killed", j.Killed != 0, j.Killed},
			{"raised", j.Raised != 0, j.Raised},
			{"claimed at submission", j.Claimed, ""},
			{"claim", j.Claim != 0, j.Claim},
			{"stopped", j.Stopped != 0, j.Stopped},
			{"limit", j.RunLimit != 0, j.RunLimit},
			{"kill delay", j.KillDelay != 0, j.KillDelay},
			{"spans", !j.OneHost, ""},
			{"suspend", j.Suspend, ""},
			{"no requeue", j.NoRequeue, ""},
			{"interactive", j.Interactive, ""},
			{"exclusive", j.Exclusive, ""},
			{"hold", j.Hold, ""},
			{"gpus", j.GPUs != 0, j.GPUs},
			{"on big", j.Big, ""},
			{"odd", j.Odd, ""},
			{"array of", j.Array != 0, j.Array},
			{"limit of the array", j.Limit != 0, j.Limit},
			{"saves within", j.Saves != 0, j.Saves},
			{"takes to save", j.Saves != 0, j.SaveTakes},
			{"saves every", j.Every != 0, j.Every},
		} {
			if field.set {
				fmt.Fprint(&b, ", ", field.name, " ", field.is)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func trues(flags []bool) (at []int) {
	for i, f := range flags {
		if f {
			at = append(at, i)
		}
	}
	return at
}

// dice are the generators that a farm is drawn with, made once.
type dice struct {
	hosts, slots, memory, projects, pools, guarantee, user, load, cycles,
	takes, early, late, width, gigs, project, host, fate, delay, percent, shrinks *rapid.Generator[int]
	claim *rapid.Generator[backends.Priority]
}

func newDice() dice {
	among := func(n ...int) *rapid.Generator[int] { return rapid.SampledFrom(n) }
	return dice{
		hosts: rapid.IntRange(1, 12), slots: among(4, 2, 8, 1, 3, 6), memory: among(4, 0, 8, 4),
		projects: rapid.IntRange(1, 3), pools: among(1, 1, 2, 3), guarantee: rapid.IntRange(1, 24),
		user: rapid.IntRange(0, users-1), load: among(2, 1, 3, 4), cycles: rapid.IntRange(8, 22),
		takes: among(120, 300, 30, 60, 200, 600, 5), early: rapid.IntRange(0, 30), late: rapid.IntRange(31, 240),
		width: among(1, 1, 1, 2, 1, 1, 3, 4, 1, 8), gigs: among(0, 0, 0, 1, 0, 2, 4, 0, 6, 12),
		project: rapid.IntRange(0, 4), host: rapid.IntRange(0, 41), fate: rapid.IntRange(0, 63),
		delay: among(0, 0, 0, 0, 5, 0, 30, 0, 0, 90), percent: rapid.IntRange(0, 99), shrinks: among(0, 1, 2, 0),
		claim: rapid.SampledFrom(claims()),
	}
}

// claims returns priorities that a job's owner may set where the queue allows it (LSF):
// the next value, the most that age adds, what no job has, and what the engine sets.
func claims() []backends.Priority {
	return []backends.Priority{
		backends.At(backends.LevelNormal, 21), backends.At(backends.LevelNormal, 89), backends.At(backends.LevelNormal, 500),
		backends.At(backends.LevelVictim, 50), backends.At(backends.LevelNext, backends.DefaultValue), backends.At(backends.LevelNext, 60),
		backends.At(backends.LevelPBA, 120), backends.At(backends.LevelHandOver, 227), backends.At(backends.LevelHandOver, 999),
	}
}

// farms draws farms that are likely to be full when the holders of guarantees
// come: a first wave of jobs, most of them of one project, then the others'.
func farms() *rapid.Generator[farm] {
	d := newDice()
	return rapid.Custom(func(t *rapid.T) farm {
		var f farm
		total := 0
		for range d.hosts.Draw(t, "hosts") {
			h := hostCase{Slots: d.slots.Draw(t, "slots")}
			h.Memory = h.Slots * d.memory.Draw(t, "memory per slot")
			f.Hosts = append(f.Hosts, h)
			total += h.Slots
		}
		f.drawPools(t, d, total)
		cycles := d.cycles.Draw(t, "cycles")
		n := min(200, max(2, total*d.load.Draw(t, "load")))
		for i := range n {
			f.Jobs = append(f.Jobs, f.drawJob(t, d, i < n*3/5, cycles))
		}
		f.drawEngine(t, d, cycles)
		f.drawSets(t, d)
		f.drawWhere(t, d)
		f.drawSaves(t, d)
		return f
	})
}

func (f *farm) drawPools(t *rapid.T, d dice, total int) {
	projects := d.projects.Draw(t, "projects") + 1
	left := max(1, total*85/100)
	for p := range projects {
		members := make([]bool, users)
		for u := range members {
			members[u] = d.percent.Draw(t, "member") < 85
		}
		f.Members = append(f.Members, members)
		if p == 0 && d.percent.Draw(t, "no pool") < 70 {
			continue // the project that fills the farm often has no guarantee
		}
		for range d.pools.Draw(t, "pools") {
			g := min(left, d.guarantee.Draw(t, "guarantee"))
			if g == 0 {
				break
			}
			left -= g
			pool := poolCase{Project: p, Guarantee: g, User: -1}
			switch kind := d.percent.Draw(t, "kind of pool"); {
			case kind >= 90:
				pool.User, pool.Step = d.user.Draw(t, "user"), "s"
			case kind >= 75:
				pool.Step = "s"
			case kind >= 60:
				pool.User = d.user.Draw(t, "user")
			}
			f.Pools = append(f.Pools, pool)
		}
	}
}

func (f *farm) drawJob(t *rapid.T, d dice, early bool, cycles int) jobCase {
	j := jobCase{
		Takes: d.takes.Draw(t, "takes"), User: d.user.Draw(t, "user"), Slots: d.width.Draw(t, "slots"),
		Memory: d.gigs.Draw(t, "memory"), KillDelay: d.delay.Draw(t, "kill delay"),
		Host: d.host.Draw(t, "host") - 30, OneHost: true,
	}
	if j.Host < 0 || j.Host >= len(f.Hosts) {
		j.Host = -1
	}
	if early {
		j.At = d.early.Draw(t, "at")
		j.Project = 0
		if d.percent.Draw(t, "of another project") >= 80 {
			j.Project = min(d.project.Draw(t, "project")-1, len(f.Members)-1)
		}
	} else {
		j.At = min(d.late.Draw(t, "at"), cycles*20)
		j.Project = min(d.project.Draw(t, "project")-1, len(f.Members)-1)
	}
	fate := d.fate.Draw(t, "fate")
	switch {
	case fate >= 62:
		j.Interactive = true
	case fate >= 60:
		j.NoRequeue = true
	case fate >= 58:
		j.Killed = 1 + 5*d.percent.Draw(t, "killed after")
	case fate >= 54:
		j.RunLimit = max(10, j.Takes-30)
	case fate == 18, fate == 16:
		j.Raised, j.Claim = 1+3*d.percent.Draw(t, "raised after"), d.claim.Draw(t, "claim")
	case fate == 15:
		j.Claimed, j.Claim = true, d.claim.Draw(t, "claim")
	case fate == 17:
		j.Stopped = 1 + 3*d.percent.Draw(t, "stopped after")
	case fate >= 53:
		j.Exclusive = true
	case fate >= 50:
		j.OneHost = false
		j.Slots *= 2
	case fate >= 40:
		j.Step = "s"
	case fate >= 20:
		j.Suspend = true
	case fate == 19:
		j.Hold = true
	}
	j.fit(f.Hosts)
	return j
}

// fit keeps a job to what the farm can ever run.
func (j *jobCase) fit(hosts []hostCase) {
	slots, total, perSlot := 0, 0, 1<<20
	for i, h := range hosts {
		if j.Host >= 0 && i != j.Host {
			continue
		}
		total += h.Slots
		if h.Slots > slots || h.Slots == slots && h.Memory/h.Slots < perSlot {
			slots, perSlot = h.Slots, h.Memory/h.Slots
		}
		if h.Memory == 0 && h.Slots == slots {
			perSlot = 1 << 20
		}
	}
	if j.OneHost {
		j.Slots = min(j.Slots, slots)
	} else {
		j.Slots = min(j.Slots, total)
		j.Memory = 0
	}
	for _, h := range hosts {
		if h.Memory > 0 && h.Slots >= j.Slots {
			j.Memory = min(j.Memory, h.Memory)
		}
	}
	if j.Memory > slots*perSlot {
		j.Memory = 0
	}
}

func (f *farm) drawEngine(t *rapid.T, d dice, cycles int) {
	for range cycles {
		f.Missed = append(f.Missed, d.percent.Draw(t, "missed") >= 94)
		f.Again = append(f.Again, d.percent.Draw(t, "again") >= 80)
	}
	if len(f.Pools) > 0 {
		for range d.shrinks.Draw(t, "shrinks") {
			at := d.percent.Draw(t, "shrink at") * cycles / 100
			pool := d.percent.Draw(t, "pool") % len(f.Pools)
			to := f.Pools[pool].Guarantee * d.percent.Draw(t, "shrinks to") / 60 // some grow
			f.Shrinks = append(f.Shrinks, shrinkCase{Cycle: at, Pool: pool, Guarantee: to})
		}
	}
	pick := func(what string, n ...int) int { return n[d.percent.Draw(t, what)*len(n)/100] }
	f.Threshold = pick("threshold", 20, 40, 60)
	f.MinRuntime = pick("min runtime", 0, 20, 60)
	f.HoldLimit = pick("hold limit", 60, 120, 600)
	f.Grace = pick("grace", 0, 0, 0, 10, 90)
	f.MaxVictims = pick("max victims", 1, 1, 1, 2, 20)
	f.MaxPerProject = pick("max victims per project", 1, 5, 100)
	f.MaxRequeues = pick("max requeues", 1, 3)
	f.Headroom = float64(pick("headroom", 0, 3)) / 2
	f.Considers = pick("considers", considersNever, considersNever, considersAtOnce, considersSlowly)
	for range f.Members {
		f.Own = append(f.Own, pick("own threshold", -1, -1, -1, 0, 0, 10))
	}
	f.EngineDies = d.percent.Draw(t, "engine dies") >= 50
}

// policy is the farm's policy with the pools as they are in a cycle.
func (f *farm) policy(at int) plan.Policy {
	p := plan.Policy{
		Cycle: cycle, PendingThreshold: seconds(f.Threshold), MinRuntime: seconds(f.MinRuntime),
		FreeTimeout: time.Minute, HandOverTimeout: 2 * time.Minute, HoldLimit: seconds(f.HoldLimit), GracePeriod: seconds(f.Grace), CheckpointMax: seconds(mostToSave),
		StartBucket: 5 * time.Minute, Headroom: f.Headroom, MaxRequeues: f.MaxRequeues, MaxLost: 10 * time.Second, HoldTooWide: f.RunsWide == 0 || at < f.RunsWide, UnpreemptableShare: 0.1, HoldFixed: f.Fixed,
		MaxVictims: f.MaxVictims, MaxVictimsPerProject: f.MaxPerProject,
		VictimOrder: []plan.Criterion{plan.ByOverSubscribed, plan.ByLost, plan.ByStart},
		LowQueue:    "low",
		Dummies:     f.dummies(),
		HostSets:    f.hostSets(),
	}
	if f.Fixed {
		p.UnpreemptableShare = fixedShare
	}
	for i := range f.Members {
		p.Projects = append(p.Projects, plan.Project{Name: projectName(i), Group: "g" + strconv.Itoa(i)})
		if i < len(f.Own) && f.Own[i] >= 0 {
			if p.Thresholds == nil {
				p.Thresholds = map[string]time.Duration{}
			}
			p.Thresholds[projectName(i)] = seconds(f.Own[i])
		}
		if i < len(f.Standby) && f.Standby[i] > 0 && at < len(f.Missed)-1 {
			if p.Standby == nil {
				p.Standby = map[string]int{}
			}
			p.Standby[projectName(i)] = f.Standby[i]
		}
	}
	for i, pool := range f.Pools {
		a := plan.Allocation{ID: int64(i + 1), Project: projectName(pool.Project), Step: pool.Step, Hosts: f.setName(pool.Set), Guarantee: pool.Guarantee}
		if pool.User >= 0 {
			a.User = userName(pool.User)
		}
		for _, s := range f.Shrinks {
			if s.Pool == i && s.Cycle <= at {
				a.Guarantee = s.Guarantee
			}
		}
		if a.Guarantee > 0 {
			p.Allocations = append(p.Allocations, a)
		}
	}
	return p
}

func (f *farm) groups() map[string][]string {
	groups := map[string][]string{}
	for p, members := range f.Members {
		for u, is := range members {
			if is {
				groups[userName(u)] = append(groups[userName(u)], "g"+strconv.Itoa(p))
			}
		}
	}
	return groups
}

func projectName(i int) string { return "p" + strconv.Itoa(i) }

func userName(i int) string { return "u" + strconv.Itoa(i) }

func hostName(i int) string { return fmt.Sprintf("n%02d", i+1) }

func (f *farm) hosts() []backends.Host {
	var hosts []backends.Host
	for i, h := range f.Hosts {
		hosts = append(hosts, h.host(i))
	}
	return hosts
}

func (j *jobCase) spec() backends.Spec {
	s := backends.Spec{
		Slots: j.Slots, Memory: int64(j.Memory) * gigabyte, OneHost: j.OneHost, RunLimit: seconds(j.RunLimit),
		NoRequeue: j.NoRequeue, Interactive: j.Interactive, Exclusive: j.Exclusive, Hold: j.Hold,
	}
	if j.Project >= 0 {
		s.Project = backends.JoinProject(projectName(j.Project), j.Step)
	}
	tag := backends.Tag{Checkpoint: j.checkpoint()}
	if j.Suspend {
		tag.Preempt = backends.PreemptSuspend
	}
	if tag != (backends.Tag{}) {
		s.Description = tag.String()
	}
	if j.Host >= 0 {
		s.Hosts = []string{hostName(j.Host)}
	}
	j.specWhere(&s)
	return s
}
