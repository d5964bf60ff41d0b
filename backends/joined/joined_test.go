package joined

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/identity"
	"github.com/allotment-hpc/allotment/test/programs"
)

// TestMachines has real machines join, each with a miniq of its own.
func TestMachines(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs programs for seconds")
	}
	built := programs.Build(t, "asplit", "asplit-task")
	for name, test := range map[string]func(*testing.T, *site){
		"a split":           runSplit,
		"none has joined":   runNone,
		"a machine leaves":  leave,
		"a machine is lost": loseMachine,
		"miniqd ends":       loseDaemon,
		"a name is taken":   takeName,
		"strangers":         strangers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &site{built: built, home: t.TempDir()})
		})
	}
}

// site is a directory where machines join, and what they have of their own.
type site struct{ built, home string }

func (s *site) dir() string { return filepath.Join(s.home, "machines") }

func (s *site) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(s.built, "asplit"), args...)
	cmd.Dir, cmd.Stderr = s.home, t.Output()
	cmd.Env = append(os.Environ(), "HOME="+s.home, "ALLOTMENT_HOME="+filepath.Join(s.home, "none"), "GORACE=atexit_sleep_ms=0")
	return cmd
}

// state is the directory of a machine's own.
func (s *site) state(host string) string { return filepath.Join(s.home, "state-"+host) }

// join has a machine join. Its worker's process is returned.
func (s *site) join(t *testing.T, host string, slots int) *exec.Cmd {
	t.Helper()
	cmd := s.command(t, "worker", "--join", "--join-dir", s.dir(), "--name", host, "--slots", strconv.Itoa(slots), "--state", s.state(host))
	cmd.Stderr = nil
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		s.stop(t, host)
	})
	in := bufio.NewScanner(said)
	for in.Scan() {
		t.Log(in.Text())
		if strings.Contains(in.Text(), "has joined") {
			go func() { _, _ = io.Copy(io.Discard, said) }()
			return cmd
		}
	}
	t.Fatalf("%s did not join", host)
	return nil
}

// stop ends the miniq of a machine, if it runs still.
func (s *site) stop(t *testing.T, host string) {
	cmd := exec.Command(filepath.Join(s.built, "miniqd"), "stop", "--kill")
	cmd.Env = append(os.Environ(), "ALLOTMENT_HOME="+s.state(host))
	if text, err := cmd.CombinedOutput(); err != nil && !bytes.Contains(text, []byte("stopped on purpose")) {
		t.Logf("stop the miniqd of %s: %v: %s", host, err, text)
	}
}

