package transfer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"

	"github.com/allotment-hpc/allotment/state"
)

// countedListener counts the connections that it accepts.
type countedListener struct {
	net.Listener
	accepted atomic.Int32
}

func (l *countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return conn, err
}

// serveAt serves what an end keeps at an address, until stop is called.
func (e *end) serveAt(t *testing.T, address string) (l *countedListener, stop func()) {
	t.Helper()
	inner, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	l = &countedListener{Listener: inner}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- NewServer(e.identity, e.store, slog.New(slog.DiscardHandler)).Serve(ctx, l) }()
	return l, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A connection is kept for the next request, whatever the last one's answer; what is pinned and
// who may read are checked with each; and a host that was started anew answers at once.
func TestKeptConnections(t *testing.T) {
	h1, h2, stranger := newEnd(t, "h1"), newEnd(t, "h2"), newEnd(t, "h3")
	h2.expect(h1, slurm7)
	h2.objects[slurm7] = object(t, 1, "h2", 1)
	l, stop := h2.serveAt(t, "127.0.0.1:0")
	to := h2.Peer
	to.Address = l.Addr().String()
	fetch := func() error {
		_, err := h1.client.Fetch(t.Context(), slurm7, func() (Peer, error) { return to, nil }, nil)
		return err
	}
	for range 5 {
		if err := fetch(); err != nil {
			t.Fatal(err)
		}
	}
	o, at := object(t, 1, "h1", 2), state.Sequence{Run: 1, N: 2}
	if err := h1.client.Push(t.Context(), to, slurm7, o, at); err != nil {
		t.Fatal(err)
	}
	if n := l.accepted.Load(); n != 2 {
		t.Errorf("5 fetches and a push over %d connections, want 2", n)
	}
	wrong := to
	wrong.Fingerprint = stranger.Fingerprint
	if err := h1.client.Push(t.Context(), wrong, slurm7, o, at); !errors.Is(err, errForeign) {
		t.Errorf("another certificate is wanted at the address of a kept connection: %v, want %v", err, errForeign)
	}
	h2.mu.Lock()
	h2.known = map[string]bool{}
	h2.mu.Unlock()
	if err := fetch(); err == nil {
		t.Error("over a kept connection a host reads what it may not read any more")
	}
	h2.expect(h1, slurm7)
	if err := fetch(); err != nil {
		t.Fatal(err)
	}
	stop()
	_, stop = h2.serveAt(t, to.Address)
	defer stop()
	if err := fetch(); err != nil {
		t.Errorf("fetch from a host that was started anew: %v", err)
	}
}
