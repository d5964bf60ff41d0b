package workers

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/lease"
	"github.com/allotment-hpc/allotment/lease/client"
	"github.com/allotment-hpc/allotment/test/await"
)

const (
	tasks = 10_000
	ahead = 100 // requests that are made and have no result, at most
)

// R50: each task at asplit serve has one result, whatever happens to the jobs that do them: programs
// of a queue's hosts that come by TLS.
func TestServe(t *testing.T) {
	s := newScene(t)
	script, err := filepath.Abs("testdata/worker.sh")
	if err != nil {
		t.Fatal(err)
	}
	serve := s.serve("sh", script, strconv.Itoa(slots))
	h := s.join(serve, `{"holder":"test"}`)
	results := make(map[int]string, tasks)
	s.ended = make(chan struct{})
	var again int
	var wrong error
	go func() {
		defer close(s.ended)
		again, wrong = h.do(results)
	}()
	s.trouble(s.troubles())
	if wrong != nil || s.ctx.Err() != nil {
		t.Fatalf("%d results after %v: %v\n%s", len(results), limit, wrong, s.read("served"))
	}
	hosts := map[string]int{}
	for task := range tasks {
		host, ok := strings.CutPrefix(results[task], fmt.Sprintf("task %d on ", task))
		if !ok {
			t.Fatalf("the result of task %d is %q", task, results[task])
		}
		hosts[host]++
	}
	if !await.Soon(func() bool { v := h.view(); return len(v.Workers)+len(v.Leases)+len(v.Waiting) == 0 }) {
		t.Errorf("idle workers remain: %+v", h.view())
	}
	states := s.judgeJobs()
	t.Logf("%d tasks, each with one result, of hosts %v; %d were requested again; troubles: %v; the workers' runs by Slurm's records: %v\n%s",
		tasks, hosts, again, s.counts, states, s.read("served"))
}

// R56: a split runs on slots of all hosts, which asplit's own workers bring; one host is killed meanwhile.
func TestFromHere(t *testing.T) {
	s := newScene(t)
	socket := s.serve()
	lost := s.Node(1 + s.random.IntN(hosts))
	const items = 600
	s.ended = make(chan struct{})
	killed := make(chan error, 1)
	go func() {
		err := errors.New("no job came to " + lost.Name())
		if await.Soon(func() bool {
			out, failed := s.RunSlurm(s.ctx, "squeue", "-h", "-t", "R", "-w", lost.Name(), "-o", "%i")
			return failed == nil && strings.TrimSpace(out) != ""
		}) && s.pause(s.between(time.Second, 5*time.Second)) {
			err = lost.Kill(s.ctx)
		}
		killed <- err
	}()
	cmd := s.Background(s.ctx, "asplit", "--from-here", "--quiet", "--max-workers", strconv.Itoa(hosts*slots), "--range", fmt.Sprintf("1-%d", items), "--round", "90",
		"sh", "-c", "sleep 0.2; echo $1", "sh", "{}")
	cmd.Env = append(cmd.Environ(), client.EnvSocket+"="+socket)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	close(s.ended)
	if kill := <-killed; kill != nil || err != nil {
		t.Fatalf("%v, %v, %s\n%s", kill, err, said.String(), s.read("served"))
	}
	var want strings.Builder
	for n := range items {
		fmt.Fprintln(&want, n+1)
	}
	if string(out) != want.String() {
		t.Errorf("the results are %q", out)
	}
	records := s.must(s.RunSlurm(s.ctx, "sacct", "-aXDnP", "-S", "now-1hours", "--format=NodeList,State"))
	used := map[string]bool{}
	for line := range strings.Lines(records) {
		node, _, _ := strings.Cut(line, "|")
		used[node] = true
	}
	if len(used) < hosts {
		t.Errorf("not all hosts brought slots:\n%s", records)
	}
	t.Logf("%d items on slots of %d hosts, of which %s was killed; %s", items, len(used), lost.Name(), said.String())
}

// serve starts asplit serve with jobs that run a worker, asplit's own without a command, and returns its socket.
func (s *scene) serve(command ...string) (socket string) {
	s.Helper()
	out := s.must(s.RunSlurm(s.ctx, "scontrol", "show", "config"))
	_, at, ok := strings.Cut(out, "SlurmctldHost[0]")
	open, end := strings.IndexByte(at, '('), strings.IndexByte(at, ')')
	if !ok || open < 0 || end < open || net.ParseIP(at[open+1:end]) == nil {
		s.Fatalf("where the hosts reach slurmctld: %.100q", at)
	}
	said, err := os.Create(filepath.Join(s.Home, "served"))
	if err != nil {
		s.Fatal(err)
	}
	cmd := s.Background(s.ctx, "asplit", append([]string{
		"serve", "--listen", net.JoinHostPort(at[open+1:end], "0"), "--idle", "5s", "--max-workers", strconv.Itoa(hosts),
		"-n", strconv.Itoa(slots),
	}, command...)...)
	cmd.Stderr = said
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		cmd.Cancel() //nolint:errcheck // it ends now
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		if socket, ok := strings.CutPrefix(lines.Text(), "serving /"); ok {
			return "/" + socket
		}
	}
	s.Fatalf("asplit serve ended: %s", s.read("served"))
	return ""
}

// holder requests what is to be done.
type holder struct {
	*scene
	*client.Client
}

func (s *scene) join(socket, body string) *holder {
	s.Helper()
	c, err := client.New(s.ctx, socket).Join("holders", body)
	if err != nil {
		s.Fatal(err)
	}
	return &holder{s, c}
}

func (c *holder) request(task, attempt int) error {
	return c.Call(http.MethodPost, "requests", fmt.Sprintf(`{"id":"%d/%d","task":"task %d"}`, task, attempt, task), nil)
}

// do has all tasks done, and requests again those whose worker ended.
func (c *holder) do(results map[int]string) (again int, err error) {
	next := 0
	for ; next < ahead; next++ {
		if err := c.request(next, 0); err != nil {
			return 0, err
		}
	}
	for len(results) < tasks {
		var l struct {
			Grant, Lease, Revoke uint64
			Request, Result      string
		}
		if err := c.Next(&l); err != nil {
			return again, err
		}
		var task, attempt int
		if _, err := fmt.Sscanf(l.Request, "%d/%d", &task, &attempt); err != nil {
			return again, fmt.Errorf("%+v: %w", l, err)
		}
		switch {
		case l.Lease != 0:
			if results[task] != "" {
				return again, fmt.Errorf("task %d has two results: %q, %q", task, results[task], l.Result)
			}
			results[task] = l.Result
			if next < tasks {
				if err := c.request(next, 0); err != nil {
					return again, err
				}
				next++
			}
		case l.Revoke != 0:
			again++
			if err := c.request(task, attempt+1); err != nil {
				return again, err
			}
		}
	}
	return again, nil
}

func (c *holder) view() (v lease.View) {
	if err := c.Call(http.MethodGet, "view", "", &v); err != nil {
		c.Fatal(err)
	}
	return v
}
