package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// simulateChange runs pba simulate --change.
func simulateChange(c *cli.Context, p process, o *desk.Simulation, format table.Format) error {
	if len(o.Guarantees) > 0 || c.IsSet("policy") || c.IsSet("html") {
		return shell.Usagef("--change compares the plan with it and without it: it excludes --guarantee, --policy and --html")
	}
	if o.Trace == "" {
		o.Trace = "ledger"
	}
	if err := checkSimulation(o); err != nil {
		return err
	}
	d, err := desk.New(p.System)
	if err != nil {
		return err
	}
	bar := newProgress(p.stderr, []string{simulate.PBA})
	o.Progress = bar.show
	e, err := d.SimulateChange(c.Context, o)
	bar.end()
	if err != nil && c.Context.Err() != nil {
		return &shell.ExitError{Code: exitInterrupted, Err: errors.New("interrupted: nothing was simulated to its end")}
	}
	if err != nil {
		return err
	}
	return printChange(c.App.Writer, format, e)
}

func printChange(out io.Writer, format table.Format, e *desk.ChangeEffect) error {
	if format == table.CSV {
		return table.Print(out, format, yieldTable(e.Projects, false), nil)
	}
	if format == table.JSON {
		return shell.PrintJSON(out, e)
	}
	for _, o := range e.Over {
		on := ""
		if o.Hosts != "" {
			on = " on " + o.Hosts
		}
		text := fmt.Sprintf("Over-allocated in %s%s by %s: %d would be planned, and max_allocated allows %d.", o.Week, on, printable.Count(o.Exceeds, "slot"), o.Planned, o.Limit)
		if o.Lends > 0 {
			text += fmt.Sprintf(" %s could lend %d: its jobs left so many unused all that week.", o.Lender, o.Lends)
		} else {
			text += " No project leaves guaranteed slots unused all that week."
		}
		fmt.Fprintln(out, shell.Printable(text))
	}
	fmt.Fprintf(out, "%s of %s, on %s, under the plan with %s and without.\n", printable.Count(e.Trace.Jobs, "job"), shell.Printable(e.Trace.Name), printable.Count(e.Farm, "slot"),
		shell.Printable("'"+strings.Join(e.Changes, "', '")+"'"))
	for _, note := range e.Notes {
		fmt.Fprintln(out, shell.Printable(note))
	}
	t := yieldTable(e.Projects, true)
	n := 0
	for _, y := range e.Projects {
		if len(y.Why) > 0 {
			n++
		}
	}
	switch n {
	case 0:
		fmt.Fprintln(out, "\nNo project gives way: no waits, victims, losses or borrowed slots get worse.")
	case 1:
		fmt.Fprintln(out, "\n1 project gives way")
	default:
		fmt.Fprintf(out, "\n%d projects give way\n", n)
	}
	return table.Print(out, format, t, nil)
}

// maxYields is the number of projects that are shown to people.
const maxYields = 20

// yieldTable lists what projects got with a change and without; for people only the first,
// who give way most, and the last, who gain most.
func yieldTable(all []simulate.Yield, short bool) *table.Table {
	t := table.New("project", "user", "jobs", "mean_wait", "mean_wait_before", "victims", "victims_before", "lost_hours", "lost_hours_before", "borrowed_hours", "borrowed_hours_before", "gives_way")
	hours := func(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }
	for i, y := range all {
		if short && len(all) > maxYields && i >= maxYields-1 && i < len(all)-1 {
			continue
		}
		why := "-"
		if len(y.Why) > 0 {
			why = strings.Join(y.Why, "; ")
		}
		t.Row(dash(y.Project), dash(y.User), y.Jobs, inSeconds(y.After.MeanWait), inSeconds(y.Before.MeanWait), y.After.Victims, y.Before.Victims,
			hours(y.After.Lost), hours(y.Before.Lost), hours(y.After.Borrowed), hours(y.Before.Borrowed), why)
	}
	return t
}
