package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/simulate"
	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

// simulateOptions are what is asked for. Zero durations leave the config's.
type simulateOptions struct {
	trace, farm, plan             string
	guarantees, policies          []string
	cycle, threshold, minRuntime  time.Duration
	headroom, arrivals, suspended float64
	kill                          time.Duration
	repeat, first, skipBad        int
	oneSlot, everyCycle           bool
	seed                          uint64
	who                           caller
	html                          string
	format                        table.Format
}

func simulateCommand(p process) *cli.Command {
	times := map[string]*duration{"cycle": {}, "threshold": {}, "min-runtime": {}, "kill-delay": {}}
	option := func(name, usage string) cli.Flag {
		return &cli.GenericFlag{Name: name, Value: times[name], Usage: usage}
	}
	return &cli.Command{
		Name: "simulate", Usage: "what would happen to this farm: a recorded workload under a plan, without it, and with hosts fenced off",
		Description: "Plays jobs that a site had once more, on a farm of your choice, with the very planner and queue that run in earnest, in seconds. " +
			"Traces: SWF, the output of sacct --parsable2, LSF's lsb.acct, each packed by gzip or not; and our own ledger. " +
			"All figures are over one window, from the first submission to the last, the same for all policies; a job is within the guarantee if it would " +
			"start at once on a fence of its project's slots that nobody else may use.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "trace", Usage: "the recorded jobs: a `FILE`, or \"ledger\" for what this site's engine has recorded"},
			&cli.StringFlag{Name: "farm", Usage: "`SLOTS` of one host, or a file of hosts (hosts: [{name: n1, slots: 8, memory: 32G}])"},
			&cli.StringFlag{Name: "plan", Usage: "`FILE` as pba alloc export writes it; a trace of other weeks is moved into the plan's"},
			&cli.StringSliceFlag{Name: "guarantee", Usage: "`user:NAME=SLOTS` or project:NAME=SLOTS, all the time; may be given several times; with user: each user's jobs are the project of his name"},
			&cli.StringSliceFlag{Name: "policy", Usage: "`LIST` of fifo (no guarantee), dedicated (hosts fenced off for each project), pba (default: all three)"},
			option("cycle", "`TIME` from one cycle to the next (default: pba.every)"),
			option("threshold", "`TIME` that a job waits before slots are taken back (default: pba.pending_threshold)"),
			option("min-runtime", "`TIME` for which a job is spared (default: pba.min_runtime)"),
			&cli.Float64Flag{Name: "headroom", Usage: "`FACTOR` of jobs next in line", Value: -1, DefaultText: "pba.headroom"},
			&cli.Float64Flag{Name: "scale-arrivals", Usage: "jobs come `FACTOR` times as densely as they did", Value: 1},
			&cli.IntFlag{Name: "repeat", Usage: "play the trace `NUMBER` times, end to end", Value: 1},
			&cli.IntFlag{Name: "first", Usage: "only the trace's first `NUMBER` jobs", DefaultText: "all"},
			&cli.BoolFlag{Name: "one-slot", Usage: "turn each job of n slots into n jobs of one", DisableDefaultText: true},
			&cli.Float64Flag{Name: "suspend", Usage: "`SHARE` (0 to 1) of the jobs whose users chose to be suspended, drawn by --seed"},
			option("kill-delay", "jobs that must go take up to `TIME` for it, drawn by --seed (default: none)"),
			&cli.Uint64Flag{Name: "seed", Usage: "`NUMBER` that all draws come from: the same gives the same", Value: 1},
			&cli.IntFlag{Name: "skip-bad", Usage: "pass over at most `NUMBER` lines of the trace that can't be read"},
			&cli.StringFlag{Name: "html", Usage: "also write a page with tables and charts, which needs no network, into `FILE`"},
			&cli.BoolFlag{Name: "every-cycle", Usage: "run the cycles too that can't change anything: slower, same result", DisableDefaultText: true},
		}, table.Flags()...),
		Action: func(c *cli.Context) error {
			o := simulateOptions{
				trace: c.String("trace"), farm: c.String("farm"), plan: c.String("plan"), guarantees: c.StringSlice("guarantee"),
				cycle: time.Duration(times["cycle"].value), threshold: time.Duration(times["threshold"].value),
				minRuntime: time.Duration(times["min-runtime"].value), kill: time.Duration(times["kill-delay"].value),
				headroom: c.Float64("headroom"), arrivals: c.Float64("scale-arrivals"), suspended: c.Float64("suspend"),
				repeat: c.Int("repeat"), first: c.Int("first"), oneSlot: c.Bool("one-slot"), everyCycle: c.Bool("every-cycle"),
				seed: c.Uint64("seed"), skipBad: c.Int("skip-bad"), html: c.String("html"),
			}
			var err error
			if o.format, err = table.FormatOf(c); err != nil {
				return err
			}
			if o.policies, err = policiesOf(c.StringSlice("policy")); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			return simulateRun(c.Context, &p, o, c.App.Writer)
		},
	}
}

