package main

import (
	"context"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

type exportOptions struct {
	projects []string // empty: all that have slots there
	week     string
	weeks    int // 0: up to the horizon
}

func exportCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "export", Usage: "print the plan as YAML: for review, and for `pba alloc import`",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "project", Usage: "only this `PROJECT`; may be given several times (default: all that have slots in these weeks)"},
			&cli.StringFlag{Name: "week", Usage: "first ISO `WEEK`, such as 2026-W48 (default: this week)"},
			&cli.IntFlag{Name: "weeks", Usage: "`NUMBER` of weeks (default: all that may be planned)"},
		},
		Action: func(c *cli.Context) error {
			o := exportOptions{projects: c.StringSlice("project"), week: c.String("week"), weeks: c.Int("weeks")}
			if c.IsSet("weeks") && o.weeks < 1 {
				return shell.Usagef("--weeks %d: want one week or more", o.weeks)
			}
			return withSite(c.Context, p, p.open, func(s *site) error { return exportPlan(c.Context, s, o, c.App.Writer) })
		},
	}
}

func exportPlan(ctx context.Context, s *site, o exportOptions, out io.Writer) error {
	for _, name := range o.projects {
		if err := s.checkProject(ctx, name); err != nil {
			return err
		}
	}
	from, err := s.first(o.week)
	if err != nil {
		return err
	}
	to := calendar.AddWeeks(s.thisWeek(), s.PBA.Horizon)
	if o.weeks > 0 {
		to = calendar.AddWeeks(from, o.weeks-1)
	}
	if to.Compare(from) < 0 {
		to = from
	}
	planned, err := s.ledger.Allocations(ctx, from, to)
	if err != nil {
		return err
	}
	f := pba.PlanFile{From: from, To: to, Projects: o.projects}
	for _, a := range planned {
		if len(o.projects) > 0 && !slices.Contains(o.projects, a.Project) {
			continue
		}
		f.Allocations = append(f.Allocations, ledger.Change{Pool: a.Pool, Week: a.Week, Terms: a.Terms})
		if !slices.Contains(f.Projects, a.Project) {
			f.Projects = append(f.Projects, a.Project)
		}
	}
	return f.Write(out)
}
