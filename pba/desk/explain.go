package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/profile"
)

// shownActs is the number of the last acts upon a job that are shown.
const shownActs = 30

// Story is all that is known of one job.
type Story struct {
	ID         string               `json:"id"`
	Name       string               `json:"name,omitempty"` // its user's text; the ledger keeps none
	User       string               `json:"user"`
	Project    string               `json:"project"`
	Step       string               `json:"step,omitempty"`
	State      backends.State       `json:"state"`
	Slots      int                  `json:"slots"`
	Hosts      []backends.Placement `json:"hosts,omitempty"`
	Submitted  time.Time            `json:"submitted"`
	Started    time.Time            `json:"started,omitzero"`
	Finished   time.Time            `json:"finished,omitzero"`
	ExitCode   int                  `json:"exit_code"`
	Class      string               `json:"class"`
	Pool       string               `json:"pool,omitempty"`
	Place      string               `json:"place,omitempty"`
	Dummies    string               `json:"dummies,omitempty"` // of a heavy job
	Reason     string               `json:"reason,omitempty"`  // the queue's words
	Progress   string               `json:"progress,omitempty"`
	KeptOn     string               `json:"kept_on,omitempty"`  // which host has its state, where hosts keep that: in words
	Minimum    string               `json:"minimum,omitempty"`  // what its owner says that it needs at least, and how much of that counts: in words
	Deadline   string               `json:"deadline,omitempty"` // by when its owner says that it should have ended, and whether that counts: in words
	Ends       string               `json:"ends,omitempty"`     // when it is expected to, where enough is known: in words
	Limited    []string             `json:"limited,omitempty"`  // what its host limits now, since when and why: in words
	Priority   int                  `json:"priority"`
	Band       string               `json:"band"`
	Waited     float64              `json:"clock_seconds"`
	Threshold  float64              `json:"pending_threshold_seconds"`
	Spared     string               `json:"spared,omitempty"`
	Preempted  int                  `json:"preempted"`
	Lost       float64              `json:"lost_slot_seconds"`
	Stake      string               `json:"stake,omitempty"` // what a preemption would cost it, and how to lose nothing
	Tests      []Test               `json:"tests"`
	History    []Point              `json:"priority_history"`
	Reclaims   []Reclaim            `json:"reclaims"`
	Skipped    []string             `json:"skipped"`
	Considered []Considered         `json:"considered"`
	Expected   Expected             `json:"expected,omitzero"`
	Outlook    *Outlook             `json:"outlook,omitempty"` // of a job that waits for slots beyond any guarantee
	Acts       []ledger.Act         `json:"acts"`
}

// Point is one change of a job's priority.
type Point struct {
	At       time.Time `json:"at"`
	Priority int       `json:"priority"`
	Band     string    `json:"band"`
	Why      string    `json:"why"`
}

// Test is one condition of what makes a job entitled.
type Test struct {
	Name   string `json:"name"`
	Passed bool   `json:"passed"`
	Detail string `json:"detail,omitempty"`
}

// Considered is a running job that could be preempted for the explained one, or why
// it can't.
type Considered struct {
	Job    string `json:"job"`
	Host   string `json:"host"`
	Slots  int    `json:"slots"`
	Spared string `json:"spared,omitempty"` // why it can't be preempted; "": it can
}

// Explained is a job's story, or why there is none.
type Explained struct {
	Story *Story
	Err   error
}

// Explain asks the planner of a job that the queue shows, and the ledger and the
// queue of one that has ended.
func (d *Desk) Explain(ctx context.Context, id backends.ID) (*Story, error) {
	x := d.ExplainEach(ctx, []backends.ID{id}, false)[0]
	if x.Err == nil {
		x.Story.Ends = d.ends(ctx, x.Story)
	}
	return x.Story, x.Err
}

// endsTime bounds how long the queue is asked for past jobs.
const endsTime = 10 * time.Second

// ends says when a running job is expected to end, by its owner's past jobs that were like it (R45); "": that is not
// known, or the queue does not say.
func (d *Desk) ends(ctx context.Context, t *Story) string {
	history := d.queue.Abilities().History
	if history == nil || t.State != backends.Running || t.Started.IsZero() {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, endsTime)
	defer cancel()
	kind := profile.KindOf(&backends.Job{Name: t.Name, Project: t.Project, Step: t.Step}, t.command(ctx, d.queue))
	found, err := history(ctx, kind.Query(t.User, d.Now()))
	if err != nil {
		return ""
	}
	e, known := profile.Predict(kind.RunsOf(found.Jobs), d.Now().Sub(t.Started))
	if !known {
		return ""
	}
	at := func(after time.Duration) string { return t.Started.Add(after).Local().Format("2006-01-02 15:04") }
	return fmt.Sprintf("about %s, three of four between %s and %s, by %d jobs like it that took longer than it has run", at(e.Expected), at(e.Early), at(e.Late), e.Runs)
}

