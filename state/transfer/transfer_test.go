package transfer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/state"
)

var slurm7 = state.Job{Queue: "slurm", ID: backends.ID{Job: 7}}

// store is a host in the tests.
type store struct {
	mu      sync.Mutex
	known   map[string]bool // fingerprints
	expects map[string]bool // fingerprint and job
	objects map[state.Job][]byte
	moved   map[state.Job]Peer
	taken   int
	tookOne chan struct{} // is sent to when one is taken; nil: nothing is
	hold    chan struct{} // Take waits for it; nil: it does not
	refuse  error
}

func newStore() *store {
	return &store{known: map[string]bool{}, expects: map[string]bool{}, objects: map[state.Job][]byte{}, moved: map[state.Job]Peer{}}
}

func (s *store) Knows(f string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[f]
}
func (s *store) MayRead(f string, _ state.Job) bool { return s.Knows(f) }
func (s *store) MayPush(f string, j state.Job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expects[f+j.String()]
}

func (s *store) Object(_ context.Context, j state.Job) ([]byte, state.Sequence, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[j]
	if !ok {
		return nil, state.Sequence{}, fs.ErrNotExist
	}
	_, at, err := sequenceOf(o, j)
	return o, at, err
}

func (s *store) Moved(j state.Job) (Peer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.moved[j]
	return p, ok
}

func sequenceOf(o []byte, j state.Job) (*backends.Record, state.Sequence, error) {
	i, err := state.NewInspector()
	if err != nil {
		return nil, state.Sequence{}, err
	}
	defer i.Close()
	return i.Read(o, j.ID)
}

