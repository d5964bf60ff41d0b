package qualify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/internal/printable"
)

// Queue has the methods of backends.Backend that Hosts needs. Submit goes through the
// submit filter.
type Queue interface {
	Jobs(ctx context.Context, ids []backends.ID) ([]backends.Job, error)
	Submit(ctx context.Context, specs []backends.Spec) []backends.Submitted
	Kill(ctx context.Context, ids []backends.ID) backends.Errors
	// Changes returns a function that waits until the queue has changed since its last
	// call, or may have.
	Changes() func(context.Context) error
}

// Hosts measures hosts by a job on each.
type Hosts struct {
	Queue Queue
	Dir   string        // absolute; the caller's own, seen by all hosts
	Job   backends.Spec // what the jobs have in common; the rest is filled in
	Argv  []string      // what a job runs, before the directory and its number: it calls Run

	numbers atomic.Int64
}

// Request is a host to measure, by a job of so many slots (1 if below).
type Request struct {
	Host  string
	Slots int
}

// Answer is the outcome of a Request.
type Answer struct {
	Request
	Result Result
	Err    error
}

const (
	jobName = "asplit/qualify"
	// runLimit ends a job that hangs: it waits for nothing but its file systems.
	runLimit = 5 * time.Minute
	// maxResultDelay bounds the delay of an ended job's result: some network file
	// systems show new files after seconds.
	maxResultDelay = 5 * time.Second
	pollInterval   = 100 * time.Millisecond
	retryInterval  = time.Second
	killTime       = 10 * time.Second
	maxLog         = 1 << 10
)

// pendingJob is a job whose result is awaited.
type pendingJob struct {
	request Request
	number  int
	id      backends.ID
	ended   time.Time // when its end was seen; zero: not yet
}

// Measure measures hosts. It calls report once for each, as soon as its answer is known and
// from the calling goroutine, and then returns. When ctx ends it kills the jobs that are
// left. It may be called several times at once.
func (h *Hosts) Measure(ctx context.Context, requests []Request, report func(Answer)) {
	waiting := h.submit(ctx, requests, report)
	changed := h.Queue.Changes()
	for len(waiting) > 0 {
		if ctx.Err() != nil {
			h.abort(ctx, waiting, report)
			return
		}
		waiting = h.collect(ctx, waiting, report)
		_ = clock.Sleep(ctx, h.awaitChange(ctx, waiting, changed))
	}
}

// awaitChange waits for a change of the queue, and returns the pause before the next check.
func (h *Hosts) awaitChange(ctx context.Context, waiting []pendingJob, changed func(context.Context) error) time.Duration {
	if !slices.ContainsFunc(waiting, func(o pendingJob) bool { return o.ended.IsZero() }) {
		return pollInterval
	}
	ctx, cancel := context.WithTimeout(ctx, maxResultDelay)
	defer cancel()
	if changed(ctx) != nil {
		return retryInterval
	}
	return pollInterval
}

func (h *Hosts) submit(ctx context.Context, requests []Request, report func(Answer)) []pendingJob {
	all := make([]pendingJob, len(requests))
	specs := make([]backends.Spec, len(requests))
	for i, request := range requests {
		all[i] = pendingJob{request: request, number: int(h.numbers.Add(1))}
		specs[i] = h.spec(all[i])
	}
	var waiting []pendingJob
	for i, submitted := range h.Queue.Submit(ctx, specs) {
		if submitted.Err != nil {
			report(Answer{Request: requests[i], Err: submitted.Err})
			continue
		}
		all[i].id = submitted.ID
		waiting = append(waiting, all[i])
	}
	return waiting
}

func (h *Hosts) spec(o pendingJob) backends.Spec {
	s := h.Job
	s.Name, s.Slots, s.OneHost, s.PerHost, s.Hosts = jobName, max(o.request.Slots, 1), true, 0, []string{o.request.Host}
	s.Command = append(slices.Clone(h.Argv), h.Dir, strconv.Itoa(o.number))
	s.Stdout, s.Stderr = h.log(o), h.log(o)
	if s.RunLimit == 0 {
		s.RunLimit = runLimit
	}
	return s
}

func (h *Hosts) log(o pendingJob) string { return filepath.Join(h.Dir, strconv.Itoa(o.number)+".log") }

// collect reports the jobs whose results exist, or will never exist, and returns the
// others.
func (h *Hosts) collect(ctx context.Context, waiting []pendingJob, report func(Answer)) []pendingJob {
	ids := make([]backends.ID, len(waiting))
	for i, o := range waiting {
		ids[i] = o.id
	}
	live, queried := map[backends.ID]bool{}, false
	if jobs, err := h.Queue.Jobs(ctx, ids); err == nil {
		queried = true
		for i := range jobs {
			live[jobs[i].ID] = !jobs[i].State.Ended()
		}
	}
	now := time.Now()
	var left []pendingJob
	for _, o := range waiting {
		if queried && !live[o.id] && o.ended.IsZero() {
			o.ended = now
		}
		result, err := ReadResult(ResultFile(h.Dir, o.number)) // after the job was queried
		switch {
		case !errors.Is(err, fs.ErrNotExist):
			report(Answer{o.request, result, err})
		case !o.ended.IsZero() && now.Sub(o.ended) > maxResultDelay:
			report(Answer{Request: o.request, Err: fmt.Errorf("job %s ended without a result%s", o.id, h.logHead(o))})
		default:
			left = append(left, o)
		}
	}
	return left
}

// logHead returns the beginning of a job's output, to end an error's text.
func (h *Hosts) logHead(o pendingJob) string {
	f, err := os.Open(h.log(o))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxLog))
	if err != nil || len(text) == 0 {
		return ""
	}
	return ": " + printable.Text(string(text))
}

func (h *Hosts) abort(ctx context.Context, waiting []pendingJob, report func(Answer)) {
	ids := make([]backends.ID, len(waiting))
	for i, o := range waiting {
		ids[i] = o.id
	}
	kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	_ = h.Queue.Kill(kill, ids) // jobs that have ended meanwhile give errors
	for _, o := range waiting {
		report(Answer{Request: o.request, Err: context.Cause(ctx)})
	}
}
