package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

func printSimulation(out io.Writer, format table.Format, r *simulate.Result) error {
	if format == table.JSON {
		return shell.PrintJSON(out, r)
	}
	waits, use := waitTable(r), useTable(r)
	if format == table.CSV {
		if err := table.Print(out, format, waits, nil); err != nil {
			return err
		}
		fmt.Fprintln(out)
		return table.Print(out, format, use, nil)
	}
	describeSimulation(out, r)
	fmt.Fprintf(out, "\nSeconds that jobs waited, from submission and by the guarantee's clock (promised: %s)\n", inSeconds(r.Settings.Promise))
	if err := table.Print(out, format, waits, nil); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nThe farm's use, and what it cost")
	return table.Print(out, format, use, nil)
}

func describeSimulation(out io.Writer, r *simulate.Result) {
	fmt.Fprintf(out, "%s of %s", printable.Count(r.Trace.Jobs, "job"), shell.Printable(r.Trace.Name))
	if r.Settings.ScaleArrivals != 1 {
		fmt.Fprintf(out, ", arrivals x %g", r.Settings.ScaleArrivals)
	}
	if r.Trace.Repeated > 1 {
		fmt.Fprintf(out, ", %d times end to end", r.Trace.Repeated)
	}
	fmt.Fprintf(out, ", on %s.\nFrom %s to %s, first submission to last.\n", printable.Count(r.Farm.Slots, "slot"),
		r.Window.From.Format("2006-01-02 15:04"), r.Window.To.Format("2006-01-02 15:04"))
	var guaranteed []string
	for _, g := range r.Guarantees {
		guaranteed = append(guaranteed, fmt.Sprintf("%s %d", shell.Printable(g.Who()), g.Slots))
	}
	fmt.Fprintf(out, "Guaranteed: %s. Within the guarantee: %s, the same ones for all policies.\n", strings.Join(guaranteed, ", "), printable.Count(r.Within, "job"))
	if s := r.Settings.OnDemand; s != nil {
		fmt.Fprintf(out, "Save their work when asked to: %s%% of the jobs, in %s s; %s s to go on from there. Both count as lost.\n", inSeconds(100*s.Share), inSeconds(s.Seconds), inSeconds(s.Restore))
	}
	if s := r.Settings.Periodic; s != nil {
		fmt.Fprintf(out, "Save their work every %s s: %s%% of the jobs; %s s to go on from there, which count as lost.\n", inSeconds(s.Seconds), inSeconds(100*s.Share), inSeconds(s.Restore))
	}
	for _, l := range r.Trace.LeftOut {
		fmt.Fprintf(out, "Left out for all policies: %s (%s): %s.\n", printable.Count(l.Jobs, "job"), l.Share(), shell.Printable(l.Why))
	}
	for _, o := range r.Policies {
		for _, l := range o.CannotRun {
			fmt.Fprintf(out, "Can't run under %s, and in none of its figures: %s (%s): %s.\n", o.Policy, printable.Count(l.Jobs, "job"), l.Share(), shell.Printable(l.Why))
		}
	}
	for _, bad := range r.Trace.BadLines {
		fmt.Fprintf(out, "Passed over (1 job of %d, slot-seconds not known): %s.\n", len(r.Trace.BadLines)+r.Trace.Read, shell.Printable(bad))
	}
	for _, note := range r.Notes {
		fmt.Fprintln(out, shell.Printable(note))
	}
}

func waitTable(r *simulate.Result) *table.Table {
	t := table.New("policy", "jobs_of", "jobs", "median_wait", "p95_wait", "max_wait", "widest_p95_wait", "median_clock", "p95_clock", "max_clock", "bounded_slowdown", "over_promise")
	row := func(policy, of string, g simulate.Group) {
		t.Row(policy, of, g.Jobs, inSeconds(g.Wait.Median), inSeconds(g.Wait.P95), inSeconds(g.Wait.Max), inSeconds(g.Widest.P95),
			inSeconds(g.Clock.Median), inSeconds(g.Clock.P95), inSeconds(g.Clock.Max), strconv.FormatFloat(g.Slowdown.Mean, 'f', 1, 64), g.OverPromise)
	}
	for _, o := range r.Policies {
		row(o.Policy, "within the guarantee", o.Within)
		row(o.Policy, "the rest", o.Rest)
		for _, g := range o.Projects {
			if g.Project == "" {
				row(o.Policy, "other jobs", g)
			} else {
				row(o.Policy, "project "+g.Project, g)
			}
		}
	}
	return t
}

func useTable(r *simulate.Result) *table.Table {
	t := table.New("policy", "utilization", "useful", "lost", "lost_slot_hours", "preemptions", "reclaims", "requested_slots", "evicted_slots",
		"evicted_per_requested", "useless", "starved_seconds")
	for _, o := range r.Policies {
		ratio := "-"
		if o.Requested > 0 {
			ratio = decimal(o.Ratio)
		}
		t.Row(o.Policy, percent(o.Utilization), percent(o.Useful), percent(o.LostShare), strconv.FormatFloat(o.LostSeconds/3600, 'f', 1, 64),
			o.Preemptions, o.Reclaims, o.Requested, o.Evicted, ratio, o.Useless, inSeconds(o.StarvedSeconds))
	}
	return t
}

func inSeconds(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) }

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + "%" }