func (s *store) Take(ctx context.Context, j state.Job, o []byte, at state.Sequence) error {
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.refuse != nil {
		return s.refuse
	}
	_, has, err := sequenceOf(o, j)
	if err == nil && has != at {
		err = ErrConflict
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := state.NewInspector()
	if err != nil {
		return err
	}
	defer i.Close()
	all := [][]byte{o}
	if old := s.objects[j]; old != nil {
		all = append(all, old)
	}
	merged, err := i.Merge(j.ID, all...)
	if err == nil {
		s.objects[j] = merged
		s.taken++
		if s.tookOne != nil {
			s.tookOne <- struct{}{}
		}
	}
	return err
}

// end is a host with its store and its server.
type end struct {
	*store
	Peer
	identity *Identity
	client   *Client
}

func newEnd(t testing.TB, name string, changes ...func(*Server)) *end {
	t.Helper()
	i, err := OpenIdentity(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	e := &end{store: newStore(), identity: i, client: NewClient(i)}
	e.client.pause = time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.Peer = Peer{name, l.Addr().String(), i.Fingerprint()}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	server := NewServer(i, e.store, slog.New(slog.DiscardHandler))
	for _, change := range changes {
		change(server)
	}
	go func() {
		defer close(ended)
		if err := server.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
	return e
}

// expect lets from push the job to e, as allotd's order does.
func (e *end) expect(from *end, j state.Job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known[from.Fingerprint], e.expects[from.Fingerprint+j.String()] = true, true
}

// object makes an object of what a run did on a host.
func object(t testing.TB, run int, host string, lines int) []byte {
	t.Helper()
	dir := t.TempDir()
	w, err := state.NewWriter(disk.OS(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.Start()
	defer w.Close()
	for n := range lines {
		c := state.Change{ID: slurm7.ID, RunNo: run, Host: host, Seq: uint64(n + 1), At: time.Unix(1.7e9, 0), Event: "progress"}
		if n == 0 {
			c.Event, c.Begin = "started", &state.Begin{Host: host}
		}
		w.Put(c)
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(state.Path(dir, slurm7.ID))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func lines(t *testing.T, o []byte) int {
	t.Helper()
	r, _, err := sequenceOf(o, slurm7)
	if err != nil {
		t.Fatal(err)
	}
	return len(r.History)
}

// A push merges, and a second one, as after an answer that was lost, changes nothing.
func TestPush(t *testing.T) {
	h1, h2 := newEnd(t, "h1"), newEnd(t, "h2")
	h2.objects[slurm7] = object(t, 2, "h2", 2)
	o := object(t, 1, "h1", 3)
	at := state.Sequence{Run: 1, N: 3}
	if err := h1.client.Push(t.Context(), h2.Peer, slurm7, o, at); err == nil {
		t.Fatal("h2 expects nothing, and takes it")
	}
	h2.expect(h1, slurm7)
	for range 2 {
		if err := h1.client.Push(t.Context(), h2.Peer, slurm7, o, at); err != nil {
			t.Fatal(err)
		}
		if n := lines(t, h2.objects[slurm7]); n != 5 {
			t.Fatalf("%d lines after the push, want 5", n)
		}
	}
	other := state.Job{Queue: "slurm", ID: backends.ID{Job: 8}}
	if err := h1.client.Push(t.Context(), h2.Peer, other, o, at); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("another job than expected: %v", err)
	}
	h2.mu.Lock()
	h2.expects = map[string]bool{} // its time is over
	h2.mu.Unlock()
	if err := h1.client.Push(t.Context(), h2.Peer, slurm7, o, at); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a replay after its time: %v", err)
	}
}

// What is forged, damaged, cut or too large is refused, and nothing of the job's is lost.
func TestHostilePushes(t *testing.T) {
	h1, h2 := newEnd(t, "h1"), newEnd(t, "h2")
	h2.expect(h1, slurm7)
	own := object(t, 2, "h2", 2)
	h2.objects[slurm7] = own
	o := object(t, 1, "h1", 3)
	at := state.Sequence{Run: 1, N: 3}
	for name, c := range map[string]struct {
		object []byte
		at     state.Sequence
	}{
		"forged run":   {o, state.Sequence{Run: 9, N: 3}},
		"forged line":  {o, state.Sequence{Run: 1, N: 4}},
		"no object":    {[]byte("hello"), at},
		"damaged":      {append(bytes.Clone(o[:len(o)-700]), make([]byte, 700)...), at},
		"another kind": {append([]byte("SQLite format 3\x00"), make([]byte, 8176)...), at},
	} {
		if err := h1.client.Push(t.Context(), h2.Peer, slurm7, c.object, c.at); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v, want %v", name, err, ErrRefused)
		}
	}
	put := func(body io.Reader, length int64, header http.Header) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://"+h2.Address+"/jobs/slurm/7", body)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength, r.Header = length, header
		response, done, err := h1.client.do(t.Context(), h2.Peer, r)
		if err != nil {
			return 0, err.Error()
		}
		defer done()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	header := func(o []byte, at string) http.Header {
		return http.Header{sequenceHeader: {at}, digestHeader: {digest(o)}}
	}
	if status, text := put(bytes.NewReader(o[:500]), 500, header(o, "1.3")); status != http.StatusBadRequest {
		t.Errorf("cut: %d %s", status, text)
	}
	for _, bad := range []string{"", "1", "1.", ".1", "-1.1", "1.-1", "01.3", "1.18446744073709551615", "2000000.1"} {
		if status, text := put(bytes.NewReader(o), int64(len(o)), header(o, bad)); status != http.StatusBadRequest && !strings.Contains(text, "invalid header") {
			t.Errorf("sequence %q: %d %s", bad, status, text)
		}
	}
	// A size is refused before anything of the body comes.
	head := pushBy(t, h1, h2, o, 0, 10<<30)
	if err := head.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if status, err := bufio.NewReader(head).ReadString('\n'); err != nil || !strings.Contains(status, " 413 ") {
		t.Errorf("10 GB, by its head: %q, %v", status, err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for name, length := range map[string]int64{"10 GB": 10 << 30, "10 GB without a length": -1} {
		endless := &counter{}
		status, text := put(endless, length, header(o, "1.3"))
		want := http.StatusRequestEntityTooLarge
		if length < 0 {
			want = http.StatusLengthRequired
		}
		if status != want && status != 0 { // 0: the connection was cut while we sent
			t.Errorf("%s: %d %s", name, status, text)
		}
		if n := endless.n.Load(); n > state.MaxObject {
			t.Errorf("%s: %d bytes were taken", name, n)
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.HeapSys - min(before.HeapSys, after.HeapSys); used > 2*state.MaxObject {
		t.Errorf("10 GB took %d MiB of memory", used>>20)
	}
	if !bytes.Equal(h2.objects[slurm7], own) || h2.taken != 0 {
		t.Error("the job's own object has changed")
	}
}

// counter is an endless body.
type counter struct{ n atomic.Int64 }

func (c *counter) Read(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// A disk that is full, and a host that is busy, are no refusal for ever.
func TestTryAgain(t *testing.T) {
	o, at := object(t, 1, "h1", 1), state.Sequence{Run: 1, N: 1}
	const room = 3 // objects
	all := semaphore.NewWeighted(room * int64(len(o)))
	h1, h2 := newEnd(t, "h1"), newEnd(t, "h2", func(s *Server) { s.room, s.wait = all, time.Millisecond })
	returned := func() { // a server returns what it took after its answer
		t.Helper()
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := all.Acquire(soon, room*int64(len(o))); err != nil {
			t.Fatal("what objects took is not returned:", err)
		}
		all.Release(room * int64(len(o)))
	}
	h2.expect(h1, slurm7)
	for why, want := range map[error]string{os.ErrPermission: "500", syscall.ENOSPC: "507"} {
		h2.refuse = fmt.Errorf("write: %w", why)
		if err := h1.client.Push(t.Context(), h2.Peer, slurm7, o, at); err == nil || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("it can't be written: %v, want %s", err, want)
		}
	}
	returned()
	h2.refuse, h2.hold = nil, make(chan struct{})
	results := make(chan error)
	const pushes = 3 * room
	for range pushes {
		go func() { results <- h1.client.Push(t.Context(), h2.Peer, slurm7, o, at) }()
	}
	for range pushes - room { // those beyond the bound are answered soon
		if err := <-results; err == nil || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "503") {
			t.Errorf("beyond the bound: %v", err)
		}
	}
	h2.mu.Lock()
	h2.objects[slurm7] = o
	h2.mu.Unlock()
	fetch := func() error {
		_, err := h1.client.Fetch(t.Context(), slurm7, func() (Peer, error) { return h2.Peer, nil }, func(string) (Peer, bool) { return Peer{}, false })
		return err
	}
	if err := fetch(); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a reader beyond the bound: %v", err)
	}
	close(h2.hold)
	for range room {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := lines(t, h2.objects[slurm7]); n != 1 {
		t.Errorf("%d lines after pushes at the same time, want 1", n)
	}
	for range 2 * room { // what was in memory is no more
		returned()
		if err := fetch(); err != nil {
			t.Error(err)
		}
	}
}

// pushBy sends the head of a push of an object, with a size, and so much of its body, over a connection that
// the test reads and closes.
func pushBy(t *testing.T, from, to *end, o []byte, sent, size int) net.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", to.Address, from.identity.tls(func(f string) bool { return f == to.Fingerprint }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "PUT /jobs/slurm/7 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s: 1.3\r\n%s: %s\r\n\r\n%s", size, sequenceHeader, digestHeader, digest(o), o[:sent])
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// A sender that never reads the answer repeats the push, and nothing is there twice.
func TestAnswerLost(t *testing.T) {
	h1, h2 := newEnd(t, "h1"), newEnd(t, "h2")
	h2.expect(h1, slurm7)
	h2.tookOne = make(chan struct{}, 2)
	h2.objects[slurm7] = object(t, 2, "h2", 2)
	o := object(t, 1, "h1", 3)
	conn := pushBy(t, h1, h2, o, len(o), len(o))
	<-h2.tookOne
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h1.client.Push(t.Context(), h2.Peer, slurm7, o, state.Sequence{Run: 1, N: 3}); err != nil {
		t.Fatal(err)
	}
	if n := lines(t, h2.objects[slurm7]); n != 5 || h2.taken != 2 {
		t.Errorf("%d lines after %d pushes, want 5 after 2", n, h2.taken)
	}
}

// A sender that stops in the middle is cut when its time is over, and what it had is free again.
func TestSlowSender(t *testing.T) {
	o := object(t, 1, "h1", 3)
	h1, h2 := newEnd(t, "h1"), newEnd(t, "h2", func(s *Server) {
		s.http.ReadTimeout, s.room, s.wait = 500*time.Millisecond, semaphore.NewWeighted(int64(len(o))), time.Minute
	})
	h2.expect(h1, slurm7)
	slow := pushBy(t, h1, h2, o, len(o)/2, len(o))
	if err := slow.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(slow)
	if errors.Is(err, os.ErrDeadlineExceeded) || len(answer) > 0 && !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
		t.Errorf("a slow sender: %q, %v", answer, err)
	}
	if err := pushBy(t, h1, h2, o, len(o)/2, len(o)).Close(); err != nil { // and one that is cut
		t.Fatal(err)
	}
	if h2.taken != 0 {
		t.Error("half an object was taken")
	}
	if err := h1.client.Push(t.Context(), h2.Peer, slurm7, o, state.Sequence{Run: 1, N: 3}); err != nil {
		t.Errorf("after the slow one: %v", err)
	}
}

// Names of jobs are read as they are, whatever a path could make of them.
func TestPaths(t *testing.T) {
	h1, h2 := newEnd(t, "h1"), newEnd(t, "h2")
	h2.expect(h1, slurm7)
	h2.objects[slurm7] = object(t, 1, "h2", 1)
	for path, want := range map[string]int{
		"/jobs/slurm/7": 200, "/jobs/slurm/8": 404, "/jobs/slurm/7.db": 400, "/jobs/slurm/07": 400, "/jobs/slurm/7.0": 400, "/jobs/slurm/..%2f7": 400, "/jobs/slurm/%2e%2e": 400,
		"/jobs/slurm/7%00": 400, "/jobs/..%2fslurm/7": 400, "/jobs/slurm%2f7": 404, "/jobs/slurm/7/": 404, "/jobs/pbs/7": 400, "/": 404, "/jobs/slurm/-7": 400, "/jobs/slurm/99999999999999999999": 400,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+h2.Address+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := url.PathUnescape(path)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Path, r.URL.RawPath = decoded, path
		response, done, err := h1.client.do(t.Context(), h2.Peer, r)
		if err != nil {
			t.Fatal(path, err)
		}
		if response.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, response.Status, want)
		}
		done()
	}
}

// What has moved is followed to hosts of the farm, and no loop is endless.
func TestFetch(t *testing.T) {
	reader, h1, h2, h3 := newEnd(t, "allotd"), newEnd(t, "h1"), newEnd(t, "h2"), newEnd(t, "h3")
	ends := map[string]*end{"h1": h1, "h2": h2, "h3": h3}
	for _, e := range ends {
		e.known[reader.Fingerprint] = true
	}
	peer := func(host string) (Peer, bool) {
		e, ok := ends[host]
		if !ok {
			return Peer{}, false
		}
		return e.Peer, true
	}
	asked := 0
	find := func() (Peer, error) { asked++; return h1.Peer, nil }
	fetch := func() (Fetched, error) { return reader.client.Fetch(t.Context(), slurm7, find, peer) }

	if _, err := fetch(); !errors.Is(err, ErrMoving) || asked != maxRetries+1 {
		t.Errorf("nowhere: %v, asked %d times", err, asked)
	}
	h3.objects[slurm7] = object(t, 3, "h3", 2)
	h1.moved[slurm7], h2.moved[slurm7] = h2.Peer, h3.Peer
	f, err := fetch()
	if err != nil || f.From.Host != "h3" || f.At != (state.Sequence{Run: 3, N: 2}) || lines(t, f.Object) != 2 {
		t.Fatalf("two moves: %+v, %v", f.From, err)
	}
	delete(h3.objects, slurm7)
	h3.moved[slurm7] = h1.Peer
	if _, err := fetch(); !errors.Is(err, ErrMoving) {
		t.Errorf("a loop: %v", err)
	}
	h1.moved[slurm7] = Peer{Host: "evil\x1b[31m", Address: "192.0.2.1:1"}
	if _, err := fetch(); err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("a host that nobody knows: %v", err)
	}
	h1.moved[slurm7] = Peer{Host: "h9", Address: h2.Address}
	if _, err := fetch(); err == nil || !strings.Contains(err.Error(), "no host of this farm") {
		t.Errorf("an address that is not in the list: %v", err)
	}
	// It is on its way, and arrives while it is asked for.
	delete(h1.moved, slurm7)
	asked = 0
	o := object(t, 4, "h1", 1)
	find = func() (Peer, error) {
		if asked++; asked == 3 {
			h1.mu.Lock()
			h1.objects[slurm7] = o
			h1.mu.Unlock()
		}
		return h1.Peer, nil
	}
	if f, err := fetch(); err != nil || f.At.Run != 4 {
		t.Errorf("it arrives meanwhile: %+v, %v", f.At, err)
	}
	lost := errors.New("h1 is lost")
	find = func() (Peer, error) { return Peer{}, lost }
	if _, err := fetch(); !errors.Is(err, lost) {
		t.Errorf("the tracker says why: %v", err)
	}
}

// Without the right certificate nothing is even asked, by either end.
func TestCertificates(t *testing.T) {
	h1, h2, stranger := newEnd(t, "h1"), newEnd(t, "h2"), newEnd(t, "h1")
	h2.expect(h1, slurm7)
	h2.objects[slurm7] = object(t, 1, "h2", 1)
	at := func() (Peer, error) { return h2.Peer, nil }
	none := func(string) (Peer, bool) { return Peer{}, false }
	if _, err := h1.client.Fetch(t.Context(), slurm7, at, none); err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.client.Fetch(t.Context(), slurm7, at, none); err == nil || strings.Contains(err.Error(), "40") {
		t.Errorf("a stranger by the name of h1: %v, want no answer at all", err)
	}
	wrong := h2.Peer
	wrong.Fingerprint = stranger.Fingerprint
	if err := h1.client.Push(t.Context(), wrong, slurm7, nil, state.Sequence{Run: 1}); !errors.Is(err, errForeign) {
		t.Errorf("another host at the address: %v, want %v", err, errForeign)
	}
	conn, err := tls.Dial("tcp", h2.Address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a client without a certificate
	if err == nil {
		_, _ = fmt.Fprintf(conn, "GET /jobs/slurm/7 HTTP/1.1\r\nHost: x\r\n\r\n")
		if n, failed := conn.Read(make([]byte, 10)); n > 0 || failed == nil {
			t.Error("without a certificate it is answered")
		}
		_ = conn.Close()
	}
	if response, err := http.Get("http://" + h2.Address + "/jobs/slurm/7"); err == nil {
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("in clear text: %s", response.Status)
		}
		_ = response.Body.Close()
	}
}

// A host that answers with nonsense is an error, and bounded.
func TestHostileAnswers(t *testing.T) {
	h1, evil := newEnd(t, "h1"), newEnd(t, "evil")
	o := object(t, 1, "evil", 1)
	endless := &counter{}
	for name, handler := range map[string]http.HandlerFunc{
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(sequenceHeader, "1.1")
			w.Header().Set(digestHeader, digest(o))
			_, _ = io.Copy(w, endless)
		},
		"as large as it likes": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(sequenceHeader, "1.1")
			w.Header().Set(digestHeader, digest(o))
			w.Header().Set("Content-Length", "10000000000")
			_, _ = io.Copy(w, endless)
		},
		"damaged": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(sequenceHeader, "1.1")
			w.Header().Set(digestHeader, digest(o))
			_, _ = w.Write(o[1:])
		},
		"no sequence": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(digestHeader, digest(o))
			_, _ = w.Write(o)
		},
		"no host": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMovedPermanently) },
		"escape codes": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "\x1b[31m"+strings.Repeat("x", 1<<20), 500)
		},
	} {
		server := httptest.NewUnstartedServer(handler)
		server.TLS = evil.identity.tls(func(string) bool { return true })
		server.StartTLS()
		at := Peer{"evil", server.Listener.Addr().String(), evil.Fingerprint}
		_, err := h1.client.Fetch(t.Context(), slurm7, func() (Peer, error) { return at, nil }, func(string) (Peer, bool) { return Peer{}, false })
		if err == nil || strings.ContainsRune(err.Error(), 0x1b) || len(err.Error()) > 1000 {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
	}
	if n := endless.n.Load(); n > state.MaxObject {
		t.Errorf("%d bytes of endless answers were taken", n)
	}
}

