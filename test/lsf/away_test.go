package lsf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/judge"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// pba runs the commands that make victims go by links to this test binary. In the phase
// Acted LSF's daemons go away once one is obeyed.
const (
	envPhase  = "ALLOTMENT_TEST_PHASE"
	envBin    = "ALLOTMENT_TEST_BIN"    // of the stand-in
	envObeyed = "ALLOTMENT_TEST_OBEYED" // a file: the order was obeyed
)

var wrappedCommands = []string{"brequeue", "bstop"}

func TestMain(m *testing.M) {
	if name := filepath.Base(os.Args[0]); slices.Contains(wrappedCommands, name) {
		os.Exit(runWrapped(name, os.Getenv("LSF_ENVDIR")))
	}
	os.Exit(m.Run())
}

func (l *reclaimTest) obeyedFile() string { return filepath.Join(l.dir, "obeyed") }

func runWrapped(name, dir string) int {
	cmd := exec.Command(filepath.Join(os.Getenv(envBin), name), os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	_ = cmd.Run() // its exit code is returned
	obeyed := os.Getenv(envObeyed)
	if _, err := os.Stat(obeyed); err != nil && os.Getenv(envPhase) == string(plan.Acted) {
		if err := errors.Join(lsfstandin.Away(dir, outage), os.WriteFile(obeyed, nil, 0o600)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return cmd.ProcessState.ExitCode()
}

// outage is how long LSF's daemons are away.
const outage = 5 * time.Second

// fillers is how many jobs without a guarantee fill the host. One slot of it is needed.
const fillers = 4

// beneficiary is the name of the job that a slot is reclaimed for, and of its diary.
const beneficiary = "beneficiary"

// In each phase of a reclaim LSF's commands fail for a while, as they do while mbatchd
// restarts (R8, R18, R19): nothing is forgotten, and no second victim is taken.
func TestOutageInEachPhase(t *testing.T) {
	bin := publicPrograms(t)
	orderer := copySelf(t, bin)
	p := testAccounts(t)
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		for mode, phases := range map[string][]plan.Phase{
			"requeue": {plan.Planned, plan.Acted, plan.HandedOver}, // freed slots are the beneficiary's at once
			"suspend": {plan.Planned, plan.Acted, plan.Freed, plan.HandedOver},
		} {
			for _, phase := range phases {
				t.Run(fmt.Sprintf("%s, %s, %s", flavour, mode, phase), func(t *testing.T) {
					t.Parallel()
					testReclaim(t, p, filepath.Join(bin, "pba"), orderer, flavour, mode, phase)
				})
			}
		}
	}
}

// reclaimTest is one cluster with pba.
type reclaimTest struct {
	*testing.T
	*lsfstandin.Cluster
	accounts
	ctx            context.Context
	pba, home, dir string
	orderer        string // this test binary, where every user can run it
}

// testReclaim is the life of one reclaim, in one phase of which the daemons are away.
func testReclaim(t *testing.T, p accounts, pba, orderer string, flavour lsfstandin.Flavour, mode string, phase plan.Phase) {
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	c := lsfstandin.New(t, lsfstandin.Options{Hosts: 1, Slots: fillers, Flavour: flavour, Second: 500 * time.Millisecond, Admins: p.admins()})
	l := &reclaimTest{T: t, Cluster: c, accounts: p, ctx: ctx, pba: pba, orderer: orderer, home: publicDir(t), dir: publicDir(t)}
	l.prepare()
	over, gone := filepath.Join(l.dir, "over"), filepath.Join(l.dir, "gone")
	for i := range fillers {
		l.submit(fmt.Sprintf("filler%d", i+1), "", mode, over)
	}
	l.await("the host to be full", func() bool { return l.count(lsfstandin.RUN) == fillers })
	l.submit(beneficiary, "chipa", mode, gone)

	stop := l.rebalance(phase)
	if phase == plan.Acted {
		l.awaitFile("the order to go", l.obeyedFile())
	} else {
		l.await("the phase", func() bool {
			return slices.ContainsFunc(l.memory().Reclaims, func(r plan.Reclaim) bool { return r.Phase == phase })
		})
		c.Away(outage)
	}
	t.Logf("%s: the reclaim is %s, and LSF is away for %v", flavour, phase, outage)
	l.write(gone) // it may end
	l.awaitFile("the beneficiary's start", filepath.Join(l.dir, beneficiary))
	l.write(over)
	l.await("every job to end", func() bool { return l.count("") == 0 })
	l.await("the ledger to be settled", func() bool { return len(judge.OpenReclaims(l.memory())) == 0 })
	stop()
	l.judge(mode)
}

// prepare does what an administrator and a resource manager do.
func (l *reclaimTest) prepare() {
	l.Helper()
	if err := errors.Join(os.Chmod(l.dir, 0o777), l.admin.chown(l.home)); err != nil {
		l.Fatal(err)
	}
	for _, name := range lsfstandin.Programs() {
		of := filepath.Join(l.Bin(), name)
		if slices.Contains(wrappedCommands, name) {
			of = l.orderer
		}
		if err := os.Symlink(of, filepath.Join(l.dir, name)); err != nil {
			l.Fatal(err)
		}
	}
	config := fmt.Sprintf("backend: lsf\nfilter: {low_queue: \"\"}\npba: {every: 1s, pending_threshold: 1s, min_runtime: 1s}\nlsf: {bin: %q, envdir: %q}\n", l.dir, l.EnvDir())
	if err := os.WriteFile(filepath.Join(l.home, "config.yaml"), []byte(config), 0o644); err != nil {
		l.Fatal(err)
	}
	for _, args := range [][]string{{"init"}, {"project", "add", "chipa", "--group", l.engineer.group}, {"alloc", "set", "chipa", "1", "--weeks", "2"}} {
		if out, err := l.command(args...).CombinedOutput(); err != nil {
			l.Fatalf("pba %s: %v: %s", args, err, out)
		}
	}
}

func (l *reclaimTest) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(l.ctx, l.pba, args...)
	cmd.Env = append(os.Environ(), "ALLOTMENT_HOME="+l.home)
	l.admin.run(cmd)
	return cmd
}

// rebalance starts the engine.
func (l *reclaimTest) rebalance(phase plan.Phase) (stop func()) {
	l.Helper()
	cmd := l.command("rebalance", "--every", "1s", "--for", "10m", "--verbose")
	cmd.Env = append(cmd.Env, envPhase+"="+string(phase), envBin+"="+l.Bin(), envObeyed+"="+l.obeyedFile())
	return farm.StartForTest(l.T, cmd)
}

// submit submits a job of one slot that writes down when it starts and ends; it does not
// end before a file exists.
func (l *reclaimTest) submit(name, project, mode, until string) {
	l.Helper()
	args := []string{"bsub", "-J", name}
	if mode == "suspend" {
		args = append(args, "-Jd", backends.Tag{Preempt: backends.PreemptSuspend}.String())
	}
	if project != "" {
		args = append(args, "-P", project)
	}
	diary := filepath.Join(l.dir, name)
	// LSF's own shell runs it, which outlives the SIGINT of a requeue.
	script := fmt.Sprintf("trap 'exit 1' INT; echo start >>%[1]s; while [ ! -e %[2]s ]; do sleep 0.1; done; echo end >>%[1]s", diary, until)
	if out, message, rc := l.RunAs(l.engineer.uid, l.engineer.gid, append(args, script)...); rc != 0 {
		l.Fatalf("bsub %s: %d: %s%s", name, rc, out, message)
	}
}

func (l *reclaimTest) write(file string) {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		l.Fatal(err)
	}
}

