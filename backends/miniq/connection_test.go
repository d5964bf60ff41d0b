package miniq

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// dialTest returns a connection, and its other end.
func dialTest(t *testing.T, blocking bool) (*connection, net.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := dialSocket(path, blocking)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return c, other
}

// inBothModes runs a test on connections that block their thread, and on those that don't.
func inBothModes(t *testing.T, test func(t *testing.T, blocking bool)) {
	t.Helper()
	t.Run("blocking", func(t *testing.T) { test(t, true) })
	t.Run("polled", func(t *testing.T) { test(t, false) })
}

func TestConnectionTransfers(t *testing.T) { inBothModes(t, testTransfers) }

func testTransfers(t *testing.T, blocking bool) {
	c, other := dialTest(t, blocking)
	if !c.alive() {
		t.Error("a new connection is of no use")
	}
	text := make([]byte, 4<<20) // more than a socket holds
	go func() {
		got, err := io.ReadAll(io.LimitReader(other, int64(len(text))))
		if err != nil || len(got) != len(text) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		_, _ = other.Write([]byte("answer"))
		_ = other.Close()
	}()
	if n, err := c.Write(text); n != len(text) || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if got, err := io.ReadAll(c.in); string(got) != "answer" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if c.alive() {
		t.Error("a connection that the other end closed is used again")
	}
}

// What waits ends when its context does, by a timer or without.
func TestConnectionsEndWithTheirContext(t *testing.T) { inBothModes(t, testContextEnds) }

func testContextEnds(t *testing.T, blocking bool) {
	canceled, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, ctx := range map[string]context.Context{
		"canceled":    canceled,
		"deadline":    deadline{t.Context(), time.Now().Add(20 * time.Millisecond)},
		"no time":     deadline{t.Context(), time.Now()},
		"of a parent": deadline{canceled, time.Now().Add(time.Hour)},
	} {
		c, _ := dialTest(t, blocking)
		if err := c.setDeadline(ctx); err != nil {
			t.Fatal(err)
		}
		stop := context.AfterFunc(ctx, c.interrupt)
		if ctx.Done() == canceled.Done() {
			time.AfterFunc(10*time.Millisecond, cancel)
		}
		if _, err := c.in.ReadByte(); err == nil || ctx.Err() == nil || context.Cause(ctx) == nil {
			t.Errorf("%s: %v; the context: %v, %v", name, err, ctx.Err(), context.Cause(ctx))
		}
		stop()
	}
	timed := deadline{t.Context(), time.Now().Add(-time.Second)}
	if err := timed.Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v after the deadline", err)
	}
}

// An interrupt that comes too late meets no other file.
func TestInterruptAfterClose(t *testing.T) {
	c, _ := dialTest(t, true)
	c.close()
	again, other := dialTest(t, true) // it has the descriptor of the first one
	c.interrupt()
	if _, err := other.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if b, err := again.in.ReadByte(); b != 'x' || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}
