// Package cluster gives tests a throw-away Slurm cluster of their own.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/test/await"
)

// Required is the variable that enables the tests that boot a cluster; they fail then
// if Slurm is missing. They take minutes: make test leaves them to make test-slurm.
const Required = "ALLOTMENT_TEST_SLURM"

// Options say how the cluster is made; a zero value means the script's default.
type Options struct {
	Dir       string   // the cluster's directory; "": one of the test's own
	Nodes     int      // node1 …; 4
	CPUs      int      // of each; 4
	Memory    int      // MiB of each; 16384
	Each      []string // what node i has instead, as in slurm.conf, e.g. "CPUs=8 RealMemory=65536 Feature=big Gres=gpu:2"; "": as the others
	Queues    []string // PartitionName= lines of slurm.conf; nil: main, of all nodes
	Slurmdbd  bool     // accounting by slurmdbd, enforced; root has an association with the account root
	Port      int      // of slurmctld, those of the other daemons behind it; 0: free ones
	JobSubmit string   // job_submit.lua; "": none
	Conf      []string // more lines of slurm.conf

	Namespaces bool // each node has a network namespace of its own: see Node

	RequeueDelay time.Duration // until a requeued job may start again, in whole seconds; 0: Slurm's own 120 s
}

// Cluster is a running cluster.
type Cluster struct {
	Dir     string
	options Options
}

// patience bounds what should take a second.
const patience = 2 * time.Minute

// Missing returns what keeps clusters from being started here; "" for nothing.
func Missing() string {
	if os.Getuid() != 0 {
		return "only root can run Slurm's daemons"
	}
	for _, program := range []string{"munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not installed: test/slurm-cluster.sh deps names its packages"
		}
	}
	return ""
}

// Needed skips a test unless Required is set to 1; then the test fails if no cluster can
// be started.
func Needed(t testing.TB) {
	t.Helper()
	if os.Getenv(Required) != "1" {
		t.Skip("skipped: it boots a Slurm cluster: make test-slurm runs it")
	}
	if missing := Missing(); missing != "" {
		t.Fatalf("%s=1 and %s", Required, missing)
	}
}

// New starts a cluster that ends with the test, which is skipped unless Required is set
// to 1. Several tests may have clusters at the same time: Env and Conf name one.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	Needed(t)
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "allotment-slurm-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		o.Dir = dir
	}
	c, err := Start(context.Background(), o)
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Start starts a cluster. The caller must stop it, also after an error.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{Dir: o.Dir, options: o}
	if err := os.Chmod(o.Dir, 0o755); err != nil { // SlurmUser is another user
		return c, err
	}
	extra := filepath.Join(o.Dir, "extra.conf")
	if err := os.WriteFile(extra, []byte(strings.Join(append(o.Conf, ""), "\n")), 0o644); err != nil {
		return c, err
	}
	if o.Port == 0 {
		done, err := inTurn()
		if err != nil {
			return c, err
		}
		defer done()
		if c.options.Port, err = freePorts(max(o.Nodes, 4) + 3); err != nil {
			return c, err
		}
	}
	return c, c.script(ctx, "up", "SLURM_EXTRA="+extra)
}

