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

// accept lets clients in until the listener is closed.
func (d *daemon) accept(listener *net.UnixListener) {
	short := false
	for {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many files, for instance: an idle client is put out
			if !short {
				d.log.Warn("a client can't be let in; idle ones are put out", "error", err)
			}
			short = true
			if !d.conns.relieve() {
				time.Sleep(100 * time.Millisecond)
			}
			continue
		}
		short = false
		d.welcome(conn)
	}
}

func (d *daemon) welcome(conn *net.UnixConn) {
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
	go d.attend(c)
}

func refuse(conn *net.UnixConn, err error) {
	_ = conn.SetDeadline(time.Now().Add(requestPause))
	_ = miniq.WriteFrame(conn, miniq.Response{Version: miniq.Version, Error: miniq.ToError(err)})
	_ = conn.Close()
}

// attend answers one client's requests, one after the other.
func (d *daemon) attend(c *connection) {
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
			return // it was put out and answered
		}
		if d.serveOne(c) != nil {
			return
		}
		d.conns.end(c)
	}
}

// serveOne reads a request and answers it. An error means that the client is lost.
func (d *daemon) serveOne(c *connection) error {
	all := c.hasAll()
	if !all {
		_ = c.conn.SetReadDeadline(time.Now().Add(requestPause))
	}
	n, err := miniq.PeekLength(c.in)
	if err == nil && n > largeRequest {
		h := &holder{uid: c.uid, n: int64(n), cutLate: c.cutLate}
		if !d.requests.take(h, d.conns.closed()) {
			return errOver
		}
		defer d.requests.give(h)
		c.pace.start()
		_ = c.conn.SetReadDeadline(time.Now().Add(requestPause))
	}
	var req *miniq.Request
	if err == nil {
		var give func()
		req, give, err = d.decode(c)
		defer give()
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

// hasAll reports whether all of the next request has been read, as of nearly every one:
// then nothing is waited for, and no deadline has to be set.
func (c *connection) hasAll() bool {
	const head = 4
	if c.in.Buffered() < head {
		return false
	}
	n, err := miniq.PeekLength(c.in)
	return err == nil && c.in.Buffered()-head >= n
}

// decode reads a request, and holds room for what it is worth until give is
// called.
func (d *daemon) decode(c *connection) (req *miniq.Request, give func(), err error) {
	give = func() {}
	req, err = miniq.ReadRequest(c.pace.reader(c.in), func(worth int64) error {
		c.pace.stop()
		if worth <= largeRequest {
			return nil
		}
		h := &holder{uid: c.uid, n: worth, cutLate: c.cutDeaf}
		if !d.worths.take(h, d.conns.closed()) {
			return errOver
		}
		give = sync.OnceFunc(func() { d.worths.give(h) })
		return nil
	})
	c.pace.stop()
	if err == nil && req.Op == miniq.OpWait { // which may last, and has room of its own
		give()
	}
	return req, give, err
}

var errVersion = errors.New("another version of the protocol")

// cutDeaf throws a client out that does not take its answer.
func (c *connection) cutDeaf(now time.Time) {
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
