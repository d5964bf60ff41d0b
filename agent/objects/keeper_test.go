package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/state"
	"github.com/allotment-hpc/allotment/state/tracker"
	"github.com/allotment-hpc/allotment/state/transfer"
	"github.com/allotment-hpc/allotment/test/await"
)

func open(t *testing.T, o Options) *Keeper {
	t.Helper()
	if o.Keep == 0 {
		o.Keep = time.Hour
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	k, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sample(k *Keeper, at time.Time, jobs ...measure.Job) {
	k.Sample(&measure.Sample{At: at, Jobs: jobs})
}

func recordOf(t *testing.T, k *Keeper, job state.Job) *backends.Record {
	t.Helper()
	object, _, err := k.Object(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	r, _, _, err := k.inspect(job, object)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// history is RUN HOST EVENT of each line.
func history(r *backends.Record) (all []string) {
	for _, l := range r.History {
		all = append(all, fmt.Sprintf("%d %s %s", l.Run, l.Host, l.Event))
	}
	return all
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s: %q\nwant %q", what, got, want)
	}
}

// A job that ends, or goes on, while ahostd is down is continued from its object.
func TestObjectsAcrossRestarts(t *testing.T) {
	dir := t.TempDir()
	at := time.Now().Truncate(time.Second)
	k := open(t, Options{Dir: dir, Host: "h1"})
	claimed := slurm(3, 1)
	claimed.Source = measure.FromProcesses
	sample(k, at, slurm(1, 1), slurm(2, 2), claimed)
	k.Close()
	said := func(k *Keeper) string {
		s := k.Said(&measure.Sample{Jobs: []measure.Job{slurm(1, 1), slurm(2, 2)}})
		if len(s) > 1 {
			t.Errorf("%+v", s)
		}
		return s[slurm(2, 2).Key].String()
	}
	k = open(t, Options{Dir: dir, Host: "h1"})
	<-k.loaded
	k.mu.Lock()
	act, err := k.table.Set(named(2), state.Setting{Key: "progress", Value: "40 half"}, at)
	k.apply([]Act{act})
	k.mu.Unlock()
	if err != nil || said(k) != "40 half" {
		t.Errorf("%v, %s", err, said(k))
	}
	k.Close()
	damaged := state.Path(filepath.Join(dir, "slurm", "objects"), backends.ID{Job: 9})
	if err := os.WriteFile(damaged, []byte("no object"), 0o600); err != nil {
		t.Fatal(err)
	}
	k = open(t, Options{Dir: dir, Host: "h1"})
	<-k.loaded
	for n := range 3 {
		sample(k, at.Add(time.Duration(n+1)*time.Second), slurm(2, 2), claimed)
	}
	r := recordOf(t, k, named(1))
	same(t, "the one that ended", history(r), "1 h1 started", "1 h1 ended")
	if len(r.Runs) != 1 || r.Runs[0].ExitCode != -1 || !r.Runs[0].Ended.Equal(at.Add(time.Second)) || !r.Runs[0].Started.Equal(at) || r.Runs[0].Host != "h1" {
		t.Errorf("%+v", r.Runs)
	}
	same(t, "the one that goes on", history(recordOf(t, k, named(2))), "2 h1 started", "2 h1 progress")
	if said(k) != "40 half" {
		t.Errorf("it says %s", said(k))
	}
	if o := k.table.Find(named(3)); o.Grouped || o.User != 1000 || !k.table.Find(named(2)).Grouped {
		t.Errorf("%+v", o)
	}
	if _, err := os.Stat(damaged); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the damaged one: %v", err)
	}
	other := slurm(1, 1)
	other.User = 7
	sample(k, at.Add(time.Minute), other)
	sample(k, at.Add(time.Minute), other)
	same(t, "another user's", history(recordOf(t, k, named(1))), "1 h1 started")
	if aside, _ := filepath.Glob(filepath.Join(dir, "slurm", "aside", "1.db.*")); len(aside) != 1 {
		t.Errorf("set aside: %q", aside)
	}
	k.Close()
}

func TestOldObjectsAreArchived(t *testing.T) {
	for _, archive := range []string{"", t.TempDir()} {
		k := open(t, Options{Dir: t.TempDir(), Host: "h1", Archive: archive})
		at := time.Now()
		sample(k, at, slurm(1234, 1), slurm(2, 1))
		for n := range 3 {
			sample(k, at.Add(time.Duration(n)*time.Second), slurm(2, 1))
		}
		sample(k, at.Add(2*time.Hour), slurm(2, 1))
		if _, _, err := k.Object(t.Context(), named(1234)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is still here: %v", err)
		}
		if err := k.flush(t.Context(), "slurm"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(state.Path(k.dir("slurm"), backends.ID{Job: 1234})); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is on disk: %v", err)
		}
		if archive != "" {
			r, err := state.Read(filepath.Join(archive, "slurm"), backends.ID{Job: 1234})
			if err != nil {
				t.Fatal(err)
			}
			same(t, "the archive", history(r), "1 h1 started", "1 h1 ended")
		}
		entries := map[string]bool{}
		for _, a := range k.Announce(at) {
			for _, e := range a.Entries {
				entries[e.Job.String()+" "+strconv.FormatBool(e.Gone)] = true
			}
		}
		if !entries["slurm/1234 true"] || !entries["slurm/2 false"] {
			t.Errorf("announced: %v", entries)
		}
		k.Close()
	}
}

// served serves a keeper on a socket, where find finds the callers' jobs.
func served(t *testing.T, k *Keeper, find Finder) *http.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "objects-") // t.TempDir() is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	k.Handle(mux, find)
	server := &http.Server{Handler: mux, ConnContext: WithPeer, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close(); os.RemoveAll(dir) })
	return listen.Client(path, time.Minute)
}

