package miniq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	client "github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/daemon"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/node"
	"github.com/allotment-hpc/allotment/test/await"
)

// TestMain makes the test binary be every program of the queue: daemon, node
// and keeper are this very code, under the race detector where the tests are.
func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Args[0] == "miniq-keeper":
		exit(keeper.Run())
	case filepath.Base(os.Args[0]) == "adummy":
		time.Sleep(time.Hour) // longer than any test waits
	case len(os.Args) > 1 && os.Args[1] == "node":
		err = nodeMain(os.Args)
	case len(os.Args) > 1 && os.Args[1] == "daemon":
		err = daemonMain(os.Args[2])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// exit ends a keeper without the second that the race detector sleeps at an end.
func exit(status int) { _, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(status), 0, 0) }

func nodeMain(args []string) error {
	option := func(name string) string {
		for i, a := range args {
			if a == name {
				return args[i+1]
			}
		}
		return ""
	}
	return node.Main(node.Options{Dir: option("--dir"), Keeper: option("--keeper"), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
}

// setup is the configuration of a daemon under test.
type setup struct {
	Home  string
	Nodes []string
	Every time.Duration
	Keep  time.Duration
	Hook  []string // run when a job has ended
	Env   []string // of the daemon, besides
}

func (s setup) config() miniq.Config {
	c := miniq.DefaultConfig()
	for _, text := range s.Nodes {
		n, err := miniq.ParseNode(text)
		if err != nil {
			panic(err)
		}
		c.Nodes = append(c.Nodes, n)
	}
	c.EndHook = s.Hook
	c.Ageing.Interval = unit.Duration(s.Every)
	if s.Keep > 0 {
		c.KeepFinished = unit.Duration(s.Keep)
	}
	return c
}

func (s setup) paths() home.Paths {
	p, err := home.Find(func(name string) string {
		if name == "ALLOTMENT_HOME" {
			return s.Home
		}
		return ""
	}, os.Getuid())
	if err != nil {
		panic(err)
	}
	return p
}

func daemonMain(arg string) error {
	var s setup
	if err := json.Unmarshal([]byte(arg), &s); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	dummy := filepath.Join(s.Home, "adummy")
	if err := os.MkdirAll(s.Home, 0o700); err != nil {
		return err
	}
	if err := os.Symlink(self, dummy); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	ready := os.NewFile(3, "ready")
	err = daemon.Run(ctx, daemon.Options{
		Paths: s.paths(), Config: s.config(), Program: self, Keeper: self, Dummy: dummy, Version: "test",
		Log:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Ready: func() { _, _ = ready.WriteString(miniq.ReadyLine); _ = ready.Close() },
	})
	if daemon.Running(err) {
		_, _ = ready.WriteString(miniq.RunningLine)
	}
	return err
}

// queue is a real daemon with its nodes in a home of its own.
type queue struct {
	t testing.TB
	setup
	*client.Client
	cmd *exec.Cmd
	log string
}

func newQueue(t testing.TB, s setup) *queue {
	t.Helper()
	if s.Home == "" {
		s.Home = filepath.Join(t.TempDir(), "home")
	}
	if s.Nodes == nil {
		s.Nodes = []string{"n1:4:1G", "n2:4:1G"}
	}
	if s.Every == 0 {
		s.Every = time.Second
	}
	q := &queue{t: t, setup: s, log: filepath.Join(t.TempDir(), "log")}
	// No test depends on this machine's speed: the default suits a user who waits.
	q.Client = client.Open(client.Options{Paths: s.paths(), Config: s.config(), Timeout: time.Minute})
	q.start()
	t.Cleanup(q.tidy)
	return q
}

// start runs a daemon and returns when it serves.
func (q *queue) start() {
	q.t.Helper()
	log, err := os.OpenFile(q.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		q.t.Fatal(err)
	}
	defer log.Close()
	ready, theirs, err := os.Pipe()
	if err != nil {
		q.t.Fatal(err)
	}
	arg, err := json.Marshal(q.setup)
	if err != nil {
		q.t.Fatal(err)
	}
	q.cmd = exec.Command(os.Args[0], "daemon", string(arg))
	q.cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), q.Env...)
	q.cmd.Stderr, q.cmd.ExtraFiles = log, []*os.File{theirs}
	if err := q.cmd.Start(); err != nil {
		q.t.Fatal(err)
	}
	_ = theirs.Close()
	defer ready.Close()
	line := make([]byte, 100)
	if n, err := ready.Read(line); err != nil || string(line[:n]) != miniq.ReadyLine {
		q.t.Fatalf("the daemon did not start: %q, %v\n%s", line[:n], err, q.logText())
	}
}

