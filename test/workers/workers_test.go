// Package workers tests asplit's standing workers where everything fails around them: three hosts
// of a Slurm cluster, each in a network namespace of its own, of which links are cut, hosts are
// killed, and workers are preempted by pba for jobs within a guarantee.
package workers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/cluster"
	"github.com/allotment-hpc/allotment/test/farm"
)

const (
	hosts, slots = 3, 3
	items        = 10_000
	perRound     = 180
	// slurmdTime is how long Slurm waits for a host that does not answer, before it runs the host's
	// jobs elsewhere. The host runs them on meanwhile.
	slurmdTime = 10 * time.Second
	// fewest is how often each trouble must have come for a valid run.
	fewest = 3
	limit  = 20 * time.Minute
)

// scene is a farm, a split or a manager that runs on it, and what happens to both.
type scene struct {
	*testing.T
	*farm.Farm
	ctx      context.Context
	random   *rand.Rand
	split    *exec.Cmd
	ended    chan struct{}  // what runs on it is over
	counts   map[string]int // troubles by their names
	members  []string       // jobs within the guarantee
	executed string         // a file with a line for each item that was begun
}

// R50: each item has exactly one result, in order, whatever happens to workers.
func TestWorkers(t *testing.T) {
	s := newScene(t)
	s.begin(items, "0.15")
	s.trouble(s.troubles())
	states := s.judgeJobs()
	s.judge(items)
	s.Logf("%d jobs of chipA; the workers' runs by Slurm's records: %v", len(s.members), states)
}

// newScene starts a cluster and the engine, with a guarantee.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := newFarm(t)
	s.guarantee()
	return s
}

// newFarm starts a cluster.
func newFarm(t *testing.T) *scene {
	t.Helper()
	cluster.Needed(t)
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEED=%d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	s := &scene{T: t, ctx: ctx, random: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}}
	s.Farm = farm.New(t, farm.Options{
		Programs: "../../bin", // make test-workers builds them
		Config:   "pba:\n  every: 1s\n  pending_threshold: 2s\nfilter:\n  low_queue: \"\"\n",
		Slurm: &farm.Slurm{
			Nodes: hosts, Slots: slots, Slurmdbd: true, Namespaces: true, RequeueDelay: 5 * time.Second,
			Conf: []string{fmt.Sprintf("SlurmdTimeout=%.0f", slurmdTime.Seconds()), "SlurmctldDebug=info"},
		},
	})
	s.executed = filepath.Join(s.Home, "executed")
	return s
}

func (s *scene) must(out string, err error) string {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
	return out
}

// guarantee sets up the project whose jobs preempt workers, and starts the engine.
func (s *scene) guarantee() {
	s.Helper()
	group, err := farm.OwnGroup()
	if err != nil {
		s.Fatal(err)
	}
	for _, line := range []string{"add account chipA", "add user root account=chipA"} {
		s.must(s.RunSlurm(s.ctx, append([]string{"sacctmgr", "-iQ"}, strings.Fields(line)...)...))
	}
	for _, line := range []string{"init", "project add chipA --group " + group, fmt.Sprintf("alloc set chipA %d --weeks 2", slots)} {
		s.must(s.Farm.Run(s.ctx, "pba", strings.Fields(line)...))
	}
	if _, err := s.InstallHook(); err != nil {
		s.Fatal(err)
	}
	engine, err := s.Rebalance(s.ctx, time.Second, 0)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(engine.Stop)
	if err := engine.AwaitFirstCycle(s.ctx); err != nil {
		s.Fatal(err)
	}
}

// begin starts the split of so many items, each of which takes so many seconds.
func (s *scene) begin(items int, each string, options ...string) {
	s.Helper()
	results, err := os.Create(filepath.Join(s.Home, "results"))
	if err != nil {
		s.Fatal(err)
	}
	said, err := os.Create(filepath.Join(s.Home, "said"))
	if err != nil {
		s.Fatal(err)
	}
	options = append(options, "--no-qualify", "--slots", strconv.Itoa(slots), "--round", strconv.Itoa(perRound), "-J", "troubled",
		"--report", "--keep", "--range", fmt.Sprintf("1-%d", items), "sh", "-c", `echo "$1" >>"$0"; sleep `+each+`; echo "result $1"`, s.executed, "{}")
	s.split = s.Background(s.ctx, "asplit", options...)
	s.split.Stdout, s.split.Stderr = results, said
	if err := s.split.Start(); err != nil {
		s.Fatal(err)
	}
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		_ = s.split.Wait()
	}()
	s.Cleanup(func() {
		s.split.Cancel() //nolint:errcheck // it has ended, or ends now
		<-s.ended
		if s.Failed() {
			s.Logf("asplit said:\n%s", s.read("said"))
		}
	})
}

func (s *scene) read(name string) string {
	text, err := os.ReadFile(filepath.Join(s.Home, name))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// pause waits, and reports whether the split runs on.
func (s *scene) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.ended:
		return false
	}
}

// troubles are what happens to hosts of Slurm.
func (s *scene) troubles() map[string]func(*cluster.Node) {
	return map[string]func(*cluster.Node){
		"a short cut": func(n *cluster.Node) { s.cut(n, 500*time.Millisecond, slurmdTime/2) },
		"a long cut":  func(n *cluster.Node) { s.cut(n, slurmdTime, 2*slurmdTime) },
		"a kill": func(n *cluster.Node) {
			if err := n.Kill(s.ctx); err != nil {
				s.Error(err)
			}
			s.pause(s.between(0, 2*slurmdTime))
			if err := n.Boot(s.ctx); err != nil {
				s.Error(err)
			}
		},
		"a preemption": s.preempt,
	}
}

