package web

import (
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/allotment-hpc/allotment/internal/listen"
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
		key, each, burst = "from "+listen.Network(r.RemoteAddr), strangerRate, strangerAll
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
