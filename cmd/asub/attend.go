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

// lastWords is how long the rest of a job's output is waited for after its end,
// and an end after it was killed.
const lastWords = 5 * time.Second

// attend waits for an interactive job at its owner's terminal, and returns
// its exit code. An interrupt of asub ends the job.
func (s site) attend(ctx context.Context, queue backends.Backend, id backends.ID, o *offer) error {
	fmt.Fprintln(s.stderr, "<<Waiting for dispatch ...>>")
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	end := make(chan ending, 1)
	go func() {
		jobs, err := s.ended(watching, queue, []backends.ID{id})
		end <- ending{jobs, err}
	}()
	joined := make(chan *net.UnixConn, 1)
	go func() {
		if conn, err := o.accept(); err == nil {
			joined <- conn
		}
	}()
	select {
	case <-ctx.Done():
		return s.giveUp(queue, id)
	case e := <-end:
		if !e.ran() {
			return e.exit(id)
		}
		select {
		case conn := <-joined: // a short job: it took the terminal before it began
			return s.join(ctx, queue, id, o, conn, returned(e))
		case <-time.After(lastWords):
			return e.exit(id)
		}
	case conn := <-joined:
		return s.join(ctx, queue, id, o, conn, end)
	}
}

// ending is the result of waiting for a job.
type ending struct {
	jobs []backends.Job
	err  error
}

func (e ending) exit(id backends.ID) error {
	if e.err != nil {
		return e.err
	}
	return outcome([]backends.ID{id}, e.jobs)
}

// ran reports whether the job ever began.
func (e ending) ran() bool { return e.err == nil && len(e.jobs) > 0 && !e.jobs[0].Started.IsZero() }

func returned(e ending) <-chan ending {
	c := make(chan ending, 1)
	c <- e
	return c
}

// join relays keys, output, size and signals until the job has ended.
func (s site) join(ctx context.Context, queue backends.Backend, id backends.ID, o *offer, conn *net.UnixConn, end <-chan ending) error {
	defer func() { _ = conn.Close() }()
	if jobs, err := queue.Jobs(ctx, []backends.ID{id}); err == nil && len(jobs) > 0 && len(jobs[0].Hosts) > 0 {
		fmt.Fprintf(s.stderr, "<<Starting on %s>>\n", shell.Printable(jobs[0].Hosts[0].Host))
	}
	defer o.raw()()
	shown := o.pass()
	for {
		select {
		case e := <-end:
			select {
			case <-shown:
			case <-time.After(lastWords):
			}
			return e.exit(id)
		case <-ctx.Done():
			return s.giveUp(queue, id)
		}
	}
}

// raw makes the terminal pass on each key unchanged; the returned function undoes it.
func (o *offer) raw() func() {
	if o.keys == nil {
		return func() {}
	}
	fd := int(o.keys.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return func() {}
	}
	return func() { _ = term.Restore(fd, before) }
}

// pass relays keys, output and size until the job's side is closed.
func (o *offer) pass() (shown <-chan struct{}) {
	done := make(chan struct{})
	if o.pty == nil {
		close(done)
		return done
	}
	if o.keys != nil {
		go func() { _, _ = io.Copy(o.pty, o.keys) }() // it ends with this process
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

// giveUp kills the job after an interrupt.
func (s site) giveUp(queue backends.Backend, id backends.ID) error {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	err := queue.Kill(ctx, []backends.ID{id}).First()
	if err != nil {
		return fmt.Errorf("end interactive job %v: %w", id, err)
	}
	return &shell.ExitError{Code: exitInterrupted, Err: fmt.Errorf("interrupted: job %v is being ended", id)}
}