func (q *queue) logText() string {
	text, _ := os.ReadFile(q.log)
	return string(text)
}

// kill is kill -9 of the daemon.
func (q *queue) kill() {
	q.t.Helper()
	if err := q.cmd.Process.Kill(); err != nil {
		q.t.Fatal(err)
	}
	_ = q.cmd.Wait()
}

// hang stops the daemon by SIGSTOP, and waits until each of its threads is stopped.
func (q *queue) hang() {
	q.t.Helper()
	if err := errors.Join(q.cmd.Process.Signal(syscall.SIGSTOP), await.Stopped(q.cmd.Process.Pid)); err != nil {
		q.t.Fatal(err)
	}
}

func (q *queue) restart() {
	q.t.Helper()
	if q.cmd.ProcessState == nil {
		q.kill()
	}
	q.start()
}

// tidy ends every job and the daemon, and checks that no process is left behind.
func (q *queue) tidy() {
	if q.cmd.ProcessState != nil {
		q.start()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := q.Stop(ctx, true); err != nil {
		q.t.Errorf("stop: %v", err)
		_ = q.cmd.Process.Kill()
	}
	_ = q.cmd.Wait()
	_ = q.Close()
	if q.t.Failed() {
		q.t.Logf("the daemon's log:\n%s", q.logText())
	}
	if left := q.processes(); len(left) > 0 {
		q.t.Errorf("processes are left behind: %q", left)
	}
}

// processes lists every living process that has the home in its command line or
// environment.
func (q *queue) processes() []string {
	var found []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, _ := os.ReadFile(dir + "/cmdline")
		env, _ := os.ReadFile(dir + "/environ")
		if strings.Contains(string(line)+string(env), q.Home+"/") && dir != fmt.Sprint("/proc/", os.Getpid()) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// run is a job of one slot that runs a shell script.
func (q *queue) run(script string, args ...string) backends.Spec {
	return backends.Spec{
		Name: "test", Project: "chipA", Slots: 1, Command: append([]string{"/bin/sh", "-c", script, "sh"}, args...),
		Dir: q.Home, Env: []string{"PATH=/usr/bin:/bin"}, Umask: 0o077, Stdout: "/dev/null",
	}
}

func (q *queue) submit(specs ...backends.Spec) []backends.ID {
	q.t.Helper()
	var ids []backends.ID
	for _, s := range q.Submit(context.Background(), specs) {
		if s.Err != nil {
			q.t.Fatalf("submit: %v", s.Err)
		}
		ids = append(ids, s.ID)
	}
	return ids
}

// soon bounds what takes less than a second on an idle machine.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// await waits for a job to come into a state, and checks after each change of the queue.
func (q *queue) await(id backends.ID, what string, cond func(*backends.Job) bool) backends.Job {
	q.t.Helper()
	jobs, err := await.Jobs(soon(q.t), q.Client, []backends.ID{id}, func(jobs []backends.Job) bool { return cond(&jobs[0]) })
	if err != nil {
		q.t.Fatalf("job %v never was %s: %v", id, what, err)
	}
	return jobs[0]
}

func (q *queue) awaitState(id backends.ID, s backends.State) backends.Job {
	q.t.Helper()
	return q.await(id, s.String(), func(j *backends.Job) bool { return j.State == s })
}

// awaitFile waits until a file holds a text; jobs write there what they do.
func (q *queue) awaitFile(path, want string) {
	q.t.Helper()
	if err := await.File(soon(q.t), path, func(text string) bool { return text == want }); err != nil {
		q.t.Fatalf("want %q: %v", want, err)
	}
}

// awaitLog waits for a text in the daemon's log.
func (q *queue) awaitLog(want string) {
	q.t.Helper()
	if err := await.File(soon(q.t), q.log, func(text string) bool { return strings.Contains(text, want) }); err != nil {
		q.t.Fatalf("the log does not say %q: %v", want, err)
	}
}

// awaitFiles waits until a directory has so many files of a pattern.
func (q *queue) awaitFiles(dir, pattern string, n int) (files []string) {
	q.t.Helper()
	err := await.Dir(soon(q.t), dir, func() bool {
		files, _ = filepath.Glob(filepath.Join(dir, pattern))
		return len(files) == n
	})
	if err != nil {
		q.t.Fatalf("files %q, want %d: %v", files, n, err)
	}
	return files
}

// killText kills the process whose ID a job has written down.
func killText(t testing.TB, text string) {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || pid < 2 {
		t.Fatalf("process ID %q: %v", text, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func userName(t testing.TB) string {
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}
