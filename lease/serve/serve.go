// Package serve is the face of a user's resource manager (package lease) to any process of that
// user that speaks HTTP, if only by curl.
//
// A worker and a holder are there as long as their connection: POST /v1/workers and POST /v1/holders
// answer with a line of JSON for each thing that they are to know, until one end closes. So nothing is
// polled, and what a process held is free when it ends, however it ends. The first line has a token,
// which each further call must send. Grants come on the holder's connection, or by POST to a URL of
// this machine that the request names. A request may have a task, which the worker gets with the lock of
// its lease; what the worker answers comes on the holder's connection.
package serve

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/internal/peer"
	"github.com/allotment-hpc/allotment/internal/random"
	"github.com/allotment-hpc/allotment/lease"
)

// Bounds of the face.
const (
	maxBody        = 16 << 10         // bytes of a call's body
	maxBatch       = 1 << 20          // bytes of one that has several requests or results
	maxObjects     = 1000             // of them
	maxConnections = 4096             // of a listener
	maxOfNetwork   = 1024             // of them, from one other host, or one network of IPv6
	maxLines       = 100_000          // that wait for one connection; more close it
	maxTexts       = 64 << 20         // bytes of tasks or results in them; more close it, too
	lineTime       = 10 * time.Second // in which the other end takes a line
	bodyTime       = 10 * time.Second // in which a body has come
)

// Server is a resource manager with its clients.
type Server struct {
	uid  int
	key  string
	want func(workers int)
	came func(worker string)
	post poster

	mu      sync.Mutex
	m       *lease.Manager
	wake    *time.Timer
	workers map[string]*client
	holders map[string]*client
	tokens  map[digest]*client
}

// Options of a server.
type Options struct {
	Limits lease.Limits
	UID    int                 // the one user whose processes may come by the unix socket
	Key    string              // what a process must know that comes by TCP; empty: none may
	Want   func(workers int)   // called when another number of workers would be of use; it must not wait
	Joined func(worker string) // called when a worker has joined; it must not wait
	Pauses []time.Duration     // before each further try to post back; nil: 100 ms, 1 s
}

// New returns a server without workers.
func New(o Options) *Server {
	s := &Server{
		uid: o.UID, key: o.Key, want: o.Want, came: o.Joined, post: newPoster(o),
		m: lease.New(o.Limits), workers: map[string]*client{}, holders: map[string]*client{}, tokens: map[digest]*client{},
	}
	s.wake = time.AfterFunc(time.Hour, func() { _ = s.step(lease.Tick{}) })
	return s
}

// Serve serves a listener until the context ends; then workers and holders are disconnected.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: bodyTime,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, callerKey{}, callerOf(c))
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = h.Close() })
	defer stop()
	defer s.wake.Stop()
	each := maxConnections
	if foreign(l.Addr()) {
		each = maxOfNetwork
	}
	l = listen.Bound(l, maxConnections, each, func(c net.Conn) string { return listen.Network(c.RemoteAddr().String()) })
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// foreign reports whether other hosts can come to an address.
func foreign(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

type callerKey struct{}

// caller is the process at the other end.
type caller struct {
	unix bool
	uid  int
}

func callerOf(c net.Conn) caller {
	if inner, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = inner.NetConn()
	}
	if c, ok := c.(*net.UnixConn); ok {
		if uid, err := peer.UID(c); err == nil {
			return caller{true, uid}
		}
	}
	return caller{uid: -1}
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /v1/workers":          s.joinWorker,
		"POST /v1/heartbeats":       s.heartbeat,
		"POST /v1/withdrawals":      s.withdraw,
		"POST /v1/holders":          s.joinHolder,
		"POST /v1/requests":         s.request,
		"POST /v1/results":          s.results,
		"DELETE /v1/requests/{id}":  s.cancel,
		"DELETE /v1/leases/{lease}": s.free,
		"GET /v1/view":              s.view,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("Content-Type", "application/json")
			if err := s.admit(r); err != nil {
				w.Header().Set("Connection", "close")
				answerError(w, err)
				return
			}
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
			if err := h(w, r); err != nil {
				answerError(w, err)
			}
		})
	}
	return mux
}

// bearer is how a call sends a token or the key.
const bearer = "Bearer "

var (
	errStranger = errors.New("not admitted: on the socket only its owner is, elsewhere who sends Authorization: Bearer with the key of the key file")
	errToken    = errors.New("the token is none: send Authorization: Bearer with the one of the first line of your connection")
)

