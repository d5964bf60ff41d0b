// Package listen makes listeners that are bounded, and sockets that any user may connect to.
package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"
)

// Names are what the errors of a socket call it.
type Names struct {
	Socket  string // such as "the page's socket"
	Program string // that serves it
	Key     string // of the config, which sets its path
}

// Unix listens on a socket that all users may connect to: the kernel names who does. One that
// is served is an error; one that is left over is replaced.
func Unix(ctx context.Context, path string, names Names) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("make %s: %w", names.Socket, err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("make %s: %s exists and is no socket: see %s in the config", names.Socket, path, names.Key)
	default:
		dialer := net.Dialer{Timeout: time.Second}
		if conn, err := dialer.DialContext(ctx, "unix", path); err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("make %s: another %s serves %s", names.Socket, names.Program, path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("replace %s: %w", names.Socket, err)
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w: see %s in the config", names.Socket, err, names.Key)
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // the kernel names who connects
		return nil, fmt.Errorf("open %s to all users: %w", names.Socket, errors.Join(err, l.Close()))
	}
	return l, nil
}

// bounded is a listener that accepts so many connections at a time, and so many of one origin.
type bounded struct {
	net.Listener
	places chan struct{}
	origin func(net.Conn) string

	mu   sync.Mutex
	of   map[string]int
	each int // that one origin may have
}

// Bound lets a listener accept n connections at a time, more wait; and each of one origin, more are
// closed.
func Bound(l net.Listener, n, each int, origin func(net.Conn) string) net.Listener {
	return &bounded{Listener: l, places: make(chan struct{}, n), origin: origin, of: map[string]int{}, each: each}
}

// Accept waits for a place, then for a connection. It closes those that are too many.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		b.places <- struct{}{}
		conn, err := b.Listener.Accept()
		if err != nil {
			<-b.places
			return nil, err
		}
		from := b.origin(conn)
		if b.enter(from) {
			return &counted{Conn: conn, leave: sync.OnceFunc(func() { b.leave(from) })}, nil
		}
		<-b.places
		_ = conn.Close() // it is not wanted
	}
}

func (b *bounded) enter(from string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[from] >= b.each {
		return false
	}
	b.of[from]++
	return true
}

func (b *bounded) leave(from string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[from]--; b.of[from] <= 0 {
		delete(b.of, from)
	}
	<-b.places
}

type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// NetConn returns the connection that is counted.
func (c *counted) NetConn() net.Conn { return c.Conn }

// Network returns the address of a peer, HOST:PORT, without its port, or the network of an IPv6
// address: a client has many of these.
func Network(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a = a.Unmap(); a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}

// Client returns a client of the HTTP server on a socket: each request has a connection of its
// own, and may take so long.
func Client(socket string, limit time.Duration) *http.Client {
	return &http.Client{Timeout: limit, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
}
