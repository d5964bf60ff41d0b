package web

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limiter limits how often a user may ask, and how often an address may whose user is not
// known: that of guesses at links and cookies.
type limiter struct {
	now   func() time.Time
	mu    sync.Mutex
	rates map[string]*rate.Limiter
}

// How often a user may ask, and an address without a user, in requests a second, and how
// many at once.
const (
	userRate, userBurst       = 30, 120
	strangerRate, strangerAll = 5, 40
)

// maxRates bounds what is remembered; beyond that all begin anew.
const maxRates = 20_000

// allow reports whether a request may be answered now.
func (l *limiter) allow(who caller, r *http.Request) bool {
	key, each, burst := uidKey(who.UID), rate.Limit(userRate), userBurst
	if !who.known() {
		key, each, burst = "from "+network(r.RemoteAddr), strangerRate, strangerAll
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.rates[key]
	if one == nil {
		if len(l.rates) >= maxRates || l.rates == nil {
			l.rates = map[string]*rate.Limiter{}
		}
		one = rate.NewLimiter(each, burst)
		l.rates[key] = one
	}
	return one.AllowN(l.now(), 1)
}

// network is an address, or the network of an IPv6 address: a client has many of these.
func network(remote string) string {
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
