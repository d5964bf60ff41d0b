package main

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split"
	"github.com/allotment-hpc/allotment/split/task"
)

const residentDescription = `Runs COMMAND once for each block in each period; {} is the block's number, which is the last argument where there is
no {}, and ALLOTMENT_PERIOD in its environment the period's, from 1. Blocks are divided over the hosts, whose jobs stay
as workers. At the end of a period its results are written in the order of the blocks, once; with --reduce, LINE of
/bin/sh gets them on standard input on this host, and what it writes is written instead.

Blocks stay on their hosts as long as they can. If the slowest host of a period took at least twice as long as the
fastest, half of its blocks move there; --balance rate moves as few as make the periods short. A host that is lost has
its blocks computed elsewhere in the same period.

A period that takes longer delays the next one. Ctrl-C ends it; asplit --resume goes on with the first period that was
not written, with the blocks where they were. A block that fails is reported, and its period is written; a reduce
command that fails ends the run, and nothing of its period is written.`

// residentRefused are options of asplit that a resident job can't have, and why.
func residentRefused() map[string]string {
	const (
		items  = "its items are the blocks: use --blocks"
		ends   = "it reports periods as they end, and keeps nothing of what was written"
		once   = "a host that is lost or late has its blocks moved"
		always = "a block that fails is tried again in the next period"
		same   = "its periods have one command"
		rules  = "blocks move by --balance"
		again  = "asplit --resume NAME continues it"
	)
	return map[string]string{
		"range": items, "file": items, "null": items, "joblog": ends, "report": ends, "json": ends, "keep": ends, "retry-failed": always, "halt": always,
		"copies": once, "speculate": once, "round": "its rounds are periods: use --period", "adjust": rules, "threshold": rules, "step": rules,
		"try": same, "adds": "a period has the blocks alone", "unordered": "a period's results are in the order of the blocks", "idle": "its workers stay all the time", "resume": again, "from-here": "its workers stay, and leased slots are given back",
	}
}

func residentCommand(p process) *cli.Command {
	own := append(jobFlags(), []cli.Flag{
		&cli.StringFlag{Name: "period", Usage: "`TIME` from the beginning of a period to that of the next, such as 10s"},
		&cli.StringFlag{Name: "blocks", Usage: "numbers of the blocks: `FROM-TO`"},
		&cli.StringFlag{Name: "reduce", Usage: "`LINE` of /bin/sh that gets each period's results on standard input, and writes instead of them"},
		&cli.StringFlag{Name: "balance", Value: "half", Usage: "`RULE` by which blocks move: half (half of the slowest host's, if it takes twice as long as the fastest) or rate (each host's measured rate)"},
		&cli.StringFlag{Name: "periods", Usage: "end after `N` periods (default: when it is interrupted)"},
	}...)
	shared := []string{
		"J", "shell", "joined", "join-dir", "hosts", "slots", "profile", "no-qualify", "retries", "timeout", "tag", "states", "dry-run", "workers", "max-workers", "quiet",
	}
	refused := residentRefused()
	for _, f := range flags() {
		switch name := f.Names()[0]; {
		case name == "slots":
			own = append(own, &cli.StringFlag{Name: name, Usage: "slots of each job, and blocks that run side by side: `N`, free (all that are free on the host) or all of the host (default: 1)"})
		case slices.Contains(shared, name):
			own = append(own, f)
		case refused[name] != "":
			own = append(own, hiddenFlag(f))
		}
	}
	return &cli.Command{
		Name: "resident", Usage: "compute blocks again and again, each period", ArgsUsage: "--period TIME --blocks FROM-TO COMMAND [ARGUMENT...]",
		Description: residentDescription, Flags: own,
		Action: func(c *cli.Context) error {
			if parent := c.Lineage()[1]; parent.NumFlags() > 0 {
				return shell.Usagef("options of resident stand behind that word: asplit resident --%s …", parent.FlagNames()[0])
			}
			for name, why := range refused {
				if c.IsSet(name) {
					return shell.Usagef("resident has no --%s: %s", name, why)
				}
			}
			d, err := residentDefinition(c)
			if err != nil {
				return err
			}
			return p.begin(c, &d)
		},
	}
}

