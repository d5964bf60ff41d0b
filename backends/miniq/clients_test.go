package miniq_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	client "github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/miniq"
)

func (q *queue) dial() net.Conn {
	q.t.Helper()
	conn, err := net.Dial("unix", miniq.Socket(q.paths()))
	if err != nil {
		q.t.Fatal(err)
	}
	return conn
}

func frame(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// send writes as much as is taken, for as long as the test lasts.
func (q *queue) send(data []byte, times int) {
	conn := q.dial()
	q.t.Cleanup(func() { _ = conn.Close() })
	go func() {
		for range times {
			if _, err := conn.Write(data); err != nil {
				return
			}
		}
	}()
}

// refused sends a request that must be answered with a text that contains want.
func (q *queue) refused(data []byte, want string) {
	q.t.Helper()
	conn := q.dial()
	defer conn.Close()
	go func() {
		_, _ = conn.Write(data) // the daemon may hang up before the end
		_ = conn.(*net.UnixConn).CloseWrite()
	}()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	answer, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) || !strings.Contains(string(answer), want) {
		q.t.Errorf("answered %.200q, %v; want %q", answer, err, want)
	}
}

// serveGoodClient has a new client submit and list.
func (q *queue) serveGoodClient(rounds int) {
	q.t.Helper()
	c := client.Open(client.Options{Paths: q.paths(), Config: q.config(), Timeout: 3 * time.Minute})
	defer c.Close()
	held := q.run("true")
	held.Hold = true
	for range rounds {
		s := c.Submit(q.t.Context(), []backends.Spec{held})
		if s[0].Err != nil {
			q.t.Fatalf("a good client submits: %v", s[0].Err)
		}
		snapshot, err := c.Snapshot(q.t.Context(), time.Now())
		if err != nil {
			q.t.Fatalf("a good client lists: %v", err)
		}
		if !slices.ContainsFunc(snapshot.Jobs, func(j backends.Job) bool { return j.ID == s[0].ID }) {
			q.t.Fatalf("job %v is not in a list that was asked for after it", s[0].ID)
		}
	}
}

// Whatever a client does, others are served: meanwhile another one, which is not
// connected yet, submits and lists.
func TestBadClientsDontHarmOthers(t *testing.T) {
	deep := strings.Repeat("[", 1<<20)
	list := frame(`{"v":2,"op":"farm"}`)
	cases := map[string]func(*queue){
		"garbage":        func(q *queue) { q.refused([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "message too long") },
		"no JSON":        func(q *queue) { q.refused(frame("hello"), "decode a message") },
		"half a request": func(q *queue) { q.refused(list[:10], "unexpected EOF") },
		"half a length":  func(q *queue) { q.refused(list[:3], "unexpected EOF") },
		"another version": func(q *queue) {
			q.refused(frame(`{"v":99,"op":"farm"}`), fmt.Sprintf("speaks version %d of", miniq.Version))
		},
		"another request":     func(q *queue) { q.refused(frame(`{"v":2,"op":"dance"}`), "dance") },
		"no change":           func(q *queue) { q.refused(frame(`{"v":2,"op":"modify"}`), "the request names no change") },
		"a record of nothing": func(q *queue) { q.refused(frame(`{"v":2,"op":"record"}`), "want one job") },
		"nesting":             func(q *queue) { q.refused(frame(deep), "exceeded max depth") },
		"nested jobs":         func(q *queue) { q.refused(frame(`{"v":2,"op":"submit","specs":`+deep), "decode a message") },
		"a name of 10 MB": func(q *queue) {
			q.refused(frame(`{"v":2,"op":"submit","specs":[{"Name":"`+strings.Repeat("x", 10<<20)+`","Command":["true"]}]}`), "longer than")
		},
		"a million jobs": func(q *queue) {
			q.refused(frame(`{"v":2,"op":"submit","specs":[`+strings.Repeat("{},", 1_000_000)+`{}]}`), "at most 16384")
		},
		"ten million acts": func(q *queue) {
			q.refused(frame(`{"v":2,"op":"requeue","acts":[`+strings.Repeat("{},", 10_000_000)+`{}]}`), "JSON objects")
		},
		"an array, time and again": func(q *queue) {
			q.refused(frame(`{"v":2,"op":"kill","ids":[`+strings.Repeat(`"1",`, 1_000_000)+`"1"]}`), "more than 100 times")
		},
		"millions of jobs": func(q *queue) {
			q.refused(frame(`{"v":2,"op":"wait","ids":[`+strings.Repeat(`"1",`, 2_000_000)+`"1"]}`), "at most")
		},
		"requests that never end": func(q *queue) {
			for range 200 {
				q.send(list[:len(list)-1], 1)
				q.send(list[:2], 1)
			}
		},
		"long requests that never end": func(q *queue) {
			for range 50 {
				q.send(append(binary.BigEndian.AppendUint32(nil, miniq.MaxFrame), make([]byte, 8<<20)...), 1)
			}
		},
		"lists that are not read": func(q *queue) { // half a megabyte each, which no socket holds
			for range 200 {
				q.send(list, 1000)
			}
		},
		"waits without end": func(q *queue) {
			for range 500 {
				q.send(frame(`{"v":2,"op":"wait","ids":["1"],"timeout":60000000000}`), 1)
			}
		},
	}
	for what, bad := range cases {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t, setup{})
			held := q.run("true")
			held.Hold, held.Name = true, strings.Repeat("long ", 1000)
			q.submit(slices.Repeat([]backends.Spec{held}, 100)...)
			bad(q)
			q.serveGoodClient(5)
		})
	}
}

