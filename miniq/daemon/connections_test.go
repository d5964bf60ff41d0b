package daemon

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allotment-hpc/allotment/miniq"
)

// newConnection returns a user's connection, and the client's end of it.
func newConnection(t *testing.T, uid int) (*connection, net.Conn) {
	t.Helper()
	ours, theirs := socketPair(t)
	return &connection{conn: ours, in: bufio.NewReader(ours), uid: uid}, theirs
}

// One user's connections leave room for the others', and those at work are kept.
func TestConnectionsOfOneUserAreBounded(t *testing.T) {
	c := &connections{limit: 16}
	add := func(uid int) (*connection, net.Conn, error) {
		conn, theirs := newConnection(t, uid)
		return conn, theirs, c.add(conn)
	}
	first, theirs, err := add(1)
	if err != nil {
		t.Fatal(err)
	}
	reason := make(chan string, 1)
	go func() { text, _ := io.ReadAll(theirs); reason <- string(text) }()
	for range 100 {
		if _, _, err := add(1); err != nil {
			t.Fatalf("a user with idle connections: %v", err)
		}
	}
	if n := c.users[1].all; n != 4 || c.all[first] {
		t.Errorf("the user has %d connections of 16, the oldest among them: %v", n, c.all[first])
	}
	if text := <-reason; !strings.Contains(text, miniq.ErrBusy.Error()) {
		t.Errorf("the evicted client got %q", text)
	}
	if c.begin(first) {
		t.Error("a request of the evicted client was accepted")
	}
	for conn := range c.all {
		if !c.begin(conn) {
			t.Error("a client that is there can't ask")
		}
	}
	if _, _, err := add(1); !errors.Is(err, miniq.ErrBusy) {
		t.Errorf("a user all of whose connections are at work: %v", err)
	}
	for uid := range 10 { // there are enough for them, then the largest user's idle ones go
		if _, _, err := add(100 + uid); err != nil {
			t.Errorf("user %d is kept out by others: %v", uid, err)
		}
		if _, _, err := add(100 + uid); err != nil {
			t.Errorf("user %d is kept out by others: %v", uid, err)
		}
	}
	if len(c.all) > 16 || c.users[1].all != 4 {
		t.Errorf("%d connections in all, %d at work", len(c.all), c.users[1].all)
	}
	for conn := range c.all {
		if conn.idle == nil {
			c.end(conn)
		}
		c.remove(conn)
	}
	if len(c.users) != 0 || len(c.all) != 0 {
		t.Errorf("%d users and %d connections are left in the books", len(c.users), len(c.all))
	}
}

// What is large waits for room; a user who has much of it keeps no other from it,
// and a client that is too slow with it loses it to those that wait.
func TestRoomIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, over := newRoom(100), make(chan struct{})
		cut := make(chan int64, 10)
		slow := func(uid int, n int64) *holder {
			c, _ := newConnection(t, uid)
			c.pace.start()
			return &holder{uid: uid, n: n, cutLate: func(now time.Time) {
				if c.pace.late(now) {
					c.pace.stop()
					cut <- n
				}
			}}
		}
		acquire := func(h *holder) chan bool {
			got := make(chan bool, 1)
			go func() { got <- r.acquire(h, over) }()
			synctest.Wait()
			return got
		}
		has := func(got chan bool) bool { return len(got) > 0 }
		if h := slow(9, 1000); !has(acquire(h)) {
			t.Fatal("an empty room refuses what is larger than it")
		} else {
			r.release(h)
		}
		a := slow(1, 40)
		if !has(acquire(a)) {
			t.Fatal("there was room")
		}
		second := acquire(slow(1, 30))
		if has(second) {
			t.Error("a user has more than half of it")
		}
		other := slow(2, 45)
		if !has(acquire(other)) {
			t.Error("another user waits behind the first one's")
		}
		began := time.Now()
		if n := <-cut; n != 40 && n != 45 || time.Since(began) < slowGrace || time.Since(began) > 2*slowGrace {
			t.Errorf("the one with %d was thrown out after %v", n, time.Since(began))
		}
		<-cut
		r.release(a)
		synctest.Wait()
		if !has(second) {
			t.Error("what was released is not granted to the next one")
		}
		waits := acquire(slow(3, 90))
		close(over)
		synctest.Wait()
		if got := <-waits; got {
			t.Error("there was no room")
		}
	})
}

func TestPace(t *testing.T) {
	var p pace
	now := time.Now()
	if p.late(now.Add(time.Hour)) {
		t.Error("a client that holds nothing is late")
	}
	p.start()
	if p.late(now.Add(slowGrace - time.Second)) {
		t.Error("late at once")
	}
	p.moved.Add(10 * slowest)
	if p.late(now.Add(slowGrace+9*time.Second)) || !p.late(now.Add(slowGrace+11*time.Second)) {
		t.Error("10 MiB are worth ten seconds")
	}
}
