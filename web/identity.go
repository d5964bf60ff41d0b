package web

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/internal/peer"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// caller is the user who sent a request.
type caller struct {
	desk.Visitor
	by      way
	session *session // of a browser that is signed in here
}

// way is how a caller is known.
type way int

const (
	unknown   way = iota
	bySocket      // the kernel says who connected
	bySession     // a browser that is signed in
	byProxy       // the site's proxy says so
)

// known reports whether it is known who sent the request.
func (c caller) known() bool { return c.by != unknown }

type contextKey int

const (
	peerKey contextKey = iota
	callerKey
)

// peerOf is who connected: on a socket of this machine, a user.
type peerOf struct {
	uid  int
	unix bool
	err  error
}

// withPeer asks the kernel once for each connection who is at its other end.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	for { // it is counted, and may be TLS's
		w, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = w.NetConn()
	}
	var p peerOf
	if u, ok := conn.(*net.UnixConn); ok {
		p.unix = true
		p.uid, p.err = peer.UID(u)
	}
	return context.WithValue(ctx, peerKey, p)
}

// identify returns the user who sent a request. The site's proxy names the user of a request that it
// sends, the kernel that of one on the socket, and the cookie's session that of any other.
func (s *Server) identify(w http.ResponseWriter, r *http.Request) (caller, error) {
	p, _ := r.Context().Value(peerKey).(peerOf)
	switch {
	case s.Proxy.sent(r, p):
		who, err := s.fromProxy(r)
		if err != nil || who.known() {
			return who, err
		}
		return s.fromCookie(w, r)
	case p.unix && p.err != nil:
		return caller{}, p.err
	case p.unix && !s.local(r.Host):
		return caller{}, errForeignHost
	case p.unix:
		v, err := s.accounts.of(p.uid)
		return caller{Visitor: v, by: bySocket}, err
	}
	return s.fromCookie(w, r)
}

// errForeignHost is returned for a request on the socket that names another host. A user may
// forward a port to the socket: then a page of another site, whose name leads to that port,
// must not be taken for the user.
var errForeignHost = &statusError{http.StatusMisdirectedRequest, "on the socket, the host is allotd or localhost"}

// local reports whether a host is this page's, as programs on its socket name it.
func (s *Server) local(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	u, err := url.Parse(s.Config.URL)
	return host == "allotd" || host == "localhost" || host == "127.0.0.1" || host == "[::1]" || host == "::1" ||
		err == nil && host != "" && host == u.Hostname()
}

// accounts remembers for a while what the system knows of users: a name service may be slow,
// and each request needs it.
type accounts struct {
	now   func() time.Time
	mu    sync.Mutex
	known map[string]account
}

type account struct {
	desk.Visitor
	at time.Time
}

// accountTime is how long an account is remembered: so late a change of groups counts.
const accountTime = time.Minute

// maxAccounts bounds what is remembered.
const maxAccounts = 10_000

// of returns the account of a user ID.
func (a *accounts) of(uid int) (desk.Visitor, error) {
	return a.get(uidKey(uid), func() (desk.Visitor, error) { return desk.VisitorOf(uid) })
}

// named returns the account of a name.
func (a *accounts) named(name string) (desk.Visitor, error) {
	return a.get(name, func() (desk.Visitor, error) { return desk.VisitorNamed(name) })
}

func (a *accounts) get(key string, look func() (desk.Visitor, error)) (desk.Visitor, error) {
	a.mu.Lock()
	found, ok := a.known[key]
	a.mu.Unlock()
	if ok && a.now().Sub(found.at) < accountTime {
		return found.Visitor, nil
	}
	v, err := look()
	if err != nil {
		return v, err
	}
	if v.Failed == nil {
		a.remember(v, a.now())
	}
	return v, nil
}

func (a *accounts) remember(v desk.Visitor, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= maxAccounts || a.known == nil {
		a.known = map[string]account{}
	}
	a.known[uidKey(v.UID)] = account{v, at}
	if v.Name != "" {
		a.known[v.Name] = account{v, at}
	}
}

// uidKey is the key of a user ID; no name begins like that.
func uidKey(uid int) string { return "#" + strconv.Itoa(uid) }
