// Package settings is the config file's section pba: the engine's configuration. Every
// program that reads the config file knows it; the ledger is not needed.
package settings

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Config is the config file's section pba.
type Config struct {
	Every            unit.Duration `yaml:"every"`             // from one cycle to the next
	PendingThreshold unit.Duration `yaml:"pending_threshold"` // a job waits so long within its pool before slots are preempted for it
	MinRuntime       unit.Duration `yaml:"min_runtime"`       // a job that runs shorter is never preempted
	FreeTimeout      unit.Duration `yaml:"free_timeout"`      // victims may take so long to go
	HandOverTimeout  unit.Duration `yaml:"hand_over_timeout"` // the beneficiary may take so long to start in freed slots
	HoldLimit        unit.Duration `yaml:"hold_limit"`        // a hold by the engine ends after that, should the engine be gone
	GracePeriod      unit.Duration `yaml:"grace_period"`      // between SIGTERM and the end of a requeued job
	LoweredGrace     unit.Duration `yaml:"lowered_grace"`     // what a pool lost by an edit in mid-week is spared for so long (R25)
	StartBucket      unit.Duration `yaml:"start_bucket"`      // jobs that started within so long count as started together
	Headroom         float64       `yaml:"headroom"`          // how many jobs stand next in line for a pool; 0: none
	MaxRequeues      int           `yaml:"max_requeues"`      // a job preempted so often is spared
	MaxLost          unit.Duration `yaml:"max_lost"`          // a job that lost more work, times its slots, goes only if no other will do; 0: its run limit, or 4h
	OnTooWide        TooWide       `yaml:"on_too_wide"`       // what becomes of one that pools may preempt at any time besides (R35)
	MaxVictims       int           `yaml:"max_victims"`       // jobs preempted in a cycle, after the first beneficiary's

	MaxVictimsPerProject int           `yaml:"max_victims_per_project"` // jobs that one project may lose in an hour
	Unpreemptable        Unpreemptable `yaml:"unpreemptable"`
	Checkpoint           Checkpoint    `yaml:"checkpoint"`
	MaxAllocated         unit.Share    `yaml:"max_allocated"` // of the farm, for all projects of a week
	Horizon              int           `yaml:"horizon"`       // weeks that may be planned ahead
	VictimOrder          []Criterion   `yaml:"victim_order"`
	NeverVictims         NeverVictims  `yaml:"never_victims"`
	Roles                Roles         `yaml:"roles"`
	KeepHistory          unit.Duration `yaml:"keep_history"` // for how long reports can look back; 0: for ever
	HostSets             HostSets      `yaml:"host_sets"`    // that allocations may be limited to
	Projects             Projects      `yaml:"projects"`     // those with terms of their own, by name

	Mail          Mail          `yaml:"mail"`
	OwnPreemption OwnPreemption `yaml:"own_preemption"` // what cycles do where the queuing system itself preempts jobs of managed queues
}

// Projects are the terms of single projects that the site decides, not their managers:
// other projects pay for them.
type Projects map[string]ProjectTerms

// ProjectTerms are what holds for one project instead of the section's own value.
type ProjectTerms struct {
	PendingThreshold *unit.Duration `yaml:"pending_threshold"` // 0s: slots are preempted as soon as the queue has found that a job can't start
	Standby          int            `yaml:"standby"`           // slots that are kept free for its pools' next jobs
}

// Validate says what is wrong with the terms, if anything.
func (p Projects) Validate() error {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		switch t := p[name].PendingThreshold; {
		case name == "":
			return errors.New("a project without a name")
		case t == nil:
			return fmt.Errorf("%s: pending_threshold is missing: want a time, such as 0s", name)
		case *t < 0:
			return fmt.Errorf("%s: pending_threshold: %v: want a time of 0s or more", name, *t)
		case p[name].Standby < 0:
			return fmt.Errorf("%s: standby: %d: want a number of slots", name, p[name].Standby)
		case p[name].Standby > 0 && *t != 0:
			return fmt.Errorf("%s: standby: %d: slots are kept free only beside pending_threshold: 0s, and it is %v", name, p[name].Standby, *t)
		}
	}
	return nil
}

// HostSets are named sets of hosts, which have no host in common.
type HostSets map[string][]string

