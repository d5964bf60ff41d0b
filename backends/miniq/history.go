package miniq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// history returns jobs that have ended, while the queue keeps them, and those that were requeued,
// with their records. Another user's record is nil.
func (c *Client) history(ctx context.Context, q backends.PastQuery) (backends.PastJobs, error) {
	jobs, older, err := c.pastJobs(ctx, &q)
	if err != nil {
		return backends.PastJobs{}, err
	}
	var all []backends.Past
	for i := range jobs {
		p := backends.Past{Job: jobs[i]}
		record, err := c.Record(ctx, p.Job.ID)
		switch {
		case errors.Is(err, backends.ErrUnknownJob): // it was forgotten since
			continue
		case err == nil:
			explainRuns(&p.Job, record)
			p.Job.Submitted = firstSubmitted(&p.Job, record)
			p.Record = record
		case !errors.Is(err, backends.ErrDenied):
			return backends.PastJobs{}, err
		}
		if at := p.LastEnd(); p.Record == nil || len(q.IDs) > 0 || !at.Before(q.Since) {
			all = append(all, p)
		}
	}
	found := backends.Newest(all, q.Most)
	found.Older += older
	return found, nil
}

// pastJobs returns the jobs whose records are read, at most Most of those that have ended and as
// many that were requeued, and how many that ended are left out.
func (c *Client) pastJobs(ctx context.Context, q *backends.PastQuery) (jobs []backends.Job, older int, err error) {
	if len(q.IDs) > 0 {
		jobs, err = c.Jobs(ctx, q.IDs)
		jobs = slices.DeleteFunc(jobs, func(j backends.Job) bool { return !q.Wants(&j) || !j.State.Ended() && j.Requeues == 0 })
		slices.SortStableFunc(jobs, func(a, b backends.Job) int { return a.Ended.Compare(b.Ended) })
		jobs, older = lastOf(jobs, q.Most)
		return jobs, older, err
	}
	farm, err := c.Snapshot(ctx, q.Since)
	if err != nil {
		return nil, 0, err
	}
	wanted := func(j backends.Job) bool { return q.Wants(&j) }
	ended, older := lastOf(slices.DeleteFunc(farm.Ended, func(j backends.Job) bool { return !wanted(j) }), q.Most)
	requeued, more := lastOf(slices.DeleteFunc(farm.Jobs, func(j backends.Job) bool { return j.Requeues == 0 || !wanted(j) }), q.Most)
	return append(ended, requeued...), older + more, nil
}

func lastOf(jobs []backends.Job, most int) (last []backends.Job, older int) {
	older = max(len(jobs)-most, 0)
	return jobs[older:], older
}

// firstSubmitted returns when a job came into the queue first: one that ended and was put back has a later
// time since.
func firstSubmitted(j *backends.Job, r *backends.Record) time.Time {
	at := slices.IndexFunc(r.History, func(h backends.HistoryLine) bool { return h.Event == "submitted" })
	if at >= 0 && r.History[at].At.Before(j.Submitted) {
		return r.History[at].At
	}
	return j.Submitted
}

// explainRuns sets why each run of a job ended, by the lines of its history: those of a run come
// before the start of the next one.
func explainRuns(j *backends.Job, r *backends.Record) {
	lines := r.History
	for i := range r.Runs {
		run := &r.Runs[i]
		until := len(lines)
		if i < len(r.Runs)-1 {
			next := r.Runs[i+1].Run
			if at := slices.IndexFunc(lines, func(h backends.HistoryLine) bool { return h.Event == "start" && h.Run == next }); at >= 0 {
				until = at
			}
		}
		last := i == len(r.Runs)-1
		switch {
		case run.Ended.IsZero() || last && j.State == backends.Done:
		case last && j.State == backends.Exited:
			run.Why = explainEnd(lines[:until], run, j.Reason)
		default:
			run.Why = explainEnd(lines[:until], run, "")
		}
		lines = lines[until:]
	}
}

// explainEnd returns why a run ended that did not end well: what the engine, the queue or a user did to
// it, else the keeper's word, else the queue's.
func explainEnd(lines []backends.HistoryLine, run *backends.RunRecord, reason string) string {
	why, saved, again := run.Why, "", ""
	if why == "" {
		why = reason
	}
	var acted time.Time // when it was requeued or killed: the notice of that time is the reason
	for _, h := range lines {
		switch h.Event {
		case "requeue", "kill":
			by := strings.Fields(h.Detail)
			if h.At.After(run.Ended) { // it had ended by itself
				if len(by) > 1 {
					again = "; put back into the queue by " + by[1]
				}
				continue
			}
			acted = h.At
			if h.Event == "requeue" && len(by) > 1 {
				why = "requeued by " + by[1]
			}
		}
	}
	for _, h := range lines {
		switch {
		case h.Event != "notice":
		case h.Run == run.Run && (h.At.Equal(acted) || strings.HasPrefix(h.Detail, "killed")):
			why = h.Detail
		case h.Run == 0 && (strings.HasPrefix(h.Detail, backends.CheckpointMade) || strings.HasPrefix(h.Detail, backends.CheckpointFailed)):
			saved = "; " + h.Detail
		}
	}
	if why == "" && again != "" {
		why = fmt.Sprintf("exit %d", run.ExitCode)
	}
	return why + saved + again
}
