package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/agent/watch"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/bus"
	"github.com/allotment-hpc/allotment/internal/discover"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/state/tracker"
	"github.com/allotment-hpc/allotment/web"
)

func newApp() *cli.App {
	return &cli.App{
		Name:      "allotd",
		Usage:     "serve the management page",
		UsageText: "allotd [--check]\nallotd enrol | approve | withdraw …",
		Description: "It serves the plan, the farm as the last cycle saw it, jobs and reports as pages for a\n" +
			"browser, at the address and on the socket that the config names (web:). It runs in the\n" +
			"foreground until SIGTERM, as the user who owns the ledger; root's process becomes that\n" +
			"user's. It never asks the queue: pba rebalance must be running. pba login opens the page.\n" +
			"It also serves the bus of the hosts' ahostd (bus:). The commands ask the allotd that runs, on\n" +
			"its socket, and are for admins.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "check", Usage: "check the config and the ledger, and serve nothing", DisableDefaultText: true},
		},
		Action:   serve,
		Commands: hostCommands(),
	}
}

func serve(c *cli.Context) (err error) {
	sys := desk.ThisSystem()
	config, err := desk.ServerConfig() // before root's process becomes the owner's, who may not read keys
	if err != nil {
		return err
	}
	log := config.Log.Logger(c.App.ErrWriter, slog.LevelInfo)
	var listeners []net.Listener
	if !c.Bool("check") {
		if err := config.Paths.Prepare(); err != nil {
			return err
		}
		listeners, err = web.Listen(c.Context, config.Web, config.Paths, log)
		if err != nil {
			return err
		}
		defer func() {
			for _, l := range listeners {
				if closed := l.Close(); closed != nil && !errors.Is(closed, net.ErrClosed) {
					err = errors.Join(err, closed)
				}
			}
		}()
	}
	proxy, err := web.OpenProxy(config.Web.Proxy)
	if err != nil {
		return err
	}
	d, err := desk.New(sys)
	if err != nil {
		return err
	}
	if err := d.MayServe(c.Context); err != nil {
		return err
	}
	var hub *bus.Hub
	var noBus error
	if !c.Bool("check") && config.Bus.On() {
		if hub, noBus = openBus(c.Context, &config, log); noBus != nil { // the page is there without it
			log.Error("there is no bus until allotd is started again", "error", noBus)
		} else {
			defer hub.Close()
		}
	}
	hosts, ended := hear(c.Context, hub, filepath.Join(config.Paths.State, "bus"), log)
	defer ended()
	if err := announce(c.Context, hub, config.Bus.Announce, log); err != nil {
		log.Error("allotd does not announce itself", "error", err)
	}
	desks := desk.NewService(sys)
	server, err := web.New(web.Options{Desks: desks, Bus: hub, NoBus: noBus, Hosts: hosts, Config: config.Web, Proxy: proxy, Log: log, Version: shell.VersionText(), Now: time.Now, Zone: config.Timezone.Location()})
	if err != nil {
		return err
	}
	if c.Bool("check") {
		_, err := fmt.Fprintln(c.App.Writer, "The config and the ledger can be served.")
		return err
	}
	stop, err := d.WantViews(c.Context)
	if err != nil {
		return err
	}
	defer stop()
	if hub != nil && config.Limits.Looks() {
		go promise(c.Context, desks, hub, log)
		hearPleas(c.Context, desks, hub, log)
	}
	for _, l := range listeners {
		log.Info("serving", "address", l.Addr().String(), "tls", config.Web.TLS() && l.Addr().Network() != "unix")
	}
	return server.Serve(c.Context, listeners...)
}

// openBus opens the bus, whose keys are in the state directory.
func openBus(ctx context.Context, config *configfile.Config, log *slog.Logger) (*bus.Hub, error) {
	machine, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this machine: %w", err)
	}
	b := config.Bus
	return bus.OpenHub(ctx, bus.HubOptions{
		Dir: filepath.Join(config.Paths.State, "bus"), Machine: machine, Log: log,
		Listen: b.Listen, Servers: b.Servers, CA: b.CA, Enrol: b.Enrol, Address: b.Address,
	})
}

// hear keeps the list of hosts, and where jobs' state objects are, by what the bus carries; nil:
// there is no bus. ended waits until what is known of objects is stored.
func hear(ctx context.Context, hub *bus.Hub, dir string, log *slog.Logger) (w *watch.Watch, ended func()) {
	if hub == nil {
		return nil, func() {}
	}
	w, ended = watch.New(log, time.Now), func() {}
	hub.Receive(watch.BeatKind, func(m bus.Message) { w.Beat(m.Host, m.Payload) })
	hub.Receive(watch.ReportKind, func(m bus.Message) { w.Report(m.Host, m.Payload) })
	if places, err := watch.OpenPlaces(ctx, watch.PlacesOptions{Dir: dir, Name: "allotd", Send: hub.Send, Log: log}); err != nil {
		log.Error("where jobs' state objects are is not known until allotd is started again", "error", err)
	} else {
		w.Track(places)
		for _, kind := range []string{tracker.ChangesKind, tracker.PageKind} {
			hub.Receive(kind, func(m bus.Message) { w.Objects(m.Host, m.Payload) })
		}
		var storing sync.WaitGroup
		ctx, stop := context.WithCancel(ctx)
		storing.Go(func() { places.Run(ctx) })
		ended = func() { stop(); storing.Wait() }
	}
	go w.Run(ctx, hub.Admitted)
	return w, ended
}

// announce announces where hosts can join on the networks of these interfaces.
func announce(ctx context.Context, hub *bus.Hub, interfaces []string, log *slog.Logger) error {
	if hub == nil || len(interfaces) == 0 {
		return nil
	}
	machine, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this machine: %w", err)
	}
	port, err := hub.JoinPort()
	if err != nil {
		return err
	}
	go discover.Announce(ctx, machine, port, interfaces, log)
	return nil
}
