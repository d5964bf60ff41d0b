package backends

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Past is a job that has ended or was requeued, and what its queue has kept of it.
type Past struct {
	Job Job
	// Record has the job's runs, oldest first, and why each of them ended (RunRecord.Why; "": by
	// itself). nil: it is not the caller's to see.
	Record *Record
}

// PastQuery selects jobs of the past. The ID of an array stands for its elements.
type PastQuery struct {
	IDs   []ID            // these jobs, whenever they ended; empty: those that Since and User select
	Since time.Time       // that ended or were requeued then or later
	User  string          // of this user; "": of any
	Keep  func(*Job) bool // of these; nil: of all
	Most  int             // the last so many of them
}

// Wants reports whether the query selects a job, as far as its user and Keep say.
func (q *PastQuery) Wants(j *Job) bool {
	return (q.User == "" || j.User == q.User) && (q.Keep == nil || q.Keep(j))
}

// PastJobs is the answer to a PastQuery.
type PastJobs struct {
	Jobs  []Past // by LastEnd, then ID
	Older int    // how many were left out beyond PastQuery.Most
	Note  string // what of the queue's files could not be read, and what is missing therefore; "": nothing
}

// LastEnd returns when a job ended, or its last run that was requeued; zero: that is not known.
func (p *Past) LastEnd() time.Time {
	if p.Job.State.Ended() || p.Record == nil {
		return p.Job.Ended
	}
	var last time.Time
	for i := range p.Record.Runs {
		if at := p.Record.Runs[i].Ended; at.After(last) {
			last = at
		}
	}
	return last
}

// Newest sorts jobs by LastEnd, then ID, and keeps the last ones.
func Newest(all []Past, most int) PastJobs {
	slices.SortFunc(all, func(a, b Past) int {
		return cmp.Or(a.LastEnd().Compare(b.LastEnd()), a.Job.ID.Compare(b.Job.ID))
	})
	older := max(len(all)-most, 0)
	return PastJobs{Jobs: all[older:], Older: older}
}

// What Act.Notice and the queues say of a requeued run's checkpoint (see RunRecord.Why).
const (
	CheckpointMade   = "its checkpoint was made"
	CheckpointFailed = "its checkpoint failed"
)

// What the queues say of a requeued run if they do not keep why it was requeued.
const (
	RequeuedOnly    = "requeued"
	RequeuedByAdmin = "requeued by an administrator"
)

// Unexplained reports whether a run was requeued for a reason that the queue does not keep.
func (p *Past) Unexplained(run int) bool {
	why := p.Record.Runs[run].Why
	return p.Requeued(run) && (why == RequeuedOnly || why == RequeuedByAdmin)
}

// Requeued reports whether a run was put back into the queue: it ended, and the job went on.
func (p *Past) Requeued(run int) bool {
	runs := p.Record.Runs
	return !runs[run].Ended.IsZero() && (run < len(runs)-1 || !p.Job.State.Ended())
}

// Lost returns the time of the runs that were requeued without a checkpoint.
func (p *Past) Lost() time.Duration {
	if p.Record == nil {
		return 0
	}
	var lost time.Duration
	for i, run := range p.Record.Runs {
		if p.Requeued(i) && !strings.Contains(run.Why, CheckpointMade) {
			lost += max(run.Ended.Sub(run.Started), 0)
		}
	}
	return lost
}

// Waited returns how long a job waited: before its first run, and between two runs.
func (p *Past) Waited(now time.Time) time.Duration {
	var runs []RunRecord
	if p.Record != nil {
		runs = p.Record.Runs
	}
	if len(runs) == 0 && !p.Job.Started.IsZero() && p.Job.State != Pending && p.Job.State != Held {
		return max(p.Job.Started.Sub(p.Job.Submitted), 0)
	}
	var waited time.Duration
	from := p.Job.Submitted
	for i := range runs {
		waited += max(runs[i].Started.Sub(from), 0)
		if from = runs[i].Ended; from.IsZero() {
			return waited // it runs
		}
	}
	switch {
	case !p.Job.State.Ended():
		waited += max(now.Sub(from), 0)
	case len(runs) == 0:
		waited += max(p.Job.Ended.Sub(from), 0)
	}
	return waited
}
