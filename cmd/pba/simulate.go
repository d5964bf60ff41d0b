package main

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

const exitInterrupted = 130 // 128 + SIGINT, as a shell has it

func simulateCommand(p process) *cli.Command {
	times := map[string]*duration{"cycle": {}, "threshold": {}, "kill-delay": {}}
	minRuntime := durationOrZero{-1}
	var onDemand, periodic saves
	option := func(name, usage string) cli.Flag {
		return &cli.GenericFlag{Name: name, Value: times[name], Usage: usage}
	}
	return &cli.Command{
		Name: "simulate", Usage: "replay a recorded workload under a plan, without it, and with hosts fenced off",
		Description: "Replays recorded jobs in seconds on a farm of your choice, with the planner and queue that run a farm. " +
			"A trace is a file in the Standard Workload Format, the output of sacct --parsable2, or LSF's lsb.acct, each packed by gzip or not; or this site's own ledger. " +
			"All figures are over one window, from the first submission to the last, the same for all policies; a job is within the guarantee if it would " +
			"start at once on as many slots fenced off for its project.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "trace", Usage: "the recorded jobs: a `FILE`, or \"ledger\" for what this site's engine has recorded"},
			&cli.StringFlag{Name: "farm", Usage: "one host of so many `SLOTS`, a file of hosts (hosts: [{name: n1, slots: 8, memory: 32G, partitions: [long], gres: {gpu: 2}}]), or of what scontrol show nodes printed"},
			&cli.StringFlag{Name: "plan", Usage: "the plan: a `FILE` that pba alloc export wrote; a trace of other weeks is moved into the plan's"},
			&cli.StringSliceFlag{Name: "guarantee", Usage: "instead of a plan, `user:NAME=SLOTS` all the time, or project:, group:, queue: or partition:NAME=SLOTS; may be given several times, the first that a job is of counts"},
			&cli.StringSliceFlag{Name: "change", Usage: "instead of policies, compare the plan (--plan, or the ledger's) with this `CHANGE` and without it, such as 'chipA +40 W50-W51', 'chipA:drc user bob on gpu -8 next' or 'chipA =20', and name who gives way; may be given several times. Without --trace and --farm: the ledger's latest jobs, on this site's hosts"},
			&cli.StringSliceFlag{Name: "policy", Usage: "policies to compare: `LIST` of fifo (no guarantee), dedicated (hosts fenced off for each project), pba (default: these three), pba-0s (pba with a pending_threshold of 0s for each project: what slots in seconds cost)"},
			option("cycle", "`TIME` from one cycle to the next (default: pba.every)"),
			option("threshold", "`TIME` that a job waits before others are preempted for it (default: pba.pending_threshold)"),
			&cli.GenericFlag{Name: "min-runtime", Value: &minRuntime, Usage: "`TIME` that a job runs before it may be preempted, 0s too (default: pba.min_runtime)"},
			&cli.Float64Flag{Name: "headroom", Usage: "`FACTOR` for the number of jobs next in line for a pool", Value: -1, DefaultText: "pba.headroom"},
			&cli.Float64Flag{Name: "scale-arrivals", Usage: "jobs arrive `FACTOR` times as densely as recorded", Value: 1},
			&cli.IntFlag{Name: "repeat", Usage: "replay the trace `NUMBER` times, end to end", Value: 1},
			&cli.IntFlag{Name: "first", Usage: "only the trace's first `NUMBER` jobs", DefaultText: "all"},
			&cli.BoolFlag{Name: "one-slot", Usage: "turn each job of n slots into n jobs of one", DisableDefaultText: true},
			&cli.Float64Flag{Name: "suspend", Usage: "`SHARE` (0 to 1) of jobs that are suspended when preempted, not requeued; drawn by --seed"},
			&cli.GenericFlag{Name: "checkpoint", Value: &onDemand, Usage: "`SHARE:SAVE:RESTORE` such as 50%:30s:60s: this part of the jobs, drawn by --seed, saves its work when it is asked to, in the first time; a run needs the second one to go on from there"},
			&cli.GenericFlag{Name: "checkpoint-every", Value: &periodic, Usage: "`SHARE:PERIOD:RESTORE` such as 50%:10m:60s: this part saves its work each PERIOD"},
			option("kill-delay", "preempted jobs take up to `TIME` to end, drawn by --seed (default: none)"),
			&cli.Uint64Flag{Name: "seed", Usage: "`NUMBER` for all random draws: the same gives the same result", Value: 1},
			&cli.IntFlag{Name: "skip-bad", Usage: "skip at most `NUMBER` lines of the trace that can't be read"},
			&cli.StringFlag{Name: "html", Usage: "also write a self-contained page with tables and charts to `FILE`"},
			&cli.BoolFlag{Name: "every-cycle", Usage: "also run cycles that can't change anything: slower, same result", DisableDefaultText: true},
		}, table.Flags()...),
		Action: func(c *cli.Context) error {
			o := desk.Simulation{
				Trace: c.String("trace"), Farm: c.String("farm"), Plan: c.String("plan"), Guarantees: c.StringSlice("guarantee"), Changes: c.StringSlice("change"),
				Cycle: time.Duration(times["cycle"].value), Threshold: time.Duration(times["threshold"].value),
				MinRuntime: time.Duration(minRuntime.value), Kill: time.Duration(times["kill-delay"].value),
				Headroom: c.Float64("headroom"), Arrivals: c.Float64("scale-arrivals"), Suspended: c.Float64("suspend"),
				Repeat: c.Int("repeat"), First: c.Int("first"), OneSlot: c.Bool("one-slot"), EveryCycle: c.Bool("every-cycle"),
				OnDemand: onDemand.value, Periodic: periodic.value,
				Seed: c.Uint64("seed"), SkipBad: c.Int("skip-bad"),
			}
			format, err := table.FormatOf(c)
			if err != nil {
				return err
			}
			if len(o.Changes) > 0 {
				return withExitCode(simulateChange(c, p, &o, format))
			}
			if o.Policies, err = policiesOf(c.StringSlice("policy")); err != nil {
				return err
			}
			if err := checkSimulation(&o); err != nil {
				return err
			}
			return withExitCode(simulateRun(c, p, &o, format))
		},
	}
}

