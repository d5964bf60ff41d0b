package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/farm"
)

// spoolerQueue is task-spooler with a server of its own.
type spoolerQueue struct {
	program, dir string
	env          []string
}

// spoolerPending bounds its pending jobs: each one is a process, and its server serves a
// thousand of them.
const spoolerPending = 900

// startSpooler starts a server, or returns what is missing.
func startSpooler(ctx context.Context, o options) (queue, string, error) {
	program, err := exec.LookPath("tsp")
	if err != nil {
		return nil, "task-spooler: tsp is not installed: its package is task-spooler", nil
	}
	dir, err := os.MkdirTemp(o.below, "allotment-spooler-")
	if err != nil {
		return nil, "", err
	}
	s := &spoolerQueue{program: program, dir: dir}
	s.env = append(os.Environ(), "TS_SOCKET="+s.socket(), "TMPDIR="+dir, "TS_MAXFINISHED=1", fmt.Sprintf("TS_MAXCONN=%d", o.jobs+spoolerPending+100))
	if _, err := s.tsp(ctx, "-S", fmt.Sprint(slots)); err != nil {
		return nil, "", errors.Join(fmt.Errorf("start task-spooler: %w", err), s.close())
	}
	return s, "", nil
}

func (s *spoolerQueue) name() string { return spoolerName }

func (s *spoolerQueue) close() error {
	return errors.Join(s.end(), os.RemoveAll(s.dir))
}

// tsp runs the client.
func (s *spoolerQueue) tsp(ctx context.Context, args ...string) ([]byte, error) {
	return command.Run(ctx, command.Command{Argv: append([]string{s.program}, args...), Env: s.env, Dir: s.dir, Timeout: 5 * time.Minute})
}

// add submits one job. A process of the client stays until the job has ended, so that it
// must not hold a pipe of the bench.
func (s *spoolerQueue) add(ctx context.Context, job ...string) error {
	stderr, err := os.OpenFile(filepath.Join(s.dir, "stderr"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = stderr.Close() }()
	ctx, cancel := context.WithTimeout(ctx, spoolerTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.program, append([]string{"-n"}, job...)...)
	cmd.Env, cmd.Dir, cmd.Stderr = s.env, s.dir, stderr
	for range spoolerTries { // a busy server closes some connections
		if err = cmd.Run(); err == nil {
			return nil
		}
		cmd = copyCommand(ctx, cmd)
	}
	message, _ := os.ReadFile(stderr.Name())
	return fmt.Errorf("tsp: %w: %s", err, message)
}

// How often a submission is tried, and for how long: with hundreds of pending jobs, its
// server was seen to stop answering.
const (
	spoolerTries = 20
	spoolerTime  = 20 * time.Second
)

func copyCommand(ctx context.Context, done *exec.Cmd) *exec.Cmd {
	cmd := exec.CommandContext(ctx, done.Path, done.Args[1:]...)
	cmd.Env, cmd.Dir, cmd.Stderr = done.Env, done.Dir, done.Stderr
	return cmd
}

func (s *spoolerQueue) submit(ctx context.Context, clients, jobs int) error {
	return inParallel(clients, func(n int) error {
		for range share(jobs, clients, n) {
			if err := s.add(ctx, "true"); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *spoolerQueue) run(ctx context.Context, jobs int) error {
	if err := s.submit(ctx, clientsAtOnce, jobs); err != nil {
		return err
	}
	return s.await(ctx, func(line string) bool { return !strings.Contains(line, "queued") && !strings.Contains(line, "running") })
}

// await waits until every line of the list passes.
func (s *spoolerQueue) await(ctx context.Context, passes func(line string) bool) error {
	return awaitList(ctx, 20*time.Millisecond, func() (over bool, err error) {
		out, err := s.tsp(ctx, "-l")
		for range spoolerTries {
			if err == nil {
				break
			}
			out, err = s.tsp(ctx, "-l")
		}
		over = true
		for line := range strings.Lines(string(out)) {
			over = over && passes(line)
		}
		return over, err
	})
}

// awaitList polls until check returns true: these queues announce no changes.
func awaitList(ctx context.Context, pause time.Duration, check func() (over bool, err error)) error {
	var err error
	await.Every(ctx, pause, func() (over bool) {
		over, err = check()
		return over || err != nil
	})
	return errors.Join(err, ctx.Err())
}

func (s *spoolerQueue) list(ctx context.Context, pending int) (int, time.Duration, error) {
	out, err := s.tsp(ctx, "-l")
	if err != nil {
		return 0, 0, err
	}
	if missing := pending - strings.Count(string(out), "queued"); missing > 0 {
		if err := s.submit(ctx, clientsAtOnce, missing); err != nil {
			return 0, 0, err
		}
	}
	began := time.Now()
	out, err = s.tsp(ctx, "-l")
	return len(out), time.Since(began), err
}

func (s *spoolerQueue) block(ctx context.Context) error {
	for range slots {
		if err := s.add(ctx, "sleep", "86400"); err != nil {
			return err
		}
	}
	return nil
}

// clear kills the server with all jobs, and starts it again.
func (s *spoolerQueue) clear(ctx context.Context) error {
	if err := s.end(); err != nil {
		return err
	}
	_, err := s.tsp(ctx, "-S", fmt.Sprint(slots))
	return err
}

// end kills all processes with the server's socket in their environment: server, waiting
// clients, jobs. The server itself may have stopped answering.
func (s *spoolerQueue) end() error {
	if err := farm.KillAll(func() []int { return farm.Processes("TS_SOCKET=" + s.socket()) }); err != nil {
		return fmt.Errorf("end task-spooler: %w", err)
	}
	_ = os.Remove(s.socket())
	return nil
}

func (s *spoolerQueue) socket() string { return filepath.Join(s.dir, "socket") }
