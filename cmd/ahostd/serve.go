package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/exposition"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// serve measures and serves until the context ends.
func serve(c *cli.Context) (err error) {
	if c.Args().Present() {
		return shell.Usagef("unknown command %q (known: top)", c.Args().First())
	}
	config, err := load(c)
	if err != nil {
		return err
	}
	if c.Bool("check") {
		fmt.Fprintln(c.App.Writer, "The config can be served.")
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this host: %w", err)
	}
	listeners, err := listen(c.Context, &config)
	if err != nil {
		return err
	}
	log := config.Log.Logger(c.App.ErrWriter, slog.LevelInfo)
	a := &agent{host: host, log: log, sampler: measure.New(measure.Options{})}
	defer a.sampler.Close()
	a.sample(time.Now())
	for _, l := range listeners {
		log.Info("serving", "address", l.Addr().String())
	}
	return a.run(c.Context, time.Duration(config.Ahostd.Every), listeners)
}

// listen listens on the socket, which any user may connect to, and on the address, if there
// is one.
func listen(ctx context.Context, config *configfile.Config) ([]net.Listener, error) {
	path := config.Ahostd.Socket
	if dir := os.Getenv("RUNTIME_DIRECTORY"); path == "" && filepath.IsAbs(dir) { // the service's own (systemd.exec(5))
		path = config.Ahostd.SocketIn(dir)
	}
	if path == "" {
		if err := config.Paths.Prepare(); err != nil {
			return nil, err
		}
		path = config.Ahostd.SocketIn(config.Paths.Runtime)
	}
	socket, err := listenUnix(ctx, path)
	if err != nil {
		return nil, err
	}
	all := []net.Listener{bound(socket)}
	if config.Ahostd.Listen != "" {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", config.Ahostd.Listen)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("serve the metrics: %w: see ahostd.listen in the config", err), socket.Close())
		}
		all = append(all, bound(l))
	}
	return all, nil
}

// listenUnix replaces a socket that is left over; one that is served is an error.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("make the socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("make the socket: %s exists and is no socket: see ahostd.socket in the config", path)
	default:
		dialer := net.Dialer{Timeout: time.Second}
		if conn, err := dialer.DialContext(ctx, "unix", path); err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("make the socket: another ahostd serves %s", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("replace the socket: %w", err)
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("make the socket: %w: see ahostd.socket in the config", err)
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // what it serves, any user may read
		return nil, fmt.Errorf("open the socket to all users: %w", errors.Join(err, l.Close()))
	}
	return l, nil
}

// maxConnections is how many a listener accepts at a time; more wait.
const maxConnections = 32

type bounded struct {
	net.Listener
	places chan struct{}
}

func bound(l net.Listener) net.Listener { return bounded{l, make(chan struct{}, maxConnections)} }

// Accept waits for a place, then for a connection.
func (b bounded) Accept() (net.Conn, error) {
	b.places <- struct{}{}
	conn, err := b.Listener.Accept()
	if err != nil {
		<-b.places
		return nil, err
	}
	return &placed{conn, sync.OnceFunc(func() { <-b.places })}, nil
}

type placed struct {
	net.Conn
	leave func()
}

func (p *placed) Close() error {
	p.leave()
	return p.Conn.Close()
}

// agent measures this host, and keeps the last sample.
type agent struct {
	host    string
	log     *slog.Logger
	sampler *measure.Sampler
	samples uint64
	lacks   map[string]bool // that were logged
	last    atomic.Pointer[measured]
}

// measured is a sample. Its text is made when it is first asked for: a Prometheus asks
// less often than this host is measured.
type measured struct{ text func() []byte }

// sample measures once.
func (a *agent) sample(now time.Time) {
	s := a.sampler.Sample(now)
	a.samples++
	a.logLacks(s.Lacks)
	use := ownUse(a.samples, time.Since(now))
	a.last.Store(&measured{sync.OnceValue(func() []byte { return metricsText(a.host, &s, use) })})
}

// logLacks logs each lack once.
func (a *agent) logLacks(all []measure.Lack) {
	const most = 100
	for _, l := range all {
		key := string(l.Figure) + l.Why
		if a.lacks[key] || len(a.lacks) >= most {
			continue
		}
		if a.lacks == nil {
			a.lacks = map[string]bool{}
		}
		a.lacks[key] = true
		a.log.Info("not measured here", "figure", l.Figure, "of", l.N, "why", l.Why)
	}
}

// run serves, and measures every so often, until the context ends.
func (a *agent) run(ctx context.Context, every time.Duration, listeners []net.Listener) error {
	server := &http.Server{
		Handler:     a.handler(),
		ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14,
		ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { failed <- server.Serve(l) }()
	}
	defer func() { _ = server.Close() }()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			a.sample(time.Now())
		case err := <-failed:
			return fmt.Errorf("serve the metrics: %w", err)
		case <-ctx.Done():
			return nil
		}
	}
}

func (a *agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", exposition.Type)
		_, _ = w.Write(a.last.Load().text()) // the client may be gone
	})
	return mux
}