func ask(t *testing.T, c *http.Client, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://ahostd"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func TestJobsOwnWords(t *testing.T) {
	k := open(t, Options{Dir: t.TempDir(), Host: "h1"})
	defer k.Close()
	job, found := slurm(12, 2), true
	job.User = os.Getuid()
	c := served(t, k, func(_ context.Context, pid int) (measure.Job, bool, error) {
		if pid != os.Getpid() {
			t.Errorf("asked for process %d", pid)
		}
		return job, found, nil
	})
	expect := func(method, path, body string, status int, want string) {
		t.Helper()
		if got, text := ask(t, c, method, path, body); got != status || !strings.Contains(text, want) {
			t.Errorf("%s %s: %d %.300s\nwant %d %s", method, path, got, text, status, want)
		}
	}
	file := strings.Repeat("x\x00", 1000)
	expect("POST", "/v1/jobs/self/settings", `{"key":"phase","value":"mesh \u001b"}`, 200, `{"job":"slurm/12","sequence":{"run":2,"n":2}}`)
	object, err := os.ReadFile(state.Path(k.dir("slurm"), backends.ID{Job: 12}))
	if err != nil || !bytes.Contains(object, []byte("mesh \x1b")) {
		t.Errorf("it is answered, and not on disk: %v", err)
	}
	expect("POST", "/v1/jobs/self/settings", `{"key":"progress","value":"40 step 3"}`, 200, `"n":3`)
	expect("POST", "/v1/jobs/self/settings", `{"key":"progress","value":"40 step 4"}`, 200, `"n":3`)
	expect("POST", "/v1/jobs/self/files?name=next.sh&executable=1", file, 200, `"n":4`)
	expect("GET", "/v1/jobs/self/files/next.sh", "", 200, file)
	expect("GET", "/v1/jobs/slurm/12/files/next.sh", "", 200, file)
	_, text := ask(t, c, "GET", "/v1/jobs/self", "")
	var a Answer
	if err := json.Unmarshal([]byte(text), &a); err != nil || a.Job != "slurm/12" || a.Sequence != (state.Sequence{Run: 2, N: 4}) || a.Record == nil {
		t.Fatalf("%v, %s", err, text)
	}
	same(t, "its history", history(a.Record), "2 h1 started", "2 h1 set", "2 h1 progress", "2 h1 attached")
	if len(a.Record.Settings) != 2 || a.Record.Settings[1].Value != "40 step 4" || len(a.Record.Files) != 1 || !a.Record.Files[0].Executable || a.Record.Files[0].Size != 2000 {
		t.Errorf("%+v", a.Record)
	}
	for _, x := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/v1/jobs/self/settings", "x\x1b[31m", 400, "want a setting"},
		{"POST", "/v1/jobs/self/settings", `{"key":"a b"}`, 400, "is no name of a setting"},
		{"POST", "/v1/jobs/self/settings", `{"key":"progress","value":"101"}`, 400, "want a number from 0 to 100"},
		{"POST", "/v1/jobs/self/settings", `{"key":"a","value":"` + strings.Repeat("v", state.MaxValue+1) + `"}`, 413, "takes no more"},
		{"POST", "/v1/jobs/self/settings", strings.Repeat("v", 1<<20), 413, "takes no more"},
		{"POST", "/v1/jobs/self/files?name=big", strings.Repeat("v", state.MaxFile+1), 413, "takes no more"},
		{"POST", "/v1/jobs/self/files?name=../up", "", 400, "is no name of a file"},
		{"POST", "/v1/jobs/self/files", "", 400, "is no name of a file"},
		{"GET", "/v1/jobs/self/files/none", "", 404, "no file"},
		{"GET", "/v1/jobs/slurm/..%2fx", "", 400, "is no name of a job"},
		{"PUT", "/v1/jobs/self", "", 405, ""},
	} {
		expect(x.method, x.path, x.body, x.status, x.want)
	}
	if os.Getuid() == 0 {
		expect("GET", "/v1/jobs/slurm/99", "", 404, "no state object of job slurm/99 is on this host")
	} else {
		expect("GET", "/v1/jobs/slurm/99", "", 403, "or the job is not yours")
	}
	found = false
	expect("GET", "/v1/jobs/self", "", 404, "this process belongs to no job here")
	found, job.Queue = true, measure.Miniq
	expect("GET", "/v1/jobs/self", "", 404, "of the bundled queue")
	job.Queue, job.Run, job.ID.Job = measure.Slurm, 0, 13
	expect("GET", "/v1/jobs/self", "", 503, "not known yet")
	// Too much at once.
	job.ID.Job, job.Run = 14, 1
	expect("GET", "/v1/jobs/self", "", 200, "slurm/14")
	for _, l := range []struct{ job, user int }{{0, writesAtOnce}, {writesAtOnce, 0}} {
		k.mu.Lock()
		k.rates[named(14)], k.users[os.Getuid()] = rate.NewLimiter(0, l.job), rate.NewLimiter(0, l.user)
		k.mu.Unlock()
		expect("GET", "/v1/jobs/self", "", 429, "too often")
	}
}

