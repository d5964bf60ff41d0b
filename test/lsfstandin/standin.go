package lsfstandin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/await"
)

// Options describe the cluster that a test wants.
type Options struct {
	Hosts   int     // h1, h2 …; 0: 2
	Slots   int     // of each; 0: 4
	Memory  int64   // bytes of each; 0: 4 GiB
	Flavour Flavour // "": Lava
	// Second is how long a second of LSF's daemons takes; 0: 100 ms.
	Second time.Duration
	// MaxUserPriority is that of lsb.params; 0: 100, below zero: none.
	MaxUserPriority int
	LimitUnit       string // LSF_UNIT_FOR_LIMITS
	// RootMaySubmit sets LSF_ROOT_REX: for tests that hand in jobs as root.
	RootMaySubmit bool
	Users         map[string]UserConfig
	Admins        []string
	// Edit changes the config before the cluster starts, and its Unkind answers, which are
	// all on; nil: it is as it is.
	Edit func(*Config)
}

// Cluster is a running cluster.
type Cluster struct {
	t       testing.TB // nil: not started by a test
	dir     string
	program string

	mu     sync.Mutex
	daemon *exec.Cmd
}

const patience = 30 * time.Second

// New starts a cluster for a test; it ends with the test, and all its jobs.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	t.TempDir() // is removed after the jobs, which may write there, are gone
	c, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	c.t = t
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Start starts a cluster outside of a test. It ends with Stop, or with the process that
// started it.
func Start(o Options) (*Cluster, error) {
	program, err := build()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lsf-") // short: its socket's name must be
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, program: program}
	if err := errors.Join(os.Chmod(dir, 0o755), Write(dir, o.config(), program)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.start(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (o Options) config() Config {
	if o.Hosts == 0 {
		o.Hosts = 2
	}
	if o.Slots == 0 {
		o.Slots = 4
	}
	if o.Memory == 0 {
		o.Memory = 4 << 30
	}
	if o.Second == 0 {
		o.Second = 100 * time.Millisecond
	}
	if o.MaxUserPriority == 0 {
		o.MaxUserPriority = 100
	}
	c := Config{Flavour: o.Flavour, Second: o.Second, Users: o.Users, Admins: o.Admins, RootMaySubmit: o.RootMaySubmit, Unkind: AllUnkind()}
	c.Params = Params{MaxUserPriority: max(0, o.MaxUserPriority), LimitUnit: o.LimitUnit}
	for i := range o.Hosts {
		c.Hosts = append(c.Hosts, HostConfig{Name: fmt.Sprintf("h%d", i+1), Slots: o.Slots, Memory: o.Memory})
	}
	if o.Edit != nil {
		o.Edit(&c)
	}
	return c
}

var built struct {
	sync.Once
	program string
	err     error
	sweep   io.WriteCloser // gets a line for each daemon; the sweep begins when it closes
}

// build makes the programs' binary, once in a test process. What that leaves behind is
// swept when the process ends, however it does.
func build() (string, error) {
	built.Do(func() { built.program, built.err = buildAndSweep() })
	return built.program, built.err
}

func buildAndSweep() (string, error) {
	dir, err := os.MkdirTemp("", "lsfstandin-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "lsfstandin")
	cmd := exec.Command("go", "build", "-o", program, "github.com/allotment-hpc/allotment/test/lsfstandin/cmd/lsfstandin") //nolint:noctx // a test's own end bounds it
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if printed, err := cmd.CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		return "", fmt.Errorf("go build: %w: %s", err, printed)
	}
	sweep := exec.Command(program, "sweep", dir) //nolint:noctx // it ends after the test
	sweep.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if built.sweep, err = sweep.StdinPipe(); err != nil { // it closes with this process
		return "", err
	}
	return program, errors.Join(os.Chmod(dir, 0o755), sweep.Start())
}

// start starts the daemon: after Kill it goes on where it was.
func (c *Cluster) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(c.dir, logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(c.program, "serve", c.dir, "lifeline") //nolint:noctx // it ends with the test
	if _, err := cmd.StdinPipe(); err != nil {                 // it closes with this process
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.daemon = cmd
	if _, err := fmt.Fprintln(built.sweep, cmd.Process.Pid, c.dir); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		_, err := ask(c.dir, request{List: true})
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the stand-in does not answer: %s", c.Log())
		}
	}
}

// Stop ends the daemon and all jobs, and removes the cluster's directory. A daemon
// that was killed comes back for that.
func (c *Cluster) Stop() error {
	defer func() { _ = os.RemoveAll(c.dir) }()
	c.mu.Lock()
	gone := c.daemon == nil
	c.mu.Unlock()
	if gone {
		if err := c.start(); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.daemon.Process.Signal(syscall.SIGCONT)
	_ = c.daemon.Process.Signal(syscall.SIGTERM)
	err := c.daemon.Wait()
	c.daemon = nil
	if err != nil {
		return fmt.Errorf("the stand-in's daemon: %w: %s", err, c.Log())
	}
	return nil
}

// must ends the test at an error.
func (c *Cluster) must(err error) {
	switch {
	case err == nil:
	case c.t == nil:
		panic(err)
	default:
		c.t.Helper()
		c.t.Fatal(err)
	}
}

// Kill kills the daemon, as kill -9 does; its jobs run on.
func (c *Cluster) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.daemon.Process.Kill()
	_ = c.daemon.Wait()
	c.daemon = nil
	return err
}

// Hang makes the daemon accept requests and answer none.
func (c *Cluster) Hang() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.daemon.Process.Signal(syscall.SIGSTOP), await.Stopped(c.daemon.Process.Pid))
}

