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

// statesTime bounds how long a list waits for all of them.
const statesTime = 20 * time.Second

// addStates adds what the hosts of the first jobs keep of them to the queue's records. Where no
// allotd runs, or no host has anything of a job, there is nothing to add.
func addStates(ctx context.Context, p process, jobs []backends.Job, records []*backends.Record) {
	eachState(ctx, p, "ajobs", len(jobs), func(i int) backends.ID { return jobs[i].ID }, func(i int, state *backends.Record) {
		records[i] = withState(records[i], state)
		if jobs[i].Progress == "" {
			jobs[i].Progress = ask.Progress(state)
		}
	})
}

// addPastStates adds what the hosts of the first jobs keep of them to the stories of these. Runs are
// as the queue has them: its exit codes are known to it alone.
func addPastStates(ctx context.Context, p process, all []backends.Past) {
	eachState(ctx, p, "ahist", len(all), func(i int) backends.ID { return all[i].Job.ID }, func(i int, state *backends.Record) {
		if all[i].Record == nil {
			return // its runs are not the caller's to see, or the queue lost them
		}
		r := *all[i].Record
		r.Settings, r.Files, r.History = state.Settings, state.Files, state.History
		all[i].Record = &r
	})
}

// eachState reads what the hosts of the first of n jobs keep of them, until allotd can't be asked.
func eachState(ctx context.Context, p process, command string, n int, id func(i int) backends.ID, take func(i int, state *backends.Record)) {
	ctx, cancel := context.WithTimeout(ctx, statesTime)
	defer cancel()
	for i := range min(n, mostStates) {
		state, err := p.stateOf(ctx, id(i))
		switch {
		case errors.Is(err, ask.ErrNone):
			return
		case errors.Is(err, ask.ErrNotFound):
		case err != nil:
			fmt.Fprintf(p.stderr, "%s: what the hosts of job <%s> keep of it can't be read: %s\n", command, id(i), shell.OneLine(err.Error()))
			return
		default:
			take(i, state)
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
