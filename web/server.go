// Package web is the management page: what pba prints, as pages for a browser. It holds no
// rule: each request opens a desk (pba/desk) for the user who sent it, and shows what that
// answers. Nothing here asks the queue.
//
// A page is one file with its handlers, one with its template and one with its test, and a
// line in pages.go.
package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/agent/watch"
	"github.com/allotment-hpc/allotment/internal/bus"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// Options are what a server is made of.
type Options struct {
	Desks   *desk.Service
	Config  settings.Web
	Proxy   Proxy
	Log     *slog.Logger
	Version string
	Now     func() time.Time
	Zone    *time.Location // that times are shown in, as reports have them
	Bus     *bus.Hub       // nil: there is none
	Hosts   *watch.Watch   // nil: none are heard
	NoBus   error          // why
}

// Server serves the page.
type Server struct {
	Options
	handler   http.Handler
	templates templates
	accounts  accounts
	events    events
	drawn     drawn
	sessions  sessions
	limiter   limiter
	fetching  *fetching
	times     times

	mu      sync.Mutex
	listens string // the URL of where it listens for browsers; "": nowhere yet
}

// New returns a server that does not listen yet.
func New(o Options) (*Server, error) {
	s := &Server{Options: o, fetching: newFetching()}
	s.accounts.now, s.limiter.now, s.sessions.now = o.Now, o.Now, o.Now
	s.sessions.idle, s.sessions.max = time.Duration(o.Config.SessionIdle), time.Duration(o.Config.SessionMax)
	s.times = times{header: 10 * time.Second, body: 30 * time.Second, answer: 2 * time.Minute, idle: 2 * time.Minute, shutdown: 10 * time.Second}
	var err error
	if s.templates, err = parseTemplates(o.Zone); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /static/{file...}", serveStatic)
	mux.Handle("GET /{$}", http.RedirectHandler(pages()[0].path, http.StatusSeeOther))
	for _, p := range pages() {
		for pattern, h := range p.routes {
			mux.Handle(pattern, s.handle(p, h))
		}
	}
	mux.HandleFunc("GET /events", s.stream)
	mux.HandleFunc("POST "+loginPath+"/link", s.makeLink)
	mux.HandleFunc("GET "+loginPath, s.login)
	mux.HandleFunc("POST "+logoutPath, s.logout)
	s.addBus(mux)
	s.addAPI(mux)
	mux.Handle("/", s.handle(page{}, notFound))
	s.handler, err = s.protect(mux)
	return s, err
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Bounds of a request and of its answer.
const (
	maxBody   = 8 << 20 // a plan as a workbook
	maxHeader = 32 << 10
)

// times are how long a client may take, and be made to wait.
type times struct {
	header, body, idle time.Duration
	answer             time.Duration // a simulation of a change takes longest
	shutdown           time.Duration
}

// Serve serves until ctx ends, and lets requests that are being answered end.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	server := &http.Server{
		Handler: s, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: s.times.header, ReadTimeout: s.times.body, WriteTimeout: s.times.answer, IdleTimeout: s.times.idle,
		ErrorLog:    slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug), // what clients do wrong before there is a request
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: withPeer,
	}
	go s.events.watch(base, s.Desks, s.Log)
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		s.listensAt(l.Addr())
		go func() { failed <- server.Serve(l) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stopped, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.times.shutdown)
	defer cancel()
	stop() // streams end
	if late := server.Shutdown(stopped); late != nil {
		err = errors.Join(err, server.Close())
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// listensAt notes where browsers reach the page.
func (s *Server) listensAt(a net.Addr) {
	if a.Network() == "unix" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listens = "http://" + a.String()
	if s.Config.TLS() {
		s.listens = "https://" + a.String()
	}
}
