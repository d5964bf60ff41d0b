package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/cluster"
	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/judge"
)

// pba runs Slurm's commands by links to this test binary: at one edge of a reclaim
// it kills slurmctld.
const (
	envEdge = "ALLOTMENT_TEST_EDGE" // the edge's name
	envSite = "ALLOTMENT_TEST_SITE" // the cluster's directory, in which pba's is
)

// standIns are the commands that pba runs.
var standIns = []string{"scontrol", "squeue", "sinfo", "sbatch", "scancel"}

func TestMain(m *testing.M) {
	if edge := os.Getenv(envEdge); edge != "" && slices.Contains(standIns, filepath.Base(os.Args[0])) {
		os.Exit(runStandIn(os.Getenv(envSite), edge))
	}
	code := m.Run()
	removePrograms()
	os.Exit(code)
}

// edge is a moment in the life of a reclaim.
type edge struct {
	name  string
	phase plan.Phase // in the ledger
	act   bool       // at the order to preempt a job; false: at whatever command comes first
	after bool       // after that order was obeyed
	away  time.Duration
}

// edges are those between planned, acted, freed and handed over. A slot becomes free
// while slurmctld is away.
func edges() []edge {
	return []edge{
		{"planned", plan.Planned, true, false, outage},
		{"acted", plan.Planned, true, true, outage},
		{"freed", plan.Planned, true, true, outage + stubbornness},
		{"handed over", plan.HandedOver, false, false, outage},
	}
}

// runStandIn passes a command of pba's on to Slurm. The first one at the edge is the last
// that slurmctld executes, or the first that it does not.
func runStandIn(site, name string) int {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return failed(err)
	}
	all := edges()
	i := slices.IndexFunc(all, func(e edge) bool { return e.name == name })
	at := false
	if i >= 0 {
		at, err = all[i].reached(site, input)
	}
	if err == nil && at && all[i].phase == plan.HandedOver {
		// A run whose start is lost is started twice, and Slurm drains its host.
		var info os.FileInfo
		if info, err = os.Stat(filepath.Join(site, beneficiary)); err == nil {
			err = save(site, info.ModTime(), info.ModTime())
		}
	}
	if err == nil && at && !all[i].after {
		err = crash(site)
	}
	if err != nil {
		return failed(err)
	}
	sent := time.Now()
	cmd := exec.Command("/usr/bin/"+filepath.Base(os.Args[0]), os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), os.Stdout, os.Stderr
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return failed(err)
	}
	if at && all[i].after {
		if err := errors.Join(save(site, sent, time.Now()), crash(site)); err != nil {
			return failed(err)
		}
	}
	return cmd.ProcessState.ExitCode()
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "stand-in:", err)
	return 1
}

// acts finds the order to preempt a job among those to scontrol.
var acts = regexp.MustCompile(`(?m)^(requeue|suspend) `)

func crashed(site string) string { return filepath.Join(site, "crashed") }

// reached reports whether this is the moment, which comes once.
func (e *edge) reached(site string, input []byte) (bool, error) {
	if _, err := os.Stat(crashed(site)); err == nil || e.act && !acts.Match(input) {
		return false, nil
	}
	memory, err := judge.Memory(context.Background(), ledgerOf(site))
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(memory.Reclaims, func(r plan.Reclaim) bool { return r.Phase == e.phase }), nil
}

func ledgerOf(site string) string { return filepath.Join(site, "allotment", "ledger.db") }

// save waits until slurmctld has saved an order that it executed between the two times.
// It saves every five seconds at most (22.05), and a crash loses what it took since:
// jobs, changes, and that a job was to be requeued, which then counts as failed. A file
// saved between the two times may have the order or not; if it has, there may be
// nothing new to save.
func save(site string, sent, obeyed time.Time) error {
	const interval = 8 * time.Second
	saved := func() bool {
		info, err := os.Stat(filepath.Join(site, "state", "job_state"))
		return err == nil && (info.ModTime().After(obeyed) || info.ModTime().After(sent) && time.Since(obeyed) > interval)
	}
	if !await.Soon(saved) {
		return errors.New("slurmctld does not save its state")
	}
	return nil
}

