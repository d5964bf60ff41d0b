package main

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/agent/roster"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/state"
	"github.com/allotment-hpc/allotment/state/tracker"
	"github.com/allotment-hpc/allotment/state/transfer"
)

// meteredDisk counts what state.Writers write.
type meteredDisk struct {
	disk.Disk
	*meter
}

type meteredFile struct {
	disk.File
	*meter
}

func (d meteredDisk) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	f, err := d.Disk.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	return meteredFile{f, d.meter}, nil
}

func (d meteredDisk) SyncDir(path string) error { d.syncs.Add(1); return d.Disk.SyncDir(path) }

func (f meteredFile) Sync() error { f.syncs.Add(1); return f.File.Sync() }

func (f meteredFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.bytes.Add(int64(n))
	return n, err
}

// agent has the part of ahostd on one host.
type agent struct {
	host
	dir      string
	writer   *state.Writer
	identity *transfer.Identity
	listener net.Listener
	centre   *centre

	mu        sync.Mutex
	inspector *state.Inspector
	number    uint64
	at        map[int64]uint64 // the sequence of each job
	changed   map[int64]bool   // since the last announcement
	reader    string           // who may read objects
}

// agents are those of all hosts.
type agents struct {
	all     []*agent
	disks   meter
	serving sync.WaitGroup
	end     context.CancelFunc
}

func startAgents(ctx context.Context, dir string, hosts []host, c *centre) (*agents, error) {
	f := &agents{}
	ctx, f.end = context.WithCancel(ctx)
	for _, h := range hosts {
		a := &agent{host: h, dir: filepath.Join(dir, h.name), centre: c, at: map[int64]uint64{}, changed: map[int64]bool{}}
		if err := a.start(ctx, f); err != nil {
			f.stop()
			return nil, fmt.Errorf("start host %s: %w", h.name, err)
		}
		f.all = append(f.all, a)
	}
	return f, nil
}

func (a *agent) start(ctx context.Context, f *agents) (err error) {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	if a.identity, err = transfer.OpenIdentity(a.dir, a.name); err != nil {
		return err
	}
	if a.inspector, err = state.NewInspector(); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if a.writer, err = state.NewWriter(meteredDisk{disk.OS(), &f.disks}, a.objects(), log); err != nil {
		return err
	}
	a.writer.Start()
	if a.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil { //nolint:noctx // it only binds
		return err
	}
	f.serving.Go(func() {
		if err := transfer.NewServer(a.identity, a, log).Serve(ctx, a.listener); err != nil {
			log.Error("serve state objects", "host", a.name, "error", err)
		}
	})
	return nil
}

func (f *agents) stop() {
	f.end()
	f.serving.Wait()
	for _, a := range f.all {
		a.writer.Close()
		a.inspector.Close()
	}
}

func (a *agent) objects() string { return filepath.Join(a.dir, "slurm") }

