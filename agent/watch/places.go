package watch

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/sqlite"
	"github.com/allotment-hpc/allotment/state"
	"github.com/allotment-hpc/allotment/state/tracker"
	"github.com/allotment-hpc/allotment/state/transfer"
)

// Places knows which host holds each job's state object, has what is left on other hosts brought
// there, and fetches objects. It is safe for several goroutines.
type Places struct {
	o      PlacesOptions
	reader string // the fingerprint of the certificate by which objects are fetched
	client *transfer.Client
	store  *sql.DB // nil: it can't be opened; the hosts' lists are the truth

	mu      sync.Mutex
	tracker *tracker.Tracker
}

// PlacesOptions are what Places are made of.
type PlacesOptions struct {
	Dir  string // of the certificate and the store
	Name string // of this end, in its certificate
	Send func(host, kind string, payload []byte) error
	Log  *slog.Logger
}

//go:embed migrations
var placesMigrations embed.FS

// OpenPlaces reads what was known when it was closed. A store that is damaged is begun anew.
func OpenPlaces(ctx context.Context, o PlacesOptions) (*Places, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of what is known of jobs' places: %w", err)
	}
	identity, err := transfer.OpenIdentity(o.Dir, o.Name)
	if err != nil {
		return nil, err
	}
	p := &Places{o: o, reader: identity.Fingerprint(), client: transfer.NewClient(identity), tracker: tracker.New()}
	if err := p.restore(ctx); err != nil {
		o.Log.Warn("what was known of the places of jobs' state objects is lost: the hosts say it again", "error", err)
		p.store, p.tracker = nil, tracker.New()
		for _, end := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(p.path() + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return p, nil
			}
		}
		if err := p.restore(ctx); err != nil {
			o.Log.Error("places of jobs' state objects are not stored", "error", err)
			p.store = nil
		}
	}
	p.tracker.Changes()
	return p, nil
}

func (p *Places) path() string { return filepath.Join(p.o.Dir, "places.db") }

func (p *Places) restore(ctx context.Context) error {
	files, err := fs.Sub(placesMigrations, "migrations")
	if err != nil {
		return err
	}
	if p.store, err = sqlite.Open(p.path(), files); err != nil {
		return err
	}
	if err := p.readPlaces(ctx); err != nil {
		return errors.Join(err, p.store.Close())
	}
	return nil
}

func (p *Places) readPlaces(ctx context.Context) error {
	rows, err := p.store.QueryContext(ctx, "SELECT queue, job, element, host, run, n, live FROM places")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var j state.Job
		var place tracker.Place
		if err := rows.Scan(&j.Queue, &j.ID.Job, &j.ID.Index, &place.Host, &place.Run, &place.N, &place.Live); err != nil {
			return err
		}
		if _, err := state.ParseJob(j.String()); err != nil {
			return err
		}
		p.tracker.Restore(j, place)
	}
	return rows.Err()
}

// storeEvery is how often what has changed is stored.
const storeEvery = 5 * time.Second

// Run stores what changes until the context ends, and once more then.
func (p *Places) Run(ctx context.Context) {
	if p.store == nil {
		<-ctx.Done()
		return
	}
	defer func() { _ = p.store.Close() }()
	ticker := time.NewTicker(storeEvery)
	defer ticker.Stop()
	failed := false
	for over := false; !over; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			over = true
		}
		err := p.save(context.WithoutCancel(ctx))
		if err != nil && !failed {
			p.o.Log.Error("store the places of jobs' state objects", "error", err)
		}
		failed = err != nil
	}
}

// maxSaved bounds the jobs of a transaction.
const maxSaved = 20_000

// save stores the places of jobs that have changed.
func (p *Places) save(ctx context.Context) error {
	p.mu.Lock()
	changes := p.tracker.Changes()
	p.mu.Unlock()
	for len(changes) > 0 {
		n := min(len(changes), maxSaved)
		if err := p.saveJobs(ctx, changes[:n]); err != nil {
			p.mu.Lock()
			p.tracker.Again(changes)
			p.mu.Unlock()
			return err
		}
		changes = changes[n:]
	}
	return nil
}

