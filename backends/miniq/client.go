package miniq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/miniq"
)

// Options name a queue, and say how to reach it.
type Options struct {
	Paths  home.Paths
	Config miniq.Config
	Start  bool // start the daemon when none is running
	// Blocking: a call blocks its thread. A process that makes one call and ends takes less
	// time if the runtime need not poll; one with many at a time takes more.
	Blocking bool
	Timeout  time.Duration // of a call whose context has no deadline; 0: DefaultTimeout
	// Dial connects to a daemon of another machine, instead of Paths' socket: a stream of this
	// process's own. nil: Paths.
	Dial func(context.Context) (*os.File, error)
}

// DefaultTimeout bounds a call.
const DefaultTimeout = 10 * time.Second

// Client is the bundled queue as a backends.Backend. It dials when it is first
// asked, and again whenever the daemon was restarted.
type Client struct {
	options Options
	socket  string

	mu     sync.Mutex
	idle   []*connection
	closed bool
}

var _ backends.Backend = (*Client)(nil)

// maxIdle is how many connections are kept for the next calls.
const maxIdle = 8

// Open returns a client. It does not connect yet.
func Open(o Options) *Client {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	return &Client{options: o, socket: miniq.Socket(o.Paths)}
}

// Close closes the idle connections. No job is touched.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.idle {
		conn.close()
	}
	c.idle = nil
	return nil
}

func unreachable(what string, err error) error {
	return fmt.Errorf("%s: %w: %w", what, backends.ErrUnreachable, err)
}

// call sends one request and hands each part of the answer to part.
func (c *Client) call(ctx context.Context, req *miniq.Request, part func(*miniq.Response) error) error {
	ctx = c.bounded(ctx)
	req.Version = miniq.Version
	what := describeOp(req.Op)
	frame, err := req.Frame()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := c.try(ctx, req.Op, frame, part)
		if !errors.Is(err, miniq.ErrBusy) {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return unreachable(what, err)
		}
	}
}

// bounded gives a call that has no deadline the client's.
func (c *Client) bounded(ctx context.Context) context.Context {
	if _, ok := ctx.Deadline(); ok {
		return ctx
	}
	return deadline{ctx, time.Now().Add(c.options.Timeout)}
}

// deadline is a context that has a deadline and no timer, which would start the runtime's
// poller in each asub: Done does not report that it has passed. Connections keep it.
type deadline struct {
	context.Context
	at time.Time
}

// Deadline returns when it ends.
func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

// Err returns why it has ended; nil: it has not.
func (d deadline) Err() error {
	if err := d.Context.Err(); err != nil || time.Now().Before(d.at) {
		return err
	}
	return context.DeadlineExceeded
}

// Pauses of a client that the daemon has no room for.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// try is call, once. ErrBusy says that nothing of the request was done.
func (c *Client) try(ctx context.Context, op miniq.Op, frame []byte, part func(*miniq.Response) error) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	if err := conn.setDeadline(ctx); err != nil {
		conn.close()
		return unreachable(describeOp(op), err)
	}
	stop := context.AfterFunc(ctx, conn.interrupt)
	err = exchange(conn, op, frame, part)
	if !stop() { // the context ended meanwhile: the connection is of no more use
		err = errors.Join(err, context.Cause(ctx))
	}
	var refused *refusedError
	switch {
	case err == nil:
		c.putIdle(conn)
		return nil
	case errors.As(err, &refused) && !errors.Is(refused.error, miniq.ErrBusy):
		c.putIdle(conn)
		return refused.error
	}
	conn.close()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case refused != nil:
		return refused.error
	}
	if ctx.Err() == nil {
		err = &lostError{err}
	}
	return unreachable(describeOp(op), err)
}

func describeOp(op miniq.Op) string { return "ask miniqd to " + string(op) }

// refusedError is an answer that says no to a request as a whole.
type refusedError struct{ error }

func exchange(conn *connection, op miniq.Op, frame []byte, part func(*miniq.Response) error) error {
	_, failed := conn.Write(frame)
	if failed != nil && !errors.Is(failed, syscall.EPIPE) { // it may have said why it hung up
		return failed
	}
	for {
		resp, err := miniq.ReadResponse(conn.in, op)
		if err != nil {
			if failed != nil {
				return failed
			}
			if errors.Is(err, io.EOF) {
				return errors.New("miniqd hung up; see miniqd.log in its state directory")
			}
			return err
		}
		switch {
		case resp.Version != miniq.Version:
			return fmt.Errorf("miniqd speaks version %d of the protocol, this program %d: restart it with miniqd stop", resp.Version, miniq.Version)
		case resp.Error != nil:
			return &refusedError{resp.Error.Err()}
		}
		if err := part(resp); err != nil {
			return err
		}
		if !resp.More {
			return nil
		}
	}
}

// connect takes an idle connection or makes one.
func (c *Client) connect(ctx context.Context) (*connection, error) {
	if err := ctx.Err(); err != nil {
		return nil, unreachable("connect to miniqd", context.Cause(ctx))
	}
	for {
		c.mu.Lock()
		n := len(c.idle)
		if c.closed || n == 0 {
			c.mu.Unlock()
			return c.dial(ctx)
		}
		conn := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		if conn.alive() {
			return conn, nil
		}
		conn.close()
	}
}

func (c *Client) putIdle(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.idle) >= maxIdle {
		conn.close()
		return
	}
	c.idle = append(c.idle, conn)
}

// dial connects, and starts the daemon first where that is wanted and needed. If
// that ends before it serves, dial starts another, a few times.
func (c *Client) dial(ctx context.Context) (*connection, error) {
	if c.options.Dial != nil {
		file, err := c.options.Dial(ctx)
		if err != nil {
			return nil, unreachable("connect to miniqd", err)
		}
		return newConnection(file, c.options.Blocking), nil
	}
	for try := 1; ; try++ {
		conn, err := c.dialAny()
		if errors.Is(err, syscall.EAGAIN) { // the listener's backlog is full
			return nil, fmt.Errorf("connect to miniqd: %w", miniq.ErrBusy)
		}
		if err == nil {
			return conn, nil
		}
		if !notListening(err) || try > maxTries {
			return nil, unreachable("connect to miniqd", err)
		}
		if err := miniq.CheckStopped(miniq.StateDir(c.options.Paths)); err != nil {
			return nil, unreachable("connect to miniqd", err)
		}
		if !c.options.Start {
			return nil, unreachable("connect to miniqd", fmt.Errorf("none is running for %s; asub starts one, and so does miniqd", miniq.StateDir(c.options.Paths)))
		}
		if err := c.start(ctx); err != nil && (!errors.Is(err, miniq.ErrEnded) || try == maxTries) {
			return nil, unreachable("start miniqd", err)
		}
	}
}

// start starts the daemon, and waits for it until the deadline.
func (c *Client) start(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ok {
		timed, cancel := context.WithDeadline(ctx, at)
		defer cancel()
		ctx = timed
	}
	return miniq.Start(ctx, c.options.Paths)
}

// dialAny dials the socket of these paths or, if no daemon listens there, the one that
// the daemon of the same state has.
func (c *Client) dialAny() (*connection, error) {
	conn, err := dialSocket(c.socket, c.options.Blocking)
	if err == nil || !notListening(err) {
		return conn, err
	}
	_, other := miniq.LockHolder(miniq.StateDir(c.options.Paths))
	if other == "" || other == c.socket {
		return nil, err
	}
	if conn, otherErr := dialSocket(other, c.options.Blocking); otherErr == nil {
		return conn, nil
	}
	return nil, err
}

func notListening(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}
