package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/follow"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// Exit codes of a command that waits for a job, beside the job's own.
const (
	exitNeverStarted = 126 // LSF's: the job was killed while it was pending
	exitInterrupted  = 130 // 128 + SIGINT, as a shell has it
)

// maxOutage is how long an unreachable queue is tried again.
const maxOutage = 10 * time.Minute

// waitFor waits until all of these jobs have ended, with a line on stderr when the
// first one starts, and returns their exit code: that of the first one that failed.
func (p process) waitFor(ctx context.Context, ids []backends.ID) error {
	queue, err := p.open(ctx, false) // does not restart a daemon that is stopped meanwhile
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	fmt.Fprintln(p.stderr, "<<Waiting for dispatch ...>>")
	host, err := p.awaitStart(ctx, queue, ids)
	if err == nil && host != "" {
		fmt.Fprintf(p.stderr, "<<Starting on %s>>\n", shell.Printable(host))
	}
	var jobs []backends.Job
	if err == nil {
		jobs, err = p.awaitEnd(ctx, queue, ids)
	}
	if ctx.Err() != nil {
		return &shell.ExitError{Code: exitInterrupted, Err: fmt.Errorf("stopped waiting, but job %v continues: end it with akill %v", ids[0], ids[0])}
	}
	if err != nil {
		return err
	}
	return jobsExit(ids, jobs)
}

// awaitStart waits until one of the jobs has begun, and returns its host; "": all ended
// before.
func (p process) awaitStart(ctx context.Context, queue backends.Backend, ids []backends.ID) (host string, err error) {
	err = p.pollUntil(ctx, queue, func() (bool, error) {
		jobs, err := queue.Jobs(ctx, ids)
		if err != nil {
			return false, err
		}
		for i := range jobs {
			if len(jobs[i].Hosts) > 0 {
				host = jobs[i].Hosts[0].Host
				return true, nil
			}
		}
		return allEnded(jobs), nil
	})
	return host, err
}

// awaitEnd waits until all jobs have ended and returns them.
func (p process) awaitEnd(ctx context.Context, queue backends.Backend, ids []backends.ID) (jobs []backends.Job, err error) {
	wait := queue.Abilities().Wait
	err = p.pollUntil(ctx, queue, func() (bool, error) {
		var err error
		if wait != nil {
			jobs, err = wait(ctx, ids)
		} else {
			jobs, err = queue.Jobs(ctx, ids)
		}
		return err == nil && allEnded(jobs), err
	})
	return jobs, err
}

func allEnded(jobs []backends.Job) bool {
	return !slices.ContainsFunc(jobs, func(j backends.Job) bool { return !j.State.Ended() })
}

// pollUntil calls done now, and again whenever the queue may have changed, until it returns
// true. An unreachable queue is tried again for maxOutage.
func (p process) pollUntil(ctx context.Context, queue backends.Backend, done func() (bool, error)) error {
	awaitChange := follow.Changes(queue)
	var lostSince time.Time
	for {
		finished, err := done()
		if finished {
			return nil
		}
		pause := follow.ReadInterval
		if err == nil {
			lostSince = time.Time{}
			err = awaitChange(ctx)
		}
		switch {
		case err == nil:
		case ctx.Err() != nil, !errors.Is(err, backends.ErrUnreachable):
			return err
		case lostSince.IsZero():
			lostSince, pause = p.now(), follow.RetryPause
			fmt.Fprintln(p.stderr, "asub: the queue can't be reached; still waiting")
		case p.now().Sub(lostSince) > maxOutage:
			return err
		default:
			pause = follow.RetryPause
		}
		if err := clock.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// jobsExit returns the exit code of jobs that have ended.
func jobsExit(ids []backends.ID, jobs []backends.Job) error {
	for _, id := range ids {
		known := func(j backends.Job) bool { return j.ID == id || id.Index == 0 && j.ID.Job == id.Job }
		if !slices.ContainsFunc(jobs, known) {
			return fmt.Errorf("the queue no longer knows job %v: its exit code is lost", id)
		}
	}
	slices.SortFunc(jobs, func(a, b backends.Job) int { return a.ID.Compare(b.ID) })
	for i := range jobs {
		if code := exitCode(&jobs[i]); code != 0 {
			return &shell.ExitError{Code: code}
		}
	}
	return nil
}

func exitCode(j *backends.Job) int {
	const most = 255
	switch {
	case j.State == backends.Done:
		return shell.ExitOK
	case j.Started.IsZero():
		return exitNeverStarted
	case j.ExitCode < 1 || j.ExitCode > most:
		return shell.ExitFailure
	}
	return j.ExitCode
}
