package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/objects"
	"github.com/allotment-hpc/allotment/internal/bus"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/state/tracker"
	"github.com/allotment-hpc/allotment/state/transfer"
)

// objectsPlace is where other hosts reach this one's objects.
type objectsPlace struct {
	configured string // ahostd.objects.address
	listener   net.Addr
}

// address returns HOST:PORT for other hosts; "": it is not known yet. own is the address of the
// connection to the bus.
func (p objectsPlace) address(own string) string {
	tcp, ok := p.listener.(*net.TCPAddr)
	if !ok {
		return ""
	}
	_, port, _ := net.SplitHostPort(tcp.String())
	if _, _, err := net.SplitHostPort(p.configured); err == nil {
		return p.configured
	}
	host := p.configured
	if host == "" && !tcp.IP.IsUnspecified() {
		host = tcp.IP.String()
	}
	if host = cmp.Or(host, own); host == "" {
		return ""
	}
	return net.JoinHostPort(host, port)
}

// keepObjects has the agent keep the state objects of this host's jobs, and move them where allotd
// says. Where that is not possible it measures all the same. The function that it returns writes
// what is left.
func (a *agent) keepObjects(ctx context.Context, config *configfile.Config) (end func()) {
	dir, _, err := stateDir(config)
	if err == nil {
		a.objects, err = objects.Open(objects.Options{
			Dir: filepath.Join(dir, "objects-"+a.host), Host: a.host, Log: a.log,
			Keep: time.Duration(config.Ahostd.Objects.Keep), Archive: config.Ahostd.Objects.Archive,
		})
	}
	if err != nil {
		a.objects = nil
		a.log.Error("the state objects of this host's jobs are not kept", "error", err)
		return func() {}
	}
	if err := a.moveObjects(ctx, dir, config); err != nil {
		a.log.Error("state objects don't go between this host and others", "error", err)
	}
	return a.objects.Close
}

// moveObjects listens for other hosts, and for allotd's orders.
func (a *agent) moveObjects(ctx context.Context, dir string, config *configfile.Config) error {
	enrolment, err := readEnrolment(config)
	if err != nil {
		return err
	}
	joins := enrolment != (bus.Enrolment{})
	name, others := config.Bus.Others()
	on := config.Ahostd.Objects.Listens(joins || others)
	if on == "" || a.link == nil {
		return nil
	}
	identity, err := transfer.OpenIdentity(dir, a.host)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", on)
	if err != nil {
		return errors.Join(err, errors.New("see ahostd.objects.listen in the config"))
	}
	a.place = objectsPlace{config.Ahostd.Objects.Address, l.Addr()}
	if others && !joins { // its connection to the bus does not leave the machine
		a.place.configured = cmp.Or(a.place.configured, name, a.host)
	}
	a.objects.Exchange(ctx, identity)
	a.link.Receive(tracker.OrdersKind, func(message []byte) { a.objects.Hear(message, time.Now()) })
	server := transfer.NewServer(identity, a.objects, a.log)
	go func() {
		if err := server.Serve(ctx, l); err != nil {
			a.log.Error("state objects are not taken from other hosts any more", "error", err)
		}
	}()
	return nil
}

// announce sends what allotd is to know of this host's objects.
func (h *heart) announce(now time.Time) {
	if h.agent.objects == nil {
		return
	}
	state := h.link.State()
	if state.Connected && !h.connected {
		h.agent.objects.Reconnected()
	}
	if h.connected = state.Connected; !h.connected {
		return
	}
	h.agent.objects.Serves(h.agent.place.address(state.Address))
	for _, m := range h.agent.objects.Announce(now) {
		kind := tracker.ChangesKind
		if m.Page {
			kind = tracker.PageKind
		}
		text, err := m.Encode()
		if err == nil {
			err = h.link.Publish(kind, text)
		}
		if err != nil {
			h.agent.log.Warn("state objects are not announced", "error", err)
		}
	}
}

// findJob finds the job of a process, between two samples.
func (a *agent) findJob(ctx context.Context, pid int) (j measure.Job, ok bool, err error) {
	done := make(chan struct{})
	ask := func() { j, ok = a.sampler.JobOf(pid); close(done) }
	ctx, cancel := context.WithTimeoutCause(ctx, findTime, errors.New("ahostd is busy"))
	defer cancel()
	select {
	case a.asks <- ask:
		<-done // it is being answered
		return j, ok, nil
	case <-ctx.Done():
		return measure.Job{}, false, context.Cause(ctx)
	}
}

// findTime bounds how long a request waits for a sample that is being taken.
const findTime = 10 * time.Second

// serveObjects serves jobs' objects to their owners.
func (a *agent) serveObjects(mux *http.ServeMux) {
	if a.objects != nil {
		a.objects.Handle(mux, a.findJob)
		return
	}
	mux.HandleFunc("/v1/jobs/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this host keeps no state objects: ahostd's log says why", http.StatusServiceUnavailable)
	})
}
