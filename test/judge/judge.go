// Package judge compares what jobs themselves wrote, and what the ledger holds, with what
// was promised: nothing is lost, nothing runs twice, and no host is ever overfilled.
package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Check is one requirement, and what was found.
type Check struct {
	What  string
	OK    bool
	Found string
}

// ErrFailed says that a check failed.
var ErrFailed = errors.New("not everything was as promised")

// Print prints checks, and returns ErrFailed if one of them failed.
func Print(out io.Writer, checks []Check) (err error) {
	for _, c := range checks {
		result := "ok"
		if !c.OK {
			result, err = "FAILED", ErrFailed
		}
		fmt.Fprintf(out, "%-6s  %s\n        %s\n", result, c.What, c.Found)
	}
	return err
}

// ButList returns the first few errors as text, or otherwise if there are none.
func ButList(wrong []string, otherwise string) string {
	const most = 5
	switch {
	case len(wrong) == 0:
		return otherwise
	case len(wrong) > most:
		return fmt.Sprintf("but %s and %d more", strings.Join(wrong[:most], ", "), len(wrong)-most)
	}
	return "but " + strings.Join(wrong, ", ")
}

// Tally is how often a job started and came to its end, by what it wrote itself.
type Tally struct {
	Name         string
	Starts, Ends int
}

// CountRuns counts the lines "start…" and "end…" that a job wrote. One that wrote nothing
// never started.
func CountRuns(name, path string) (Tally, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	t := Tally{Name: name}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "start") {
			t.Starts++
		} else if strings.HasPrefix(line, "end") {
			t.Ends++
		}
	}
	return t, err
}

// EndedOnce returns a text for each job that did not come to its end exactly once.
func EndedOnce(all []Tally) (wrong []string) {
	for _, t := range all {
		if t.Ends != 1 {
			wrong = append(wrong, fmt.Sprintf("%s ended %d times", t.Name, t.Ends))
		}
	}
	return wrong
}

// Reruns counts the runs beyond the first of each job.
func Reruns(all []Tally) (runs int) {
	for _, t := range all {
		runs += max(t.Starts-1, 0)
	}
	return runs
}

// Span is a time in which a job worked on a host.
type Span[J comparable] struct {
	Host     string
	From, To time.Time
	Job      J
}

// Moment is the jobs that worked on a host when one of them had just started.
type Moment[J comparable] struct {
	Host    string
	Time    time.Time
	Started J
	Running []J // Started among them
}

// Moments returns all starts, in order of time: a host never has more jobs than at one of
// them.
func Moments[J comparable](spans []Span[J]) (all []Moment[J]) {
	type edge struct {
		time time.Time
		step int // -1: an end, which goes first
		job  J
	}
	edges := map[string][]edge{}
	for _, s := range spans {
		edges[s.Host] = append(edges[s.Host], edge{s.From, 1, s.Job}, edge{s.To, -1, s.Job})
	}
	for _, host := range slices.Sorted(maps.Keys(edges)) {
		slices.SortStableFunc(edges[host], func(x, y edge) int { return cmp.Or(x.time.Compare(y.time), x.step-y.step) })
		var running []J
		for _, x := range edges[host] {
			if x.step > 0 {
				running = append(slices.Clone(running), x.job)
				all = append(all, Moment[J]{host, x.time, x.job, running})
			} else if i := slices.Index(running, x.job); i >= 0 {
				running = slices.Delete(slices.Clone(running), i, i+1)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y Moment[J]) int { return x.Time.Compare(y.Time) })
	return all
}

// Memory returns what a ledger holds.
func Memory(ctx context.Context, path string) (plan.Memory, error) {
	l, err := ledger.OpenToRead(path)
	if err != nil {
		return plan.Memory{}, err
	}
	memory, err := l.Load(ctx)
	return memory, errors.Join(err, l.Close())
}

// OpenReclaims returns the reclaims that are open, or have a victim that is still held. In the end
// there must be none.
func OpenReclaims(memory *plan.Memory) (all []plan.Reclaim) {
	for _, r := range memory.Reclaims {
		if r.Phase.Open() || slices.ContainsFunc(r.Victims, func(v plan.Victim) bool { return v.Fate == plan.Taken && !v.Released }) {
			all = append(all, r)
		}
	}
	return all
}

// Victims returns the IDs of the jobs that lost their slots, each once.
func Victims(memory *plan.Memory) (ids []string) {
	for _, r := range memory.Reclaims {
		for _, v := range r.Victims {
			if id := v.ID.String(); v.Fate != plan.Spared && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// OneVictim judges a full farm that got one job more. It returns an error unless each job
// ended once, and one of them lost its slot and started again if it was requeued.
func OneVictim(all []Tally, memory *plan.Memory, requeued bool) error {
	var errs []error
	for _, wrong := range EndedOnce(all) {
		errs = append(errs, errors.New(wrong))
	}
	want := 0
	if requeued {
		want = 1
	}
	if again := Reruns(all); again != want {
		errs = append(errs, fmt.Errorf("jobs started again: %d, want %d: %+v", again, want, all))
	}
	if victims := Victims(memory); len(victims) != 1 {
		errs = append(errs, fmt.Errorf("victims: %v, want one: %+v", victims, memory.Reclaims))
	}
	return errors.Join(errs...)
}