// crash kills slurmctld. The test waits for it and starts it anew. pba runs commands at
// the same time, and ends the others when one fails: the first of those at the edge
// kills, the others wait for it.
func crash(site string) error {
	dir, err := os.Open(site)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := flock.Wait(dir); err != nil {
		return fmt.Errorf("lock %s: %w", site, err)
	}
	if _, err := os.Stat(crashed(site)); err == nil {
		return nil
	}
	if err := (&cluster.Cluster{Dir: site}).Kill(); err != nil {
		return err
	}
	return os.WriteFile(crashed(site), nil, 0o600)
}

// outage is how long slurmctld is away.
const outage = 2 * time.Second

// TestCrashAtEachEdge kills slurmctld at each edge of a reclaim and starts it anew
// (R18, R19): nothing is forgotten, and no other job is preempted for it.
func TestCrashAtEachEdge(t *testing.T) {
	needed(t)
	pba := filepath.Join(builtPrograms(t), "pba")
	for _, mode := range []string{"requeue", "suspend"} {
		for _, e := range edges() {
			if mode == "suspend" && e.name == "freed" {
				continue // a suspended job is off its slots at once
			}
			t.Run(mode+", "+e.name, func(t *testing.T) {
				t.Parallel()
				testReclaim(t, pba, mode, e)
			})
		}
	}
}

// work is the script of a job: it writes down when it starts and ends, and ends once
// the file until is there.
func work(diary, until string, stubborn bool) string {
	script := "#!/bin/sh\n"
	if stubborn {
		script += "trap '' TERM\n"
	}
	return script + fmt.Sprintf("echo start >>%[1]s; while [ ! -e %[2]s ]; do sleep 0.1; done; echo end >>%[1]s\n", diary, until)
}

// stubbornness is how long Slurm lets a job live that ignores SIGTERM: longer than it
// takes to save its state, so that a slot is not free as soon as its job is to end.
const stubbornness = 10 * time.Second

// beneficiary is the name of the job that a slot is reclaimed for, and of its diary.
const beneficiary = "beneficiary"

// fillers is how many jobs without a project fill the host; one of their slots is
// needed.
const fillers = 4

// testReclaim is the life of one reclaim, in which slurmctld dies once.
func testReclaim(t *testing.T, pba, mode string, e edge) {
	c := cluster.New(t, cluster.Options{Nodes: 1, CPUs: fillers, Conf: []string{fmt.Sprintf("KillWait=%.0f", stubbornness.Seconds())}})
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute) // Slurm itself delays a requeued job by two
	defer cancel()
	home := filepath.Join(c.Dir, "allotment")
	l := &reclaimTest{T: t, ctx: ctx, Cluster: c, pba: pba, home: home}
	l.prepare()

	over := filepath.Join(c.Dir, "over") // what the fillers wait for
	for i := range fillers {
		l.submit(fmt.Sprintf("filler%d", i+1), "", mode, work(l.diary(fmt.Sprintf("filler%d", i+1)), over, e.after))
	}
	l.await("the host to be full", func() bool { return l.count("RUNNING") == fillers })
	submitted := time.Now()
	l.submit(beneficiary, "chipa", mode, work(l.diary(beneficiary), crashed(c.Dir), false))

	if err := save(c.Dir, submitted, time.Now()); err != nil {
		t.Fatal(err)
	}
	stop := l.rebalance(e)
	l.awaitFile("slurmctld's end at the edge", crashed(c.Dir))
	back := time.Now().Add(e.away)
	l.await("a while", func() bool { return time.Now().After(back) })
	if err := c.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	l.awaitFile("the beneficiary's start", l.diary(beneficiary))
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.await("every job to end", func() bool { return l.count("") == 0 })
	l.await("the ledger to be settled", func() bool { return len(judge.OpenReclaims(l.memory())) == 0 })
	stop()
	l.judge(mode)
}

// reclaimTest is one cluster with pba.
type reclaimTest struct {
	*testing.T
	*cluster.Cluster
	ctx       context.Context
	pba, home string
}

func (l *reclaimTest) diary(name string) string { return filepath.Join(l.Dir, name) }