func policiesOf(lists []string) ([]string, error) {
	known := []string{simulate.FIFO, simulate.Dedicated, simulate.PBA, simulate.Seconds}
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
		all = known[:3]
	}
	return all, nil
}

func checkSimulation(o *desk.Simulation) error {
	switch {
	case o.Trace == "":
		return shell.Usagef("--trace is missing: give a FILE of recorded jobs, or ledger")
	case o.Farm == "" && len(o.Changes) == 0:
		return shell.Usagef("--farm is missing: give a number of slots, or a file of hosts")
	case o.Plan == "" && len(o.Guarantees)+len(o.Changes) == 0:
		return shell.Usagef("no guarantee: give --plan FILE or --guarantee user:NAME=SLOTS")
	case o.Plan != "" && len(o.Guarantees) > 0:
		return shell.Usagef("--plan and --guarantee exclude each other")
	case !(o.Arrivals > 0 && o.Arrivals <= 1e6):
		return shell.Usagef("--scale-arrivals %g: want a factor above zero", o.Arrivals)
	case o.Headroom != -1 && !(o.Headroom >= 0 && o.Headroom <= 100):
		return shell.Usagef("--headroom %g: want a factor from 0 to 100", o.Headroom)
	case !(o.Suspended >= 0 && o.Suspended <= 1):
		return shell.Usagef("--suspend %g: want a share from 0 to 1", o.Suspended)
	case o.Repeat < 1 || o.First < 0 || o.SkipBad < 0:
		return shell.Usagef("--repeat, --first, --skip-bad: want a number of jobs, lines or times")
	}
	return nil
}

func simulateRun(c *cli.Context, p process, o *desk.Simulation, format table.Format) error {
	d, err := desk.New(p.System)
	if err != nil {
		return err
	}
	html := c.String("html")
	if html != "" {
		if err := d.MayName("--html"); err != nil {
			return err
		}
		if err := checkPath(html); err != nil {
			return err
		}
	}
	bar := newProgress(p.stderr, o.Policies)
	o.Progress = bar.show
	r, err := d.Simulate(c.Context, o)
	bar.end()
	if err != nil && c.Context.Err() != nil {
		return &shell.ExitError{Code: exitInterrupted, Err: errors.New("interrupted: nothing was simulated to its end, and nothing is written")}
	}
	if err != nil {
		return err
	}
	if html != "" {
		content, err := renderPage(p.args, r)
		if err == nil {
			err = d.WriteNamed("--html", html, content)
		}
		if err != nil {
			return err
		}
	}
	return printSimulation(c.App.Writer, format, r)
}
