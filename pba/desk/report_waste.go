package desk

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/profile"
)

// Waste is what jobs asked for and did not use (R46).
type Waste struct {
	Period
	Kinds []profile.Waste `json:"kinds"`
	Rest  profile.Waste   `json:"rest"` // of the kinds that are left out
	Older int             `json:"older_jobs"`
	Note  string          `json:"note,omitempty"` // what of the queue's files could not be read
}

// Bounds of the report.
const (
	wasteKinds = 50
	wasteJobs  = 20_000
)

// WastedBy reports what the jobs that ended in a period asked for and did not use, as far as the queue shows them to
// the caller.
func (d *Desk) WastedBy(ctx context.Context, p Period) (*Waste, error) {
	history := d.queue.Abilities().History
	if history == nil {
		return nil, fmt.Errorf("report waste: %w: the queue keeps no past jobs", backends.ErrUnable)
	}
	rules, err := d.rules(ctx, p.To)
	if err != nil {
		return nil, err
	}
	able := d.queue.Abilities().ForEngine
	found, err := history(ctx, backends.PastQuery{Since: p.From, Most: wasteJobs, Keep: func(j *backends.Job) bool {
		if p.Project == "" {
			return true
		}
		jobs := []backends.Job{*j}
		pba.Resolve(able, rules.Policy.Projects, jobs)
		return jobs[0].Project == p.Project
	}})
	if err != nil {
		return nil, fmt.Errorf("report waste: %w", err)
	}
	past := found.Jobs[:0:0]
	for i := range found.Jobs {
		if !found.Jobs[i].LastEnd().After(p.To) {
			past = append(past, found.Jobs[i])
		}
	}
	w := &Waste{Period: p, Older: found.Older, Note: found.Note}
	w.Kinds, w.Rest = profile.Wasted(past, wasteKinds)
	if w.Kinds == nil {
		w.Kinds = []profile.Waste{}
	}
	return w, d.requireProject(ctx, p.Project, len(w.Kinds) > 0)
}

// Table returns the kinds of jobs.
func (w *Waste) Table() Table {
	t := Table{Columns: []string{"project", "jobs_named", "user", "jobs", "slot_hours", "idle_slot_hours", "asked", "used", "unused_gib_hours", "advice"}}
	for _, r := range w.Kinds {
		t.row(dashed(backends.JoinProject(r.Project, r.Step)), dashed(r.Command), r.User, strconv.Itoa(r.Jobs), inHundredths(r.SlotHours), inHundredths(r.IdleHours),
			sizeOrDash(r.Asked), sizeOrDash(r.Used), inHundredths(r.EmptyHours), cmp.Or(adviceOf(&r), "-"))
	}
	if w.Rest.Jobs > 0 {
		t.row("-", "(others)", "-", strconv.Itoa(w.Rest.Jobs), inHundredths(w.Rest.SlotHours), inHundredths(w.Rest.IdleHours), "-", "-", inHundredths(w.Rest.EmptyHours), "-")
	}
	return t
}

func sizeOrDash(n int64) string {
	if n == 0 {
		return "-"
	}
	return unit.Size((n + 1<<20 - 1) >> 20 << 20).String() // of whole MiB
}

// adviceOf returns what the jobs should ask for, as asub takes it.
func adviceOf(r *profile.Waste) string {
	var all []string
	if r.Memory > 0 {
		all = append(all, "-M "+strconv.FormatInt(r.Memory>>20, 10)+"M")
	}
	if r.Slots > 0 {
		all = append(all, "-n "+strconv.Itoa(r.Slots))
	}
	return strings.Join(all, " ")
}
