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
	"time"

	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// Options are what a server is made of.
type Options struct {
	Desks   *desk.Service
	Config  settings.Web
	Log     *slog.Logger
	Version string
	Now     func() time.Time
}

// Server serves the page.
type Server struct {
	Options
	handler   http.Handler
	templates templates
	accounts  accounts
	events    events
}

// New returns a server that does not listen yet.
func New(o Options) (*Server, error) {
	s := &Server{Options: o}
	s.accounts.now = o.Now
	var err error
	if s.templates, err = parseTemplates(); err != nil {
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
	mux.Handle("/", s.handle(page{}, notFound))
	s.handler = s.protect(mux)
	return s, nil
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Bounds of a request and of its answer.
const (
	maxBody       = 8 << 20 // a plan as a workbook
	maxHeader     = 32 << 10
	headerTime    = 10 * time.Second
	bodyTime      = 30 * time.Second
	answerTime    = 2 * time.Minute // a simulation of a change
	idleTime      = 2 * time.Minute
	shutdownTime  = 10 * time.Second
	maxConnection = 1000 // at a time, on each listener
)

// Serve serves until ctx ends, and lets requests that are being answered end.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	server := &http.Server{
		Handler: s, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		ErrorLog:    slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug), // what clients do wrong before there is a request
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: withPeer,
	}
	go s.events.watch(base, s.Desks.State, s.Log)
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { failed <- server.Serve(bound(l, maxConnection)) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stopped, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
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
