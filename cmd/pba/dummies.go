package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/report"
)

func dummiesCommand(p process) *cli.Command {
	dryRun := &cli.BoolFlag{Name: "dry-run", Usage: "print what would be ended, and end nothing", DisableDefaultText: true}
	return &cli.Command{
		Name: "dummies", Usage: "dummy jobs, which leave the memory of their slots to jobs that need much",
		Subcommands: []*cli.Command{{
			Name: "prune", Usage: "end dummy jobs that nobody needs, now: cycles do it by themselves",
			Flags: []cli.Flag{dryRun},
			Action: func(c *cli.Context) error {
				return withSite(c.Context, p, p.open, func(s *site) error { return prune(c.Context, s, c.Bool("dry-run"), c.App.Writer) })
			},
		}},
	}
}

// prune is pba dummies prune.
func prune(ctx context.Context, s *site, dryRun bool, out io.Writer) error {
	if dryRun {
		r, err := s.engine(true).Observe(ctx, s.now)
		if err != nil {
			return err
		}
		return printPruned(out, "would be ended", plan.Prune(r.State, r.Rules.Policy, r.State.Farm.At).Actions)
	}
	if err := s.mustBeAdmin("end dummy jobs"); err != nil {
		return err
	}
	var r pba.Result
	err := s.locked(ctx, s.Paths.State, func() (err error) {
		r, err = s.engine(false).Prune(ctx, s.now)
		return err
	})
	if err == nil {
		err = r.Failed()
	}
	if err != nil {
		return fmt.Errorf("end dummy jobs that nobody needs: %w (try again)", err)
	}
	return printPruned(out, "ended", r.Plan.Actions)
}

func printPruned(out io.Writer, what string, actions []plan.Action) error {
	n := 0
	for i := range actions {
		a := &actions[i]
		n += len(a.Dummies)
		if _, err := fmt.Fprintf(out, "%s %s: %s\n", count(len(a.Dummies), "dummy job"), what, a.Reason); err != nil {
			return err
		}
	}
	if n > 0 {
		return nil
	}
	_, err := fmt.Fprintln(out, "There is no dummy job that nobody needs.")
	return err
}

// reportDummies is pba report dummies.
func reportDummies(ctx context.Context, s *site, o reportOptions, out io.Writer) error {
	acts, err := s.ledger.DummyActs(ctx, o.from, o.to)
	if err != nil {
		return err
	}
	rules, err := s.rules(ctx, o.to)
	if err != nil {
		return err
	}
	rows := report.Dummies(acts, s.unfinished(ctx, len(acts) > 0), rules.Policy.Dummies.Limit, o.to, o.project)
	if err := s.concerns(ctx, o, len(rows) > 0); err != nil {
		return err
	}
	if len(rows) == 0 && o.format == table.Text {
		_, err := fmt.Fprintf(out, "No dummy jobs were placed since %s.\n", o.from.Local().Format("2006-01-02 15:04"))
		return err
	}
	t := table.New("project", "user", "heavy_jobs", "dummies", "median_gather_seconds", "max_gather_seconds", "held_slot_hours")
	for _, r := range rows {
		t.Row(dash(r.Project), dash(r.User), r.Jobs, r.Dummies, decimal(r.Median), decimal(r.Max), decimal(r.Held))
	}
	return table.Print(out, o.format, t, struct {
		period
		Dummies []report.Heavy `json:"dummies"`
	}{o.period(), rows})
}

// unfinished are the jobs that the queue has; none if it is away: what the ledger
// knows is told all the same.
func (s *site) unfinished(ctx context.Context, wanted bool) []backends.Job {
	if !wanted {
		return nil
	}
	farm, err := s.backend.Farm(ctx, s.now())
	if err != nil {
		fmt.Fprintf(s.stderr, "pba: warning: whose the jobs are that have not ended is not known: %s\n", shell.OneLine(err.Error()))
		return nil
	}
	return farm.Jobs
}
