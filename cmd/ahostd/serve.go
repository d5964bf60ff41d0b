package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/agent/gpu"
	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/objects"
	"github.com/allotment-hpc/allotment/agent/plugin"
	"github.com/allotment-hpc/allotment/agent/root"
	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/bus"
	"github.com/allotment-hpc/allotment/internal/exposition"
	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// serve measures and serves until the context ends.
func serve(c *cli.Context) (err error) {
	if c.Args().Present() {
		return shell.Usagef("unknown command %q (known: top)", c.Args().First())
	}
	if c.IsSet(readGPUs) {
		return gpu.Serve(c.Context, c.Duration(readGPUs), os.Stdin, c.App.Writer)
	}
	config, err := load(c)
	if err != nil {
		return err
	}
	if c.Bool("check") {
		if _, err := readEnrolment(&config); err != nil {
			return err
		}
		fmt.Fprintln(c.App.Writer, "The config can be served.")
		argv, err := gpuCommand(0)
		if err != nil {
			return err
		}
		fmt.Fprintln(c.App.Writer, gpu.Check(c.Context, argv))
		return nil
	}
	log := config.Log.Logger(c.App.ErrWriter, slog.LevelInfo)
	options := measure.Options{}
	var helper *root.Client
	if c.IsSet(rootHelper) {
		if helper, err = root.Connect(c.Int(rootHelper)); err != nil {
			return err
		}
		options.Root = helper
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this host: %w", err)
	}
	if c.Bool("identity") {
		return printIdentity(c.App.Writer, host, &config)
	}
	listeners, err := listenOn(c.Context, &config)
	if err != nil {
		return err
	}
	argv, err := gpuCommand(time.Duration(config.Ahostd.Every))
	if err != nil {
		return err
	}
	options.GPUs = gpu.Start(c.Context, time.Duration(config.Ahostd.Every), argv, log).Last
	a := &agent{asks: make(chan func()), lacks: make(chan struct{}, 1), host: host, log: log, plugins: startPlugins(c.Context, &config, log), sampler: measure.New(options), helper: helper}
	defer a.sampler.Close()
	if a.networks.racks, a.networks.site, err = config.Ahostd.Networks.Prefixes(); err != nil {
		return err
	}
	if err := a.setNetworks(time.Now()); err != nil {
		return err
	}
	if config.Limits.Looks() {
		a.limiter = newLimiter(host, config.Limits, helper, log)
	}
	leave := a.joinBus(c.Context, &config)
	defer leave()
	defer a.keepObjects(c.Context, &config)()
	if a.limiter != nil && a.objects != nil {
		a.limiter.note, a.limiter.said = a.objects.Note, a.objects.Said
	}
	a.sample(time.Now())
	if a.limiter != nil {
		go measure.WatchMemory(c.Context, "", supervise.DefaultPolicy().Spare, func() {
			select {
			case a.lacks <- struct{}{}:
			default:
			}
		})
	}
	if a.link != nil {
		go a.heartbeats(c.Context, a.link)
	}
	for _, l := range listeners {
		log.Info("serving", "address", l.Addr().String())
	}
	return a.run(c.Context, time.Duration(config.Ahostd.Every), listeners)
}

// gpuCommand is the command line of the process that calls NVML.
func gpuCommand(every time.Duration) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find ahostd's own program, which reads GPUs: %w", err)
	}
	return []string{self, "--" + readGPUs, every.String()}, nil
}

func startPlugins(ctx context.Context, config *configfile.Config, log *slog.Logger) *plugin.Runner {
	var all []plugin.Program
	for _, path := range config.Ahostd.Plugins {
		all = append(all, plugin.Program{Name: settings.PluginName(path), Path: path})
	}
	return plugin.Start(ctx, all, log)
}

// listenOn listens on the socket, which any user may connect to, and on the address, if there
// is one.
func listenOn(ctx context.Context, config *configfile.Config) ([]net.Listener, error) {
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
	socket, err := listen.Unix(ctx, path, listen.Names{Socket: "the socket", Program: "ahostd", Key: "ahostd.socket"})
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

// maxConnections is how many a listener accepts at a time; more wait.
const maxConnections = 32

func bound(l net.Listener) net.Listener {
	return listen.Bound(l, maxConnections, maxConnections, func(net.Conn) string { return "" })
}

// agent measures this host, and keeps the last sample.
type agent struct {
	host     string
	log      *slog.Logger
	sampler  *measure.Sampler
	helper   *root.Client // nil: there is none
	networks networks
	samples  uint64
	logged   map[string]bool // lacks
	last     atomic.Pointer[measured]
	link     *bus.Link // nil: it can't join a bus
	plugins  *plugin.Runner
	asks     chan func()     // what is to be done between two samples
	lacks    chan struct{}   // the host lacks memory: it is not to wait for the next sample
	limiter  *limiter        // nil: limits are off
	objects  *objects.Keeper // nil: none are kept
	place    objectsPlace
}

// measured is a sample. Its text is made when it is first asked for: a Prometheus asks
// less often than this host is measured.
type measured struct {
	sample *measure.Sample
	text   func() []byte
}

// sample measures once.
func (a *agent) sample(now time.Time) {
	s := a.sampler.Sample(now)
	a.samples++
	a.logLacks(s.Lacks)
	use := ownUse(a.samples, time.Since(now))
	if a.objects != nil {
		a.objects.Sample(&s)
	}
	if a.limiter != nil {
		a.limiter.sample(&s)
	}
	limits := a.limiter.inForce()
	a.last.Store(&measured{&s, sync.OnceValue(func() []byte { return metricsText(a.host, &s, use, a.plugins.States(), limits) })})
}

// logLacks logs each lack once.
func (a *agent) logLacks(all []measure.Lack) {
	const most = 100
	for _, l := range all {
		key := string(l.Figure) + l.Why
		if a.logged[key] || len(a.logged) >= most {
			continue
		}
		if a.logged == nil {
			a.logged = map[string]bool{}
		}
		a.logged[key] = true
		a.log.Info("not measured here", "figure", l.Figure, "of", l.N, "why", l.Why)
	}
}

// run serves, and measures every so often, until the context ends.
func (a *agent) run(ctx context.Context, every time.Duration, listeners []net.Listener) error {
	server := &http.Server{
		Handler:     a.handler(),
		ConnContext: objects.WithPeer,
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
			if err := a.setNetworks(time.Now()); err != nil {
				return err // the service starts both anew
			}
			if a.helper != nil && a.helper.Err() != nil {
				return a.helper.Err() // likewise
			}
		case <-a.lacks:
			const apart = time.Second / 2 // rates of less say little
			if now := time.Now(); now.Sub(a.last.Load().sample.At) >= apart {
				a.sample(now)
				ticker.Reset(every)
			}
		case ask := <-a.asks:
			ask()
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
	a.serveObjects(mux)
	return mux
}
