package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/desk"
)

type rebalanceOptions struct {
	dryRun   bool
	every    time.Duration
	runFor   time.Duration
	verbose  bool
	json     bool
	repeated bool
}

func rebalanceCommand(p process) *cli.Command {
	every, runFor := &duration{}, &duration{}
	return &cli.Command{
		Name: "rebalance", Usage: "run a cycle, as cron or a service does: read the queue, plan, act, record",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would be done and why; change nothing", DisableDefaultText: true},
			&cli.GenericFlag{Name: "every", Value: every, Usage: "repeat a cycle each `DURATION` (with --for: pba.every)"},
			&cli.GenericFlag{Name: "for", Value: runFor, Usage: "end after `DURATION`"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "print each action and its reason", DisableDefaultText: true},
			&cli.BoolFlag{Name: "json", Usage: "print JSON, one document a cycle", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			o := rebalanceOptions{
				dryRun: c.Bool("dry-run"), every: time.Duration(every.value), runFor: time.Duration(runFor.value),
				verbose: c.Bool("verbose"), json: c.Bool("json"),
			}
			o.repeated = o.every > 0 || o.runFor > 0
			switch {
			case o.dryRun && o.repeated:
				return shell.Usagef("--dry-run runs one cycle: omit --every and --for")
			case o.runFor > 0 && o.every > o.runFor:
				return shell.Usagef("--every %v is longer than --for %v", o.every, o.runFor)
			}
			if o.dryRun {
				o.verbose = true
				return p.withDesk(c, func(ctx context.Context, d *desk.Desk) error {
					shown, err := d.Preview(ctx)
					if err != nil {
						return err
					}
					return printCycle(c.App.Writer, shown, o)
				})
			}
			return withExitCode(rebalance(c.Context, p, o, c.App.Writer))
		},
	}
}

func rebalance(ctx context.Context, p process, o rebalanceOptions, out io.Writer) error {
	d, err := desk.New(p.System)
	if err != nil {
		return err
	}
	log := newCycleLog(d.Log, p.stderr, o)
	err = d.Rebalance(ctx, o.every, o.runFor, func(shown *desk.Cycle, err error) error {
		if shown != nil {
			if printErr := printCycle(out, shown, o); err == nil {
				err = printErr
			}
		}
		switch {
		case !o.repeated:
		case err == nil:
			log.cycle(shown)
		case desk.Temporary(err):
			log.failed(err)
		}
		return err
	})
	switch {
	case errors.Is(err, desk.ErrRunning):
		if o.verbose {
			fmt.Fprintln(out, "Another pba rebalance is running: nothing to do.")
		}
		return nil
	case o.repeated && desk.Temporary(err):
		return &shell.ExitError{Code: shell.ExitTryAgain} // the log has it
	}
	return err
}

// printCycle prints what a cycle did. Without --json or --verbose a repeated one prints
// nothing.
func printCycle(out io.Writer, shown *desk.Cycle, o rebalanceOptions) error {
	if o.json {
		return shell.PrintJSON(out, shown)
	}
	if o.repeated && !o.verbose {
		return nil
	}
	if shown.Blind {
		return nil // the error says it all
	}
	fmt.Fprintln(out, headline(shown))
	if !o.verbose {
		return nil
	}
	if len(shown.Actions) > 0 {
		t := table.New("action", "job", "for", "host", "outcome", "reason")
		for _, a := range shown.Actions {
			reason := a.Reason
			if a.Error != "" {
				reason += " (" + a.Error + ")"
			}
			t.Row(a.Verb, dash(a.Job), dash(otherThan(a.Job, a.For)), dash(a.Host), dash(a.Outcome), reason)
		}
		if err := table.Print(out, table.Text, t, nil); err != nil {
			return err
		}
	}
	for _, s := range shown.Skipped {
		fmt.Fprintf(out, "Left out: job %s: %s\n", s.Job, shell.OneLine(s.Reason))
	}
	for _, w := range shown.Warnings {
		fmt.Fprintf(out, "Warning: %s\n", shell.OneLine(w))
	}
	return nil
}

// otherThan returns the beneficiary, "" if it is the job itself.
func otherThan(job, beneficiary string) string {
	if job == beneficiary {
		return ""
	}
	return beneficiary
}

func headline(p *desk.Cycle) string {
	at := p.At
	if at.IsZero() {
		at = time.Now()
	}
	text := at.Local().Format("15:04:05") + " "
	switch {
	case p.Note != "" && len(p.Actions) == 0:
		return text + shell.OneLine(p.Note)
	case p.Mode == desk.DryRun:
		text += "would do "
	case p.Mode == desk.Observe:
		text += "observed, would have done "
	default:
		text += "did "
	}
	text += fmt.Sprintf("%s, %d left out", printable.Count(len(p.Actions), "action"), len(p.Skipped))
	if p.Note != "" {
		text += "; " + shell.OneLine(p.Note)
	}
	return text
}