// admit refuses other users on the socket. Calls by TCP send the key, or a token that a call with the
// key was answered with.
func (s *Server) admit(r *http.Request) error {
	c, _ := r.Context().Value(callerKey{}).(caller)
	if c.unix {
		if c.uid == s.uid {
			return nil
		}
		return errStranger
	}
	given := r.Header.Get("Authorization")
	if s.key != "" && same(given, bearer+s.key) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens[digestOf(given)] == nil {
		return errStranger
	}
	return nil
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// digest is a token's: how long it takes to find one says nothing of a token.
type digest [sha256.Size]byte

func digestOf(authorization string) digest { return sha256.Sum256([]byte(authorization)) }

// clientOf returns the client whose token a call sends, if it is one of these.
func (s *Server) clientOf(r *http.Request, all map[string]*client) (*client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.tokens[digestOf(r.Header.Get("Authorization"))]
	if c == nil || all[c.name] != c {
		return nil, errToken
	}
	return c, nil
}

// client is a connection of a worker or a holder.
type client struct {
	name  string
	job   uint64
	limit int // of a holder
	token string
	drop  context.CancelFunc

	more  chan struct{} // lines wait
	lines []line        // guarded by Server.mu
	texts int           // bytes of tasks or results in them
}

// line is what a client is to know.
type line struct {
	value any
	texts int    // bytes of the task or result in it
	lease uint64 // of a grant: 0: it is none
	last  bool   // the connection ends with it
}

func newClient(name string, drop context.CancelFunc) *client {
	return &client{name: name, token: random.Text(), drop: drop, more: make(chan struct{}, 1)}
}

// send puts a line into a client's outbox, under Server.mu.
func (c *client) send(l line) {
	if c == nil {
		return
	}
	if len(c.lines) >= maxLines || c.texts+l.texts > maxTexts {
		c.drop()
		return
	}
	c.lines = append(c.lines, l)
	c.texts += l.texts
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// step takes one event and carries out what comes of it.
func (s *Server) step(e lease.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stepLocked(e)
}

func (s *Server) stepLocked(e lease.Event) error {
	actions, err := s.m.Step(time.Now(), e)
	for _, a := range actions {
		s.carryOut(a)
	}
	if at := s.m.Wake(); !at.IsZero() {
		s.wake.Reset(time.Until(at))
	}
	return err
}

func (s *Server) carryOut(a lease.Action) {
	switch a := a.(type) {
	case lease.JobOpened:
		s.holders[a.Holder].job, s.holders[a.Holder].limit = a.Job, a.Limit
	case lease.Lock:
		s.workers[a.Worker].send(line{value: lockLine{a.Lease, a.Holder, a.Milli, a.Memory, a.Task}, texts: len(a.Task)})
	case lease.Unlock:
		if a.Why != lease.Finished { // by the worker itself
			s.workers[a.Worker].send(line{value: unlockLine{a.Lease, a.Why.String()}})
		}
	case lease.Grant:
		g := grantLine{a.Lease, a.ID, a.Job, a.Worker, a.Host, a.Milli, a.Memory}
		if a.PostBack == "" {
			s.holders[a.Holder].send(line{value: g, lease: a.Lease})
			return
		}
		s.post.start(a.PostBack, g, func(err error) {
			if err != nil {
				_ = s.step(lease.PostFailed{Lease: a.Lease})
				return
			}
			_ = s.step(lease.Posted{Lease: a.Lease})
		})
	case lease.Result:
		s.holders[a.Holder].send(line{value: resultLine{a.Lease, a.ID, a.Worker, a.Result}, texts: len(a.Result)})
	case lease.Revoke:
		s.holders[a.Holder].send(line{value: revokeLine{a.Lease, a.ID, a.Why.String()}})
	case lease.Release:
		s.workers[a.Worker].send(line{value: releaseLine{a.Why.String()}, last: true})
	case lease.Want:
		if s.want != nil {
			s.want(a.Workers)
		}
	case lease.Acknowledge: // by the answer to the request
	}
}

// follow writes a client's lines until one end closes.
func (s *Server) follow(ctx context.Context, w http.ResponseWriter, c *client) {
	control := http.NewResponseController(w)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	for {
		s.mu.Lock()
		lines := c.lines
		c.lines, c.texts = nil, 0
		s.mu.Unlock()
		for chunk := range slices.Chunk(lines, 256) {
			_ = control.SetWriteDeadline(time.Now().Add(lineTime))
			for _, l := range chunk {
				if encoder.Encode(l.value) != nil {
					return
				}
			}
			if control.Flush() != nil {
				return
			}
			for _, l := range chunk {
				if l.lease != 0 {
					_ = s.step(lease.Posted{Lease: l.lease})
				}
				if l.last {
					return
				}
			}
		}
		select {
		case <-c.more:
		case <-ctx.Done():
			return
		}
	}
}
