package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/miniq"
)

// On root's queue a user may ask for so many changes in a second, and for so many
// more at once after a while without any. Further requests wait; one that would
// wait for too long is refused, and its client asks again. Queries cost nothing
// here (snapshotQueue, room), and administrators are free.
const (
	ratePerSecond = 2000
	rateBurst     = 20_000
	rateWait      = 2 * time.Second

	perChange = 100 // jobs named in a request that count as one change more

	mostBehind = 20_000 // changes to jobs that one user may have in memory, not written
)

// rates are what users have left of that.
type rates struct {
	mu    sync.Mutex
	users map[int]*allowance
}

// allowance is what one user may still ask for; below zero it is a debt.
type allowance struct {
	left float64
	at   time.Time

	// Changes to jobs that may not be in their state objects yet: those up to an
	// entry of the journal, and later ones.
	older, newer int
	until        uint64
}

// acquire takes n from a user's allowance and returns how long to wait first;
// false: too long, nothing was taken.
func (r *rates) acquire(now time.Time, uid, n int) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.of(now, uid)
	due := time.Duration((float64(n) - a.left) / ratePerSecond * float64(time.Second))
	if wait := time.Duration(-a.left / ratePerSecond * float64(time.Second)); wait > rateWait {
		return wait, false
	}
	a.left -= float64(n)
	return min(max(due, 0), rateWait), true
}

// charge deducts what was not known before, such as how many runs got a signal.
func (r *rates) charge(now time.Time, uid, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(now, uid).left -= float64(n)
}

// addChanges counts changes to jobs that are in the journal.
func (r *rates) addChanges(now time.Time, uid, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(now, uid).newer += n
}

// behind is how many of a user's changes may not be in the state objects yet, which
// have everything up to an entry; marked is the journal's last one.
func (r *rates) behind(now time.Time, uid int, durable, marked uint64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.of(now, uid)
	if durable >= a.until {
		a.older, a.newer, a.until = a.newer, 0, marked
	}
	return a.older + a.newer
}

// of returns a user's allowance now. If there are many, whole ones are dropped.
func (r *rates) of(now time.Time, uid int) *allowance {
	const many = 1000
	if len(r.users) > many {
		for other, a := range r.users {
			if a.grown(now) == rateBurst {
				delete(r.users, other)
			}
		}
	}
	a := r.users[uid]
	if a == nil {
		if r.users == nil {
			r.users = make(map[int]*allowance)
		}
		a = &allowance{left: rateBurst, at: now}
		r.users[uid] = a
	}
	a.left, a.at = a.grown(now), now
	return a
}

func (a *allowance) grown(now time.Time) float64 {
	return min(a.left+now.Sub(a.at).Seconds()*ratePerSecond, rateBurst)
}

// isLimited reports whether a client has such limits.
func (d *daemon) isLimited(c *connection) bool { return !c.by.Admin && d.servesAll() }

// awaitRate waits until a request that changes something may be served.
func (d *daemon) awaitRate(c *connection, req *miniq.Request) error {
	if !d.isLimited(c) {
		return nil
	}
	n := 1 + len(req.Specs)/perChange
	named := 0
	for range req.Named() {
		named++
	}
	wait, ok := d.rates.acquire(time.Now(), c.uid, n+named/perChange)
	if !ok {
		return fmt.Errorf("%w: %s asks for more than %d changes a second: wait %v and try again", miniq.ErrBusy, c.by.User, ratePerSecond, wait.Round(time.Second))
	}
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-d.conns.closed():
			return errStopping
		}
	}
	return d.awaitWritten(c)
}

// awaitWritten waits until a user's changes are in the state objects, but for mostBehind.
func (d *daemon) awaitWritten(c *connection) error {
	ctx, cancel := context.WithTimeout(context.Background(), rateWait)
	defer cancel()
	for {
		durable, marked := d.objects.Durable(), d.objects.Marked()
		if d.rates.behind(time.Now(), c.uid, durable, marked) <= mostBehind {
			return nil
		}
		if d.objects.Flush(ctx) != nil {
			return fmt.Errorf("%w: %s asks for changes faster than they are written: wait %v and try again", miniq.ErrBusy, c.by.User, rateWait)
		}
	}
}
