package daemon

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// A user may ask for much at once, then for so much a second. What goes beyond
// waits, what would wait for long is refused, and no other user has less for that.
func TestRates(t *testing.T) {
	var r rates
	now := time.Unix(1000, 0)
	acquire := func(uid, n int) (time.Duration, bool) { return r.acquire(now, uid, n) }
	if wait, ok := acquire(1, rateBurst); !ok || wait > 0 {
		t.Errorf("the first ones wait for %v, %v", wait, ok)
	}
	if wait, ok := acquire(1, ratePerSecond); !ok || wait != time.Second {
		t.Errorf("a second's more wait for %v, %v", wait, ok)
	}
	r.charge(now, 1, 3*ratePerSecond)
	if wait, ok := acquire(1, 1); ok || wait != 4*time.Second {
		t.Errorf("one in debt of four seconds waits for %v, %v", wait, ok)
	}
	if wait, ok := acquire(2, 1); !ok || wait > 0 {
		t.Errorf("another user waits for %v, %v", wait, ok)
	}
	now = now.Add(3 * time.Second)
	if wait, ok := acquire(1, 1); !ok || wait < time.Second || wait > rateWait {
		t.Errorf("later it waits for %v, %v", wait, ok)
	}
	for uid := 10; uid < 5000; uid++ {
		acquire(uid, 1)
		now = now.Add(time.Millisecond)
	}
	if len(r.users) > 1002 {
		t.Errorf("%d users are kept", len(r.users))
	}
	now = now.Add(time.Hour)
	if wait, ok := acquire(1, rateBurst); !ok || wait > 0 {
		t.Errorf("after an hour it waits for %v, %v", wait, ok)
	}
}

// A user who asks for too much on root's queue gets an error with what to do;
// administrators and a user's own queue have no such limit.
func TestRateLimitedUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{objects: newPendingChanges()}
		c := &connection{uid: 7, by: manager.By{User: "alice"}}
		req := &miniq.Request{Op: miniq.OpSignal, IDs: make([]backends.ID, 100*rateBurst)}
		if err := d.awaitRate(c, req); err != nil {
			t.Error(err)
		}
		began := time.Now()
		if err := d.awaitRate(c, req); err != nil || time.Since(began) != rateWait {
			t.Errorf("the second request waited for %v, %v", time.Since(began), err)
		}
		err := d.awaitRate(c, req)
		if !errors.Is(err, miniq.ErrBusy) || !strings.HasSuffix(err.Error(), "alice asks for more than 2000 changes a second: wait 8s and try again") {
			t.Errorf("the third one: %v", err)
		}
		c.by.Admin = true
		if err := d.awaitRate(c, req); err != nil {
			t.Errorf("an administrator: %v", err)
		}
		c.by.Admin, d.uid = false, 7
		if err := d.awaitRate(c, req); err != nil {
			t.Errorf("one's own queue: %v", err)
		}
	})
}

// What a user changed and what is not written yet is counted, until it is.
func TestUnwrittenChangesAreCounted(t *testing.T) {
	var r rates
	now := time.Unix(1000, 0)
	for i, c := range []struct {
		added           int
		durable, marked uint64
		want            int
	}{
		{0, 5, 10, 0},
		{100, 5, 20, 100}, // up to 20 at most
		{50, 9, 30, 150},
		{0, 10, 30, 150}, // all were asked for until 30
		{7, 29, 40, 157},
		{0, 30, 40, 7},
		{0, 40, 40, 0},
	} {
		r.addChanges(now, 1, c.added)
		if got := r.behind(now, 1, c.durable, c.marked); got != c.want {
			t.Errorf("step %d: %d changes are behind, want %d", i, got, c.want)
		}
	}
	r.addChanges(now, 1, 9)
	if got := r.behind(now, 2, 40, 40); got != 0 {
		t.Errorf("another user has %d", got)
	}
}