// setName compiles its expression when it is used first: asub links this package.
var setName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,62}$`) })

// Validate says what is wrong with the sets, if anything.
func (s HostSets) Validate() error {
	of := map[string]string{} // the set of each host
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if !setName().MatchString(name) {
			return fmt.Errorf("%q can't be the name of a host set: want letters, digits and _ . + -, at most 63, the first a letter, a digit or _", name)
		}
		if len(s[name]) == 0 {
			return fmt.Errorf("%s: it names no hosts", name)
		}
		for _, host := range s[name] {
			if other, taken := of[host]; taken && other != name {
				return fmt.Errorf("host %s is in %s and in %s: a host may be in one set", host, other, name)
			}
			if host == "" {
				return fmt.Errorf("%s: a host without a name", name)
			}
			of[host] = name
		}
	}
	return nil
}

// ByHost returns the set of each host that is in one.
func (s HostSets) ByHost() map[string]string {
	of := map[string]string{}
	for name, hosts := range s {
		for _, host := range hosts {
			of[host] = name
		}
	}
	return of
}

// Unpreemptable limits the slots of normal jobs that can't be preempted.
type Unpreemptable struct {
	MaxShare unit.Share `yaml:"max_share"` // of the farm
	OnExcess Excess     `yaml:"on_excess"` // what becomes of those beyond it
}

// Checkpoint limits how jobs save themselves before they are requeued (R33).
type Checkpoint struct {
	Max unit.Duration `yaml:"max"` // seconds that a job may ask for; the filter refuses one that asks for more
}

// Mail is how reports are mailed.
type Mail struct {
	Sendmail string `yaml:"sendmail"` // the path of a program that takes a mail as sendmail does
}

// Excess says what becomes of normal jobs that can't be preempted beyond their share.
type Excess string

// What becomes of them.
const (
	Wait Excess = "wait" // they don't start: the queue counts them, or the engine holds them
	Pass Excess = "pass" // they start; once the share is held, the filter lowers further ones
)

// UnmarshalText accepts wait and pass.
func (e *Excess) UnmarshalText(text []byte) error {
	switch known := Excess(text); known {
	case Wait, Pass:
		*e = known
		return nil
	}
	return fmt.Errorf("%q: want %s or %s", text, Wait, Pass)
}

// TooWide says what becomes of a job that is wider than what no pool is guaranteed, lost more
// than max_lost and offers no way to lose nothing.
type TooWide string

// What becomes of it.
const (
	TooWideWait TooWide = "wait" // it is held until pools sent no jobs for a day, or have less
	TooWideRun  TooWide = "run"  // it starts, and is preempted again
)

// UnmarshalText accepts wait and run.
func (w *TooWide) UnmarshalText(text []byte) error {
	switch known := TooWide(text); known {
	case TooWideWait, TooWideRun:
		*w = known
		return nil
	}
	return fmt.Errorf("%q: want %s or %s", text, TooWideWait, TooWideRun)
}

// OwnPreemption says what cycles do where the queuing system itself preempts jobs of managed
// queues.
type OwnPreemption string

// What they do.
const (
	ObserveOnly OwnPreemption = "observe" // act on nothing
	Act         OwnPreemption = "act"     // act as elsewhere
)

// UnmarshalText accepts observe and act.
func (o *OwnPreemption) UnmarshalText(text []byte) error {
	switch known := OwnPreemption(text); known {
	case ObserveOnly, Act:
		*o = known
		return nil
	}
	return fmt.Errorf("%q: want %s or %s", text, ObserveOnly, Act)
}

// NeverVictims names the users, projects and queues whose jobs are never preempted.
type NeverVictims struct {
	Users    []string `yaml:"users"`
	Projects []string `yaml:"projects"`
	Queues   []string `yaml:"queues"`
}

// Criterion is a plan.Criterion that knows its names.
type Criterion plan.Criterion

// UnmarshalText accepts the names of the criteria.
func (c *Criterion) UnmarshalText(text []byte) error {
	known := []plan.Criterion{plan.ByOverSubscribed, plan.ByLost, plan.ByStart, plan.ByPending}
	if !slices.Contains(known, plan.Criterion(text)) {
		return fmt.Errorf("%q is no criterion (known: %s, %s, %s, %s)", text, known[0], known[1], known[2], known[3])
	}
	*c = Criterion(text)
	return nil
}

// Default returns the section's defaults.
func Default() Config {
	return Config{
		Every:            unit.Duration(20 * time.Second),
		PendingThreshold: unit.Duration(60 * time.Second),
		MinRuntime:       unit.Duration(60 * time.Second),
		FreeTimeout:      unit.Duration(60 * time.Second),
		HandOverTimeout:  unit.Duration(120 * time.Second),
		HoldLimit:        unit.Duration(10 * time.Minute),
		LoweredGrace:     unit.Duration(time.Hour),
		StartBucket:      unit.Duration(5 * time.Minute),
		Headroom:         1.5,
		MaxRequeues:      3,
		OnTooWide:        TooWideWait,
		MaxVictims:       20,

		MaxVictimsPerProject: 100,
		Unpreemptable:        Unpreemptable{MaxShare: 0.10, OnExcess: Wait},
		Checkpoint:           Checkpoint{Max: unit.Duration(2 * time.Minute)},
		MaxAllocated:         0.85,
		Horizon:              12,
		VictimOrder:          []Criterion{Criterion(plan.ByOverSubscribed), Criterion(plan.ByLost), Criterion(plan.ByStart)},
		KeepHistory:          unit.Duration(400 * 24 * time.Hour),
		Mail:                 Mail{Sendmail: "/usr/sbin/sendmail"},
		OwnPreemption:        ObserveOnly,
	}
}

// maxMaxRequeues keeps the bonuses of R11 below the PBA floor with some age left.
const maxMaxRequeues = 9

// Validate says what is wrong with the section, if anything.
func (c Config) Validate() error {
	for _, d := range []struct {
		name  string
		value unit.Duration
	}{
		{"every", c.Every},
		{"pending_threshold", c.PendingThreshold},
		{"free_timeout", c.FreeTimeout},
		{"hand_over_timeout", c.HandOverTimeout},
		{"hold_limit", c.HoldLimit},
		{"start_bucket", c.StartBucket},
	} {
		if d.value <= 0 {
			return fmt.Errorf("%s: want a time above zero, such as 60s", d.name)
		}
	}
	if c.Checkpoint.Max < unit.Duration(time.Second) || c.Checkpoint.Max > unit.Duration(time.Hour) {
		return fmt.Errorf("checkpoint.max: %v: want a time from 1s to 1h", c.Checkpoint.Max)
	}
	if c.HoldLimit < 2*c.Every {
		return fmt.Errorf("hold_limit: %v is less than two cycles (every: %v): holds would end before they are renewed", c.HoldLimit, c.Every)
	}
	if !(c.Headroom >= 0 && c.Headroom <= 100) {
		return fmt.Errorf("headroom: %v: want a factor from 0 to 100", c.Headroom)
	}
	for _, n := range []struct {
		name               string
		value, least, most int
	}{
		{"max_requeues", c.MaxRequeues, 0, maxMaxRequeues},
		{"max_victims", c.MaxVictims, 1, 1 << 30},
		{"max_victims_per_project", c.MaxVictimsPerProject, 1, 1 << 30},
		{"horizon", c.Horizon, 0, 520},
	} {
		if n.value < n.least || n.value > n.most {
			return fmt.Errorf("%s: %d: want a number from %d to %d", n.name, n.value, n.least, n.most)
		}
	}
	if !strings.HasPrefix(c.Mail.Sendmail, "/") {
		return fmt.Errorf("mail.sendmail: %q: want the path of a program, such as /usr/sbin/sendmail", c.Mail.Sendmail)
	}
	if c.MaxAllocated == 0 {
		return errors.New("max_allocated: 0%: nothing could ever be allocated")
	}
	if err := c.Projects.Validate(); err != nil {
		return fmt.Errorf("projects: %w", err)
	}
	for i, criterion := range c.VictimOrder {
		if slices.Contains(c.VictimOrder[:i], criterion) {
			return fmt.Errorf("victim_order: %s is given twice", criterion)
		}
	}
	return nil
}

// Policy returns the section as the planner's policy, still without projects and
// allocations.
func (c Config) Policy() plan.Policy {
	p := plan.Policy{
		NeverVictims:         plan.Exempt{Users: c.NeverVictims.Users, Projects: c.NeverVictims.Projects, Queues: c.NeverVictims.Queues},
		Cycle:                time.Duration(c.Every),
		PendingThreshold:     time.Duration(c.PendingThreshold),
		MinRuntime:           time.Duration(c.MinRuntime),
		FreeTimeout:          time.Duration(c.FreeTimeout),
		HandOverTimeout:      time.Duration(c.HandOverTimeout),
		HoldLimit:            time.Duration(c.HoldLimit),
		GracePeriod:          time.Duration(c.GracePeriod),
		LoweredGrace:         time.Duration(c.LoweredGrace),
		StartBucket:          time.Duration(c.StartBucket),
		Headroom:             c.Headroom,
		MaxRequeues:          c.MaxRequeues,
		MaxLost:              time.Duration(c.MaxLost),
		HoldTooWide:          c.OnTooWide == TooWideWait,
		UnpreemptableShare:   float64(c.Unpreemptable.MaxShare),
		HoldFixed:            c.Unpreemptable.OnExcess == Wait,
		CheckpointMax:        time.Duration(c.Checkpoint.Max),
		MaxVictims:           c.MaxVictims,
		MaxVictimsPerProject: c.MaxVictimsPerProject,
	}
	for _, name := range slices.Sorted(maps.Keys(c.HostSets)) {
		p.HostSets = append(p.HostSets, plan.HostSet{Name: name, Hosts: c.HostSets[name]})
	}
	for name, terms := range c.Projects {
		if p.Thresholds == nil {
			p.Thresholds = map[string]time.Duration{}
		}
		p.Thresholds[name] = time.Duration(*terms.PendingThreshold)
		if terms.Standby > 0 {
			if p.Standby == nil {
				p.Standby = map[string]int{}
			}
			p.Standby[name] = terms.Standby
		}
	}
	for _, criterion := range c.VictimOrder {
		p.VictimOrder = append(p.VictimOrder, plan.Criterion(criterion))
	}
	return p
}
