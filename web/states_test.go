package web

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/agent/roster"
	"github.com/allotment-hpc/allotment/agent/watch"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/state"
	"github.com/allotment-hpc/allotment/state/tracker"
	"github.com/allotment-hpc/allotment/state/transfer"
)

// giver is a host that gives one object to all.
type giver struct {
	object []byte
	given  *func() // is called when it is given
}

func (g giver) Knows(string) bool                     { return true }
func (g giver) MayRead(string, state.Job) bool        { return true }
func (g giver) MayPush(string, state.Job) bool        { return false }
func (g giver) Moved(state.Job) (transfer.Peer, bool) { return transfer.Peer{}, false }

func (g giver) Take(context.Context, state.Job, []byte, state.Sequence) error {
	return fs.ErrPermission
}

func (g giver) Object(_ context.Context, j state.Job) ([]byte, state.Sequence, error) {
	if j.ID.Job != 7 {
		return nil, state.Sequence{}, fs.ErrNotExist
	}
	if *g.given != nil {
		(*g.given)()
	}
	return g.object, state.Sequence{Run: 2, N: 3}, nil
}

// carries gives a site dora's job 7 of Slurm, whose state is on n1, and job 8, which n1 says
// that it has.
func (s *site) carries() (given *func()) {
	t := s.t
	t.Helper()
	given = new(func())
	s.hears()
	dir := t.TempDir()
	w, err := state.NewWriter(disk.OS(), dir, slog.New(slog.DiscardHandler))
	must(t, err)
	w.Start()
	defer w.Close()
	for n, c := range []state.Change{
		{Event: "started", Begin: &state.Begin{Host: "n1"}, Submit: &state.Submission{Owner: state.Owner{User: dora, UID: "5004"}}},
		{Event: "set", Detail: hostile, Set: &state.Setting{Key: "stage", Value: hostile}},
		{Event: "limited", Detail: "disk, by rate 7: " + hostile},
		{Event: "attached", Attach: &state.File{Name: "go.sh", Executable: true, Data: []byte("<script>")}},
	} {
		c.ID, c.RunNo, c.Host, c.Seq, c.At = backends.ID{Job: 7}, 2, "n1", uint64(n+1), s.now
		w.Put(c)
	}
	must(t, w.Flush(t.Context()))
	object, err := os.ReadFile(state.Path(dir, backends.ID{Job: 7}))
	must(t, err)
	i, err := transfer.OpenIdentity(t.TempDir(), "n1")
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- transfer.NewServer(i, giver{object, given}, slog.New(slog.DiscardHandler)).Serve(ctx, l)
	}()
	p, err := watch.OpenPlaces(t.Context(), watch.PlacesOptions{Dir: t.TempDir(), Name: "allotd", Log: s.Log, Send: func(string, string, []byte) error { return nil }})
	must(t, err)
	stored := make(chan struct{})
	go func() { defer close(stored); p.Run(ctx) }()
	t.Cleanup(func() { stop(); must(t, <-ended); <-stored })
	s.Hosts.Track(p)
	a := tracker.Announcement{Epoch: 1, Number: 1, Address: l.Addr().String(), Fingerprint: i.Fingerprint()}
	for _, id := range []int64{7, 8} {
		a.Entries = append(a.Entries, tracker.Entry{Job: state.Job{Queue: "slurm", ID: backends.ID{Job: id}}, Sequence: state.Sequence{Run: 2, N: 3}})
	}
	message, err := a.Encode()
	must(t, err)
	s.Hosts.Objects("n1", message)
	return given
}

// What an earlier run left arrives at the holder while its object is read: then it is read again.
func TestStateThatArrives(t *testing.T) {
	s := newSite(t)
	given := s.carries()
	number, reads := uint64(0), 0
	n2 := func(gone bool) {
		number++
		a := tracker.Announcement{Epoch: 1, Number: number, Entries: []tracker.Entry{{Job: state.Job{Queue: "slurm", ID: backends.ID{Job: 7}}, Sequence: state.Sequence{Run: 1, N: 3}, Gone: gone}}}
		message, err := a.Encode()
		must(t, err)
		s.Hosts.Objects("n2", message)
	}
	n2(false)
	s.want(s.call(dora, http.MethodGet, "/states/slurm/7", ""), http.StatusOK, `"moving":true`, `"host":"n2"`)
	*given = func() {
		if reads++; reads == 1 {
			n2(true)
		}
	}
	s.want(s.call(dora, http.MethodGet, "/states/slurm/7", ""), http.StatusOK, `"moving":false`)
	if reads != 2 {
		t.Errorf("the object was read %d times, want 2", reads)
	}
	*given = func() { n2(true); n2(false) } // and more comes each time
	s.want(s.call(dora, http.MethodGet, "/states/slurm/7", ""), http.StatusOK, `"moving":true`)
}

