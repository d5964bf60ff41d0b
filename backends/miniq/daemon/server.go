package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/backends/miniq/manager"
	"github.com/allotment-hpc/allotment/internal/peer"
)

// Limits that keep one client from harming others.
const (
	maxConnections = 1024
	requestPause   = 10 * time.Second // for the rest of a request that has begun
	answerPause    = 30 * time.Second // for a client to take its answer
)

// connection is a client that was let in.
type connection struct {
	conn net.Conn
	in   *bufio.Reader
	by   manager.By
}

// connections are the clients that are there.
type connections struct {
	mu    sync.Mutex
	all   map[*connection]bool
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

func (c *connections) add(conn *connection) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done || len(c.all) >= maxConnections {
		return false
	}
	if c.all == nil {
		c.all = make(map[*connection]bool)
	}
	c.all[conn] = true
	c.tasks.Add(1)
	return true
}

func (c *connections) remove(conn *connection) {
	_ = conn.conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, conn)
	c.tasks.Done()
}

// ended lets nobody in any more, and what is posted to the loop be dropped.
func (c *connections) ended() {
	over := c.closed()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		c.done = true
		close(over)
	}
}

// hangUp closes every connection but one and waits until they are gone.
func (c *connections) hangUp(but *connection) {
	c.mu.Lock()
	for conn := range c.all {
		if conn != but {
			_ = conn.conn.Close()
		}
	}
	c.mu.Unlock()
}

// accept lets clients in until the listener is closed.
func (d *daemon) accept(listener *net.UnixListener) {
	for {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many files, for instance: others may leave
			d.log.Warn("a client can't be let in", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		by, err := d.identify(conn)
		c := &connection{conn: conn, in: bufio.NewReader(conn), by: by}
		if err == nil && !d.conns.add(c) {
			err = fmt.Errorf("there are %d connections already: try again later", maxConnections)
		}
		if err != nil {
			go refuse(conn, err)
			continue
		}
		go d.attend(c)
	}
}

func refuse(conn net.Conn, err error) {
	_ = conn.SetDeadline(time.Now().Add(requestPause))
	_ = miniq.WriteFrame(conn, miniq.Response{Version: miniq.Version, Error: miniq.ToError(err)})
	_ = conn.Close()
}

// identify asks the kernel who a client is. A daemon serves its own user, and
// root; both may do anything here.
func (d *daemon) identify(conn *net.UnixConn) (manager.By, error) {
	uid, err := peer.UID(conn)
	if err != nil {
		return manager.By{}, fmt.Errorf("ask who is there: %w", err)
	}
	if uid != d.uid && uid != 0 {
		return manager.By{}, fmt.Errorf("%w: this miniqd belongs to %s", backends.ErrDenied, d.user)
	}
	return manager.By{User: d.user, Admin: true}, nil
}

// attend answers one client's requests, one after the other.
func (d *daemon) attend(c *connection) {
	defer d.conns.remove(c)
	for {
		if _, err := c.in.Peek(1); err != nil { // idle: no deadline
			return
		}
		_ = c.conn.SetReadDeadline(time.Now().Add(requestPause))
		var req miniq.Request
		if err := miniq.ReadFrame(c.in, &req); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				_ = c.answer(miniq.Response{Error: miniq.ToError(err)})
			}
			return
		}
		_ = c.conn.SetReadDeadline(time.Time{})
		if req.Version != miniq.Version {
			_ = c.answer(miniq.Response{Error: miniq.ToError(fmt.Errorf("this miniqd speaks version %d of the protocol, not %d: restart it with miniqd stop", miniq.Version, req.Version))})
			return
		}
		if d.handle(c, &req) != nil {
			return
		}
	}
}

func (c *connection) answer(r miniq.Response) error {
	r.Version = miniq.Version
	_ = c.conn.SetWriteDeadline(time.Now().Add(answerPause))
	return miniq.WriteFrame(c.conn, r)
}
