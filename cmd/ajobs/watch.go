package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/follow"
	"github.com/allotment-hpc/allotment/cmd/internal/screen"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// snapshot is one state of a watched list.
type snapshot struct {
	jobs  []backends.Job
	lines []string // as they are printed
	at    time.Time
	err   error // of the last query
}

// watchJobs is ajobs --watch: the list, drawn anew in its place whenever the
// queue has changed or the terminal its size, until it is interrupted.
func watchJobs(ctx context.Context, p process, o jobsOptions) error {
	file := shell.TerminalOf(p.stdout)
	if file == nil {
		return shell.Usagef("--watch needs a terminal; without it, ajobs prints the list once")
	}
	queue, err := p.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	first, err := o.readSnapshot(ctx, queue, p)
	if err != nil {
		return err // nothing could be drawn
	}
	ctx, cancel := context.WithCancel(ctx)
	snapshots := make(chan snapshot)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.sendSnapshots(ctx, queue, p, snapshots)
	}()
	defer func() { cancel(); <-ended }()

	view, err := screen.Open(file)
	if err != nil {
		return err
	}
	defer view.Close()
	for current := first; ; {
		if err := view.Draw(append([]string{headline(current)}, current.lines...)); err != nil {
			return err
		}
		select {
		case next := <-snapshots:
			if next.err != nil {
				next.jobs, next.lines, next.at = current.jobs, current.lines, current.at
			}
			current = next
		case <-view.Resized:
		case <-ctx.Done():
			return nil
		}
	}
}

func (o jobsOptions) readSnapshot(ctx context.Context, queue backends.Backend, p process) (snapshot, error) {
	jobs, _, err := o.list(ctx, queue, p)
	if err != nil {
		return snapshot{err: err}, err
	}
	shown := snapshot{jobs: jobs, at: p.now()}
	if len(jobs) > 0 {
		var b bytes.Buffer
		_ = o.print(ctx, p, queue, jobs, &b) // a buffer takes everything
		shown.lines = strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	}
	return shown, nil
}

// sendSnapshots takes a snapshot after each change.
func (o jobsOptions) sendSnapshots(ctx context.Context, queue backends.Backend, p process, to chan<- snapshot) {
	next := follow.Changes(queue)
	for ctx.Err() == nil {
		pause := follow.ReadInterval
		shown := snapshot{err: next(ctx)}
		if shown.err == nil {
			shown, _ = o.readSnapshot(ctx, queue, p)
		}
		if shown.err != nil {
			pause = follow.RetryPause
		}
		select {
		case to <- shown:
		case <-ctx.Done():
			return
		}
		_ = clock.Sleep(ctx, pause)
	}
}

func headline(shown snapshot) string {
	count := map[string]int{}
	for i := range shown.jobs {
		count[bsub.Stat(&shown.jobs[i])]++
	}
	var parts []string
	for _, stat := range []string{"RUN", "SSUSP", "USUSP", "PEND", "PSUSP", "DONE", "EXIT"} {
		if count[stat] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[stat], stat))
		}
	}
	if len(parts) == 0 {
		parts = []string{"no jobs"}
	}
	text := shown.at.Format("15:04:05") + "  " + strings.Join(parts, ", ") + "  (Ctrl-C ends)"
	if shown.err != nil {
		text += "  not up to date: " + shell.OneLine(shown.err.Error())
	}
	return text
}