// hiddenFlag returns an option of the same name and kind that is understood, and refused.
func hiddenFlag(f cli.Flag) cli.Flag {
	if _, ok := f.(*cli.BoolFlag); ok {
		return &cli.BoolFlag{Name: f.Names()[0], Aliases: f.Names()[1:], Hidden: true}
	}
	return &cli.StringFlag{Name: f.Names()[0], Aliases: f.Names()[1:], Hidden: true}
}

// residentDefinition returns the resident job that a command line describes.
func residentDefinition(c *cli.Context) (d split.Definition, err error) {
	argv := c.Args().Slice()
	if len(argv) == 0 {
		return d, shell.Usagef("no command: see asplit resident --help")
	}
	if slices.Contains(argv, wordsMark) {
		return d, shell.Usagef("resident has no items behind %s: use --blocks", wordsMark)
	}
	if d.Argv, err = commandOf(argv, c.Bool("shell"), true); err != nil {
		return d, err
	}
	if d.Mode, err = task.ModeOf(d.Argv); err != nil || d.Mode != task.Each {
		return d, shell.Usagef("resident runs the command once for each block: {start} and {count}, which are a task's, mean nothing there")
	}
	d.Resident = &split.Resident{Reduce: c.String("reduce")}
	if c.IsSet("reduce") && strings.TrimSpace(d.Resident.Reduce) == "" {
		return d, shell.Usagef("--reduce: the line is empty")
	}
	var period unit.Duration
	if err := period.UnmarshalText([]byte(c.String("period"))); err != nil || time.Duration(period) < split.MinPeriod || time.Duration(period) > split.MaxPeriod {
		return d, shell.Usagef("--period %q: want a time such as 10s, from %v to %v", c.String("period"), split.MinPeriod, unit.Duration(split.MaxPeriod))
	}
	d.Resident.Period = time.Duration(period)
	if c.IsSet("periods") {
		if d.Resident.Periods, err = strconv.ParseInt(c.String("periods"), 10, 64); err != nil || d.Resident.Periods < 1 || d.Resident.Periods > math.MaxInt32 {
			return d, shell.Usagef("--periods %q: want a number from 1 to %d", c.String("periods"), math.MaxInt32)
		}
	}
	if d.Input, err = blocks(c); err != nil {
		return d, err
	}
	d.Balance.RoundItems = int(d.Input.To - d.Input.From + 1)
	if d.Balance.Rule, err = metrics.ParseBlockRule(c.String("balance")); err != nil {
		return d, shell.Usagef("--balance: %w", err)
	}
	if d.Balance.Factors, err = factorsOf(c.String("profile")); err != nil {
		return d, shell.Usagef("--profile: %w", err)
	}
	d.Measured = !c.Bool("no-qualify")
	if err := again(c, &d); err != nil {
		return d, err
	}
	d.Slots = 1
	if c.IsSet("slots") {
		if d.Slots, err = slots(c, d.Mode); err != nil {
			return d, err
		}
	}
	return d, where(c, &d)
}

// blocks returns the blocks that --blocks names.
func blocks(c *cli.Context) (in split.Input, err error) {
	in.Kind = split.Periods
	if in.From, in.To, err = split.ParseRange(c.String("blocks")); err != nil {
		return in, shell.Usagef("--blocks: %w", err)
	}
	if n := in.To - in.From + 1; n > split.MaxBlocks {
		return in, shell.Usagef("--blocks %s: %d blocks: %d at most", c.String("blocks"), n, split.MaxBlocks)
	}
	return in, nil
}

// residentIdle returns how long a resident job's worker waits for work: it stays from one period to the
// next, and ends some time after an asplit that was killed.
func residentIdle(r *split.Resident) time.Duration {
	const more = 30 * time.Second
	return r.Period + more
}

// refuseResident returns an error for an option that a resident job can't have when it is resumed.
func refuseResident(c *cli.Context, d *split.Definition) error {
	if d.Resident == nil {
		return nil
	}
	for _, name := range []string{"report", "json", "keep", "idle"} {
		if c.IsSet(name) {
			return shell.Usagef("--resume %s: it is a resident job, which has no --%s: %s", d.Name, name, residentRefused()[name])
		}
	}
	return nil
}
