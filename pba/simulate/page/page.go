// Package page shows the results of simulations on one page of HTML that needs
// neither network nor script. It is pure: results in, bytes out, and the
// same results give the same bytes.
package page

import (
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/allotment-hpc/allotment/internal/chart"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// Page is what a page shows. All of its texts may be hostile.
type Page struct {
	Command string // as it was typed
	Version string // of the program; may be ""
	Runs    []Run
	Sweeps  []simulate.Sweep
}

// Run is one simulation, with its name if there are several.
type Run struct {
	Name   string
	Result *simulate.Result
}

// view is a Page as its template needs it.
type view struct {
	Title, Command, Version string
	Runs                    []runView
	Sweeps                  []sweepView
	Several                 bool
}

type runView struct {
	ID     string
	Name   string
	Head   []fact
	Notes  []string
	Left   []leftOut
	Bad    []string
	Tables []table
	Time   []chart.Figure // over time
	Waits  []chart.Figure
	More   int // projects that have no chart
}

// fact is a line of the head.
type fact struct{ What, Is string }

type leftOut struct{ Policies, Why, Jobs, JobShare, SlotHours, WorkShare string }

//go:embed page.html
var source string

// Write writes the page.
func Write(w io.Writer, p Page) error {
	v, err := viewOf(p)
	if err != nil {
		return fmt.Errorf("draw the simulation's charts: %w", err)
	}
	return chart.WritePage(w, source, v)
}

func viewOf(p Page) (view, error) {
	v := view{Title: "Simulation", Command: p.Command, Version: p.Version, Several: len(p.Runs) > 1}
	if len(p.Runs) > 0 {
		v.Title = "Simulation of " + p.Runs[0].Result.Trace.Name
	}
	for i, run := range p.Runs {
		r, err := runOf(fmt.Sprintf("run%d", i+1), run)
		if err != nil {
			return v, err
		}
		v.Runs = append(v.Runs, r)
	}
	var err error
	v.Sweeps, err = sweepsOf(p.Sweeps)
	return v, err
}

func runOf(id string, run Run) (runView, error) {
	r := run.Result
	v := runView{ID: id, Name: run.Name, Head: head(r), Notes: r.Notes, Bad: r.Trace.BadLines, Tables: tables(r)}
	for _, l := range r.Trace.LeftOut {
		v.Left = append(v.Left, leftOutOf("all", &l))
	}
	for i := range r.Policies {
		for _, l := range r.Policies[i].CannotRun {
			v.Left = append(v.Left, leftOutOf(policyName(r.Policies[i].Policy), &l))
		}
	}
	var err error
	if v.Time, v.More, err = overTime(id, r); err != nil {
		return v, err
	}
	v.Waits, err = waits(id, r)
	return v, err
}

func leftOutOf(policies string, l *simulate.LeftOut) leftOut {
	o := leftOut{Policies: policies, Why: l.Why, Jobs: chart.Count(l.Jobs), JobShare: percent(l.JobShare), SlotHours: slotHours(l.SlotSeconds), WorkShare: percent(l.WorkShare)}
	if l.Unknown {
		o.SlotHours, o.WorkShare = "not known", "not known"
	}
	return o
}

// head returns the facts about what was simulated.
func head(r *simulate.Result) []fact {
	s := &r.Settings
	facts := []fact{
		{"Trace", sourceText(&r.Trace)},
		{"Jobs", fmt.Sprintf("%s simulated, %s of them within the guarantee; %s left out for all policies", chart.Count(r.Trace.Jobs), chart.Count(r.Within), chart.Count(leftOutJobs(r)))},
		{"Farm", fmt.Sprintf("%s slots on %s", chart.Count(r.Farm.Slots), plural(r.Farm.Hosts, "host"))},
	}
	var guarantees, fences []string
	for _, g := range r.Guarantees {
		guarantees = append(guarantees, guarantee(g))
	}
	for _, f := range r.Farm.Fences {
		fences = append(fences, fmt.Sprintf("%s for project %s", plural(f.Slots, "slot"), printable.Text(f.Project)))
	}
	if len(guarantees) > 0 {
		facts = append(facts, fact{"Guaranteed", strings.Join(guarantees, "; ")})
	}
	if len(fences) > 0 {
		facts = append(facts, fact{"Fenced off", strings.Join(fences, "; ") + "; under “" + policyName(simulate.Dedicated) + "” only"})
	}
	facts = append(facts,
		fact{"Window", fmt.Sprintf("%s to %s UTC (%s), from the first submission to the last; the same for all policies", stamp(r.Window.From), stamp(r.Window.To), human(r.Window.Seconds))},
		fact{"Arrivals", fmt.Sprintf("× %s", chart.Number(s.ScaleArrivals))},
		fact{"Engine", fmt.Sprintf("a cycle every %s, pending_threshold %s, min_runtime %s, headroom %s", human(s.Cycle), human(s.PendingThreshold), human(s.MinRuntime), chart.Number(s.Headroom))},
		fact{"Promise", fmt.Sprintf("%s: the threshold, two cycles and the time in which slots are freed", human(s.Promise))},
		fact{"Drawn", fmt.Sprintf("with seed %d: which jobs are suspended instead of requeued (%s of them), and how long a killed job takes to end (at most %s)", s.Seed, percent(s.Suspend), human(s.KillSeconds))},
	)
	return facts
}

func leftOutJobs(r *simulate.Result) int {
	n := 0
	for _, l := range r.Trace.LeftOut {
		n += l.Jobs
	}
	return n
}

func sourceText(t *simulate.Source) string {
	text := fmt.Sprintf("%s (%s)", printable.Text(t.Name), printable.Text(t.Format))
	if t.Repeated > 1 {
		text += fmt.Sprintf(", %s times end to end", chart.Count(t.Repeated))
	}
	if t.OneSlot {
		text += ", each job of n slots turned into n jobs of one"
	}
	return text
}

func guarantee(g simulate.Guarantee) string {
	text := plural(g.Slots, "slot") + " for project " + printable.Text(g.Project)
	if g.Step != "" {
		text += ", step " + printable.Text(g.Step)
	}
	if g.User != "" {
		text += ", user " + printable.Text(g.User)
	}
	if g.Hosts != "" {
		text += ", on " + printable.Text(g.Hosts)
	}
	return text
}

// policyName returns a policy's name for readers.
func policyName(policy string) string {
	switch policy {
	case simulate.FIFO:
		return "no guarantee"
	case simulate.Dedicated:
		return "fenced off"
	case simulate.PBA:
		return "Allotment"
	case simulate.Seconds:
		return "Allotment, 0 s"
	default:
		return printable.Text(policy)
	}
}