// A caller reads its own jobs, and no other user's; root reads all.
func TestObjectsOfOthers(t *testing.T) {
	k := open(t, Options{Dir: t.TempDir(), Host: "h1"})
	defer k.Close()
	sample(k, time.Now(), slurm(12, 1))
	find := func(context.Context, int) (measure.Job, bool, error) { return slurm(12, 1), true, nil }
	for uid, want := range map[int]int{0: 0, 1000: 0, 2000: http.StatusForbidden} {
		c := caller{uid: uid, pid: 7}
		r, err := http.NewRequestWithContext(context.WithValue(t.Context(), peerKey{}, c), http.MethodGet, "/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"", "12"} {
			if id != "" {
				r.SetPathValue("queue", "slurm")
				r.SetPathValue("id", id)
			}
			var p problem
			job, err := k.jobOf(r, find)
			if errors.As(err, &p); p.status != want || want == 0 && (err != nil || job != named(12)) {
				t.Errorf("user %d, %q: %v, %v", uid, id, job, err)
			}
		}
	}
}

// The answer to a caller whose job can't be found yet says that it may ask again.
func TestBusy(t *testing.T) {
	k := open(t, Options{Dir: t.TempDir(), Host: "h1"})
	defer k.Close()
	client := served(t, k, func(context.Context, int) (measure.Job, bool, error) {
		return measure.Job{}, false, errors.New("ahostd is busy")
	})
	r, err := client.Get("http://ahostd/v1/jobs/self")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
		t.Errorf("%v, %v", r.Status, r.Header)
	}
}