// Restart brings the daemon back after Kill or Hang.
func (c *Cluster) Restart() error {
	c.mu.Lock()
	daemon := c.daemon
	c.mu.Unlock()
	if daemon == nil {
		return c.start()
	}
	return daemon.Process.Signal(syscall.SIGCONT)
}

// Away makes the programs fail for a time.
func (c *Cluster) Away(d time.Duration) {
	c.must(Away(c.dir, d))
}

// SetHost closes a host, or takes it down, or brings it back.
func (c *Cluster) SetHost(name string, closed, down bool) {
	c.must(failed(ask(c.dir, request{Input: &input{Host: &hostChange{name, closed, down}}})))
}

// EnvDir is what LSF_ENVDIR must be.
func (c *Cluster) EnvDir() string { return c.dir }

// Bin is the directory of the programs.
func (c *Cluster) Bin() string { return filepath.Join(c.dir, binDir) }

// ServerDir is where the site's esub belongs.
func (c *Cluster) ServerDir() string { return filepath.Join(c.dir, etcDir) }

// Env is the test's own environment with the programs on PATH.
func (c *Cluster) Env() []string {
	return append(os.Environ(), "LSF_ENVDIR="+c.dir, "PATH="+c.Bin()+":"+os.Getenv("PATH"))
}

// Run runs one of the programs as the test's own user.
func (c *Cluster) Run(args ...string) (stdout, stderr string, rc int) { return c.RunAs(0, 0, args...) }

// RunAs runs one of the programs as another user, for which the test must be root;
// 0, 0: as the test's own.
func (c *Cluster) RunAs(uid, gid int, args ...string) (stdout, stderr string, rc int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out, printed bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(c.Bin(), args[0]), args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = c.Env(), &out, &printed, "/tmp"
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.must(fmt.Errorf("%q: %w", args, err))
	}
	return out.String(), printed.String(), cmd.ProcessState.ExitCode()
}

// Snapshot returns the snapshot that the listings print from now.
func (c *Cluster) Snapshot() (*Listing, error) {
	answer, err := ask(c.dir, request{List: true})
	if err != nil {
		return nil, err
	}
	return answer.Listing, nil
}

// Log returns what the daemon has logged.
func (c *Cluster) Log() string {
	text, err := os.ReadFile(filepath.Join(c.dir, logFile))
	if err != nil {
		return err.Error()
	}
	return string(text)
}
