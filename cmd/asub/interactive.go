package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// outputGrace is how long the rest of a job's output is waited for after its end,
// and an end after it was killed.
const outputGrace = 5 * time.Second

// waitInteractive waits for an interactive job at its owner's terminal, and returns
// its exit code. An interrupt of asub ends the job.
func (p process) waitInteractive(ctx context.Context, queue backends.Backend, id backends.ID, o *offer) error {
	fmt.Fprintln(p.stderr, "<<Waiting for dispatch ...>>")
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	end := make(chan waitResult, 1)
	go func() {
		jobs, err := p.awaitEnd(watching, queue, []backends.ID{id})
		end <- waitResult{jobs, err}
	}()
	joined := make(chan *net.UnixConn, 1)
	go func() {
		if conn, err := o.accept(); err == nil {
			joined <- conn
		}
	}()
	select {
	case <-ctx.Done():
		return p.killJob(queue, id)
	case e := <-end:
		if !e.ran() {
			return e.exitError(id)
		}
		select {
		case conn := <-joined: // a short job: it took the terminal before it began
			return p.join(ctx, queue, id, o, conn, resultChannel(e))
		case <-time.After(outputGrace):
			return e.exitError(id)
		}
	case conn := <-joined:
		return p.join(ctx, queue, id, o, conn, end)
	}
}

// waitResult is the result of waiting for a job.
type waitResult struct {
	jobs []backends.Job
	err  error
}

func (e waitResult) exitError(id backends.ID) error {
	if e.err != nil {
		return e.err
	}
	return jobsExit([]backends.ID{id}, e.jobs)
}

// ran reports whether the job ever began.
func (e waitResult) ran() bool { return e.err == nil && len(e.jobs) > 0 && !e.jobs[0].Started.IsZero() }

func resultChannel(e waitResult) <-chan waitResult {
	c := make(chan waitResult, 1)
	c <- e
	return c
}

// join relays keys, output, size and signals until the job has ended.
func (p process) join(ctx context.Context, queue backends.Backend, id backends.ID, o *offer, conn *net.UnixConn, end <-chan waitResult) error {
	defer func() { _ = conn.Close() }()
	if jobs, err := queue.Jobs(ctx, []backends.ID{id}); err == nil && len(jobs) > 0 && len(jobs[0].Hosts) > 0 {
		fmt.Fprintf(p.stderr, "<<Starting on %s>>\n", shell.Printable(jobs[0].Hosts[0].Host))
	}
	defer o.makeRaw()()
	relayed := o.relay()
	for {
		select {
		case e := <-end:
			select {
			case <-relayed:
			case <-time.After(outputGrace):
			}
			return e.exitError(id)
		case <-ctx.Done():
			return p.killJob(queue, id)
		}
	}
}

// makeRaw makes the terminal pass on each key unchanged; the returned function undoes it.
func (o *offer) makeRaw() func() {
	if o.keyboard == nil {
		return func() {}
	}
	fd := int(o.keyboard.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return func() {}
	}
	return func() { _ = term.Restore(fd, before) }
}

// relay relays keys, output and size until the job's side is closed.
func (o *offer) relay() (relayed <-chan struct{}) {
	done := make(chan struct{})
	if o.pty == nil {
		close(done)
		return done
	}
	if o.keyboard != nil {
		go func() { _, _ = io.Copy(o.pty, o.keyboard) }() // it ends with this process
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	o.resize() // it may have changed before
	go func() {
		for {
			select {
			case <-resized:
				o.resize()
			case <-done:
				signal.Stop(resized)
				return
			}
		}
	}()
	go func() {
		defer close(done)
		_, _ = io.Copy(o.screen, o.pty) // EIO: the other side is closed
	}()
	return done
}

// killJob kills the job after an interrupt.
func (p process) killJob(queue backends.Backend, id backends.ID) error {
	ctx, cancel := context.WithTimeout(context.Background(), outputGrace)
	defer cancel()
	err := queue.Kill(ctx, []backends.ID{id}).First()
	if err != nil {
		return fmt.Errorf("end interactive job %v: %w", id, err)
	}
	return &shell.ExitError{Code: exitInterrupted, Err: fmt.Errorf("interrupted: job %v is being ended", id)}
}
