package web

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/farm"
)

// site is a farm that works, its page, and a browser.
type site struct {
	*farm.Farm
	host    string // of the page, as in a URL
	engine  *farm.Rebalance
	browser context.Context
}

// The farm's size. The hosts are this machine's: a job takes slots of them, and sleeps.
const hosts, slotsOfHost = 16, 16

// config is that of the farm: quick cycles, so that what is waited for comes soon.
func config() string {
	var nodes []string
	for i := range hosts {
		nodes = append(nodes, fmt.Sprintf(`"h%02d:%d:64G"`, i+1, slotsOfHost))
	}
	return fmt.Sprintf(`timezone: UTC
pba: {every: 1s, pending_threshold: 2s, min_runtime: 1s}
web: {listen: "127.0.0.1:0"}
miniq: {nodes: [%s]}
`, strings.Join(nodes, ", "))
}

// Projects that a case has to itself, and one whose jobs fill the farm.
const (
	waker      = "kestrel" // has no jobs until farmIsLive
	planned    = "osprey"  // these have no slots until they are planned
	contested  = "owl"
	typed      = "heron"
	touched    = "martin"
	unscripted = "plover"
	filler     = "regress" // has no slots
)

// startSite starts all of it, as an administrator does; it ends with the test.
func startSite(t *testing.T) *site {
	t.Helper()
	browser := startBrowser(t)
	s := &site{Farm: farm.New(t, farm.Options{Programs: "../../bin", Config: config()}), browser: browser}
	group, err := farm.OwnGroup()
	if err != nil {
		t.Fatal(err)
	}
	s.pba(t, "init")
	pools := map[string]int{"chip07": 40, "chip09": 32, "falcon": 24, waker: 20, "merlin": 12, "serdes": 8, "dft": 6}
	for _, project := range append(sortedKeys(pools), planned, contested, typed, touched, unscripted, filler) {
		s.pba(t, "project", "add", project, "--group", group)
	}
	for i, project := range sortedKeys(pools) {
		s.pba(t, "alloc", "set", project, fmt.Sprint(pools[project]), "--weeks", fmt.Sprint(6+i))
	}
	s.pba(t, "alloc", "set", "chip07", "56", "--weeks", "+4..+6", "-m", "tape-out")
	s.pba(t, "alloc", "request", "merlin", "20", "--week", "next", "--weeks", "2", "--why", "gate-level runs before tape-out")
	s.livePast(t, pools)
	if s.engine, err = s.Rebalance(context.Background(), time.Second, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.engine.Stop)
	for _, jobs := range []struct {
		project  string
		n, slots int
	}{{"chip07", 5, 8}, {"chip09", 3, 16}, {"falcon", 5, 4}, {"merlin", 3, 4}, {"dft", 4, 1}, {filler, 17, 8}, {"serdes", 1, 4}} {
		for i := range jobs.n {
			s.submit(t, jobs.project, fmt.Sprintf("sim%d", i+1), jobs.slots)
		}
	}
	s.serve(t)
	return s
}

// sortedKeys returns the keys of a map in their order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// pba runs a command of an administrator and returns what it prints.
func (s *site) pba(t *testing.T, args ...string) string {
	t.Helper()
	return s.run(t, "pba", args...)
}

func (s *site) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := s.Run(t.Context(), program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// submit submits a job that runs until the farm ends, and returns its number.
func (s *site) submit(t *testing.T, project, name string, slots int) int64 {
	t.Helper()
	id, err := farm.Submitted(s.run(t, "asub", "-P", project, "-J", name, "-n", fmt.Sprint(slots), "-o", "/dev/null", "sleep", "600"))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// cycle waits until a cycle has begun and ended.
func (s *site) cycle(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for asked := time.Now(); ; {
		select {
		case r, ok := <-s.engine.Reports:
			if !ok {
				t.Fatal(s.engine.Err())
			}
			if r.At.After(asked) {
				return
			}
		case <-ctx.Done():
			t.Fatalf("no cycle within %v", patience)
		}
	}
}

// serve starts allotd, and waits until it listens on its socket and a cycle has shown it the
// farm.
func (s *site) serve(t *testing.T) {
	t.Helper()
	farm.StartForTest(t, s.Background(context.Background(), "allotd"))
	socket := filepath.Join(s.Home, "allotd.sock")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := await.Dir(ctx, s.Home, func() bool {
		_, listens := os.Stat(socket)
		_, shown := os.Stat(filepath.Join(s.Home, "view.gob"))
		return listens == nil && shown == nil
	}); err != nil {
		t.Fatal(err)
	}
	link, err := url.Parse(s.link(t))
	if err != nil {
		t.Fatal(err)
	}
	s.host = link.Host
}

// link is one that signs a browser in.
func (s *site) link(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(s.pba(t, "login"))
}

// open opens a window whose user has signed in.
func (s *site) open(t *testing.T) *window {
	t.Helper()
	w := s.openWindow(t)
	w.do("sign in", chromedp.Navigate(s.link(t)))
	w.untilText(".who", "Sign out")
	return w
}