// Without the kernel's word for who calls, nothing is served.
func TestNoPeer(t *testing.T) {
	k := open(t, Options{Dir: t.TempDir(), Host: "h1"})
	defer k.Close()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	k.Handle(mux, func(context.Context, int) (measure.Job, bool, error) { return slurm(1, 1), true, nil })
	server := &http.Server{Handler: mux, ConnContext: WithPeer, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	for _, path := range []string{"self", "slurm/1"} {
		r, err := http.Get("http://" + l.Addr().String() + "/v1/jobs/" + path)
		if err != nil || r.StatusCode != http.StatusForbidden {
			t.Fatalf("%v, %v", err, r)
		}
		r.Body.Close()
	}
}

// host is one of a small farm: a keeper that serves its objects to the others.
type host struct {
	*Keeper
	name        string
	fingerprint string
}

func newHost(t *testing.T, name string) *host {
	t.Helper()
	dir := t.TempDir()
	i, err := transfer.OpenIdentity(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{open(t, Options{Dir: filepath.Join(dir, "objects"), Host: name}), name, i.Fingerprint()}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	h.Exchange(ctx, i)
	h.Serves(l.Addr().String())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = transfer.NewServer(i, h.Keeper, h.o.Log).Serve(ctx, l) }()
	t.Cleanup(func() { stop(); <-ended; h.Close() })
	return h
}

// A job's next run on another host, and what it left behind follows, by allotd's orders.
func TestObjectFollowsItsJob(t *testing.T) {
	h1, h2 := newHost(t, "h1"), newHost(t, "h2")
	hosts := map[string]*host{"h1": h1, "h2": h2}
	allotd, err := transfer.OpenIdentity(t.TempDir(), "allotd")
	if err != nil {
		t.Fatal(err)
	}
	know := tracker.New()
	beat := func() {
		now := time.Now()
		for _, h := range []*host{h1, h2} {
			for _, a := range h.Announce(now) {
				text, err := a.Encode()
				if err != nil {
					t.Fatal(err)
				}
				heard, err := tracker.ParseAnnouncement(text)
				if err != nil {
					t.Fatal(err)
				}
				for name, orders := range know.Hear(h.name, heard, now) {
					messages, err := tracker.EncodeOrders(allotd.Fingerprint(), orders)
					if err != nil {
						t.Fatal(err)
					}
					for _, m := range messages {
						hosts[name].Hear(m, now)
					}
				}
			}
		}
	}
	at := time.Now()
	sample(h1.Keeper, at, slurm(12, 1))
	k := h1.table
	h1.mu.Lock()
	act, err := k.Set(named(12), state.Setting{Key: "phase", Value: "first"}, at)
	if err == nil {
		h1.apply([]Act{act})
	}
	h1.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	beat()
	if places := know.Find(named(12)); len(places) != 1 || places[0].Host != "h1" || places[0].Sequence != (state.Sequence{Run: 1, N: 2}) || !places[0].Live {
		t.Fatalf("%+v", places)
	}
	sample(h1.Keeper, at.Add(time.Second))
	sample(h1.Keeper, at.Add(2*time.Second))
	sample(h2.Keeper, at.Add(3*time.Second), slurm(12, 2))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !await.Every(ctx, 20*time.Millisecond, func() bool {
		beat()
		places := know.Find(named(12))
		return len(places) == 1 && places[0].Host == "h2"
	}) {
		t.Fatalf("%+v", know.Find(named(12)))
	}
	r := recordOf(t, h2.Keeper, named(12))
	same(t, "on h2", history(r), "1 h1 started", "1 h1 set", "1 h1 ended", "2 h2 started")
	if len(r.Settings) != 1 || r.Settings[0].Value != "first" || len(r.Runs) != 2 {
		t.Errorf("%+v", r)
	}
	if _, _, err := h1.Object(ctx, named(12)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still on h1: %v", err)
	}
	// allotd reads it where it was.
	place := func(h *host) transfer.Peer {
		address, fingerprint := know.Address(h.name)
		return transfer.Peer{Host: h.name, Address: address, Fingerprint: fingerprint}
	}
	f, err := transfer.NewClient(allotd).Fetch(ctx, named(12), func() (transfer.Peer, error) { return place(h1), nil }, func(name string) (transfer.Peer, bool) {
		return place(hosts[name]), hosts[name] != nil
	})
	if err != nil || f.From.Host != "h2" || f.At != (state.Sequence{Run: 2, N: 1}) {
		t.Errorf("%v, %+v", err, f.From)
	}
	// An object that allotd did not order is refused.
	if _, err := transfer.OpenIdentity(t.TempDir(), "h3"); err != nil {
		t.Fatal(err)
	}
	if h1.MayPush(h2.fingerprint, named(12)) || !h2.MayPush(h1.fingerprint, named(12)) || h2.MayRead(h1.fingerprint, named(12)) || h2.Knows("") {
		t.Error("who may do what")
	}
	if err := h2.Take(ctx, named(12), f.Object, state.Sequence{Run: 3, N: 1}); !errors.Is(err, transfer.ErrConflict) {
		t.Errorf("another sequence than it has: %v", err)
	}
	if err := h2.Take(ctx, named(13), f.Object, f.At); !errors.Is(err, state.ErrCorrupt) {
		t.Errorf("another job's: %v", err)
	}
}

// Whatever users send: a setting that CheckSetting passes, or an error of the caller's.
func FuzzSetting(f *testing.F) {
	for _, s := range []string{`{"key":"a","value":"b"}`, `{"key":"progress","value":"40 x"}`, `{}`, `[`, `{"key":"\u001b"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseSetting(text)
		var p problem
		if err != nil && !errors.As(err, &p) && !errors.Is(err, state.ErrBounds) {
			t.Errorf("%v", err)
		}
		if err == nil && state.CheckSetting(s) != nil {
			t.Errorf("%+v", s)
		}
	})
}

// BenchmarkOpen is how long a start takes for each object that is there.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	o := Options{Dir: dir, Host: "h1", Keep: time.Hour, Log: slog.New(slog.DiscardHandler)}
	k, err := Open(o)
	if err != nil {
		b.Fatal(err)
	}
	at := time.Now()
	for id := range int64(b.N) {
		j := slurm(id+1, 1)
		k.mu.Lock()
		k.apply(k.table.See(named(id+1), &j, at))
		k.mu.Unlock()
	}
	if err := k.writers["slurm"].Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	k.Close()
	b.ResetTimer()
	if k, err = Open(o); err != nil {
		b.Fatal(err)
	}
	<-k.loaded
	k.Close()
}

// While objects are read those of jobs that are here go first, no page says that others are gone,
// and none is purged.
func TestObjectsAreReadInTheBackground(t *testing.T) {
	dir := t.TempDir()
	at := time.Now()
	k := open(t, Options{Dir: dir, Host: "h1"})
	sample(k, at, slurm(1, 1), slurm(2, 1))
	k.Close()
	k = open(t, Options{Dir: dir, Host: "h1"})
	<-k.loaded
	delete(k.table.jobs, named(1)) // as if it had read neither
	delete(k.table.live, named(1))
	k.unread[named(1)], k.unread[named(3)] = true, true
	sample(k, at.Add(time.Minute), slurm(1, 1), slurm(2, 1))
	same(t, "it is continued", history(recordOf(t, k, named(1))), "1 h1 started")
	if all := k.Announce(at); len(all) != 0 {
		t.Errorf("announced: %+v", all)
	}
	delete(k.unread, named(3))
	if all := k.Announce(at); len(all) != 1 || !all[0].Page || len(all[0].Entries) != 2 {
		t.Errorf("announced: %+v", all)
	}
	k.Close()
}

// R47: a limit whose end was not written, since ahostd was killed, ends in the job's history when ahostd begins anew:
// nothing stays limited then.
func TestLimitsEndWithARestart(t *testing.T) {
	dir, at := t.TempDir(), time.Now().Truncate(time.Second)
	k := open(t, Options{Dir: dir, Host: "h1"})
	sample(k, at, slurm(1, 1), slurm(2, 1))
	for _, detail := range []string{"disk, by rate 7: slurm 2 waits", "CPU, by weight 9: slurm 2 waits"} {
		k.Note(named(1), "limited", detail, at)
	}
	k.Note(named(1), "unlimited", "CPU, by weight, since then", at)
	if got := recordOf(t, k, named(1)).LimitedOn("h1"); len(got) != 1 || got[0] != "disk" {
		t.Errorf("before: %q", got)
	}
	k.Close()
	for range 2 {
		k = open(t, Options{Dir: dir, Host: "h1"})
		<-k.loaded
		same(t, "the limited one", history(recordOf(t, k, named(1))), "1 h1 started", "1 h1 limited", "1 h1 limited", "1 h1 unlimited", "1 h1 unlimited")
		if got := recordOf(t, k, named(1)).LimitedOn("h1"); len(got) != 0 {
			t.Errorf("after a restart: %q", got)
		}
		same(t, "the other one", history(recordOf(t, k, named(2))), "1 h1 started")
		k.Close()
	}
}