func (p *Places) saveJobs(ctx context.Context, jobs []state.Job) (err error) {
	tx, err := p.store.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	for _, j := range jobs {
		if _, err := tx.ExecContext(ctx, "DELETE FROM places WHERE queue = ? AND job = ? AND element = ?", j.Queue, j.ID.Job, j.ID.Index); err != nil {
			return err
		}
		for _, place := range p.Find(j) {
			if _, err := tx.ExecContext(ctx, "INSERT INTO places VALUES (?, ?, ?, ?, ?, ?, ?)", j.Queue, j.ID.Job, j.ID.Index, place.Host, place.Run, int64(place.N), place.Live); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}

// Hear takes an announcement of a host that the bus has authenticated, and sends the orders that
// follow from it. A page is answered in any case: so each host knows who reads objects.
func (p *Places) Hear(host string, message []byte, now time.Time) error {
	a, err := tracker.ParseAnnouncement(message)
	if err != nil {
		return err
	}
	p.mu.Lock()
	orders := p.tracker.Hear(host, a, now)
	p.mu.Unlock()
	if a.Page && orders[host] == nil {
		if orders == nil {
			orders = map[string][]tracker.Order{}
		}
		orders[host] = []tracker.Order{}
	}
	for to, list := range orders {
		messages, err := tracker.EncodeOrders(p.reader, list)
		if err != nil {
			return err
		}
		for _, m := range messages {
			if err := p.o.Send(to, tracker.OrdersKind, m); err != nil {
				p.o.Log.Debug("an order is not sent: it is repeated", "host", to, "error", err)
			}
		}
	}
	return nil
}

// Withdraw forgets a host that no longer belongs to the farm.
func (p *Places) Withdraw(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tracker.Withdraw(host)
}

// Find returns the hosts that hold a job's object, its holder first.
func (p *Places) Find(j state.Job) []tracker.Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tracker.Find(j)
}

// Jobs returns the first jobs with a place after one: see tracker.Tracker.
func (p *Places) Jobs(after state.Job, most int) []state.Job {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tracker.Jobs(after, most)
}

// ErrNoState says that no host holds the state of a job.
var ErrNoState = fmt.Errorf("no host has announced state of this job: %w", fs.ErrNotExist)

// Object is a job's object, verified, and where it was.
type Object struct {
	Job    state.Job
	Record *backends.Record
	Owner  state.Owner
	At     state.Sequence
	Host   string
	Data   []byte
}

// Fetch fetches a job's object from its holder. transfer.ErrMoving: ask again in a moment.
func (p *Places) Fetch(ctx context.Context, j state.Job) (*Object, error) {
	peer := func(host string) (transfer.Peer, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		address, fingerprint := p.tracker.Address(host)
		return transfer.Peer{Host: host, Address: address, Fingerprint: fingerprint}, address != ""
	}
	f, err := p.client.Fetch(ctx, j, func() (transfer.Peer, error) {
		places := p.Find(j)
		if len(places) == 0 {
			return transfer.Peer{}, ErrNoState
		}
		to, ok := peer(places[0].Host)
		if !ok {
			return to, fmt.Errorf("%s holds the state of job %v, and was not heard since allotd started, or serves no objects there (ahostd.objects.listen): %w", places[0].Host, j, ErrUnreachable)
		}
		return to, nil
	}, peer)
	if err != nil {
		return nil, err
	}
	i, err := state.NewInspector()
	if err != nil {
		return nil, err
	}
	defer i.Close()
	o := &Object{Job: j, At: f.At, Host: f.From.Host, Data: f.Object}
	if o.Record, o.Owner, o.At, err = i.ReadOwned(f.Object, j.ID); err != nil {
		return nil, fmt.Errorf("read the state of job %v from %s: %w", j, o.Host, err)
	}
	return o, nil
}

// ErrUnreachable says that a job's state is on a host that can't be asked now.
var ErrUnreachable = errors.New("it can't be asked now")