// each calls a function for all hosts at once.
func (f *agents) each(do func(*agent) error) error {
	errs := make(chan error, len(f.all))
	for _, a := range f.all {
		go func() { errs <- do(a) }()
	}
	var first error
	for range f.all {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

func (a *agent) put(n int) {
	for _, f := range a.facts(n) {
		a.writer.Put(f.change())
		a.mu.Lock()
		a.at[f.job], a.changed[f.job] = uint64(n)+1, true //nolint:gosec // it is positive
		a.mu.Unlock()
	}
}

// announce tells the centre what has changed; with page, the whole list, too.
func (a *agent) announce(page bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if list := a.entries(func(j int64) bool { return a.changed[j] }); len(list) > 0 {
		if err := a.send(tracker.Announcement{Entries: list}); err != nil {
			return err
		}
	}
	clear(a.changed)
	if !page {
		return nil
	}
	return a.send(tracker.Announcement{Page: true, Entries: a.entries(func(int64) bool { return true })})
}

func (a *agent) entries(want func(int64) bool) (list []tracker.Entry) {
	for j, n := range a.at {
		if want(j) {
			list = append(list, tracker.Entry{Job: jobOf(j), Sequence: state.Sequence{Run: 1, N: n}, Live: n < eventsOfJob})
		}
	}
	slices.SortFunc(list, func(x, y tracker.Entry) int { return tracker.Compare(x.Job, y.Job) })
	return list
}

func (a *agent) send(m tracker.Announcement) error {
	a.number++
	m.Epoch, m.Number, m.Address, m.Fingerprint = 1, a.number, a.listener.Addr().String(), a.identity.Fingerprint()
	message, err := m.Encode()
	if err != nil {
		return err
	}
	answer, err := a.centre.do(Request{Hear: &Heard{a.name, message}})
	for _, o := range answer.Orders {
		if reader, _, err := tracker.ParseOrders(o); err == nil {
			a.reader = reader
		}
	}
	return err
}

// together puts all events of a host's jobs at once: the Writer's pause gathers them. Changes
// are announced with each heartbeat, and once more at the end.
func (f *agents) together(ctx context.Context) error {
	return f.each(func(a *agent) error {
		for n := range eventsOfJob {
			a.put(n)
		}
		a.writer.Mark(eventsOfJob)
		beat := time.NewTicker(roster.Every)
		defer beat.Stop()
		check := time.NewTicker(5 * time.Millisecond)
		defer check.Stop()
		for a.writer.Durable() < eventsOfJob {
			select {
			case <-beat.C:
				if err := a.announce(false); err != nil {
					return err
				}
			case <-check.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return a.announce(true)
	})
}

// apart has each event written and announced by itself, as those are that come more than the
// Writer's pause apart. The waits between are left out of the time.
func (f *agents) apart(ctx context.Context, c *centre) (took time.Duration, err error) {
	for n := range eventsOfJob {
		began := time.Now()
		err := f.each(func(a *agent) error {
			a.put(n)
			if err := a.writer.Flush(ctx); err != nil {
				return err
			}
			return a.announce(n == eventsOfJob-1)
		})
		if err != nil {
			return 0, err
		}
		took += time.Since(began)
		if n == eventsOfJob-1 {
			continue
		}
		if _, err := c.do(Request{Settle: true}); err != nil {
			return 0, err
		}
	}
	return took, nil
}

// Knows and the others are those of transfer.Keeper, as ahostd has them.
func (a *agent) Knows(fingerprint string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fingerprint == a.reader
}

func (a *agent) MayRead(fingerprint string, _ state.Job) bool { return a.Knows(fingerprint) }
func (a *agent) MayPush(string, state.Job) bool               { return false }
func (a *agent) Moved(state.Job) (transfer.Peer, bool)        { return transfer.Peer{}, false }
func (a *agent) Take(context.Context, state.Job, []byte, state.Sequence) error {
	return transfer.ErrConflict
}

func (a *agent) Object(ctx context.Context, job state.Job) ([]byte, state.Sequence, error) {
	if err := a.writer.Flush(ctx); err != nil {
		return nil, state.Sequence{}, err
	}
	object, err := os.ReadFile(state.Path(a.objects(), job.ID))
	if err != nil {
		return nil, state.Sequence{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, at, err := a.inspector.Read(object, job.ID)
	return object, at, err
}

// ourTurn measures Allotment once. With queries it asks afterwards, too.
func ourTurn(ctx context.Context, dir string, o options, apart bool, queries bool) (figures, error) {
	dir, err := os.MkdirTemp(dir, "allotment-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	c, err := startCentre(ctx, filepath.Join(dir, "allotd"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.stop() }()
	f, err := startAgents(ctx, dir, farm(o.jobs, o.hosts), c)
	if err != nil {
		return nil, err
	}
	defer f.stop()
	device, err := deviceBytes(dir)
	if err != nil {
		return nil, err
	}
	hosts := f.disks.use()
	began := time.Now()
	var took time.Duration
	if apart {
		took, err = f.apart(ctx, c)
	} else {
		err = f.together(ctx)
		took = time.Since(began)
	}
	if err != nil {
		return nil, err
	}
	a, err := c.do(Request{Close: true})
	if err != nil {
		return nil, err
	}
	hosts = f.disks.use().minus(hosts)
	deviceNow, err := deviceBytes(dir)
	if err != nil {
		return nil, err
	}
	m := figuresOf(o, took, a.Use, a.Use.plus(hosts), c.sent, c.received, deviceNow-device)
	if queries {
		err = m.ask(o, func(q Queries) (*Latencies, error) {
			a, err := c.do(Request{Queries: &q})
			return &a.Latencies, err
		})
	}
	return m, err
}