// command returns what a job without a name runs, where the queue keeps that.
func (t *Story) command(ctx context.Context, queue backends.Backend) []string {
	record := queue.Abilities().Record
	id, err := backends.ParseID(t.ID)
	if t.Name != "" || record == nil || err != nil {
		return nil
	}
	r, err := record(ctx, id)
	if err != nil {
		return nil
	}
	return r.Spec.Command
}

// ExplainEach is Explain for several jobs, in their order, from one snapshot and one decision;
// of the past alone it is what the ledger has of them, and the queue is not asked.
func (d *Desk) ExplainEach(ctx context.Context, ids []backends.ID, past bool) []Explained {
	all := make([]Explained, len(ids))
	now := &explainer{d: d, past: true}
	if !past {
		now = d.explainer(ctx, ids)
	}
	for i, id := range ids {
		all[i].Story, all[i].Err = d.explain(ctx, now, id)
	}
	return all
}

func (d *Desk) explain(ctx context.Context, now *explainer, id backends.ID) (*Story, error) {
	e, outlook, err := now.explain(ctx, id)
	if err != nil {
		return nil, err
	}
	t := newStory(id, &e)
	t.Outlook = outlook
	t.Minimum = minimumInWords(&d.Limits, &e.Job, e.Class == "pba")
	t.Deadline = deadlineInWords(&d.Limits, &e.Job, e.Class == "pba")
	if seen, err := d.Seen(); err == nil {
		t.Expected = expected(&e, seen)
	}
	if t.Acts, err = d.ledger.Acts(ctx, id, shownActs); err != nil {
		return nil, err
	}
	reclaims, err := d.ledger.ReclaimsOf(ctx, id)
	if err != nil {
		return nil, err
	}
	for i := range reclaims {
		t.Reclaims = append(t.Reclaims, showReclaim(&reclaims[i]))
	}
	if t.Acts == nil {
		t.Acts = []ledger.Act{}
	}
	if now.past && t.User == "" && len(t.Acts) == 0 && len(t.Reclaims) == 0 {
		return nil, fmt.Errorf("explain job %v: %w", id, marked{errors.New("the ledger does not know it"), errUnknownJob})
	}
	return t, nil
}

// Part returns the ID of a part of a job that starts on several kinds of hosts at once.
func (d *Desk) Part(ctx context.Context, job int64, part int) (backends.ID, error) {
	find := d.queue.Abilities().Part
	if find == nil {
		return backends.ID{}, fmt.Errorf("job %d+%d: this queue has no jobs of several parts", job, part)
	}
	id, err := find(ctx, job, part)
	if err != nil {
		return id, fmt.Errorf("job %d+%d: %w", job, part, err)
	}
	return id, nil
}

// explainer explains jobs of one snapshot by one decision, and others by the ledger and by what
// the queue still has of them.
type explainer struct {
	d        *Desk
	past     bool // the queue is not asked
	seen     pba.Result
	err      error // the queue was not seen
	decision plan.Decision
	shown    map[backends.ID]plan.Explanation
	runs     func(user string) plan.Runs
	failed   error // of runs
	gone     []backends.Job
	goneErr  error
}

func (d *Desk) explainer(ctx context.Context, ids []backends.ID) *explainer {
	x := &explainer{d: d, shown: map[backends.ID]plan.Explanation{}}
	x.runs = d.runs(ctx, &x.failed)
	if x.seen, x.err = d.observe(ctx); x.err == nil {
		x.decision = plan.Decide(x.seen.State, x.seen.Rules.Policy, x.seen.State.Farm.At)
		for _, id := range ids {
			if e, ok := x.decision.Explain(id); ok {
				x.shown[id] = e
			}
		}
	}
	gone := slices.DeleteFunc(slices.Clone(ids), func(id backends.ID) bool { _, shown := x.shown[id]; return shown })
	if len(gone) > 0 {
		x.gone, x.goneErr = d.queue.Jobs(ctx, gone)
	}
	return x
}

