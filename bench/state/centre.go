package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/agent/watch"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/state"
)

// Request is one thing that the process at the centre is to do.
type Request struct {
	Hear    *Heard // an announcement
	Settle  bool   // wait until what was heard is stored
	Close   bool   // store the rest, and close the store
	Queries *Queries
}

// Heard is a message of a host.
type Heard struct {
	Host    string
	Message []byte
}

// Queries ask for random jobs.
type Queries struct {
	State         bool // for a job's state; else for its host
	Clients, Jobs int
	Lasts         time.Duration
}

// Answer is the answer to a Request.
type Answer struct {
	Orders    [][]byte // for the host that was heard
	Use       Use
	Latencies Latencies
	Error     string
}

// centre is the process at the centre, which has allotd's part: it keeps the places of jobs'
// state objects.
type centre struct {
	process *exec.Cmd
	input   io.WriteCloser
	to      *gob.Encoder
	from    *gob.Decoder

	mu       sync.Mutex
	sent     int64 // bytes of messages to the centre, and
	received int64 // back
}

// centreArgument has this program be the process at the centre.
const centreArgument = "centre"

func startCentre(ctx context.Context, dir string) (*centre, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &centre{process: exec.CommandContext(ctx, self, centreArgument, dir)}
	c.process.Stderr = os.Stderr
	c.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if c.input, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.to, c.from = gob.NewEncoder(c.input), gob.NewDecoder(output)
	return c, c.process.Start()
}

func (c *centre) stop() error { return errors.Join(c.input.Close(), c.process.Wait()) }

func (c *centre) do(r Request) (a Answer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = c.to.Encode(r); err == nil {
		err = c.from.Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if r.Hear != nil {
		c.sent += int64(len(r.Hear.Message))
		for _, m := range a.Orders {
			c.received += int64(len(m))
		}
	}
	return a, err
}

// beCentre answers requests until there are no more.
func beCentre(ctx context.Context, dir string, in io.Reader, out io.Writer) error {
	var orders [][]byte // of the announcement that is being heard
	places, err := watch.OpenPlaces(ctx, watch.PlacesOptions{
		Dir: dir, Name: "allotd", Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Send: func(_, _ string, payload []byte) error { orders = append(orders, payload); return nil },
	})
	if err != nil {
		return err
	}
	var answered meter
	// use is that of the files: what is answered is no part of it.
	use := func() (Use, error) {
		n, err := written(os.Getpid())
		return Use{n - answered.bytes.Load(), sqliteSyncs()}, err
	}
	begun, err := use()
	if err != nil {
		return err
	}
	storing, end := context.WithCancel(ctx)
	stored := make(chan struct{})
	go func() { defer close(stored); places.Run(storing) }()
	defer func() { end(); <-stored }()
	from, to := gob.NewDecoder(in), gob.NewEncoder(meteredWriter{out, &answered.bytes})
	for {
		var r Request
		if err := from.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var a Answer
		switch {
		case r.Hear != nil:
			orders = nil
			err = places.Hear(r.Hear.Host, r.Hear.Message, time.Now())
			a.Orders = orders
		case r.Settle:
			err = settle(ctx)
		case r.Close:
			end()
			<-stored
			a.Use, err = use()
			a.Use = a.Use.minus(begun)
		case r.Queries != nil:
			var l *Latencies
			if l, err = query(ctx, places, r.Queries); err == nil {
				a.Latencies = *l
			}
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := to.Encode(a); err != nil {
			return err
		}
	}
}

// settle waits until the store was written once more.
func settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for before := sqliteSyncs(); sqliteSyncs() == before; {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return errors.New("what the hosts announced was not stored within a minute")
		}
	}
	return nil
}

// query asks as allotd does for the users of ajobs and of the page.
func query(ctx context.Context, places *watch.Places, q *Queries) (*Latencies, error) {
	return ask(ctx, q.Clients, q.Jobs, q.Lasts, func(ctx context.Context, number int64) error {
		job := jobOf(number)
		if !q.State {
			if len(places.Find(job)) != 1 {
				return fmt.Errorf("job %v has no place", job)
			}
			return nil
		}
		o, err := places.Fetch(ctx, job)
		if err == nil && len(o.Record.History) != eventsOfJob {
			err = fmt.Errorf("job %v has %d events: want %d", job, len(o.Record.History), eventsOfJob)
		}
		return err
	})
}

func jobOf(number int64) state.Job {
	return state.Job{Queue: "slurm", ID: backends.ID{Job: number}}
}
