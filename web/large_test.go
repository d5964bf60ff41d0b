package web

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/test/await"
)

// Budgets of a page of a farm of 500 hosts, 10,000 jobs and 200 projects.
const (
	maxPageBytes = 300_000
	maxPageTime  = time.Second // checked by make bench-web alone
)

// Each page of a large farm is small, and asks the queue nothing. make bench-web has it be
// fast, too: the first answer, which no other visitor's has made cheap.
func TestLargeFarm(t *testing.T) {
	s := newSite(t)
	s.fillLarge()
	asked := s.queue.asked
	for _, path := range []string{"/farm", "/farm", "/farm/hosts", "/farm/project?name=p7", "/jobs?project=p7", "/jobs/150", "/reports", "/reports?kind=usage"} {
		r := httpRequest(path)
		r.Header.Set("Accept-Encoding", "gzip")
		begin := time.Now()
		w := s.do(carl, r)
		took := time.Since(begin)
		t.Logf("%-22s %6d bytes (budget %d), %v (budget %v)", path, w.Body.Len(), maxPageBytes, took.Round(time.Millisecond), maxPageTime)
		if w.Code != http.StatusOK || w.Body.Len() > maxPageBytes || os.Getenv("ALLOTMENT_BENCH") != "" && took > maxPageTime {
			t.Errorf("%s: status %d, or beyond the budget", path, w.Code)
		}
	}
	if s.queue.asked != asked {
		t.Errorf("the pages asked the queue %d times", s.queue.asked-asked)
	}
}

func (s *site) fillLarge() {
	name, group := engineer(s.t)
	for i := range 500 {
		s.queue.farm.Hosts = append(s.queue.farm.Hosts, backends.Host{Name: fmt.Sprintf("host%d", i), Slots: 16})
	}
	for i := range 10_000 {
		j := backends.Job{ID: backends.ID{Job: int64(100 + i)}, User: name, Project: fmt.Sprintf("p%d", i%200), Name: "job", Slots: 1, State: backends.Pending, Wait: backends.WaitResources, Submitted: s.now.Add(-time.Hour)}
		if i < 6000 {
			j.State, j.Started, j.Hosts = backends.Running, s.now.Add(-time.Hour), []backends.Placement{{Host: fmt.Sprintf("host%d", i%500), Slots: 1}}
		}
		s.queue.farm.Jobs = append(s.queue.farm.Jobs, j)
	}
	s.desk(func(ctx context.Context, d *desk.Desk) error {
		for i := range 200 {
			p := fmt.Sprintf("p%d", i)
			if err := d.AddProject(ctx, desk.ProjectChange{Name: p, Group: &group, Managers: &[]string{anna}}); err != nil {
				return err
			}
			if _, err := d.SetAllocation(ctx, desk.Pool{Project: p}, desk.Terms{Slots: 25}, desk.When{}, ""); err != nil {
				return err
			}
		}
		return nil
	})
	s.cycle()
}

// maxMemory is what allotd may use with watchers of such a farm. The test's process has the engine
// and the farm, too.
const (
	maxMemory = 200 << 20
	watchers  = 50
)

// Fifty pages of a large farm that are kept up to date cost the queue nothing, and the server little.
func TestLargeFarmIsWatched(t *testing.T) {
	if os.Getenv("ALLOTMENT_BENCH") == "" {
		t.Skip("skip: make bench-web runs it")
	}
	s := newSite(t)
	s.fillLarge()
	const rounds = 5
	alone, asked := s.cycles(rounds, func() {})
	server := httptest.NewUnstartedServer(s)
	users := []string{anna, bert, carl, dora}
	var connected atomic.Int64
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		name := users[int(connected.Add(1))%len(users)]
		return context.WithValue(ctx, peerKey, peerOf{unix: true, uid: s.accounts.known[name].UID})
	}
	server.Start()
	ctx, stop := context.WithCancel(t.Context())
	go s.events.watch(ctx, s.Desks, s.Log)
	ready, updated := make(chan error, watchers), make(chan error, watchers)
	var all sync.WaitGroup
	for range watchers {
		all.Go(func() { watchPage(ctx, server.URL, ready, updated) })
	}
	each := func(from <-chan error) {
		for range watchers {
			must(t, <-from)
		}
	}
	each(ready)
	if !await.Every(ctx, time.Millisecond, func() bool { return s.events.seen.Load() > 0 }) { // it compares with what it read first
		t.Fatal("the state was not read")
	}
	beside, askedBeside := s.cycles(rounds, func() { each(updated) })
	used := peakMemory(t)
	t.Logf("%d watchers, %d updates of each: %d MiB (budget %d), the engine's too; a cycle takes %.2f times as long, and asks the queue %d times (%d without them)",
		watchers, rounds, used>>20, maxMemory>>20, beside.Seconds()/alone.Seconds(), askedBeside, asked)
	if used > maxMemory || askedBeside != asked {
		t.Error("beyond the budget")
	}
	stop()
	all.Wait()
	server.Close()
}

// cycles runs cycles, each with something after it, and returns how long they took without that and
// how often they asked the queue.
func (s *site) cycles(n int, then func()) (took time.Duration, asked int) {
	asked = -s.queue.asked
	for range n {
		s.queue.later += time.Minute
		began := time.Now()
		s.cycle()
		took += time.Since(began)
		then()
	}
	return took, asked + s.queue.asked
}

// watchPage opens a stream and the page, and the page anew whenever the stream says so.
func watchPage(ctx context.Context, address string, ready, updated chan<- error) {
	get := func(path string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
		if err != nil {
			return nil, err
		}
		r.Host = "allotd"
		return http.DefaultClient.Do(r)
	}
	open := func() error {
		a, err := get("/farm")
		if err != nil {
			return err
		}
		defer a.Body.Close()
		_, err = io.Copy(io.Discard, a.Body)
		if a.StatusCode != http.StatusOK {
			err = fmt.Errorf("the page: %s", a.Status)
		}
		return err
	}
	a, err := get("/events")
	if err == nil && a.StatusCode != http.StatusOK {
		err = fmt.Errorf("the stream: %s", a.Status)
	}
	if err != nil {
		ready <- err
		return
	}
	defer a.Body.Close()
	lines := bufio.NewScanner(a.Body)
	for lines.Scan() {
		switch lines.Text() {
		case ": connected":
			ready <- open()
		case "event: farm":
			updated <- open()
		}
	}
}

// peakMemory returns the most bytes that this process has had in memory.
func peakMemory(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, rest, found := strings.Cut(string(status), "VmHWM:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); !found || err != nil {
		t.Fatalf("the kernel names no peak of memory: %v", err)
	}
	return kib << 10
}
