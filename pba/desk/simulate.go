package desk

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/simulate"
	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

// Simulation is what is asked of the simulator. Zero durations, and a MinRuntime below zero,
// leave the config's.
type Simulation struct {
	Trace, Farm, Plan             string
	Guarantees, Policies          []string
	Changes                       []string // of the plan, for SimulateChange
	Cycle, Threshold, MinRuntime  time.Duration
	Headroom, Arrivals, Suspended float64 // a headroom below zero leaves the config's
	Kill                          time.Duration
	Repeat, First, SkipBad        int
	OneSlot, EveryCycle           bool
	OnDemand, Periodic            simulate.Saves
	Seed                          uint64

	Progress func(policy string, done, jobs int) // called often; nil: not at all

	hosts []backends.Host // instead of Farm
	since time.Time       // of the ledger's jobs only those that were submitted from then on; zero: all
}

// Simulate plays a recorded workload on a farm. It needs no open desk.
func (d *Desk) Simulate(ctx context.Context, o *Simulation) (*simulate.Result, error) {
	s, err := d.setup(o)
	if err != nil {
		return nil, err
	}
	var store trace.Store
	defer func() { _ = store.Close() }() // nothing in it is kept
	s.Trace = &store
	if s.Name, s.Format, err = d.readTrace(ctx, o, &store); err != nil {
		return nil, fmt.Errorf("read the trace %s: %w", o.Trace, err)
	}
	notes, err := d.setGuarantees(o, &s)
	if err != nil {
		return nil, err
	}
	notes = append(notes, d.warnOfGuarantees(&s)...)
	r, err := simulate.Run(ctx, s)
	if errors.Is(err, simulate.ErrNothing) {
		return nil, fmt.Errorf("%w: %s", err, leftOut(&store))
	}
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	for i := range r.Idle {
		notes = append(notes, fmt.Sprintf("Warning: no job of the trace is one of %s, which has a guarantee of %s.", r.Idle[i].Who(), printable.Count(r.Idle[i].Slots, "slot")))
	}
	r.Notes = append(notes, r.Notes...)
	return r, nil
}

func leftOut(s *trace.Store) string {
	if len(s.Out) == 0 {
		return fmt.Sprintf("it has %s; see --farm and --first", printable.Count(s.Jobs, "job"))
	}
	var why []string
	for reason, n := range s.Out {
		why = append(why, fmt.Sprintf("%d: %s", n, reason))
	}
	slices.Sort(why)
	return strings.Join(why, "; ")
}

// setup is all but the trace and the plan.
func (d *Desk) setup(o *Simulation) (simulate.Setup, error) {
	const buckets = 240
	settings := d.PBA
	for _, t := range []struct {
		to   *unit.Duration
		from time.Duration
	}{{&settings.Every, o.Cycle}, {&settings.PendingThreshold, o.Threshold}} {
		if t.from > 0 {
			*t.to = unit.Duration(t.from)
		}
	}
	if o.MinRuntime >= 0 {
		settings.MinRuntime = unit.Duration(o.MinRuntime)
	}
	if o.Headroom >= 0 {
		settings.Headroom = o.Headroom
	}
	if err := settings.Validate(); err != nil {
		return simulate.Setup{}, err
	}
	s := simulate.Setup{
		Policy: settings.Policy(), Reserve: time.Duration(d.Miniq.ReserveAfter), Policies: o.Policies, ScaleArrivals: o.Arrivals, Repeat: o.Repeat,
		First: o.First, OneSlot: o.OneSlot, Suspend: o.Suspended, OnDemand: o.OnDemand, Periodic: o.Periodic, Kill: o.Kill, Seed: o.Seed, EveryCycle: o.EveryCycle, Buckets: buckets, Progress: o.Progress,
		Filter: esub.Settings{Config: d.Filter, NextInLine: backends.At(backends.LevelNext, backends.DefaultValue), SuspendFrees: true},
	}
	if o.hosts != nil {
		s.Hosts = o.hosts
		return s, nil
	}
	var err error
	s.Hosts, err = d.readHosts(o.Farm)
	return s, err
}

type hostEntry struct {
	Name   string    `yaml:"name"`
	Slots  int       `yaml:"slots"`
	Memory unit.Size `yaml:"memory"`

	Partitions []string       `yaml:"partitions"`
	Gres       map[string]int `yaml:"gres"`
}

