package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/split"
)

// report writes what --report and --json ask for.
func report(c *cli.Context, stderr *screen, r *split.Report) error {
	stderr.close()
	if c.Bool("report") {
		if err := printReport(stderr.to, r); err != nil {
			return err
		}
	}
	switch path := c.String("json"); path {
	case "":
		return nil
	case "-":
		return shell.PrintJSON(stderr.to, r)
	default:
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
		if err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		if err := errors.Join(shell.PrintJSON(f, r), f.Close()); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		return nil
	}
}

// printLoads prints what each host's job load metric is made of, with the units.
func printLoads(w io.Writer, loads []split.LoadReport) error {
	t := table.New("host", "element", "i_percent", "x_percent", "cm_percent", "cu_points", "jl_percent")
	for _, l := range loads {
		row := []any{l.Host, l.Element}
		for _, v := range []float64{l.Influence, l.X, l.CM, l.CU, l.JL} {
			row = append(row, fmt.Sprintf("%.1f", v))
		}
		t.Row(row...)
	}
	return table.Print(w, table.Text, t, nil)
}

// printTrial prints what a trial found of each setting, and in all.
func printTrial(w io.Writer, r *split.TrialReport) error {
	if r == nil {
		return nil
	}
	t := table.New("setting", "executed", "failed", "time_by_best")
	for _, s := range r.Settings {
		ratio := "-"
		if s.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f", s.Ratio)
		}
		t.Row(s.Setting, s.Executed, s.Failed, ratio)
	}
	if err := table.Print(w, table.Text, t, nil); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, r.Text)
	return err
}

// executedBy says what executes a task, or executed it.
func executedBy(t *split.TaskReport) string {
	switch {
	case t.Lease != 0:
		return "lease " + strconv.FormatUint(t.Lease, 10)
	case t.Worker != 0:
		return "worker"
	}
	return "job"
}

// printReport prints the rounds, a row for each task of theirs, the hosts' loads, and what it
// all came to.
func printReport(w io.Writer, r *split.Report) error {
	t := table.New("round", "host", "items", "seconds", "items_per_second", "gap", "by", "end")
	for _, round := range r.Rounds {
		for _, task := range round.Tasks {
			rate := "-"
			if task.Took > 0 {
				rate = fmt.Sprintf("%.1f", float64(task.Items)/task.Took)
			}
			t.Row(round.Round, task.Host, task.Items, fmt.Sprintf("%.2f", task.Took), rate, percent(round.Gap), executedBy(&task), task.State)
		}
	}
	if err := table.Print(w, table.Text, t, nil); err != nil {
		return err
	}
	if err := printLoads(w, r.Loads); err != nil {
		return err
	}
	if err := printTrial(w, r.Trial); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d items in %s, %d failed\n", r.Items, seconds(r.Ended.Sub(r.Began)), r.Failed)
	return err
}
