package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

type allocOptions struct {
	pool  ledger.Pool
	terms ledger.Terms // zero: taken back
	week  string
	weeks int
}

func weekFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "week", Usage: "first ISO `WEEK`, such as 2026-W48 (default: this week)"},
		&cli.IntFlag{Name: "weeks", Value: 1, Usage: "`NUMBER` of weeks"},
	}
}

func allocCommand(p process) *cli.Command {
	flags := func(more ...cli.Flag) []cli.Flag {
		all := append(weekFlags(),
			&cli.StringFlag{Name: "user", Usage: "only for jobs of this `USER`"},
			&cli.StringFlag{Name: "step", Usage: "only for jobs of this `STEP` of the project"})
		return append(all, more...)
	}
	return &cli.Command{
		Name: "alloc", Usage: "plan slots for projects and weeks",
		Subcommands: []*cli.Command{
			{
				Name: "set", Usage: "give a project so many slots",
				ArgsUsage: "PROJECT SLOTS [--week WEEK] [--weeks NUMBER] [--user USER] [--step STEP] [--sla throughput --jobs NUMBER]",
				Flags: flags(
					&cli.StringFlag{Name: "sla", Value: string(plan.Velocity), Usage: "`WHAT` is promised: velocity, all slots at any time; or throughput, a number of jobs in the week, for which fewer slots may do"},
					&cli.IntFlag{Name: "jobs", Usage: "`NUMBER` of jobs to be done in each week, for --sla throughput"}),
				Action: func(c *cli.Context) error {
					o, err := readAlloc(c, true)
					if err != nil {
						return err
					}
					return withSite(c.Context, p, p.openAndStart, func(s *site) error { return changeAlloc(c.Context, s, o, c.App.Writer) })
				},
			},
			{
				Name: "unset", Usage: "take a project's slots back", ArgsUsage: "PROJECT [--week WEEK] [--weeks NUMBER] [--user USER] [--step STEP]", Flags: flags(),
				Action: func(c *cli.Context) error {
					o, err := readAlloc(c, false)
					if err != nil {
						return err
					}
					return withSite(c.Context, p, p.open, func(s *site) error { return changeAlloc(c.Context, s, o, c.App.Writer) })
				},
			},
			{
				Name: "list", Usage: "list what is planned from this week on",
				Flags: append([]cli.Flag{&cli.StringFlag{Name: "project", Usage: "only those of this `PROJECT`"}}, table.Flags()...),
				Action: func(c *cli.Context) error {
					format, err := table.FormatOf(c)
					if err != nil {
						return err
					}
					return withSite(c.Context, p, p.open, func(s *site) error {
						return listAllocs(c.Context, s, c.String("project"), format, c.App.Writer)
					})
				},
			},
			exportCommand(p), importCommand(p),
		},
	}
}

func readAlloc(c *cli.Context, withSlots bool) (allocOptions, error) {
	o := allocOptions{week: c.String("week"), weeks: c.Int("weeks")}
	number := 1
	if withSlots {
		number = 2
	}
	args, err := commands.Args(c, number, number)
	if err != nil {
		return o, err
	}
	o.pool = ledger.Pool{Project: args[0], User: c.String("user"), Step: c.String("step")}
	if c.IsSet("user") && o.pool.User == "" || c.IsSet("step") && o.pool.Step == "" {
		return o, shell.Usagef("--user and --step need a name")
	}
	if o.pool.Step != "" {
		if err := checkName("step", o.pool.Step); err != nil {
			return o, err
		}
	}
	if o.weeks < 1 {
		return o, shell.Usagef("--weeks %d: want one week or more", o.weeks)
	}
	if !withSlots {
		return o, nil
	}
	slots, err := strconv.Atoi(args[1])
	if err != nil || slots > math.MaxInt32 {
		return o, shell.Usagef("%q is no number of slots", args[1])
	}
	if slots < 1 {
		return o, shell.Usagef("%d slots: want one or more; `pba alloc unset` takes slots back", slots)
	}
	o.terms = ledger.Terms{Slots: slots, SLA: plan.SLA(c.String("sla")), Jobs: c.Int("jobs")}
	if err := pba.CheckTerms(o.terms); err != nil {
		return o, shell.Usagef("--sla, --jobs: %w", err)
	}
	return o, nil
}

