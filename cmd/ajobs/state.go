package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/ask"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// stateOf asks allotd for what a job's hosts keep of it.
func stateOf(ctx context.Context, id backends.ID) (*backends.Record, error) {
	c, err := configfile.Load(yamlplain.Convert)
	if err != nil {
		return nil, err
	}
	return ask.RecordOf(ctx, c.Web.SocketIn(c.Paths.Runtime), c.Backend, id)
}

// patience bounds how long a list waits for what allotd may add to it.
const patience = 5 * time.Second

// addProgress adds how far running jobs are where their hosts keep that, not the queue. Without an
// allotd that answers in time the list is without it.
func addProgress(ctx context.Context, p process, queue backends.Backend, jobs []backends.Job) {
	if queue.Abilities().Set != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if uses, err := p.uses(ctx, jobs); err == nil {
		setProgress(jobs, uses)
	}
}

// setProgress sets how far jobs are by what their hosts reported, unless the queue says it.
func setProgress(jobs []backends.Job, uses map[backends.ID]*bsub.Use) {
	for i := range jobs {
		if u := uses[jobs[i].ID]; u != nil && jobs[i].Progress == "" {
			jobs[i].Progress = u.Progress
		}
	}
}

// mostStates bounds the jobs of one list of whose hosts allotd is asked.
const mostStates = 50

// addStates adds what the hosts of the first jobs keep of them to the queue's records. Where no
// allotd runs, or no host has anything of a job, there is nothing to add.
func addStates(ctx context.Context, p process, jobs []backends.Job, records []*backends.Record) {
	for i := range jobs[:min(len(jobs), mostStates)] {
		state, err := p.stateOf(ctx, jobs[i].ID)
		switch {
		case errors.Is(err, ask.ErrNone):
			return
		case errors.Is(err, ask.ErrNotFound):
		case err != nil:
			fmt.Fprintf(p.stderr, "ajobs: what the hosts of job <%s> keep of it can't be read: %s\n", jobs[i].ID, shell.OneLine(err.Error()))
			return
		default:
			records[i] = withState(records[i], state)
			if jobs[i].Progress == "" {
				jobs[i].Progress = progressIn(state)
			}
		}
	}
}

// withState returns the queue's record of a job with what its hosts have written. The queue's own
// word on its runs counts.
func withState(queue, hosts *backends.Record) *backends.Record {
	if queue == nil {
		return hosts
	}
	r := *queue
	r.Settings, r.Files = hosts.Settings, hosts.Files
	r.History = slices.Concat(queue.History, hosts.History)
	slices.SortStableFunc(r.History, func(a, b backends.HistoryLine) int { return a.At.Compare(b.At) })
	if len(r.Runs) == 0 {
		r.Runs = hosts.Runs
	}
	return &r
}

// progressIn is Job.Progress by a job's own settings.
func progressIn(r *backends.Record) string {
	for _, s := range r.Settings {
		if s.Key == "progress" {
			return s.Value
		}
	}
	return ""
}
