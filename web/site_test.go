package web

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// Users of a site. The operator owns the ledger, anna manages chipA and bert chipB, carl is
// in chipA's group, dora in none.
const (
	operator = "operator"
	anna     = "anna"
	bert     = "bert"
	carl     = "carl"
	dora     = "dora"
)

// hostile is a name that a user might give to a job or a project, to fool its readers.
const hostile = "<script>alert(1)</script>\x1b[31m\u202e"

// engineer returns this test's own account, whose jobs run for chipA, and its group: the
// engine asks the system who is in chipA's group.
func engineer(t *testing.T) (name, group string) {
	t.Helper()
	u, err := user.Current()
	must(t, err)
	g, err := user.LookupGroupId(u.Gid)
	must(t, err)
	return u.Username, g.Name
}

// site is a server over a ledger and a queue of its own: two hosts of four slots, chipA with
// three slots this week and chipB with two, and a few jobs.
type site struct {
	*Server
	t     *testing.T
	sys   desk.System
	queue *queue
	dir   string
	log   bytes.Buffer
	now   time.Time
}

// newSite returns a site where a cycle has run.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), now: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), queue: &queue{}}
	name, chipA := engineer(t)
	s.queue.fill(name)
	paths := config.Paths{Config: filepath.Join(s.dir, "config.yaml"), State: s.dir, Runtime: s.dir}
	must(t, os.WriteFile(paths.Config, []byte("timezone: UTC\n"), 0o600))
	l, err := ledger.Create(filepath.Join(s.dir, "ledger.db"))
	must(t, err)
	must(t, l.Close())
	s.sys = desk.System{
		Now:  func() time.Time { return s.now },
		Load: func() (configfile.Config, error) { return configfile.LoadFrom(paths, yamlplain.Convert) },
		Identify: func(configfile.Config) (desk.Caller, error) {
			return desk.Caller{Caller: settings.Caller{Owner: true, User: operator}, UID: os.Getuid(), As: os.Getuid(), Writes: true}, nil
		},
		Open: func(context.Context, configfile.Config) (backends.Backend, error) { return s.queue, nil },
		User: func(string) error { return nil }, Group: func(string) error { return nil },
		EditWait: 10 * time.Second,
	}
	s.Server, err = New(Options{
		Desks: desk.NewService(s.sys), Config: settings.DefaultWeb(), Version: "test",
		Log: slog.New(slog.NewTextHandler(&s.log, nil)), Now: s.sys.Now, Zone: time.UTC,
	})
	must(t, err)
	s.listens = "http://127.0.0.1:8470"
	s.accounts.known = map[string]account{}
	for i, v := range []desk.Visitor{{Name: operator}, {Name: anna}, {Name: bert}, {Name: carl, Groups: []string{chipA}}, {Name: dora}} {
		if v.UID = 5000 + i; v.Name == operator {
			v.UID = os.Getuid()
		}
		s.accounts.remember(v, s.now.Add(1000*time.Hour))
	}
	s.desk(func(ctx context.Context, d *desk.Desk) error {
		stop, err := d.WantViews(ctx)
		must(t, err)
		t.Cleanup(stop)
		for project, manager := range map[string]string{"chipA": anna, "chipB": bert} {
			group := chipA
			if project == "chipB" {
				group = "chipb"
			}
			if err := d.AddProject(ctx, desk.ProjectChange{Name: project, Group: &group, Managers: &[]string{manager}}); err != nil {
				return err
			}
		}
		for project, slots := range map[string]int{"chipA": 3, "chipB": 2} {
			if _, err := d.SetAllocation(ctx, desk.Pool{Project: project}, desk.Terms{Slots: slots}, desk.When{}, ""); err != nil {
				return err
			}
		}
		return nil
	})
	s.cycle()
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// desk does something at the operator's own desk, as by pba.
func (s *site) desk(do func(context.Context, *desk.Desk) error) {
	s.t.Helper()
	d, err := desk.Open(s.t.Context(), s.sys, false)
	must(s.t, err)
	defer d.Close()
	must(s.t, do(s.t.Context(), d))
}

// cycle runs one cycle.
func (s *site) cycle() {
	s.t.Helper()
	s.desk(func(ctx context.Context, d *desk.Desk) error {
		return d.Rebalance(ctx, 0, 0, func(_ *desk.Cycle, err error) error { return err })
	})
}

// get returns what a user's browser gets.
func (s *site) get(user, path string) *httptest.ResponseRecorder {
	return s.do(user, httptest.NewRequest(http.MethodGet, path, nil))
}

// post sends a form as a user's browser does.
func (s *site) post(user, path string, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return s.do(user, r)
}

// do sends a user's request on the socket; "" is no user, as by TCP.
func (s *site) do(user string, r *http.Request) *httptest.ResponseRecorder {
	s.t.Helper()
	if r.RemoteAddr == "" {
		r.RemoteAddr = "192.0.2.1:1234"
	}
	if user != "" {
		p := peerOf{unix: true, uid: s.accounts.known[user].UID}
		r = r.WithContext(context.WithValue(r.Context(), peerKey, p))
		if r.Host == "example.com" { // httptest's
			r.Host = "allotd"
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// want fails unless an answer has this status and all of these texts.
func (s *site) want(w *httptest.ResponseRecorder, status int, texts ...string) {
	s.t.Helper()
	body := w.Body.String()
	if w.Code != status {
		s.t.Errorf("status %d, want %d:\n%s\nlog: %s", w.Code, status, body, s.log.String())
	}
	for _, text := range texts {
		if !strings.Contains(body, text) {
			s.t.Errorf("%q is missing in\n%s", text, body)
		}
	}
}

// queue is a queue in memory. It counts what it is asked.
type queue struct {
	backends.Backend // a method that this queue lacks panics
	farm             backends.Snapshot
	asked            int
	later            time.Duration // its clock, after the first cycle's time
}

// fill puts hosts and jobs into the queue, chipA's running one of this user's.
func (q *queue) fill(user string) {
	at := time.Date(2026, 11, 24, 11, 0, 0, 0, time.UTC)
	q.farm.Hosts = []backends.Host{{Name: "n1", Slots: 4}, {Name: "n2", Slots: 4}}
	q.farm.Jobs = []backends.Job{
		{ID: backends.ID{Job: 1}, User: user, Project: "chipA", Name: "sim", State: backends.Running, Slots: 2, Submitted: at, Started: at, Hosts: []backends.Placement{{Host: "n1", Slots: 2}}},
		{ID: backends.ID{Job: 2}, User: dora, Name: hostile, State: backends.Running, Slots: 1, Submitted: at, Started: at, Hosts: []backends.Placement{{Host: "n1", Slots: 1}}},
		{ID: backends.ID{Job: 3}, User: carl, Project: hostile, State: backends.Pending, Slots: 1, Submitted: at, Reason: hostile},
	}
}

func (q *queue) Abilities() backends.Abilities {
	q.asked++
	return backends.Abilities{ForEngine: backends.ForEngine{SuspendFrees: true}}
}

func (q *queue) Snapshot(context.Context, time.Time) (*backends.Snapshot, error) {
	q.asked++
	farm := q.farm
	farm.At, farm.Jobs = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC).Add(q.later), slices.Clone(q.farm.Jobs)
	return &farm, nil
}

func (q *queue) SetPriority(_ context.Context, all []backends.PriorityChange) backends.Errors {
	q.asked++
	return make(backends.Errors, len(all))
}

func (q *queue) Close() error { return nil }
