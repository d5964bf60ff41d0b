package watch

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/state"
	"github.com/allotment-hpc/allotment/state/tracker"
	"github.com/allotment-hpc/allotment/state/transfer"
)

var slurm7 = state.Job{Queue: "slurm", ID: backends.ID{Job: 7}}

// hostOf is a host that gives and takes one object, and does what it is ordered.
type hostOf struct {
	t        *testing.T
	identity *transfer.Identity
	address  string
	number   uint64

	mu     sync.Mutex
	object []byte
	reader string
	expect map[string]bool
	moved  transfer.Peer
}

func (h *hostOf) Knows(f string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return f == h.reader || h.expect[f]
}

func (h *hostOf) MayRead(f string, _ state.Job) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return f == h.reader
}

func (h *hostOf) MayPush(f string, _ state.Job) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.expect[f]
}

func (h *hostOf) Moved(state.Job) (transfer.Peer, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.moved, h.moved.Host != ""
}

func (h *hostOf) Object(context.Context, state.Job) ([]byte, state.Sequence, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.object == nil {
		return nil, state.Sequence{}, fs.ErrNotExist
	}
	at, err := sequenceOf(h.object)
	return h.object, at, err
}

func (h *hostOf) Take(_ context.Context, j state.Job, o []byte, _ state.Sequence) error {
	i, err := state.NewInspector()
	if err != nil {
		return err
	}
	defer i.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.object, err = i.Merge(j.ID, o, h.object)
	return err
}

func sequenceOf(o []byte) (state.Sequence, error) {
	i, err := state.NewInspector()
	if err != nil {
		return state.Sequence{}, err
	}
	defer i.Close()
	_, at, err := i.Read(o, slurm7.ID)
	return at, err
}