// explain returns the planner's explanation and outlook, or the ledger's explanation where
// the queue shows no such job, or can't be reached.
func (x *explainer) explain(ctx context.Context, id backends.ID) (plan.Explanation, *Outlook, error) {
	if x.past {
		e, err := x.remembered(ctx, id)
		if errors.Is(err, errUnknownJob) { // it has not ended; what was done to it is known
			e.Job.ID, err = id, nil
		}
		return e, nil, err
	}
	if x.err != nil {
		if e, known := x.remembered(ctx, id); known == nil {
			return e, nil, nil
		}
		return plan.Explanation{}, nil, x.err
	}
	e, ok := x.shown[id]
	if !ok {
		e, err := x.remembered(ctx, id)
		return e, nil, err
	}
	e.History = x.seen.State.Memory.Jobs[id].History // without what the next cycle would write
	if e.Class == "pba" {
		return e, nil, nil // the promise says more
	}
	foreseen, waits := x.decision.Foresee(id, x.runs)
	if !waits || x.failed != nil {
		return e, nil, x.failed
	}
	return e, newOutlook(foreseen), nil
}

var errUnknownJob = errors.New("neither the queue nor the ledger knows it")

// remembered explains a job that the snapshot does not show.
func (x *explainer) remembered(ctx context.Context, id backends.ID) (plan.Explanation, error) {
	d := x.d
	e := plan.Explanation{Threshold: time.Duration(d.PBA.PendingThreshold)}
	ended, err := d.ledger.EndedJob(ctx, id)
	if err != nil {
		return e, err
	}
	at := slices.IndexFunc(x.gone, func(j backends.Job) bool { return j.ID == id || id.Index == 0 && j.ID.Job == id.Job })
	if x.goneErr != nil && ended == nil {
		return e, x.goneErr
	}
	switch {
	case at >= 0:
		rules, err := d.rules(ctx, d.Now())
		if err != nil {
			return e, err
		}
		jobs := []backends.Job{x.gone[at]}
		pba.Resolve(d.queue.Abilities().ForEngine, rules.Policy.Projects, jobs)
		if e.Job = jobs[0]; ended != nil {
			e.Job.Project = ended.Job.Project // by its present name
		}
	case ended != nil:
		e.Job = ended.Job
	case d.view != nil:
		return e, fmt.Errorf("explain job %v: %w: one that was submitted just now is known after the next cycle", id,
			marked{errors.New("neither the last cycle nor the ledger knows it"), errUnknownJob})
	default:
		return e, fmt.Errorf("explain job %v: %w: see `ajobs`", id, errUnknownJob)
	}
	if ended == nil {
		return e, nil
	}
	e.Class = "normal"
	if ended.PBA {
		e.Class = "pba"
	}
	if m := ended.Memory; m != nil {
		e.History, e.Clock, e.Requeues, e.Lost = m.History, m.Clock, m.Requeues, m.Lost
	}
	return e, nil
}

func newStory(id backends.ID, e *plan.Explanation) *Story {
	j := &e.Job
	priority := e.Priority
	if priority == 0 {
		priority = j.Priority
	}
	t := &Story{
		ID: id.String(), Name: j.Name, Hosts: j.Hosts, User: j.User, Project: j.Project, Step: j.Step, State: j.State, Slots: j.Slots,
		Submitted: j.Submitted, Started: j.Started, Finished: j.Ended, ExitCode: j.ExitCode,
		Class: e.Class, Pool: e.Pool, Place: e.Place, Dummies: e.Dummies, Reason: j.Reason, Progress: bsub.Progress(j),
		Priority: priority.Value(), Band: priority.Level().String(),
		Waited: e.Clock.Seconds(), Threshold: e.Threshold.Seconds(), Spared: e.Spared,
		Preempted: e.Requeues, Lost: e.Lost, Stake: e.Stake,
		Tests: []Test{}, History: []Point{}, Reclaims: []Reclaim{},
		Skipped: append([]string{}, e.Skipped...), Considered: []Considered{},
	}
	for _, p := range e.History {
		t.History = append(t.History, Point{p.At, p.Priority.Value(), p.Priority.Level().String(), p.Why})
	}
	for _, x := range e.Tests {
		t.Tests = append(t.Tests, Test(x))
	}
	for _, x := range e.Considered {
		t.Considered = append(t.Considered, Considered{Job: x.ID.String(), Host: x.Host, Slots: x.Slots, Spared: x.Spared})
	}
	return t
}
