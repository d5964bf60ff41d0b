package desk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/internal/nearest"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// JobQuery says which jobs are listed: those that fit all that is set.
type JobQuery struct {
	User    string
	Project string
	Array   int64 // elements of this array
	State   string
	Page    int // from 1 on; 0: the first
	Size    int // jobs on a page, at most MaxJobs; 0: that many
}

// MaxJobs is the number of jobs on a page of a list.
const MaxJobs = 100

// JobList is a page of a list of jobs that have not ended, as the queue was at a time:
// pending, then suspended and held, then running ones, each in the queue's order.
type JobList struct {
	At     time.Time      `json:"at"`
	Jobs   []JobNow       `json:"jobs"`
	Total  int            `json:"total"`  // that fit the query
	States map[string]int `json:"states"` // that fit the query but for its state
	Page   int            `json:"page"`
	Pages  int            `json:"pages"`
}

// JobNow is a job that has not ended.
type JobNow struct {
	ID        string               `json:"id"`
	Name      string               `json:"name"`
	User      string               `json:"user"`
	Project   string               `json:"project"`
	Step      string               `json:"step,omitempty"`
	State     backends.State       `json:"state"`
	Slots     int                  `json:"slots"`
	Hosts     []backends.Placement `json:"hosts,omitempty"` // at most 4
	MoreHosts int                  `json:"more_hosts,omitempty"`
	Submitted time.Time            `json:"submitted"`
	Started   time.Time            `json:"started,omitzero"`
	Class     string               `json:"class"`
	Place     string               `json:"place,omitempty"`
	Reason    string               `json:"reason,omitempty"` // the queue's words
	Progress  string               `json:"progress,omitempty"`
	Expected  Expected             `json:"expected,omitzero"`
}

// Expected is what is known of when a job starts. All is zero where nothing is.
type Expected struct {
	NotBefore time.Time `json:"not_before,omitzero"` // its begin time, or the end of a hold of the engine's
	Served    time.Time `json:"served,omitzero"`     // slots are preempted for it from then on, if none come free before
	Freeing   bool      `json:"freeing,omitempty"`   // that goes on
}

// Jobs lists jobs that have not ended.
func (d *Desk) Jobs(ctx context.Context, q JobQuery) (*JobList, error) {
	if q.Size == 0 {
		q.Size = MaxJobs
	}
	if q.Page == 0 {
		q.Page = 1
	}
	if q.Size < 1 || q.Size > MaxJobs || q.Page < 1 {
		return nil, invalidf("page %d of %d jobs each: want a page from 1 on, of at most %d jobs", q.Page, q.Size, MaxJobs)
	}
	r, err := d.observe(ctx)
	if err != nil {
		return nil, err
	}
	all := &JobList{At: r.State.Farm.At, Jobs: []JobNow{}, States: map[string]int{}}
	var found []*backends.Job
	for i := range r.State.Farm.Jobs {
		j := &r.State.Farm.Jobs[i]
		if j.IsDummy() || q.User != "" && j.User != q.User || q.Project != "" && j.Project != q.Project || q.Array != 0 && (j.ID.Job != q.Array || j.ID.Index == 0) {
			continue
		}
		all.States[j.State.String()]++
		if q.State == "" || j.State.String() == q.State {
			found = append(found, j)
		}
	}
	if q.State != "" && !slices.Contains([]string{"pending", "running", "suspended", "held"}, q.State) {
		return nil, invalidf("state %q: want pending, running, suspended or held", q.State)
	}
	slices.SortStableFunc(found, func(a, b *backends.Job) int { return stateOrder(a.State) - stateOrder(b.State) })
	all.Total = len(found)
	all.Pages = max(1, (all.Total+q.Size-1)/q.Size)
	all.Page = min(q.Page, all.Pages)
	found = found[(all.Page-1)*q.Size : min(all.Page*q.Size, all.Total)]
	ids := make([]backends.ID, len(found))
	for i, j := range found {
		ids[i] = j.ID
	}
	if len(ids) == 0 {
		return all, nil
	}
	for _, e := range plan.ExplainAll(r.State, r.Rules.Policy, r.State.Farm.At, ids) {
		all.Jobs = append(all.Jobs, jobNow(&e, r.State.Farm.At))
	}
	return all, nil
}

func stateOrder(s backends.State) int {
	switch s {
	case backends.Pending:
		return 0
	case backends.Running:
		return 2
	case backends.Suspended, backends.Held, backends.Done, backends.Exited:
	}
	return 1
}