// inTurn waits until no other process on the machine looks for ports for a cluster, or
// starts one that does not listen at them yet.
func inTurn() (done func(), err error) {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "allotment-slurm.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock.Wait(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// freePorts returns the first of n free ports in a row. They lie below those that the
// kernel assigns.
func freePorts(n int) (int, error) {
	const lowest, highest = 18400, 31000
	begin := lowest + os.Getpid()*64%(highest-lowest)
	for tries := range (highest - lowest) / n {
		first := lowest + (begin-lowest+tries*n)%(highest-lowest-n)
		if free(first, n) {
			return first, nil
		}
	}
	return 0, errors.New("no free ports for a cluster")
}

func free(first, n int) bool {
	for port := first; port < first+n; port++ {
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port)) //nolint:noctx // it listens at once or not at all
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

func (c *Cluster) script(ctx context.Context, verb string, env ...string) error {
	_, file, _, _ := runtime.Caller(0)
	env = append(env, "BASEPORT="+strconv.Itoa(c.options.Port))
	for key, n := range map[string]int{"NODES": c.options.Nodes, "CPUS": c.options.CPUs, "MEM": c.options.Memory} {
		if n > 0 {
			env = append(env, key+"="+strconv.Itoa(n))
		}
	}
	env = append(env, "NODE_LINES="+strings.Join(c.options.Each, "\n"), "PARTITIONS="+strings.Join(c.options.Queues, "\n"))
	if c.options.Slurmdbd {
		env = append(env, "SLURMDBD=1")
	}
	if c.options.Namespaces {
		env = append(env, "NAMESPACES=1")
	}
	if c.options.RequeueDelay > 0 {
		env = append(env, fmt.Sprintf("REQUEUE_DELAY=%.0f", c.options.RequeueDelay.Seconds()))
	}
	if c.options.JobSubmit != "" {
		env = append(env, "JOB_SUBMIT_LUA="+c.options.JobSubmit)
	}
	_, err := command.Run(ctx, command.Command{
		Argv: []string{filepath.Join(filepath.Dir(file), "..", "slurm-cluster.sh"), verb, c.Dir},
		Env:  append(os.Environ(), env...), Timeout: patience, Stdout: os.Stderr, // its daemons keep the descriptor
	})
	return err
}

// Stop ends the cluster's jobs and its processes; its directory stays.
func (c *Cluster) Stop(ctx context.Context) error { return c.script(ctx, "down") }

// Conf returns the path of its slurm.conf, for SLURM_CONF.
func (c *Cluster) Conf() string { return filepath.Join(c.Dir, "slurm.conf") }

// Env returns the environment of a command that is to reach the cluster.
func (c *Cluster) Env() []string { return append(os.Environ(), "SLURM_CONF="+c.Conf()) }

// pid returns slurmctld's process, 0 if there is none.
func (c *Cluster) pid() int {
	text, err := os.ReadFile(filepath.Join(c.Dir, "run", "slurmctld.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n") // 24.11 leaves the end of a longer number behind
	pid, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	if err != nil || !strings.HasPrefix(filepath.Base(exe), "slurmctld") {
		return 0
	}
	return pid
}

// Kill ends slurmctld at once, as kill -9 does. Jobs run on.
func (c *Cluster) Kill() error {
	pid := c.pid()
	if pid == 0 {
		return errors.New("kill slurmctld: it does not run")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill slurmctld: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if !await.End(ctx, pid) {
		return errors.New("kill slurmctld: it is still there")
	}
	return nil
}

// Saved waits until slurmctld has saved what it has acknowledged so far: it does so at
// most 5 s later (22.05) unless the machine is busy, and after an earlier Kill it is lost.
func (c *Cluster) Saved() {
	const most = 20 * time.Second // without changes nothing is written
	called := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	state := filepath.Join(c.Dir, "state")
	_ = await.Dir(ctx, state, func() bool {
		info, err := os.Stat(filepath.Join(state, "job_state"))
		return err == nil && info.ModTime().After(called)
	})
}

// Hang makes slurmctld accept requests and answer none.
func (c *Cluster) Hang() error {
	if err := syscall.Kill(c.pid(), syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop slurmctld: %w", err)
	}
	return nil
}

// Restart starts slurmctld after Kill, continues it after Hang, and returns when it
// answers. It has all that it had saved.
func (c *Cluster) Restart(ctx context.Context) error {
	if pid := c.pid(); pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGCONT)
		if err := c.ping(ctx); err == nil {
			return nil
		}
	}
	// It and its jobs get nothing of this process's environment.
	_, err := command.Run(ctx, command.Command{
		Argv: []string{"slurmctld"}, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF=" + c.Conf()},
		Timeout: patience, Stdout: os.Stderr,
	})
	if err != nil {
		return fmt.Errorf("restart slurmctld: %w", err)
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !await.Until(waiting, func() bool { err = c.ping(ctx); return err == nil }) {
		return fmt.Errorf("restart slurmctld: %w", err)
	}
	return nil
}

// ping asks for all nodes: they are known when slurmctld has read its state.
func (c *Cluster) ping(ctx context.Context) error {
	out, err := c.Run(ctx, "sinfo", "--noheader", "--Node", "--format=%t")
	if err == nil && len(out) == 0 {
		err = errors.New("sinfo: no nodes")
	}
	return err
}

// Run runs one of Slurm's commands on the cluster.
func (c *Cluster) Run(ctx context.Context, argv ...string) (string, error) {
	out, err := command.Run(ctx, command.Command{Argv: argv, Env: c.Env(), Timeout: patience})
	return string(out), err
}

// Log returns the end of slurmctld's log, for a test that failed.
func (c *Cluster) Log() string {
	const most = 4000
	text, _ := os.ReadFile(filepath.Join(c.Dir, "log", "slurmctld.log"))
	return string(text[max(len(text)-most, 0):])
}