// preempt has a job within the guarantee preempt a worker, and waits until it has begun. Where the host has no worker
// just now another one is taken that has.
func (s *scene) preempt(n *cluster.Node) {
	var of []string
	for line := range strings.Lines(s.must(s.RunSlurm(s.ctx, "squeue", "-h", "-t", "RUNNING", "-o", "%N %j"))) {
		if f := strings.Fields(line); len(f) == 2 && f[1] != "member" {
			of = append(of, f[0])
		}
	}
	name := n.Name()
	if len(of) > 0 && !slices.Contains(of, name) {
		name = of[0]
	}
	count := 1 + s.random.IntN(slots)
	id := strings.TrimSpace(s.must(s.RunSlurm(s.ctx, "sbatch", "--parsable", "-A", "chipA", "-w", name, "-n", strconv.Itoa(count), "-J", "member", "-o", "/dev/null", "--wrap=sleep 2")))
	s.members = append(s.members, id)
	ctx, cancel := context.WithTimeout(s.ctx, slurmdTime) // a host that does not answer takes none until it is down
	defer cancel()
	await.Every(ctx, 200*time.Millisecond, func() bool {
		return s.ctx.Err() != nil || s.must(s.RunSlurm(s.ctx, "squeue", "-h", "-t", "PENDING", "-j", id, "-o", "%T")) == ""
	})
}

// trouble makes trouble until the split ends.
func (s *scene) trouble(troubles map[string]func(*cluster.Node)) {
	s.Helper()
	came := func(name string) int {
		if name == "a preemption" { // twice as often: the engine may find a better victim than a worker, or none in time
			return (s.counts[name] + 1) / 2
		}
		return s.counts[name]
	}
	for s.pause(s.between(2*time.Second, 6*time.Second)) {
		var names []string // those that came least
		for name := range troubles {
			switch {
			case len(names) == 0 || came(name) < came(names[0]):
				names = []string{name}
			case came(name) == came(names[0]):
				names = append(names, name)
			}
		}
		slices.Sort(names)
		name, node := names[s.random.IntN(len(names))], s.Node(1+s.random.IntN(hosts))
		s.Logf("%s: %s on %s", time.Now().Format(time.TimeOnly), name, node.Name())
		troubles[name](node)
		s.counts[name]++
	}
}

func (s *scene) between(from, to time.Duration) time.Duration {
	return from + time.Duration(s.random.Int64N(int64(to-from)))
}

func (s *scene) cut(n *cluster.Node, least, most time.Duration) {
	if err := n.Link(s.ctx, false); err != nil {
		s.Error(err)
	}
	s.pause(s.between(least, most))
	if err := n.Link(s.ctx, true); err != nil {
		s.Error(err)
	}
}

// judge judges a split of so many items by its results.
func (s *scene) judge(items int) {
	s.Helper()
	if err := s.ctx.Err(); err != nil {
		s.Fatalf("not over after %v", limit)
	}
	if code := s.split.ProcessState.ExitCode(); code != 0 {
		s.Errorf("asplit ended with %d", code)
	}
	want := 1
	for line := range strings.Lines(s.read("results")) {
		if is := fmt.Sprintf("result %d\n", want); line != is {
			s.Fatalf("line %d of the results is %q", want, line)
		}
		want++
	}
	if want != items+1 {
		s.Fatalf("%d results, want %d", want-1, items)
	}
	begun := map[string]int{}
	for line := range strings.Lines(s.read("executed")) {
		begun[strings.TrimSpace(line)]++
	}
	again := 0
	for i := 1; i <= items; i++ {
		switch n := begun[strconv.Itoa(i)]; {
		case n == 0:
			s.Errorf("item %d has a result and was never begun", i)
		case n > 1:
			again += n - 1
		}
	}
	s.Logf("%d items, each with one result, in order; %d items were begun again; troubles: %v\n%s", items, again, s.counts, s.read("said"))
}

// judgeJobs judges by Slurm's own records that no job is left, that those of chipA completed, and that
// enough happened to the others, whose last states it counts.
func (s *scene) judgeJobs() (states map[string]int) {
	s.Helper()
	for _, name := range []string{"a short cut", "a long cut", "a kill", "a preemption"} {
		if s.counts[name] < fewest {
			s.Errorf("%s came %d times: this proves nothing", name, s.counts[name])
		}
	}
	var out string
	if !await.Soon(func() bool {
		out = s.must(s.RunSlurm(s.ctx, "squeue", "-h", "-o", "%i %j %T"))
		return out == ""
	}) {
		s.Errorf("jobs are left:\n%s", out)
	}
	if !await.Soon(func() bool { // accounting hears of an end somewhat later
		out = s.must(s.RunSlurm(s.ctx, "sacct", "-aXDnP", "-S", "now-1hours", "--format=JobID,JobName,State"))
		return !strings.Contains(out, "|RUNNING") && !strings.Contains(out, "|PENDING")
	}) {
		s.Errorf("jobs have not ended by accounting:\n%s", out)
	}
	states = map[string]int{}
	preempted := map[string]bool{}
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 3 {
			s.Fatalf("sacct: %q", line)
		}
		if f[1] == "member" {
			preempted[f[0]] = preempted[f[0]] || f[2] == "COMPLETED"
			continue
		}
		states[strings.Fields(f[2])[0]]++
	}
	for _, id := range s.members {
		if !preempted[id] {
			s.Errorf("job %s of chipA did not complete", id)
		}
	}
	if states["REQUEUED"] < fewest || states["NODE_FAIL"] < 1 {
		s.Errorf("of the workers' runs %d were requeued, and %d lost their host: this proves nothing", states["REQUEUED"], states["NODE_FAIL"])
	}
	return states
}