// queue opens the machines as a split does.
func (s *site) queue(t *testing.T) *Queue {
	t.Helper()
	q, err := Open(s.dir(), func(text string) { t.Log(text) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// until waits for changes until a snapshot is as it should be.
func until(t *testing.T, q *Queue, what string, is func(*backends.Snapshot) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changed := q.Changes()
	for {
		s, err := q.Snapshot(ctx, time.Now().Add(-time.Hour))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if is(s) {
			return
		}
		tick, stop := context.WithTimeout(ctx, time.Second) // a record is no change
		_ = changed(tick)
		stop()
		if ctx.Err() != nil {
			t.Fatalf("%s: not seen; hosts %+v", what, s.Hosts)
		}
	}
}

func hostIs(name string, state backends.HostState) func(*backends.Snapshot) bool {
	return func(s *backends.Snapshot) bool {
		return slices.ContainsFunc(s.Hosts, func(h backends.Host) bool { return h.Name == name && h.State == state })
	}
}

// sleeper submits a job that runs until it is killed, and waits until it runs.
func (s *site) sleeper(t *testing.T, q *Queue, host string) backends.ID {
	t.Helper()
	r := q.Submit(t.Context(), []backends.Spec{{
		Name: "sleeper", Hosts: []string{host}, Slots: 1, Command: []string{"/bin/sleep", "600"}, Dir: s.home, Stdout: "/dev/null", Env: os.Environ(),
	}})
	if r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	until(t, q, "the job runs", func(f *backends.Snapshot) bool {
		return slices.ContainsFunc(f.Jobs, func(j backends.Job) bool { return j.ID == r[0].ID && j.State == backends.Running })
	})
	return r[0].ID
}

func (s *site) stateOf(t *testing.T, q *Queue, id backends.ID) backends.State {
	t.Helper()
	jobs, err := q.Jobs(t.Context(), []backends.ID{id})
	if err != nil || len(jobs) != 1 || jobs[0].ID != id {
		t.Fatalf("job %v: %+v, %v", id, jobs, err)
	}
	return jobs[0].State
}

func runSplit(t *testing.T, s *site) {
	s.join(t, "m1", 2)
	s.join(t, "m2", 1)
	cmd := s.command(t, "--joined", "--join-dir", s.dir(), "--no-qualify", "--quiet", "--round", "12", "--range", "1-60", "sh", "-c", "echo $1 $LSB_HOSTS", "sh", "{}")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	n := 0
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line) // a host for each slot
		if n++; len(words) < 2 || words[0] != strconv.Itoa(n) {
			t.Fatalf("line %d is %q", n, line)
		}
		used[words[1]] = true
	}
	if n != 60 || !used["m1"] || !used["m2"] {
		t.Errorf("%d items on %v", n, used)
	}
}

func runNone(t *testing.T, s *site) {
	if err := os.Mkdir(s.dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(s.dir(), func(string) {}); !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
}

func leave(t *testing.T, s *site) {
	worker := s.join(t, "m1", 1)
	q := s.queue(t)
	id := s.sleeper(t, q, "m1")
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until(t, q, "it leaves", hostIs("m1", backends.HostDown))
	if r := q.Submit(t.Context(), []backends.Spec{{Name: "late", Hosts: []string{"m1"}, Slots: 1, Command: []string{"/bin/true"}, Dir: s.home}}); r[0].Err == nil || unreachable(r[0].Err) {
		t.Errorf("a machine that leaves took a job, or may have: %+v", r)
	}
	if got := s.stateOf(t, q, id); got != backends.Running {
		t.Errorf("its job is %v before the split has taken it back", got)
	}
	if err := q.Kill(t.Context(), []backends.ID{id}).First(); err != nil {
		t.Error(err)
	}
	if err := worker.Wait(); err != nil {
		t.Errorf("the worker: %v", err)
	}
	if _, err := os.Stat(path(s.dir(), "m1")); err == nil {
		t.Error("its record is there still")
	}
	if conn, err := net.Dial("unix", filepath.Join(s.state("m1"), "miniq.sock")); err == nil {
		_ = conn.Close()
		t.Error("its miniqd runs still")
	}
}

// loseMachine kills what connects a machine; its job goes on, unseen, and is killed when it is back.
func loseMachine(t *testing.T, s *site) {
	worker := s.join(t, "m1", 1)
	s.join(t, "m2", 1)
	q := s.queue(t)
	id := s.sleeper(t, q, "m1")
	if err := errors.Join(worker.Process.Kill(), worker.Wait()); err == nil {
		t.Fatal("the worker was not killed")
	}
	until(t, q, "it is silent", hostIs("m1", backends.HostClosed))
	if got := s.stateOf(t, q, id); got != backends.Running {
		t.Errorf("the job of a silent machine is %v", got)
	}
	if r := q.Submit(t.Context(), []backends.Spec{{Hosts: []string{"m1"}, Slots: 1, Command: []string{"/bin/true"}, Dir: s.home}}); r[0].Err == nil || unreachable(r[0].Err) {
		t.Errorf("a silent machine took a job, or may have: %+v", r)
	}
	q.limit = time.Nanosecond
	if got := s.stateOf(t, q, id); got != backends.Running {
		t.Errorf("the job is %v before a snapshot has the machine down", got)
	}
	until(t, q, "it is lost", hostIs("m1", backends.HostDown))
	if got := s.stateOf(t, q, id); got != backends.Exited {
		t.Errorf("the job of a lost machine is %v", got)
	}
	s.join(t, "m1", 1)
	until(t, q, "it is back, and its job was killed", func(f *backends.Snapshot) bool {
		return hostIs("m1", backends.HostUp)(f) && slices.ContainsFunc(f.Ended, func(j backends.Job) bool { return j.ID == id })
	})
	if r := q.Submit(t.Context(), []backends.Spec{{Name: "next", Hosts: []string{"m1"}, Slots: 1, Command: []string{"/bin/true"}, Dir: s.home, Stdout: "/dev/null"}}); r[0].Err != nil {
		t.Error(r[0].Err)
	}
}

// loseDaemon kills a machine's miniqd, which its worker starts again.
func loseDaemon(t *testing.T, s *site) {
	s.join(t, "m1", 1)
	q := s.queue(t)
	id := s.sleeper(t, q, "m1")
	text, err := os.ReadFile(filepath.Join(s.state("m1"), "miniq", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, q, "it serves again", func(f *backends.Snapshot) bool {
		again, err := os.ReadFile(filepath.Join(s.state("m1"), "miniq", "lock"))
		return err == nil && !bytes.Equal(again, text) && hostIs("m1", backends.HostUp)(f)
	})
	if got := s.stateOf(t, q, id); got != backends.Running {
		t.Errorf("its job is %v", got)
	}
}

func takeName(t *testing.T, s *site) {
	s.join(t, "m1", 1)
	for _, c := range []struct{ state, want string }{{"other", "choose another --name"}, {"m1", "may offer this machine"}} {
		cmd := s.command(t, "worker", "--join", "--join-dir", s.dir(), "--name", "m1", "--state", s.state(c.state))
		cmd.Stderr = nil
		if text, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(text, []byte(c.want)) {
			t.Errorf("%v: %s, want %q", err, text, c.want)
		}
	}
}

// strangers get nothing without the secret, and no secret without the certificate.
func strangers(t *testing.T, s *site) {
	s.join(t, "m1", 1)
	r, err := readRecord(s.dir(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	wrong := r
	wrong.Secret = strings.Repeat("0", secretDigits)
	if f, err := wrong.dial(t.Context()); err == nil {
		_ = f.Close()
		t.Error("a stranger is admitted")
	}
	f, err := r.dial(t.Context())
	if err != nil {
		t.Fatalf("its owner is not admitted: %v", err)
	}
	_ = f.Close()
	// A machine that took the address hears nothing.
	pem, err := identity.New("m1")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pem, pem)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	heard := make(chan []byte, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			heard <- nil
			return
		}
		text, _ := io.ReadAll(conn)
		_ = conn.Close()
		heard <- text
	}()
	r.Addresses = []string{l.Addr().String()}
	if f, err := r.dial(t.Context()); !errors.Is(err, errForeign) {
		_ = f.Close()
		t.Errorf("another certificate: %v", err)
	}
	if text := <-heard; len(text) > 0 {
		t.Errorf("another machine heard %q", text)
	}
}