// prepare does what an administrator and a resource manager do. pba finds Slurm's
// commands where the stand-ins are.
func (l *reclaimTest) prepare() {
	l.Helper()
	self, err := os.Executable()
	bin := filepath.Join(l.Dir, "bin")
	err = errors.Join(err, os.Mkdir(bin, 0o755), os.Mkdir(l.home, 0o755))
	for _, name := range standIns {
		err = errors.Join(err, os.Symlink(self, filepath.Join(bin, name)))
	}
	config := fmt.Sprintf("backend: slurm\nfilter: {low_queue: \"\"}\npba: {every: 1s, pending_threshold: 1s, min_runtime: 1s}\nslurm: {conf: %s, bin: %s, timeout: 2m}\n", l.Conf(), bin)
	err = errors.Join(err, os.WriteFile(filepath.Join(l.home, "config.yaml"), []byte(config), 0o600))
	if err != nil {
		l.Fatal(err)
	}
	for _, args := range [][]string{{"init"}, {"project", "add", "chipa", "--group", "root"}, {"alloc", "set", "chipa", "1", "--weeks", "2"}} {
		if out, err := l.command(args...).CombinedOutput(); err != nil {
			l.Fatalf("pba %s: %v: %s", args, err, out)
		}
	}
}

func (l *reclaimTest) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(l.ctx, l.pba, args...)
	cmd.Env = append(os.Environ(), "ALLOTMENT_HOME="+l.home, envEdge+"=none", envSite+"="+l.Dir)
	return cmd
}

// rebalance starts the engine, which will see slurmctld die at the edge.
func (l *reclaimTest) rebalance(e edge) (stop func()) {
	l.Helper()
	cmd := l.command("rebalance", "--every", "1s", "--for", "10m", "--verbose")
	cmd.Env = append(cmd.Env, envEdge+"="+e.name)
	return farm.StartForTest(l.T, cmd)
}

// submit submits a job of one slot, as a script on sbatch's standard input.
func (l *reclaimTest) submit(name, account, mode, script string) {
	l.Helper()
	args := []string{"--job-name=" + name, "--output=/dev/null", "--ntasks=1"}
	if mode == "suspend" {
		args = append(args, "--comment="+backends.Tag{Preempt: backends.PreemptSuspend}.String())
	}
	if account != "" {
		args = append(args, "--account="+account)
	}
	cmd := exec.CommandContext(l.ctx, "sbatch", args...)
	cmd.Env, cmd.Stdin, cmd.Dir = l.Env(), strings.NewReader(script), "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		l.Fatalf("sbatch %s: %v: %s", name, err, out)
	}
}

// count is how many jobs there are in a state, "" for all that have not ended.
func (l *reclaimTest) count(state string) int {
	args := []string{"squeue", "--noheader", "--array", "--format=%i"}
	if state != "" {
		args = append(args, "--states="+state)
	}
	out, err := l.Cluster.Run(l.ctx, args...)
	if err != nil {
		return -1 // it is not back yet
	}
	return len(strings.Fields(out))
}

func (l *reclaimTest) await(what string, is func() bool) {
	l.Helper()
	if !await.Every(l.ctx, 100*time.Millisecond, is) {
		l.failWait(what)
	}
}

// awaitFile waits for a file.
func (l *reclaimTest) awaitFile(what, path string) {
	l.Helper()
	if await.There(l.ctx, path) != nil {
		l.failWait(what)
	}
}

func (l *reclaimTest) failWait(what string) {
	l.Helper()
	out, _ := l.Cluster.Run(context.Background(), "squeue", "--all", "-O", "JobID:|,Name:|,StateCompact:|,Reason:|,RestartCnt:|,PriorityLong:|,StartTime:|,ReqNodes")
	l.Fatalf("wait for %s: %v\n%s\n%s", what, l.ctx.Err(), out, l.Log())
}

func (l *reclaimTest) memory() *plan.Memory {
	memory, err := judge.Memory(context.Background(), ledgerOf(l.Dir))
	if err != nil {
		l.Fatal(err)
	}
	return &memory
}

// judge reads what the jobs wrote and what the ledger says of them.
func (l *reclaimTest) judge(mode string) {
	l.Helper()
	var all []judge.Tally
	for i := range fillers + 1 {
		name := beneficiary
		if i < fillers {
			name = fmt.Sprintf("filler%d", i+1)
		}
		tally, err := judge.CountRuns(name, l.diary(name))
		if err != nil {
			l.Fatal(err)
		}
		all = append(all, tally)
	}
	if err := judge.OneVictim(all, l.memory(), mode == "requeue"); err != nil {
		l.Error(err)
	}
}
