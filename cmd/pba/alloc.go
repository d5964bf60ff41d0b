package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

type allocOptions struct {
	pool  ledger.Pool
	slots int
	week  string
	weeks int
}

func allocCommand(p process) *cli.Command {
	flags := func() []cli.Flag {
		return []cli.Flag{
			&cli.StringFlag{Name: "week", Usage: "first ISO `WEEK`, such as 2026-W48 (default: this week)"},
			&cli.IntFlag{Name: "weeks", Value: 1, Usage: "`NUMBER` of weeks"},
			&cli.StringFlag{Name: "user", Usage: "only for jobs of this `USER`"},
			&cli.StringFlag{Name: "step", Usage: "only for jobs of this `STEP` of the project"},
		}
	}
	return &cli.Command{
		Name: "alloc", Usage: "plan slots for projects and weeks",
		Subcommands: []*cli.Command{
			{
				Name: "set", Usage: "give a project so many slots", ArgsUsage: "PROJECT SLOTS [--week WEEK] [--weeks NUMBER] [--user USER] [--step STEP]", Flags: flags(),
				Action: func(c *cli.Context) error {
					o, err := readAlloc(c, true)
					if err != nil {
						return err
					}
					return withSite(c.Context, p, p.openAndStart, func(s *site) error { return setAlloc(c.Context, s, o, c.App.Writer) })
				},
			},
			{
				Name: "unset", Usage: "take a project's slots back", ArgsUsage: "PROJECT [--week WEEK] [--weeks NUMBER] [--user USER] [--step STEP]", Flags: flags(),
				Action: func(c *cli.Context) error {
					o, err := readAlloc(c, false)
					if err != nil {
						return err
					}
					return withSite(c.Context, p, p.open, func(s *site) error { return unsetAlloc(c.Context, s, o, c.App.Writer) })
				},
			},
			{
				Name: "list", Usage: "list what is planned from this week on",
				Flags: append([]cli.Flag{&cli.StringFlag{Name: "project", Usage: "only those of this `PROJECT`"}}, shell.FormatFlags()...),
				Action: func(c *cli.Context) error {
					format, err := shell.FormatOf(c)
					if err != nil {
						return err
					}
					return withSite(c.Context, p, p.open, func(s *site) error {
						return listAllocs(c.Context, s, c.String("project"), format, c.App.Writer)
					})
				},
			},
		},
	}
}

func readAlloc(c *cli.Context, withSlots bool) (allocOptions, error) {
	o := allocOptions{week: c.String("week"), weeks: c.Int("weeks")}
	number := 1
	if withSlots {
		number = 2
	}
	args, err := shell.Args(c, number, number)
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
	o.slots, err = strconv.Atoi(args[1])
	if err != nil || o.slots > math.MaxInt32 {
		return o, shell.Usagef("%q is no number of slots", args[1])
	}
	if o.slots < 1 {
		return o, shell.Usagef("%d slots: want one or more; `pba alloc unset` takes slots back", o.slots)
	}
	return o, nil
}

// plannedWeeks are the weeks that are meant: none in the past, none beyond the horizon.
func (s *site) plannedWeeks(o allocOptions) ([]ledger.Week, error) {
	this := pba.WeekOf(s.now(), s.zone())
	first := this
	if o.week != "" {
		var err error
		if first, err = pba.ParseWeek(o.week); err != nil {
			return nil, shell.Usagef("--week: %w", err)
		}
	}
	if first.Compare(this) < 0 {
		return nil, fmt.Errorf("week %s is over: this week is %s", first, this)
	}
	horizon := pba.AddWeeks(this, s.PBA.Horizon)
	if pba.WeeksBetween(first, horizon) < o.weeks-1 {
		return nil, fmt.Errorf("%s from %s on: the last week that may be planned is %s (pba.horizon: %d weeks ahead)",
			count(o.weeks, "week"), first, horizon, s.PBA.Horizon)
	}
	var weeks []ledger.Week
	for i := range o.weeks {
		weeks = append(weeks, pba.AddWeeks(first, i))
	}
	return weeks, nil
}

func setAlloc(ctx context.Context, s *site, o allocOptions, out io.Writer) error {
	weeks, err := s.plannedWeeks(o)
	if err != nil {
		return err
	}
	if err := s.checkProject(ctx, o.pool.Project); err != nil {
		return err
	}
	if o.pool.User != "" {
		if err := s.checkUser(o.pool.User); err != nil {
			return err
		}
	}
	slots, down, err := s.farm(ctx)
	if err != nil {
		return fmt.Errorf("look up the farm's size: %w", err)
	}
	err = s.edit(ctx, func() error {
		return s.ledger.SetAllocations(ctx, s.editor(), o.pool, weeks, o.slots, s.fits(o.slots, slots, down))
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s has %d slots %s.\n", shell.Printable(o.pool.String()), o.slots, span(weeks))
	return nil
}

// fits checks a week's sum against max_allocated. What makes the sum no larger
// is always possible.
func (s *site) fits(slots, farm, down int) func(ledger.Week, int, int) error {
	limit := int(float64(farm)*float64(s.PBA.MaxAllocated) + 1e-9)
	return func(w ledger.Week, others, own int) error {
		if slots <= own || others+slots <= limit {
			return nil
		}
		text := fmt.Sprintf("%d slots don't fit into %s: %d are free there (max_allocated is %v of the farm's %d slots, that is %d; others hold %d)",
			slots, w, max(0, limit-others), s.PBA.MaxAllocated, farm, limit, others)
		if down > 0 {
			text += fmt.Sprintf("; %d more slots are on hosts that are down", down)
		}
		return errors.New(text)
	}
}

func (s *site) checkProject(ctx context.Context, name string) error {
	all, err := s.ledger.Projects(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Name == name {
			return nil
		}
	}
	return fmt.Errorf("%w %q: see `pba project list`, or add it: pba project add NAME --group GROUP", ledger.ErrUnknownProject, name)
}

func span(weeks []ledger.Week) string {
	first, last := weeks[0], weeks[len(weeks)-1]
	if first == last {
		return "in " + first.String()
	}
	return fmt.Sprintf("in each week from %s to %s", first, last)
}

func unsetAlloc(ctx context.Context, s *site, o allocOptions, out io.Writer) error {
	weeks, err := s.plannedWeeks(o)
	if err != nil {
		return err
	}
	if err := s.checkProject(ctx, o.pool.Project); err != nil {
		return err
	}
	err = s.edit(ctx, func() error { return s.ledger.UnsetAllocations(ctx, s.editor(), o.pool, weeks) })
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s has no slots of its own %s.\n", shell.Printable(o.pool.String()), span(weeks))
	return nil
}

func listAllocs(ctx context.Context, s *site, project string, format shell.Format, out io.Writer) error {
	if project != "" {
		if err := s.checkProject(ctx, project); err != nil {
			return err
		}
	}
	this := pba.WeekOf(s.now(), s.zone())
	all, err := s.ledger.Allocations(ctx, this, ledger.Week{Year: math.MaxInt32, Week: 53})
	if err != nil {
		return err
	}
	t := shell.NewTable("week", "project", "user", "step", "slots")
	shown := []ledger.Allocation{}
	for _, a := range all {
		if project != "" && a.Project != project {
			continue
		}
		shown = append(shown, a)
		t.Row(a.Week, a.Project, dash(a.User), dash(a.Step), a.Slots)
	}
	return shell.Print(out, format, t, shown)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