// A certificate stays the host's own, and is its owner's alone.
func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	open := func(host string) *Identity {
		t.Helper()
		i, err := OpenIdentity(dir, host)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	if a, b := open("h1"), open("h1"); a.Fingerprint() != b.Fingerprint() || len(a.Fingerprint()) != 64 {
		t.Errorf("fingerprints %s and %s", a.Fingerprint(), b.Fingerprint())
	}
	if open("h1").Fingerprint() == open("h2").Fingerprint() {
		t.Error("a copied directory is another host's identity")
	}
	if _, ok := open("h1").certificate.Leaf.PublicKey.(ed25519.PublicKey); !ok {
		t.Errorf("the key is %T", open("h1").certificate.Leaf.PublicKey)
	}
	path := filepath.Join(dir, "transfer-h1.pem")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenIdentity(dir, "h1"); err == nil {
		t.Error("a key that others can read is taken")
	}
	for _, name := range []string{"", "../h1", "a/b", ".x", "a\x00b"} {
		if _, err := OpenIdentity(dir, name); err == nil {
			t.Errorf("%q is a host", name)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add("2.17", "sha-256=:AAAA:", []byte("x"), int64(1))
	f.Fuzz(func(t *testing.T, sequence, want string, body []byte, size int64) {
		if size > 1<<20 && size <= state.MaxObject {
			size %= 1 << 20 // it is fuzzed, not filled
		}
		if s, err := parseSequence(sequence); err == nil && sequenceText(s) != sequence {
			t.Errorf("%q reads as %v", sequence, s)
		}
		if o, err := readObject(bytes.NewReader(body), size, want); err == nil && (digest(o) != want || int64(len(o)) != size) {
			t.Errorf("%q is the digest of %q", want, o)
		}
	})
}

// asked is a keeper that has nothing, and notes for which job it was asked.
type asked struct {
	*store
	job *state.Job
}

func (a asked) MayRead(_ string, j state.Job) bool { *a.job = j; return true }
func (a asked) MayPush(_ string, j state.Job) bool { *a.job = j; return true }

// FuzzPath has a job asked for by no other path than its own.
func FuzzPath(f *testing.F) {
	for _, path := range []string{"/jobs/slurm/7", "/jobs/lsf/7.2", "/jobs/slurm/%37", "/jobs/slurm%2f7", "/jobs/slurm/..%2f7", "/jobs/./slurm/7", "//jobs/slurm/7%00"} {
		f.Add(path, true)
	}
	identity, err := OpenIdentity(f.TempDir(), "h1")
	if err != nil {
		f.Fatal(err)
	}
	var job state.Job
	server := NewServer(identity, asked{newStore(), &job}, slog.New(slog.DiscardHandler))
	f.Fuzz(func(t *testing.T, path string, get bool) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		method := http.MethodPut
		if get {
			method = http.MethodGet
		}
		job = state.Job{}
		r := (&http.Request{Method: method, URL: u, RequestURI: path, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "x", Header: http.Header{}, Body: http.NoBody}).WithContext(t.Context())
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{identity.certificate.Leaf}}
		w := httptest.NewRecorder()
		server.http.Handler.ServeHTTP(w, r)
		if w.Code < 300 || job != (state.Job{}) && u.Path != "/jobs/"+job.String() {
			t.Errorf("%q: %d, asks for %v", path, w.Code, job)
		}
	})
}

// BenchmarkPush pushes an object of 8 KiB over loopback, as one host does, then several.
func BenchmarkPush(b *testing.B) {
	o, at := make([]byte, 8<<10), state.Sequence{Run: 1, N: 3}
	for name, senders := range map[string]int{"one sender": 1, "eight senders": 8} {
		b.Run(name, func(b *testing.B) {
			h1, h2 := newEnd(b, "h1"), newEnd(b, "h2", func(s *Server) { s.keeper = void{s.keeper} })
			h2.expect(h1, slurm7)
			b.SetBytes(int64(len(o)))
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			b.ResetTimer()
			for range senders {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						if err := h1.client.Push(b.Context(), h2.Peer, slurm7, o, at); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "objects/s")
		})
	}
}

// void is a keeper that takes everything, and keeps nothing: a benchmark measures the transfer.
type void struct{ Keeper }

func (void) Take(context.Context, state.Job, []byte, state.Sequence) error { return nil }