func policiesOf(lists []string) ([]string, error) {
	known := []string{simulate.FIFO, simulate.Dedicated, simulate.PBA}
	var all []string
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			if !slices.Contains(known, name) {
				return nil, shell.Usagef("--policy %s: not known (known: %s)", name, strings.Join(known, ", "))
			}
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	if all == nil {
		all = known
	}
	return all, nil
}

func (o *simulateOptions) check() error {
	switch {
	case o.trace == "":
		return shell.Usagef("--trace: which jobs? give a FILE, or ledger")
	case o.farm == "":
		return shell.Usagef("--farm: how many slots, or which hosts?")
	case o.plan == "" && len(o.guarantees) == 0:
		return shell.Usagef("give --plan FILE or --guarantee user:NAME=SLOTS: who is promised what?")
	case o.plan != "" && len(o.guarantees) > 0:
		return shell.Usagef("--plan and --guarantee exclude each other")
	case !(o.arrivals > 0 && o.arrivals <= 1e6):
		return shell.Usagef("--scale-arrivals %g: want a factor above zero", o.arrivals)
	case o.headroom != -1 && !(o.headroom >= 0 && o.headroom <= 100):
		return shell.Usagef("--headroom %g: want a factor from 0 to 100", o.headroom)
	case !(o.suspended >= 0 && o.suspended <= 1):
		return shell.Usagef("--suspend %g: want a share from 0 to 1", o.suspended)
	case o.repeat < 1 || o.first < 0 || o.skipBad < 0:
		return shell.Usagef("--repeat, --first, --skip-bad: want a number of jobs, lines or times")
	}
	return nil
}

func simulateRun(ctx context.Context, p *process, o simulateOptions, out io.Writer) error {
	c, err := p.load()
	if err != nil {
		return err
	}
	if o.who, err = p.identify(c); err != nil {
		return err
	}
	if o.html != "" {
		if err := mayName(c, o.who, "--html"); err != nil {
			return err
		}
		if err := checkPlace(o.html); err != nil {
			return err
		}
	}
	s, err := o.setup(c)
	if err != nil {
		return err
	}
	var store trace.Store
	defer func() { _ = store.Close() }() // nothing in it is kept
	s.Trace = &store
	if s.Name, s.Format, err = o.read(ctx, c, &store); err != nil {
		return fmt.Errorf("read the trace %s: %w", o.trace, err)
	}
	notes, err := o.promise(&s, c)
	if err != nil {
		return err
	}
	r, err := simulate.Run(ctx, s)
	if errors.Is(err, simulate.ErrNothing) {
		return fmt.Errorf("%w: %s", err, leftOut(&store))
	}
	if err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	r.Notes = append(notes, r.Notes...)
	if o.html != "" {
		if err := writePage(c, o.who, o.html, p.args, r); err != nil {
			return err
		}
	}
	return printSimulation(out, o.format, r)
}

func leftOut(s *trace.Store) string {
	if len(s.Out) == 0 {
		return fmt.Sprintf("it has %s; see --farm and --first", count(s.Jobs, "job"))
	}
	var why []string
	for reason, n := range s.Out {
		why = append(why, fmt.Sprintf("%d: %s", n, reason))
	}
	slices.Sort(why)
	return strings.Join(why, "; ")
}

// setup is all but the trace and the plan.
func (o *simulateOptions) setup(c configfile.Config) (simulate.Setup, error) {
	const buckets = 240
	settings := c.PBA
	for _, t := range []struct {
		to   *unit.Duration
		from time.Duration
	}{{&settings.Every, o.cycle}, {&settings.PendingThreshold, o.threshold}, {&settings.MinRuntime, o.minRuntime}} {
		if t.from > 0 {
			*t.to = unit.Duration(t.from)
		}
	}
	if o.headroom >= 0 {
		settings.Headroom = o.headroom
	}
	if err := settings.Validate(); err != nil {
		return simulate.Setup{}, err
	}
	s := simulate.Setup{
		Policy: settings.Policy(), Reserve: time.Duration(c.Miniq.ReserveAfter), Policies: o.policies, ScaleArrivals: o.arrivals, Repeat: o.repeat,
		First: o.first, OneSlot: o.oneSlot, Suspend: o.suspended, Kill: o.kill, Seed: o.seed, EveryCycle: o.everyCycle, Buckets: buckets,
		Filter: esub.Settings{Config: c.Filter, NextInLine: backends.At(backends.LevelNext, backends.DefaultValue), SuspendFrees: true},
	}
	var err error
	s.Hosts, err = o.hosts(c)
	return s, err
}

type hostEntry struct {
	Name   string    `yaml:"name"`
	Slots  int       `yaml:"slots"`
	Memory unit.Size `yaml:"memory"`
}

