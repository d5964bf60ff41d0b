package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/internal/peer"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// Listen listens on the socket, which any user may connect to since the kernel names the
// user, and on the address, if there is one. The caller closes the listeners.
func Listen(ctx context.Context, c settings.Web, paths config.Paths, log *slog.Logger) ([]net.Listener, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("web.%w", err)
	}
	socket, err := listen.Unix(ctx, c.SocketIn(paths.Runtime), listen.Names{Socket: "the page's socket", Program: "allotd", Key: "web.socket"})
	if err != nil {
		return nil, err
	}
	all := []net.Listener{bound(socket, maxConnections, maxConnectionsOf)}
	if c.Listen == "" {
		return all, nil
	}
	l, err := listenTCP(ctx, c, log)
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return append(all, l), nil
}

func listenTCP(ctx context.Context, c settings.Web, log *slog.Logger) (net.Listener, error) {
	pair := &certificate{config: c, log: log}
	if c.TLS() {
		if err := pair.load(); err != nil {
			return nil, err
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("serve the page: %w: see web.listen in the config", err)
	}
	l = bound(l, maxConnections, maxConnectionsOf)
	if c.TLS() {
		l = tls.NewListener(l, &tls.Config{GetCertificate: pair.get, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}})
	}
	return l, nil
}

// certificate is the pair of files that the page is served by. It is read again when a file
// has changed, so that a renewed one needs no restart.
type certificate struct {
	config settings.Web
	log    *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	stamps [2]fs.FileInfo // of the files when they were read last, with or without success; nil: there was none
}

func (c *certificate) stampsNow() (all [2]fs.FileInfo) {
	for i, path := range []string{c.config.Certificate, c.config.Key} {
		if info, err := os.Stat(path); err == nil {
			all[i] = info
		}
	}
	return all
}

// sameFile reports whether a file is as it was; nil: there is none.
func sameFile(is, was fs.FileInfo) bool {
	if is == nil || was == nil {
		return is == was
	}
	return os.SameFile(is, was) && is.ModTime().Equal(was.ModTime()) && is.Size() == was.Size()
}

// load reads the pair for the first time.
func (c *certificate) load() error {
	c.stamps = c.stampsNow()
	pair, err := loadCertificate(c.config)
	c.pair = &pair
	return err
}

// get returns the pair for a connection. Where the files have changed and can't be read, such
// as while one of them is replaced, it is the last one.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	now := c.stampsNow()
	c.mu.Lock()
	defer c.mu.Unlock()
	if sameFile(now[0], c.stamps[0]) && sameFile(now[1], c.stamps[1]) {
		return c.pair, nil
	}
	c.stamps = now
	pair, err := loadCertificate(c.config)
	if err != nil {
		c.log.Error("the certificate has changed, and the former one is kept", "error", err)
		return c.pair, nil
	}
	c.log.Info("the certificate has changed, and the new one is used", "certificate", c.config.Certificate)
	c.pair = &pair
	return c.pair, nil
}

// maxKey is beyond the size of a private key, in bytes.
const maxKey = 64 << 10

func loadCertificate(c settings.Web) (tls.Certificate, error) {
	key, err := trusted.ReadPrivate(c.Key, maxKey, trusted.Others)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read web.key: %w", err)
	}
	chain, err := os.ReadFile(c.Certificate)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read web.certificate: %w", err)
	}
	certificate, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return certificate, fmt.Errorf("read web.certificate and web.key: %w", err)
	}
	return certificate, nil
}

// Bounds of connections at a time, on each listener, and of one user or address. A proxy has
// all its users' connections.
const (
	maxConnections   = 2000
	maxConnectionsOf = 1000
)

// bound bounds a listener's connections, and those of each user of this machine or address.
func bound(l net.Listener, n, each int) net.Listener { return listen.Bound(l, n, each, origin) }

// origin is who connected: a user on a socket, else an address.
func origin(conn net.Conn) string {
	if u, ok := conn.(*net.UnixConn); ok {
		uid, err := peer.UID(u)
		if err != nil {
			return ""
		}
		return uidKey(uid)
	}
	return listen.Network(conn.RemoteAddr().String())
}