func jobNow(e *plan.Explanation, now time.Time) JobNow {
	const shownHosts = 4
	j := &e.Job
	return JobNow{
		ID: j.ID.String(), Name: j.Name, User: j.User, Project: j.Project, Step: j.Step, State: j.State, Slots: j.Slots,
		Hosts: j.Hosts[:min(len(j.Hosts), shownHosts)], MoreHosts: max(0, len(j.Hosts)-shownHosts),
		Submitted: j.Submitted, Started: j.Started, Class: e.Class, Place: e.Place, Reason: j.Reason, Progress: bsub.Progress(j), Expected: expected(e, now),
	}
}

// expected returns what is known of when a job starts. The promise counts from when the job
// became eligible within its pool.
func expected(e *plan.Explanation, now time.Time) Expected {
	j := &e.Job
	var x Expected
	if j.State != backends.Pending && j.State != backends.Suspended {
		return x
	}
	for _, r := range e.Reclaims {
		x.Freeing = x.Freeing || r.Phase.Open() && r.Beneficiary == j.ID
	}
	for _, at := range []time.Time{j.BeginTime, j.HeldUntil} {
		if at.After(now) && at.After(x.NotBefore) {
			x.NotBefore = at
		}
	}
	if e.Class == "pba" && j.Eligible() && x.NotBefore.IsZero() && !x.Freeing {
		x.Served = now.Add(max(0, e.Threshold-e.Clock))
	}
	return x
}

// EndedJob is a job that has ended.
type EndedJob struct {
	ID       string         `json:"id"`
	Project  string         `json:"project"`
	Step     string         `json:"step,omitempty"`
	State    backends.State `json:"state"`
	Slots    int            `json:"slots"`
	Started  time.Time      `json:"started,omitzero"`
	Ended    time.Time      `json:"ended"`
	ExitCode int            `json:"exit_code"`
}

// Bounds of a list of ended jobs.
const (
	endedTime  = 24 * time.Hour
	shownEnded = 30
)

// EndedJobs lists the last jobs of a user that ended within a day, the newest first.
func (d *Desk) EndedJobs(ctx context.Context, user string) ([]EndedJob, error) {
	jobs, err := d.ledger.EndedOf(ctx, user, d.Now().Add(-endedTime), shownEnded)
	if err != nil {
		return nil, err
	}
	all := []EndedJob{}
	for i := range jobs {
		j := &jobs[i]
		all = append(all, EndedJob{j.ID.String(), j.Project, j.Step, j.State, j.Slots, j.Started, j.Ended, j.ExitCode})
	}
	return all, nil
}

// JobNamed returns the ID that a user means by 12, 12[3], 12_3, 82+1, or by a job's name: the
// caller's own job of that name, and another user's where the caller has none.
func (d *Desk) JobNamed(ctx context.Context, text string) (backends.ID, error) {
	if job, part, ok := backends.ParsePart(text); ok {
		if d.view != nil {
			return backends.ID{}, fmt.Errorf("job %s: %w: type pba explain %[1]s, or give the part's own number, as squeue lists it", text,
				marked{fmt.Errorf("the management page does not ask the queue which job is part %d of %d", part, job), errUnknownJob})
		}
		return d.Part(ctx, job, part)
	}
	if id, ok := backends.ParseElement(text); ok {
		return id, nil
	}
	id, err := backends.ParseID(text)
	if _, named := bsub.JobByName(text); err != nil && named {
		return d.jobOfName(ctx, text)
	}
	if err != nil {
		return id, invalidf("%w", err)
	}
	return id, nil
}

// namedFor is how long jobs that ended are found by their names, where the queue is asked.
const namedFor = time.Hour

func (d *Desk) jobOfName(ctx context.Context, name string) (backends.ID, error) {
	farm, err := d.jobsSeen(ctx)
	if err != nil {
		return backends.ID{}, err
	}
	shown := bsub.Visible(name)
	found, own := bsub.JobsNamed(farm, d.Caller.User, name)
	whose, all := "your jobs", []string{}
	if len(found) == 0 {
		found, all = bsub.JobsNamed(farm, "", name)
		whose = "the jobs"
	}
	switch len(found) {
	case 0:
		return backends.ID{}, fmt.Errorf("job %s: %w", shown, marked{fmt.Errorf("no job has this name%s", bsub.Visible(cmp.Or(nearest.Hint(name, own), nearest.Hint(name, all)))), errUnknownJob})
	case 1:
		return found[0], nil
	}
	return backends.ID{}, fmt.Errorf("job %s: %w: name one of them by its ID (%s)", shown,
		marked{fmt.Errorf("%d of %s have this name", len(found), whose), errUnknownJob}, bsub.ListIDs(found))
}

// jobsSeen returns the queue as the last cycle saw it where a server asks, and else as it is.
func (d *Desk) jobsSeen(ctx context.Context) (*backends.Snapshot, error) {
	if d.view == nil {
		return d.queue.Snapshot(ctx, d.Now().Add(-namedFor))
	}
	r, err := d.observe(ctx)
	if err != nil {
		return nil, err
	}
	return r.State.Farm, nil
}