// hosts reads --farm: slots, or a file of hosts.
func (o *simulateOptions) hosts(c configfile.Config) ([]backends.Host, error) {
	farm := o.farm
	if n, err := strconv.Atoi(farm); err == nil {
		if n < 1 || n > 1<<24 {
			return nil, shell.Usagef("--farm %d: want one slot or more", n)
		}
		return []backends.Host{{Name: "farm", Slots: n}}, nil
	}
	content, err := readNamed(c, o.who, "--farm is neither a number of slots nor a file", farm, maxPlanFile)
	if err != nil {
		return nil, err
	}
	var entries []hostEntry
	if err := config.Parse(farm, content, map[string]any{"hosts": &entries}); err != nil {
		return nil, err
	}
	var hosts []backends.Host
	for _, e := range entries {
		switch {
		case e.Name == "" || e.Slots < 1 || e.Slots > 1<<20:
			return nil, fmt.Errorf("%s: host %q with %d slots: want a name and slots", farm, e.Name, e.Slots)
		case slices.ContainsFunc(hosts, func(h backends.Host) bool { return h.Name == e.Name }):
			return nil, fmt.Errorf("%s: host %q is given twice", farm, e.Name)
		}
		hosts = append(hosts, backends.Host{Name: e.Name, Slots: e.Slots, Memory: int64(e.Memory)})
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("%s: no hosts: write hosts: [{name: n1, slots: 8}]", farm)
	}
	return hosts, nil
}

// read fills the store and gives the trace's name and format.
func (o *simulateOptions) read(ctx context.Context, c configfile.Config, store *trace.Store) (string, trace.Format, error) {
	if o.trace == "ledger" {
		l, err := ledger.OpenToRead(ledgerPath(c))
		if err != nil {
			return "", "", err
		}
		defer func() { _ = l.Close() }() // it was only read
		return o.trace, "ledger", store.Fill(pastRuns(ctx, l), 0)
	}
	f, err := openNamed(c, o.who, "open it", o.trace)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	format, records, err := trace.Open(f, c.Timezone.Location())
	if err != nil {
		return "", "", err
	}
	err = store.Fill(records, o.skipBad)
	var bad *trace.LineError
	if errors.As(err, &bad) {
		err = fmt.Errorf("%w (--skip-bad N passes over N such lines)", err)
	}
	return filepath.Base(o.trace), format, err
}

// pastRuns are the ledger's ended jobs as a trace.
func pastRuns(ctx context.Context, l *ledger.Ledger) func(func(trace.Record, error) bool) {
	return func(yield func(trace.Record, error) bool) {
		enough := errors.New("enough")
		err := l.PastRuns(ctx, func(r ledger.PastRun) error {
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

// promise fills in who is promised what, and moves the trace into the plan's weeks.
func (o *simulateOptions) promise(s *simulate.Setup, c configfile.Config) ([]string, error) {
	zone := c.Timezone.Location()
	if o.plan == "" {
		return nil, o.guarantee(s)
	}
	content, err := readNamed(c, o.who, "read the plan", o.plan, maxPlanFile)
	if err != nil {
		return nil, err
	}
	f, err := pba.ReadPlan(o.plan, content)
	if err != nil {
		return nil, err
	}
	for _, a := range f.Allocations {
		week := calendar.PeriodOf(a.Week, zone)
		s.Plan = append(s.Plan, simulate.Promise{
			Allocation: plan.Allocation{Project: a.Project, User: a.User, Step: a.Step, Guarantee: a.Slots, SLA: a.SLA, Jobs: a.Jobs, Begin: week.Begin, End: week.End},
			From:       week.Begin, To: week.End,
		})
	}
	var notes []string
	first, last := calendar.WeekOf(s.Trace.First, zone), calendar.WeekOf(s.Trace.Last, zone)
	if s.Trace.Jobs > 0 && (last.Compare(f.From) < 0 || first.Compare(f.To) > 0) {
		weeks := calendar.WeeksBetween(first, f.From)
		s.Shift = s.Trace.First.In(zone).AddDate(0, 0, 7*weeks).Sub(s.Trace.First)
		notes = append(notes, fmt.Sprintf("The trace begins in %s; it is played as if that were %s, the plan's first week.", first, f.From))
	}
	return notes, nil
}

// guarantee reads --guarantee.
func (o *simulateOptions) guarantee(s *simulate.Setup) error {
	kinds := map[string]bool{}
	for _, text := range o.guarantees {
		who, number, ok := strings.Cut(text, "=")
		kind, name, ok2 := strings.Cut(who, ":")
		slots, err := strconv.Atoi(number)
		if !ok || !ok2 || name == "" || kind != "user" && kind != "project" || err != nil || slots < 1 || slots > math.MaxInt32 {
			return shell.Usagef("--guarantee %s: write it like user:7=32 or project:chipA=32", text)
		}
		if slices.ContainsFunc(s.Plan, func(p simulate.Promise) bool { return p.Project == name }) {
			return shell.Usagef("--guarantee %s: %s is given twice", text, name)
		}
		kinds[kind] = true
		s.Plan = append(s.Plan, simulate.Promise{Allocation: plan.Allocation{Project: name, Guarantee: slots}})
	}
	if len(kinds) > 1 {
		return shell.Usagef("--guarantee: user: and project: exclude each other")
	}
	s.ByUser = kinds["user"]
	return nil
}