func objectOf(t *testing.T, run int, host string) []byte {
	t.Helper()
	dir := t.TempDir()
	w, err := state.NewWriter(disk.OS(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.Start()
	defer w.Close()
	w.Put(state.Change{ID: slurm7.ID, RunNo: run, Host: host, Seq: 1, At: time.Unix(1.7e9, 0), Event: "started", Begin: &state.Begin{Host: host}, Submit: &state.Submission{Owner: state.Owner{User: "ann", UID: "1001"}}})
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(state.Path(dir, slurm7.ID))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func startHost(t *testing.T, name string, object []byte) *hostOf {
	t.Helper()
	i, err := transfer.OpenIdentity(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hostOf{t: t, identity: i, address: l.Addr().String(), object: object, expect: map[string]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- transfer.NewServer(i, h, slog.New(slog.DiscardHandler)).Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return h
}

// page is what the host announces.
func (h *hostOf) page() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.number++
	a := &tracker.Announcement{Epoch: 1, Number: h.number, Address: h.address, Fingerprint: h.identity.Fingerprint(), Page: true}
	if h.object != nil {
		at, err := sequenceOf(h.object)
		if err != nil {
			h.t.Fatal(err)
		}
		a.Entries = []tracker.Entry{{Job: slurm7, Sequence: at}}
	}
	data, err := a.Encode()
	if err != nil {
		h.t.Fatal(err)
	}
	return data
}

// A job that began anew on another host is found there, with what the first host had, also by an
// allotd that has just started, with or without what it stored; and with nothing running but the
// hosts nothing is lost.
func TestPlaces(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1.7e9, 0)
	hosts := map[string]*hostOf{"h1": startHost(t, "h1", objectOf(t, 1, "h1")), "h2": startHost(t, "h2", objectOf(t, 2, "h2"))}
	var pushes []func()
	send := func(to, kind string, payload []byte) error {
		reader, orders, err := tracker.ParseOrders(payload)
		if err != nil || kind != tracker.OrdersKind {
			t.Error(kind, err)
		}
		h := hosts[to]
		h.mu.Lock()
		defer h.mu.Unlock()
		h.reader = reader
		for _, o := range orders {
			if o.Expect {
				h.expect[o.Fingerprint] = true
				continue
			}
			pushes = append(pushes, func() {
				at, err := sequenceOf(h.object)
				if err == nil {
					err = transfer.NewClient(h.identity).Push(t.Context(), transfer.Peer{Host: o.Host, Address: o.Address, Fingerprint: o.Fingerprint}, o.Job, h.object, at)
				}
				if err != nil {
					t.Fatal(err)
				}
				h.object, h.moved = nil, transfer.Peer{Host: o.Host, Address: o.Address}
			})
		}
		return nil
	}
	log := new(bytes.Buffer)
	open := func() (*Places, func()) {
		t.Helper()
		p, err := OpenPlaces(t.Context(), PlacesOptions{Dir: dir, Name: "allotd", Send: send, Log: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); p.Run(ctx) }()
		return p, func() { stop(); <-ended }
	}
	hear := func(p *Places, name string) {
		t.Helper()
		if err := p.Hear(name, hosts[name].page(), now); err != nil {
			t.Fatal(err)
		}
	}
	p, closePlaces := open()
	if _, err := p.Fetch(t.Context(), slurm7); !errors.Is(err, ErrNoState) {
		t.Fatalf("nothing is known: %v", err)
	}
	hear(p, "h1")
	o, err := p.Fetch(t.Context(), slurm7)
	if err != nil || o.Host != "h1" || o.Owner.UID != "1001" || len(o.Record.Runs) != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
	hear(p, "h2")
	if places := p.Find(slurm7); len(places) != 2 || places[0].Host != "h2" || !tracker.Moving(places) || len(pushes) != 1 {
		t.Fatalf("places %v, %d pushes", places, len(pushes))
	}
	pushes[0]()
	// h1 has not said yet that it has it no more; an answer of h1 names h2.
	o, err = p.Fetch(t.Context(), slurm7)
	if err != nil || o.Host != "h2" || o.At.Run != 2 || len(o.Record.Runs) != 2 || len(o.Record.History) != 2 {
		t.Fatalf("%+v, %v", o, err)
	}
	hear(p, "h1")
	want := p.Find(slurm7)
	if len(want) != 1 || want[0].Host != "h2" {
		t.Fatalf("places %v", want)
	}
	closePlaces()

	p, closePlaces = open()
	if got := p.Find(slurm7); len(got) != 1 || got[0] != want[0] {
		t.Errorf("after a restart: %v, want %v", got, want)
	}
	if _, err := p.Fetch(t.Context(), slurm7); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "h2") {
		t.Errorf("before h2 is heard: %v", err)
	}
	hosts["h2"].number = 100 // the same agent goes on
	hear(p, "h2")
	if o, err := p.Fetch(t.Context(), slurm7); err != nil || o.Host != "h2" {
		t.Errorf("after a restart: %v", err)
	}
	closePlaces()

	for _, damage := range []func(path string) error{
		func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("x"), 8192), 0o600) },
		os.Remove,
	} {
		if err := damage(filepath.Join(dir, "places.db")); err != nil {
			t.Fatal(err)
		}
		p, closePlaces = open()
		if got := p.Find(slurm7); got != nil {
			t.Errorf("a store that is lost: %v", got)
		}
		hear(p, "h2")
		if got := p.Find(slurm7); len(got) != 1 || got[0] != want[0] {
			t.Errorf("rebuilt: %v, want %v", got, want)
		}
		closePlaces()
	}
	if !strings.Contains(log.String(), "is lost") {
		t.Errorf("the log has %s", log)
	}
	p, closePlaces = open()
	defer closePlaces()
	p.Withdraw("h2")
	if got := p.Find(slurm7); got != nil {
		t.Errorf("of a withdrawn host: %v", got)
	}
	if err := p.Hear("h2", []byte(`{"l":[{"j":"../../etc/passwd"}]}`), now); err == nil {
		t.Error("a message that is none is heard")
	}
}