// first is the week that an option --week names; this week without one.
func (s *site) first(option string) (calendar.Week, error) {
	if option == "" {
		return s.thisWeek(), nil
	}
	w, err := calendar.ParseWeek(option)
	if err != nil {
		return w, shell.Usagef("--week: %w", err)
	}
	return w, nil
}

// plannedWeeks are the weeks that are meant: none in the past, none beyond the horizon.
func (s *site) plannedWeeks(option string, weeks int) ([]calendar.Week, error) {
	first, err := s.first(option)
	if err != nil {
		return nil, err
	}
	this := s.thisWeek()
	if first.Compare(this) < 0 {
		return nil, over(first, this)
	}
	horizon := calendar.AddWeeks(this, s.PBA.Horizon)
	if calendar.WeeksBetween(first, horizon) < weeks-1 {
		return nil, fmt.Errorf("%s from %s on: the last week that may be planned is %s (pba.horizon: %d weeks ahead)",
			count(weeks, "week"), first, horizon, s.PBA.Horizon)
	}
	var all []calendar.Week
	for i := range weeks {
		all = append(all, calendar.AddWeeks(first, i))
	}
	return all, nil
}

func over(w, this calendar.Week) error {
	return fmt.Errorf("week %s is over: this week is %s", w, this)
}

// changeAlloc is alloc set and, without terms, alloc unset.
func changeAlloc(ctx context.Context, s *site, o allocOptions, out io.Writer) error {
	weeks, err := s.plannedWeeks(o.week, o.weeks)
	if err != nil {
		return err
	}
	if err := s.mayPlan(ctx, o.pool.Project); err != nil {
		return err
	}
	var changes []ledger.Change
	for _, w := range weeks {
		changes = append(changes, ledger.Change{Pool: o.pool, Week: w, Terms: o.terms})
	}
	p, err := s.planner(ctx, changes)
	if err != nil {
		return err
	}
	err = s.edit(ctx, func() error {
		if err := p.checkAll(ctx, changes); err != nil {
			return err
		}
		return s.ledger.ChangeAllocations(ctx, p.edit(), changes)
	})
	if err != nil {
		return err
	}
	if o.terms.Slots == 0 {
		fmt.Fprintf(out, "%s has no slots of its own %s.\n", shell.Printable(o.pool.String()), inWeeks(weeks))
		return nil
	}
	fmt.Fprintf(out, "%s has %s %s.\n", shell.Printable(o.pool.String()), promise(o.terms), inWeeks(weeks))
	return nil
}

// promise is what terms say, in words.
func promise(t ledger.Terms) string {
	text := count(t.Slots, "slot")
	if t.SLA == plan.Throughput {
		text += " for " + count(t.Jobs, "job") + " a week"
	}
	return text
}

func inWeeks(weeks []calendar.Week) string {
	first, last := weeks[0], weeks[len(weeks)-1]
	if first == last {
		return "in " + first.String()
	}
	return fmt.Sprintf("in each week from %s to %s", first, last)
}

func listAllocs(ctx context.Context, s *site, project string, format table.Format, out io.Writer) error {
	if project != "" {
		if err := s.checkProject(ctx, project); err != nil {
			return err
		}
	}
	all, err := s.ledger.Allocations(ctx, s.thisWeek(), calendar.Week{Year: math.MaxInt32, Week: 53})
	if err != nil {
		return err
	}
	t := table.New("week", "project", "user", "step", "slots", "sla", "jobs")
	shown := []ledger.Allocation{}
	for _, a := range all {
		if project != "" && a.Project != project {
			continue
		}
		shown = append(shown, a)
		jobs := "-"
		if a.Jobs > 0 {
			jobs = strconv.Itoa(a.Jobs)
		}
		t.Row(a.Week, a.Project, dash(a.User), dash(a.Step), a.Slots, a.SLA, jobs)
	}
	return table.Print(out, format, t, shown)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