// host returns the host that an entry means.
func (e *hostEntry) host() (backends.Host, error) {
	h := backends.Host{Name: e.Name, Slots: e.Slots, Memory: int64(e.Memory), Features: e.Partitions}
	if e.Name == "" || e.Slots < 1 || e.Slots > 1<<20 {
		return h, fmt.Errorf("host %q with %d slots: want a name and slots", e.Name, e.Slots)
	}
	if slices.Contains(e.Partitions, "") {
		return h, fmt.Errorf("host %q: a partition without a name", e.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Gres)) {
		if n := e.Gres[name]; name == "" || n < 1 || n > 1<<20 {
			return h, fmt.Errorf("host %q with %d of gres %q: want a name and a number of 1 or more", e.Name, n, name)
		}
		h.Has = append(h.Has, backends.Amount{Name: name, Count: e.Gres[name]})
	}
	return h, nil
}

// readHosts reads --farm: slots, a file of hosts, or what scontrol show nodes printed.
func (d *Desk) readHosts(farm string) ([]backends.Host, error) {
	if n, err := strconv.Atoi(farm); err == nil {
		if n < 1 || n > 1<<24 {
			return nil, invalidf("--farm %d: want one slot or more", n)
		}
		return []backends.Host{{Name: "farm", Slots: n}}, nil
	}
	content, err := d.readNamed("--farm is neither a number of slots nor a file", farm, maxPlanFile)
	if err != nil {
		return nil, err
	}
	hosts, ok, err := simulate.ReadNodes(string(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", farm, err)
	}
	if ok {
		return checkHosts(farm, hosts)
	}
	var entries []hostEntry
	if err := config.Parse(farm, content, map[string]any{"hosts": &entries}, yamlplain.Convert); err != nil {
		return nil, err
	}
	for i := range entries {
		h, err := entries[i].host()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", farm, err)
		}
		hosts = append(hosts, h)
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("%s: no hosts: write hosts: [{name: n1, slots: 8}]", farm)
	}
	return checkHosts(farm, hosts)
}

// checkHosts returns the hosts, or an error if one is given twice.
func checkHosts(farm string, hosts []backends.Host) ([]backends.Host, error) {
	seen := map[string]bool{}
	for _, h := range hosts {
		if seen[h.Name] {
			return nil, fmt.Errorf("%s: host %q is given twice", farm, h.Name)
		}
		seen[h.Name] = true
	}
	return hosts, nil
}

// readTrace fills the store and returns the trace's name and format.
func (d *Desk) readTrace(ctx context.Context, o *Simulation, store *trace.Store) (string, trace.Format, error) {
	if o.Trace == "ledger" {
		l, err := ledger.OpenToRead(d.LedgerPath())
		if err != nil {
			return "", "", err
		}
		defer func() { _ = l.Close() }() // it was only read
		return o.Trace, "ledger", store.Fill(pastRuns(ctx, l, o.since), 0)
	}
	f, err := d.openNamed("open it", o.Trace)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	format, records, err := trace.Open(f, d.zone())
	if err != nil {
		return "", "", err
	}
	err = store.Fill(until(ctx, records), o.SkipBad)
	var bad *trace.LineError
	if errors.As(err, &bad) {
		err = fmt.Errorf("%w (--skip-bad N passes over N such lines)", err)
	}
	return filepath.Base(o.Trace), format, err
}

