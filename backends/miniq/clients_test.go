package miniq_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/miniq"
)

func (q *queue) dial() net.Conn {
	q.t.Helper()
	conn, err := net.Dial("unix", miniq.Socket(q.paths()))
	if err != nil {
		q.t.Fatal(err)
	}
	return conn
}

// Clients that talk nonsense, stop in the middle, ask for another version or
// never read harm nobody else.
func TestBadClientsHarmNobody(t *testing.T) {
	q := newQueue(t, setup{})
	held := q.run("true")
	held.Hold, held.Name = true, strings.Repeat("long ", 1000)
	var specs []backends.Spec
	for range 100 {
		specs = append(specs, held)
	}
	q.submit(specs...)

	refused := func(what string, data []byte, want string) {
		conn := q.dial()
		defer conn.Close()
		if _, err := conn.Write(data); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		_ = conn.(*net.UnixConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(15 * time.Second))
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.Contains(string(answer), want) {
			t.Errorf("%s: answered %.200q, %v; want %q", what, answer, err, want)
		}
	}
	frame := func(body string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	refused("garbage", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "message too long")
	refused("no JSON", frame("hello"), "decode a message")
	refused("half a request", frame(`{"v":1,"op":"farm"}`)[:10], "unexpected EOF")
	refused("another version", frame(`{"v":99,"op":"farm"}`), "speaks version 1")
	refused("another request", frame(`{"v":1,"op":"dance"}`), "dance")

	for range 20 { // they ask for half a megabyte, which no socket holds, again and again, and never read
		conn := q.dial()
		defer conn.Close()
		for range 10 {
			if _, err := conn.Write(frame(`{"v":1,"op":"farm"}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 1500 {
		conn := q.dial() // more than the daemon takes; idle ones cost little
		defer conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second) // the bad ones are thrown out after 30 s
	defer cancel()
	if _, err := q.Farm(ctx, time.Time{}); err != nil { // it has its connection
		t.Errorf("a good client among bad ones: %v", err)
	}
}

// A client whose idle connection the daemon closed dials anew instead of failing.
func TestAClientOutlivesTheDaemon(t *testing.T) {
	q := newQueue(t, setup{})
	for range 3 {
		if _, err := q.Farm(t.Context(), time.Time{}); err != nil {
			t.Error(err)
		}
		q.restart()
	}
}