// count returns the number of jobs in a state, "" for all that have not ended.
func (l *reclaimTest) count(state lsfstandin.Stat) int {
	snapshot, err := l.Snapshot()
	if err != nil {
		return -1 // it is not back yet
	}
	n := 0
	for _, j := range snapshot.Jobs {
		ended := j.Stat == lsfstandin.DONE || j.Stat == lsfstandin.EXIT && !j.Gone // not on its way back
		if j.Stat == state || state == "" && !ended {
			n++
		}
	}
	return n
}

func (l *reclaimTest) await(what string, is func() bool) {
	l.Helper()
	if !await.Until(l.ctx, is) {
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
	out, _, _ := l.Cluster.Run("bjobs", "-u", "all", "-a", "-w")
	l.Fatalf("wait for %s: %v\n%s\n%s", what, l.ctx.Err(), out, l.Log())
}

func (l *reclaimTest) memory() *plan.Memory {
	memory, err := judge.Memory(l.ctx, filepath.Join(l.home, "ledger.db"))
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
		tally, err := judge.CountRuns(name, filepath.Join(l.dir, name))
		if err != nil {
			l.Fatal(err)
		}
		all = append(all, tally)
	}
	if err := judge.OneVictim(all, l.memory(), mode == "requeue"); err != nil {
		l.Error(err)
	}
}