// until ends records with an error once a context has ended.
func until(ctx context.Context, records iter.Seq2[trace.Record, error]) iter.Seq2[trace.Record, error] {
	return func(yield func(trace.Record, error) bool) {
		for r, err := range records {
			if ctx.Err() != nil {
				yield(trace.Record{}, context.Cause(ctx))
				return
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// pastRuns are the ledger's ended jobs that were submitted since a time, as a trace.
func pastRuns(ctx context.Context, l *ledger.Ledger, since time.Time) func(func(trace.Record, error) bool) {
	return func(yield func(trace.Record, error) bool) {
		enough := errors.New("enough")
		err := l.PastRuns(ctx, func(r ledger.PastRun) error {
			if r.Submitted.Before(since) {
				return nil
			}
			record := trace.Record{Submitted: r.Submitted, Run: r.Ended.Sub(r.Started), Slots: r.Slots, User: r.User, Project: r.Project, Step: r.Step}
			switch {
			case r.Started.IsZero():
				record.LeftOut = trace.NeverRan
			case record.Run <= 0:
				record.Run = time.Millisecond
			}
			if !yield(record, nil) {
				return enough
			}
			return nil
		})
		if err != nil && !errors.Is(err, enough) {
			yield(trace.Record{}, err)
		}
	}
}

// namedPlan reads the plan of --plan.
func (d *Desk) namedPlan(name string) (*PlanFile, error) {
	content, err := d.readNamed("read the plan", name, maxPlanFile)
	if err != nil {
		return nil, err
	}
	return ReadPlan(name, content)
}

// shiftTo returns the time by which a trace is moved, by whole weeks, to begin in a week.
func shiftTo(w calendar.Week, t *trace.Store, zone *time.Location) time.Duration {
	weeks := calendar.WeeksBetween(calendar.WeekOf(t.First, zone), w)
	return t.First.In(zone).AddDate(0, 0, 7*weeks).Sub(t.First)
}

// setGuarantees fills in the guarantees, and moves the trace into the plan's weeks.
func (d *Desk) setGuarantees(o *Simulation, s *simulate.Setup) ([]string, error) {
	zone := d.zone()
	if o.Plan == "" {
		return nil, o.guarantee(s)
	}
	f, err := d.namedPlan(o.Plan)
	if err != nil {
		return nil, err
	}
	sets := d.PBA.HostSets.ByHost()
	for _, a := range f.Allocations {
		if err := d.checkHostSet(a.Hosts); err != nil {
			return nil, &config.Error{File: o.Plan, Line: f.Lines[a], Why: err.Error()}
		}
		if a.Hosts != "" && !slices.ContainsFunc(s.Hosts, func(h backends.Host) bool { return sets[h.Name] == a.Hosts }) {
			return nil, &config.Error{File: o.Plan, Line: f.Lines[a], Why: fmt.Sprintf("--farm %s has no host of host set %s: give it as a file of hosts", o.Farm, a.Hosts)}
		}
		s.Plan = append(s.Plan, simulatedEntry(a, zone))
	}
	var notes []string
	first, last := calendar.WeekOf(s.Trace.First, zone), calendar.WeekOf(s.Trace.Last, zone)
	if s.Trace.Jobs > 0 && (last.Compare(f.From) < 0 || first.Compare(f.To) > 0) {
		s.Shift = shiftTo(f.From, s.Trace, zone)
		notes = append(notes, fmt.Sprintf("The trace begins in %s; it is played as if that were %s, the plan's first week.", first, f.From))
	}
	return notes, nil
}

// warnOfGuarantees says where a week's guarantees add up to more than may be planned.
func (d *Desk) warnOfGuarantees(s *simulate.Setup) []string {
	slots, most := 0, 0
	for i := range s.Hosts {
		slots += s.Hosts[i].Slots
	}
	for i := range s.Plan {
		sum := 0
		for k := range s.Plan {
			if at := s.Plan[i].From; !at.Before(s.Plan[k].From) && (s.Plan[k].To.IsZero() || at.Before(s.Plan[k].To)) {
				sum += s.Plan[k].Guarantee
			}
		}
		most = max(most, sum)
	}
	if limit := d.allocatable(slots); most > limit {
		return []string{fmt.Sprintf("Warning: %d of %d slots are guaranteed, more than pba.max_allocated allows (%d): a plan could not have that.", most, slots, limit)}
	}
	return nil
}

// guarantee reads --guarantee.
func (o *Simulation) guarantee(s *simulate.Setup) error {
	given := map[string]bool{}
	kinds := map[simulate.Kind]bool{}
	for _, text := range o.Guarantees {
		who, number, ok := strings.Cut(text, "=")
		kind, name, ok2 := strings.Cut(who, ":")
		slots, err := strconv.Atoi(number)
		if !ok || !ok2 || name == "" || !slices.Contains(simulate.Kinds(), simulate.Kind(kind)) || err != nil || slots < 1 || slots > math.MaxInt32 {
			return invalidf("--guarantee %s: write it like user:7=32, project:chipA=32, group:3=80, queue:2=16 or partition:1=64", text)
		}
		if given[who] {
			return invalidf("--guarantee %s: %s is given twice", text, name)
		}
		given[who], kinds[simulate.Kind(kind)] = true, true
		s.By = append(s.By, simulate.Selector{Kind: simulate.Kind(kind), Name: name, Project: name})
		s.Plan = append(s.Plan, simulate.PlanEntry{Allocation: plan.Allocation{Project: name, Guarantee: slots}})
	}
	if len(kinds) > 1 { // a user and a group may have one name
		for i := range s.By {
			s.By[i].Project = string(s.By[i].Kind) + "-" + s.By[i].Name
			s.Plan[i].Project = s.By[i].Project
		}
	}
	return nil
}
