package daemon

import (
	"bufio"
	"container/list"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// Limits that keep one client from harming others. Those that count
// connections are lower where the process may open fewer files.
const (
	maxConnections = 4096
	requestPause   = 10 * time.Second // for the rest of a request that has begun
	answerPause    = 30 * time.Second // for a client to take a part of its answer
)

// connection is that of an accepted client.
type connection struct {
	conn *net.UnixConn
	in   *bufio.Reader
	uid  int
	by   manager.By
	idle *list.Element // among its user's idle ones; nil: a request is in progress, or it was evicted
	pace pace

	writing pace // of the answer that is being written
}

// userConnections is the connections of one user.
type userConnections struct {
	uid  int
	all  int
	idle *list.List // of *connection, the one that is idle longest first
}

// connections are the clients that are connected. A user has a quarter of limit at
// most. Without room, the connection that has been idle longest is evicted: the
// same user's at that user's limit, else that of the user with the most. Its client
// asks again on another one (Client does). None is evicted during a request.
type connections struct {
	mu    sync.Mutex
	limit int // of all; 0: not set yet
	all   map[*connection]bool
	users map[int]*userConnections
	over  chan struct{} // closed when the loop has ended
	done  bool
	tasks sync.WaitGroup
}

func (c *connections) closed() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over == nil {
		c.over = make(chan struct{})
	}
	return c.over
}

// maxOpen returns how many connections this process can hold beside its other files.
func maxOpen() int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return maxConnections
	}
	return int(min(maxConnections, max(files.Cur/2, 8)))
}

// add lets a client in; it is idle until its first request begins.
func (c *connections) add(conn *connection) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return errStopping
	}
	if c.all == nil {
		c.all, c.users = make(map[*connection]bool), make(map[int]*userConnections)
	}
	if c.limit == 0 {
		c.limit = maxOpen()
	}
	if err := c.makeRoom(conn.uid); err != nil {
		return err
	}
	u := c.users[conn.uid]
	if u == nil {
		u = &userConnections{uid: conn.uid, idle: list.New()}
		c.users[conn.uid] = u
	}
	c.all[conn] = true
	u.all++
	conn.idle = u.idle.PushBack(conn)
	c.tasks.Add(1)
	return nil
}

func (c *connections) makeRoom(uid int) error {
	u := c.users[uid]
	if most := max(c.limit/4, 1); u != nil && u.all >= most {
		if !c.evict(u) {
			return fmt.Errorf("%w: you have %d requests at work here already", miniq.ErrBusy, most)
		}
		return nil
	}
	if len(c.all) < c.limit || c.evict(c.largest()) {
		return nil
	}
	return fmt.Errorf("%w: %d requests are at work already", miniq.ErrBusy, c.limit)
}

// largest returns the user with the most connections of those with an idle one.
func (c *connections) largest() *userConnections {
	var most *userConnections
	for _, u := range c.users {
		if u.idle.Len() > 0 && (most == nil || u.all > most.all || u.all == most.all && u.uid < most.uid) {
			most = u
		}
	}
	return most
}

// evict closes the connection of a user that has been idle longest. Its client
// gets ErrBusy: nothing of a request that it may be sending was read.
func (c *connections) evict(u *userConnections) bool {
	if u == nil || u.idle.Len() == 0 {
		return false
	}
	conn := u.idle.Front().Value.(*connection)
	c.drop(conn)
	sendReason(conn.conn, fmt.Errorf("%w: others needed this connection, which was idle", miniq.ErrBusy))
	_ = conn.conn.Close()
	return true
}

// sendReason sends a client the reason why its connection ends, without waiting: an
// idle connection has room for that, unless its client does not read.
func sendReason(conn *net.UnixConn, why error) {
	frame, err := miniq.AppendFrame(nil, miniq.Response{Version: miniq.Version, Error: miniq.ToError(why)})
	if err != nil {
		return
	}
	_ = sendNow(conn, frame)
}

// drop removes a connection from the counts.
func (c *connections) drop(conn *connection) {
	if !c.all[conn] {
		return
	}
	delete(c.all, conn)
	u := c.users[conn.uid]
	if conn.idle != nil {
		u.idle.Remove(conn.idle)
		conn.idle = nil
	}
	if u.all--; u.all == 0 {
		delete(c.users, conn.uid)
	}
}

// begin marks a connection as busy with a request; false: it was evicted before.
func (c *connections) begin(conn *connection) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.all[conn] {
		return false
	}
	c.users[conn.uid].idle.Remove(conn.idle)
	conn.idle = nil
	return true
}

// end marks it as idle.
func (c *connections) end(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[conn] {
		conn.idle = c.users[conn.uid].idle.PushBack(conn)
	}
}

func (c *connections) remove(conn *connection) {
	_ = conn.conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(conn)
	c.tasks.Done()
}

// evictIdle evicts one idle connection of any user, since descriptors are short.
func (c *connections) evictIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.evict(c.largest())
}

// ended refuses new clients, and drops what is posted to the loop.
func (c *connections) ended() {
	over := c.closed()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		c.done = true
		close(over)
	}
}

// hangUp closes every connection but one.
func (c *connections) hangUp(but *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.all {
		if conn != but {
			_ = conn.conn.Close()
		}
	}
}