// One user's connections are bounded. When there are more, the one that has been
// idle longest is closed.
func TestTenThousandConnections(t *testing.T) {
	q := newQueue(t, setup{})
	many := 10_000
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur < uint64(many)+500 {
		many = int(files.Cur) - 500
		t.Logf("%d connections: this process may not open more files", many)
	}
	first := q.Snapshot // its connection is the first to be evicted
	if _, err := first(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	var all []net.Conn
	for len(all) < many {
		conn, err := net.Dial("unix", miniq.Socket(q.paths()))
		if errors.Is(err, syscall.EAGAIN) { // the backlog is full: they come faster than they are accepted
			runtime.Gosched()
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, conn)
	}
	defer func() {
		for _, conn := range all {
			_ = conn.Close()
		}
	}()
	q.serveGoodClient(5)
	if _, err := first(t.Context(), time.Now()); err != nil {
		t.Errorf("a client whose idle connection was put out: %v", err)
	}
	_ = all[0].SetReadDeadline(time.Now().Add(time.Minute))
	if text, err := io.ReadAll(all[0]); err != nil || !strings.Contains(string(text), miniq.ErrBusy.Error()) {
		t.Errorf("the first of %d idle connections got %q, %v", many, text, err)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", q.cmd.Process.Pid))
	if err != nil || len(fds) > 1200 {
		t.Errorf("the daemon has %d files open, %v; a user may have 1024 connections", len(fds), err)
	}
}

// Lists of 100,000 jobs that are asked for and not read keep no other client waiting,
// and only some of them take memory.
func TestUnreadLongLists(t *testing.T) {
	q := newQueue(t, setup{Env: []string{"GOGC=20"}}) // what is held counts, not what waits to be collected
	held := q.run("true")
	held.Hold, held.Array = true, &backends.Array{}
	for i := range 100_000 {
		held.Array.Indices = append(held.Array.Indices, i+1)
	}
	id := q.submit(held)[0]
	if _, err := q.Snapshot(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	before := q.memory()
	for range 24 { // about 50 MB for each of the second kind; those of the first share snapshots
		q.send(frame(`{"v":2,"op":"farm"}`), 10)
		q.send(frame(fmt.Sprintf(`{"v":2,"op":"jobs","ids":["%v"]}`, id)), 10)
	}
	q.serveGoodClient(1)
	grown := q.memory() - before
	t.Logf("the daemon grew from %d to %d MiB", before>>20, (before+grown)>>20)
	if grown > 4*before { // without bounds seven times, or more
		t.Errorf("the daemon took %d MiB more for lists that are not read, of %d", grown>>20, before>>20)
	}
}

// A short request may stand for much: {} is a whole job, with an answer of its
// own. What many of them are worth at the same time is bounded.
func TestUnreadLongAnswers(t *testing.T) {
	q := newQueue(t, setup{Env: []string{"GOGC=20"}})
	q.serveGoodClient(1)
	jobs := frame(`{"v":2,"op":"submit","specs":[` + strings.Repeat("{},", 16_000) + `{}]}`)
	names := frame(`{"v":2,"op":"kill","ids":["` + strings.Join(numbers(9000), `","`) + `"]}`)
	for range 400 {
		q.send(jobs, 1)
		q.send(names, 1)
	}
	q.serveGoodClient(5)
	if mib := q.memory() >> 20; mib > 300*memoryFactor { // without bounds 2,300
		t.Errorf("the daemon took %d MiB", mib)
	} else {
		t.Logf("the daemon took %d MiB", mib)
	}
}

func numbers(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = strconv.Itoa(1000 + i)
	}
	return all
}

// memory is the most that the daemon ever had in memory, in bytes.
func (q *queue) memory() int64 {
	q.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", q.cmd.Process.Pid))
	if err != nil {
		q.t.Fatal(err)
	}
	var kib int64
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, _ = fmt.Sscan(rest, &kib)
		}
	}
	return kib << 10
}

// A client whose idle connection the daemon closed dials anew instead of failing.
func TestClientReconnectsAfterRestart(t *testing.T) {
	q := newQueue(t, setup{})
	for range 3 {
		if _, err := q.Snapshot(t.Context(), time.Time{}); err != nil {
			t.Error(err)
		}
		q.restart()
	}
}