// The state of a job is read from the host that holds it, by those who may read what the job
// uses. Where it is all may know, as of its hosts in the queue's list.
func TestStatesAreReadByWhoMay(t *testing.T) {
	s := newSite(t)
	s.want(s.call(dora, http.MethodGet, "/states/slurm/7", ""), http.StatusNotFound, "allotd has no bus")
	s.carries()
	for _, user := range []string{dora, operator} {
		w := s.call(user, http.MethodGet, "/states/slurm/7", "")
		s.want(w, http.StatusOK, `"host":"n1"`, `"run":2,"n":3`, `"status":"here"`, `"moving":false`, `"key":"stage"`, `"name":"go.sh"`)
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("an answer with users' texts is %s", got)
		}
		w = s.call(user, http.MethodGet, "/states/slurm/7/files/go.sh", "")
		s.want(w, http.StatusOK, "<script>")
		if h := w.Header(); h.Get("Content-Type") != "application/octet-stream" || h.Get("Content-Disposition") != "attachment" || h.Get("Allotment-Executable") != "true" {
			t.Errorf("a file has the headers %v", h)
		}
		s.want(s.call(user, http.MethodGet, "/states/slurm/7/files/no.sh", ""), http.StatusNotFound, "has no file")
	}
	w := s.call(bert, http.MethodGet, "/states/slurm/7", "")
	s.want(w, http.StatusOK, `"host":"n1"`, "to read")
	if text := w.Body.String(); strings.Contains(text, "stage") || strings.Contains(text, `"record"`) {
		t.Errorf("another user reads %s", text)
	}
	s.want(s.call(bert, http.MethodGet, "/states/slurm/7/files/go.sh", ""), http.StatusForbidden, "to read")
	s.want(s.call(dora, http.MethodGet, "/states/slurm/9", ""), http.StatusNotFound, "no host has announced")
	s.want(s.call(dora, http.MethodGet, "/states/pbs/7", ""), http.StatusUnprocessableEntity)
	s.want(s.call(dora, http.MethodGet, "/states/slurm/..%2f7", ""), http.StatusBadRequest)
	s.want(s.call(dora, http.MethodGet, "/states/slurm/8", ""), http.StatusOK, `"moving":true`, "on its way")

	s.want(s.call(bert, http.MethodGet, "/states?most=1", ""), http.StatusOK, `"jobs":["slurm/7"]`, `"next":"slurm/7"`)
	s.want(s.call(bert, http.MethodGet, "/states?after=slurm/7", ""), http.StatusOK, `{"jobs":["slurm/8"]}`)
	s.want(s.call(bert, http.MethodGet, "/states?after=x", ""), http.StatusBadRequest, "no name of a job")

	var ends []func()
	for range mostFetchedByUser {
		end, err := s.fetching.begin(t.Context(), 5004)
		must(t, err)
		ends = append(ends, end)
	}
	waited, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.fetching.begin(waited, 5004); err == nil {
		t.Error("a user fetches more than a user may")
	}
	s.want(s.call(operator, http.MethodGet, "/states/slurm/7", ""), http.StatusOK)
	for _, end := range ends {
		end()
	}
	s.want(s.call(dora, http.MethodGet, "/states/slurm/7", ""), http.StatusOK)
	if len(s.fetching.of) != 0 || len(s.fetching.all) != 0 {
		t.Errorf("%d users fetch, %d objects", len(s.fetching.of), len(s.fetching.all))
	}

	s.now = s.now.Add(time.Hour) // n1 is lost; what it holds is known
	s.Hosts.Beat("n2", beatOf(t))
	w = s.call(operator, http.MethodGet, "/states/slurm/8", "")
	s.want(w, http.StatusOK, `"host":"n1"`)
}

func beatOf(t *testing.T) []byte {
	t.Helper()
	b := roster.Beat{Run: "r", Sequence: 100, Boot: "b", Version: "1", Cores: 8, Memory: 64 << 30}
	text, err := b.Encode()
	must(t, err)
	return text
}
