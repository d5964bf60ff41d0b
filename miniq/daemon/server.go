package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/peer"
	"github.com/allotment-hpc/allotment/miniq"
)

// accept accepts clients until the listener is closed.
func (d *daemon) accept(listener *net.UnixListener) {
	short := false
	for {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many files, for instance: an idle client is evicted
			if !short {
				d.log.Warn("a client can't be let in; idle ones are put out", "error", err)
			}
			short = true
			if !d.conns.evictIdle() {
				time.Sleep(100 * time.Millisecond)
			}
			continue
		}
		short = false
		d.startClient(conn)
	}
}

func (d *daemon) startClient(conn *net.UnixConn) {
	uid, err := peer.UID(conn)
	if err != nil {
		go refuse(conn, fmt.Errorf("read the client's user ID: %w", err))
		return
	}
	c := &connection{conn: conn, in: bufio.NewReader(conn), uid: uid}
	if err := d.conns.add(c); err != nil {
		go refuse(conn, err)
		return
	}
	go d.serveClient(c)
}

func refuse(conn *net.UnixConn, err error) {
	_ = conn.SetDeadline(time.Now().Add(requestPause))
	_ = miniq.WriteFrame(conn, miniq.Response{Version: miniq.Version, Error: miniq.ToError(err)})
	_ = conn.Close()
}

// serveClient answers one client's requests, one after the other.
func (d *daemon) serveClient(c *connection) {
	defer d.conns.remove(c)
	var err error
	if c.by, err = d.identify(c.uid); err != nil {
		_ = c.answer(miniq.Response{Error: miniq.ToError(err)})
		return
	}
	for {
		if _, err := c.in.Peek(1); err != nil { // idle: no deadline
			return
		}
		if !d.conns.begin(c) {
			return // it was evicted and answered
		}
		if d.serveOne(c) != nil {
			return
		}
		d.conns.end(c)
	}
}

// serveOne reads a request and answers it. An error means that the client is lost.
func (d *daemon) serveOne(c *connection) error {
	all := miniq.HasFrame(c.in) // as of nearly every request: no deadline has to be set
	if !all {
		_ = c.conn.SetReadDeadline(time.Now().Add(requestPause))
	}
	n, err := miniq.PeekLength(c.in)
	if err == nil && n > largeRequest {
		h := &holder{uid: c.uid, n: int64(n), cutLate: c.cutLate}
		if !d.requests.acquire(h, d.conns.closed()) {
			return errStopping
		}
		defer d.requests.release(h)
		c.pace.start()
		_ = c.conn.SetReadDeadline(time.Now().Add(requestPause))
	}
	var req *miniq.Request
	if err == nil {
		var release func()
		req, release, err = d.decode(c, all)
		defer release()
	}
	if err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			_ = c.answer(miniq.Response{Error: miniq.ToError(err)})
		}
		return err
	}
	if !all {
		_ = c.conn.SetReadDeadline(time.Time{})
	}
	if req.Version != miniq.Version {
		_ = c.answer(miniq.Response{Error: miniq.ToError(fmt.Errorf("this miniqd speaks version %d of the protocol, not %d: restart it with miniqd stop", miniq.Version, req.Version))})
		return errVersion
	}
	return d.handle(c, req)
}

// decode reads a request, and holds room for its decoded size until release is
// called. all says that it has been read.
func (d *daemon) decode(c *connection, all bool) (req *miniq.Request, release func(), err error) {
	release = func() {}
	in := io.Reader(c.in)
	if !all {
		in = c.pace.reader(c.in)
	}
	req, err = miniq.ReadRequest(in, func(size int64) error {
		c.pace.stop()
		if size <= largeRequest {
			return nil
		}
		h := &holder{uid: c.uid, n: size, cutLate: c.cutStalled}
		if !d.decoded.acquire(h, d.conns.closed()) {
			return errStopping
		}
		release = sync.OnceFunc(func() { d.decoded.release(h) })
		return nil
	}, &d.lastEnvironment)
	c.pace.stop()
	if err == nil && req.Op == miniq.OpWait { // which may last, and has room of its own
		release()
	}
	return req, release, err
}

var errVersion = errors.New("another version of the protocol")

// cutStalled disconnects a client that does not read its answer.
func (c *connection) cutStalled(now time.Time) {
	if c.writing.late(now) {
		_ = c.conn.Close()
	}
}

func (c *connection) answer(r miniq.Response) error {
	r.Version = miniq.Version
	frame, err := miniq.AppendFrame(nil, r)
	if err != nil {
		return err
	}
	c.pace.moved.Add(int64(len(frame)))
	if frame = frame[sendNow(c.conn, frame):]; len(frame) == 0 {
		return nil
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(answerPause))
	defer func() { _ = c.conn.SetWriteDeadline(time.Time{}) }()
	c.writing.start()
	c.writing.moved.Store(int64(len(frame))) // it has the time for all of it
	_, err = c.conn.Write(frame)
	c.writing.stop()
	return err
}

// sendNow sends what the kernel takes at once.
func sendNow(conn *net.UnixConn, text []byte) (n int) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Write(func(fd uintptr) bool {
		n, _ = unix.SendmsgN(int(fd), text, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	})
	return max(n, 0)
}
