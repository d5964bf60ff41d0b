package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/pba/profile"
)

// advise prints what a job like a submission should ask for, by its owner's jobs of the same kind (R45). It submits
// nothing.
func (p process) advise(ctx context.Context, queue backends.Backend, line bsub.Line, out io.Writer) error {
	requests, err := buildRequests(p, line, queue.Abilities().ForWrappers)
	if err != nil {
		return err
	}
	if len(requests) != 1 {
		return usageError(errors.New("option --advise is for one job, not for a batch"))
	}
	history := queue.Abilities().History
	if history == nil {
		return fmt.Errorf("look for jobs like this one: %w: the queue keeps no past jobs", backends.ErrUnable)
	}
	spec := &requests[0].Spec
	like := backends.Job{Name: spec.Name}
	like.Project, like.Step = backends.SplitProject(spec.Project)
	kind := profile.KindOf(&like, spec.Command)
	q := kind.Query(p.user(), p.now())
	found, err := history(ctx, q)
	if err != nil {
		return fmt.Errorf("look for jobs like this one: %w", err)
	}
	if found.Note != "" {
		fmt.Fprintf(p.stderr, "asub: %s\n", shell.OneLine(found.Note))
	}
	return printAdvice(out, kind, q.Since, profile.Advise(kind.RunsOf(found.Jobs), max(1, spec.Slots)), spec)
}

// printAdvice prints a line for each option, in the form in which it is typed.
func printAdvice(out io.Writer, kind profile.Kind, since time.Time, a profile.Advice, spec *backends.Spec) error {
	project := cmp.Or(backends.JoinProject(kind.Project, kind.Step), "no project")
	if kind.Project != "" {
		project = "project " + project
	}
	text := fmt.Sprintf("%d jobs of %s, %s, were done since %s", a.Runs, shell.Printable(project), shell.Printable(cmp.Or(kind.Command, "without a name")), since.Format(time.DateOnly))
	if a.Runs < profile.Fewest {
		_, err := fmt.Fprintf(out, "%s: advice takes %d at least.\n", text, profile.Fewest)
		return err
	}
	text += ".\n"
	add := func(option, why string, args ...any) {
		text += fmt.Sprintf("%-10s %s\n", option, fmt.Sprintf(why, args...))
	}
	if a.Memory > 0 {
		add("-M "+mebibytes(float64(a.Memory)), "they used %s to %s; this one asks for %s", mebibytes(a.Used.Least), mebibytes(a.Used.Top), given(spec.Memory > 0, mebibytes(float64(spec.Memory))))
	} else {
		add("-M ?", "their memory is not known: the queue counts it for a job of one slot")
	}
	if a.Slots > 0 {
		add(fmt.Sprintf("-n %d", a.Slots), "they kept %.1f to %.1f processors busy; this one asks for %d", a.Cores.Least, a.Cores.Top, max(1, spec.Slots))
	}
	if a.Limit > 0 {
		add("-W "+hours(a.Limit), "they took %s to %s; this one has %s", hours(duration(a.Took.Least)), hours(duration(a.Took.Top)), given(spec.RunLimit > 0, hours(spec.RunLimit)))
	}
	_, err := io.WriteString(out, text)
	return err
}

// given is what a submission asks for, if it does.
func given(is bool, what string) string {
	if !is {
		return "none"
	}
	return what
}

// mebibytes writes bytes as -M takes them.
func mebibytes(bytes float64) string { return fmt.Sprintf("%.0fM", math.Ceil(bytes/(1<<20))) }

// hours writes a run limit as -W takes it.
func hours(d time.Duration) string {
	minutes := int(math.Ceil(d.Minutes()))
	return fmt.Sprintf("%d:%02d", minutes/60, minutes%60)
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
