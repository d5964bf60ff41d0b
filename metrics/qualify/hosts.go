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

// Ask is a host to measure, by a job of so many slots (1 if below).
type Ask struct {
	Host  string
	Slots int
}

// Answer is the outcome of an Ask.
type Answer struct {
	Ask
	Result Result
	Err    error
}

const (
	jobName = "asplit/qualify"
	// runLimit ends a job that hangs: it waits for nothing but its file systems.
	runLimit = 5 * time.Minute
	// lateTime is how long the result of an ended job may be missing: some network file
	// systems show new files after seconds.
	lateTime  = 5 * time.Second
	lookPause = 100 * time.Millisecond
	tryPause  = time.Second
	killTime  = 10 * time.Second
	maxLog    = 1 << 10
)

// open is a job whose result is awaited.
type open struct {
	ask    Ask
	number int
	id     backends.ID
	ended  time.Time // when its end was seen; zero: not yet
}

// Measure measures hosts. It calls tell once for each, as soon as its answer is known and
// from the calling goroutine, and then returns. When ctx ends it kills the jobs that are
// left. It may be called several times at once.
func (h *Hosts) Measure(ctx context.Context, asks []Ask, tell func(Answer)) {
	waiting := h.submit(ctx, asks, tell)
	changed := h.Queue.Changes()
	for len(waiting) > 0 {
		if ctx.Err() != nil {
			h.giveUp(ctx, waiting, tell)
			return
		}
		waiting = h.collect(ctx, waiting, tell)
		_ = clock.Sleep(ctx, h.quiet(ctx, waiting, changed))
	}
}

// quiet waits for a change of the queue, and returns how long to wait beyond it.
func (h *Hosts) quiet(ctx context.Context, waiting []open, changed func(context.Context) error) time.Duration {
	if !slices.ContainsFunc(waiting, func(o open) bool { return o.ended.IsZero() }) {
		return lookPause
	}
	ctx, cancel := context.WithTimeout(ctx, lateTime)
	defer cancel()
	if changed(ctx) != nil {
		return tryPause
	}
	return lookPause
}

func (h *Hosts) submit(ctx context.Context, asks []Ask, tell func(Answer)) []open {
	all := make([]open, len(asks))
	specs := make([]backends.Spec, len(asks))
	for i, ask := range asks {
		all[i] = open{ask: ask, number: int(h.numbers.Add(1))}
		specs[i] = h.spec(all[i])
	}
	var waiting []open
	for i, submitted := range h.Queue.Submit(ctx, specs) {
		if submitted.Err != nil {
			tell(Answer{Ask: asks[i], Err: submitted.Err})
			continue
		}
		all[i].id = submitted.ID
		waiting = append(waiting, all[i])
	}
	return waiting
}

func (h *Hosts) spec(o open) backends.Spec {
	s := h.Job
	s.Name, s.Slots, s.OneHost, s.Hosts = jobName, max(o.ask.Slots, 1), true, []string{o.ask.Host}
	s.Command = append(slices.Clone(h.Argv), h.Dir, strconv.Itoa(o.number))
	s.Stdout, s.Stderr = h.log(o), h.log(o)
	if s.RunLimit == 0 {
		s.RunLimit = runLimit
	}
	return s
}

func (h *Hosts) log(o open) string { return filepath.Join(h.Dir, strconv.Itoa(o.number)+".log") }

// collect answers for jobs whose results are there, or will not come, and returns the
// others.
func (h *Hosts) collect(ctx context.Context, waiting []open, tell func(Answer)) []open {
	ids := make([]backends.ID, len(waiting))
	for i, o := range waiting {
		ids[i] = o.id
	}
	live, asked := map[backends.ID]bool{}, false
	if jobs, err := h.Queue.Jobs(ctx, ids); err == nil {
		asked = true
		for i := range jobs {
			live[jobs[i].ID] = !jobs[i].State.Ended()
		}
	}
	now := time.Now()
	var left []open
	for _, o := range waiting {
		if asked && !live[o.id] && o.ended.IsZero() {
			o.ended = now
		}
		result, err := ReadResult(ResultFile(h.Dir, o.number)) // after the job was queried
		switch {
		case !errors.Is(err, fs.ErrNotExist):
			tell(Answer{o.ask, result, err})
		case !o.ended.IsZero() && now.Sub(o.ended) > lateTime:
			tell(Answer{Ask: o.ask, Err: fmt.Errorf("job %s ended without a result%s", o.id, h.lastWords(o))})
		default:
			left = append(left, o)
		}
	}
	return left
}

// lastWords returns the beginning of a job's output, to end an error's text.
func (h *Hosts) lastWords(o open) string {
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

func (h *Hosts) giveUp(ctx context.Context, waiting []open, tell func(Answer)) {
	ids := make([]backends.ID, len(waiting))
	for i, o := range waiting {
		ids[i] = o.id
	}
	kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	_ = h.Queue.Kill(kill, ids) // jobs that have ended meanwhile give errors
	for _, o := range waiting {
		tell(Answer{Ask: o.ask, Err: context.Cause(ctx)})
	}
}
