package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	client "github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/miniq"
)

// separateRuntime has the socket in a directory of its own, as a user's is, two below one that
// stays.
func separateRuntime(t *testing.T) (above string, change func(*Options)) {
	above = filepath.Join(t.TempDir(), "run")
	return above, func(o *Options) { o.Paths.Runtime = filepath.Join(above, "1000", "allotment") }
}

// awaitReachable waits until the daemon answers.
func (s *server) awaitReachable() {
	s.t.Helper()
	s.await("the daemon is reached", func() bool { _, err := s.client.Status(s.t.Context()); return err == nil })
}

func (s *server) await(what string, done func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not in a minute: %s", what)
		}
	}
}

// startSecond starts another daemon for the same state and returns what becomes of it.
func (s *server) startSecond() error {
	o := s.o
	// If it has taken the state it waits for its nodes, which the first daemon's keep out.
	ctx, cancel := context.WithTimeoutCause(context.Background(), acquireTime, errors.New("it took the state"))
	defer cancel()
	served := false
	o.Ready = func() { served = true; cancel() }
	err := Run(ctx, o)
	if served {
		return errors.New("it served")
	}
	return errors.Join(err, context.Cause(ctx))
}

// The socket, or its directory, is removed: the daemon listens anew, connected
// clients stay, and a second daemon finds that one serves.
func TestRemovedSocketIsMadeAgain(t *testing.T) {
	for name, remove := range map[string]func(s *server, above string) error{
		"socket":               func(s *server, _ string) error { return os.Remove(miniq.Socket(s.o.Paths)) },
		"its directory":        func(s *server, _ string) error { return os.RemoveAll(s.o.Paths.Runtime) },
		"all above it":         func(_ *server, above string) error { return os.RemoveAll(above) },
		"its directory, moved": func(s *server, above string) error { return os.Rename(filepath.Join(above, "1000"), above+"/gone") },
		"replaced": func(s *server, _ string) error {
			return errors.Join(os.Remove(miniq.Socket(s.o.Paths)), os.WriteFile(miniq.Socket(s.o.Paths), nil, 0o600))
		},
		"lock files, too": func(s *server, _ string) error {
			state := miniq.StateDir(s.o.Paths)
			return errors.Join(os.Remove(filepath.Join(state, "lock")), os.Remove(miniq.Socket(s.o.Paths)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			above, change := separateRuntime(t)
			s := serve(t, t.TempDir(), change)
			id := s.submit(s.held())[0]
			for range 2 {
				if err := remove(s, above); err != nil {
					t.Fatal(err)
				}
				if err := s.startSecond(); !Running(err) {
					t.Fatalf("a second daemon: %v", err)
				}
				fresh := client.Open(client.Options{Paths: s.o.Paths, Config: s.o.Config})
				defer fresh.Close()
				s.await("a new client is served", func() bool { _, err := fresh.Status(t.Context()); return err == nil })
				if snapshot, err := fresh.Snapshot(t.Context(), time.Time{}); err != nil || len(snapshot.Jobs) != 1 || snapshot.Jobs[0].ID != id {
					t.Errorf("jobs %v, %v", snapshot, err)
				}
				if info, err := os.Stat(miniq.Socket(s.o.Paths)); err != nil || os.Getuid() != 0 && info.Mode().Perm() != 0o600 || os.Getuid() == 0 && info.Mode().Perm() != 0o666 {
					t.Errorf("the socket: %v, %v", info, err)
				}
				_ = os.RemoveAll(filepath.Join(above, "gone"))
				_ = os.WriteFile(filepath.Join(miniq.StateDir(s.o.Paths), "lock"), nil, 0o600)
			}
			s.stop()
			if _, err := os.Lstat(miniq.Socket(s.o.Paths)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the socket is left: %v", err)
			}
		})
	}
}

// Where no socket can be made for a while, the daemon makes it when that is possible
// again: after a user's last logout there is no place for it until the next login.
func TestSocketIsMadeWhenPossible(t *testing.T) {
	above, change := separateRuntime(t)
	s := serve(t, t.TempDir(), change)
	s.submit(s.held())
	if err := os.Rename(above, above+".gone"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(above, nil, 0o600); err != nil { // no directory can be made there
		t.Fatal(err)
	}
	time.Sleep(2 * drainPause) // most likely it has tried by then; the test holds if it has not
	if err := os.Remove(above); err != nil {
		t.Fatal(err)
	}
	s.awaitReachable()
	if err := s.startSecond(); !Running(err) {
		t.Errorf("a second daemon: %v", err)
	}
}

// A state is locked by its directory, which can't be removed from under the lock, and by
// the file that alone was locked earlier.
func TestStateIsLockedByDirectoryAndFile(t *testing.T) {
	held := func(t *testing.T, path string) {
		f, err := os.Open(path)
		if err == nil {
			err = flock.Wait(f)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
	}
	for _, by := range []string{".", "lock"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		held(t, filepath.Join(dir, by))
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR | os.O_CREATE} {
			if l, err := lockState(dir, flag); !errors.Is(err, flock.ErrHeld) {
				t.Errorf("held by %s: %v, %v", by, l, err)
			}
		}
	}
	dir := t.TempDir()
	l, err := lockState(dir, os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if err := os.Remove(filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	if l, err := lockState(dir, os.O_RDWR|os.O_CREATE); !errors.Is(err, flock.ErrHeld) {
		t.Errorf("the lock was removed from under its owner: %v, %v", l, err)
	}
}

// A daemon waits for another one for a limited time, and its error names that one.
func TestWaitForLockIsBounded(t *testing.T) {
	dir := t.TempDir()
	l, err := lockState(dir, os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if err := l.sign("/somewhere/else.sock"); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := acquireState(t.Context(), dir, filepath.Join(dir, "none.sock"), slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "/somewhere/else.sock") || !strings.Contains(err.Error(), dir) {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(began); waited < acquireTime || waited > 2*acquireTime {
			t.Errorf("it waited for %v", waited)
		}
	})
}

// Without its state directory, or its journal, a daemon acknowledges nothing and says
// why; it goes on when it is put back.
func TestRemovedStateRefusesRequests(t *testing.T) {
	for name, move := range map[string]func(state, aside string) (back func() error, err error){
		"moved": func(state, aside string) (func() error, error) {
			return func() error { return os.Rename(aside, state) }, os.Rename(state, aside)
		},
		"replaced": func(state, aside string) (func() error, error) {
			return func() error { return errors.Join(os.RemoveAll(state), os.Rename(aside, state)) }, errors.Join(os.Rename(state, aside), os.Mkdir(state, 0o700))
		},
		"removed": func(state, _ string) (func() error, error) { return nil, os.RemoveAll(state) },
		"emptied": func(state, _ string) (func() error, error) {
			return nil, errors.Join(os.RemoveAll(state), os.Mkdir(state, 0o700))
		},
		"journal removed": func(state, _ string) (func() error, error) {
			names, err := segments(state)
			for _, name := range names {
				err = errors.Join(err, os.Remove(filepath.Join(state, name)))
			}
			return nil, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := serve(t, dir, nil)
			s.submit(s.held())
			ran := s.submit(s.spec("sleep 1000"))[0]
			s.awaitState(ran, backends.Running)
			back, err := move(miniq.StateDir(s.o.Paths), filepath.Join(dir, "aside"))
			if err != nil {
				t.Fatal(err)
			}
			r := s.client.Submit(t.Context(), []backends.Spec{s.held()})[0]
			if r.Err == nil || !strings.Contains(r.Err.Error(), "was removed or replaced") || !strings.Contains(r.Err.Error(), miniq.StateDir(s.o.Paths)) || !strings.Contains(r.Err.Error(), "miniqd stop") {
				t.Errorf("acknowledged: %v", r.Err)
			}
			if back == nil {
				s.stop() // with its jobs, and within the client's time
				if found, _ := os.ReadDir(miniq.StateDir(s.o.Paths)); name != "journal removed" && len(found) > 0 {
					t.Errorf("it wrote into what is not its own: %v", found)
				}
				return
			}
			if err := back(); err != nil {
				t.Fatal(err)
			}
			s.submit(s.held())
			if n := len(s.listJobs()); n != 3 {
				t.Errorf("%d jobs, want 3", n)
			}
		})
	}
}

// A daemon that has lost its state and can't be reached ends; one that serves a new
// state under that name meanwhile is left alone.
func TestDaemonEndsWithoutStateAndSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	o := options(t, dir)
	ready, ended := make(chan struct{}), make(chan error, 1)
	o.Ready = func() { close(ready) }
	go func() { ended <- Run(context.Background(), o) }()
	<-ready
	err := os.RemoveAll(dir)
	for errors.Is(err, unix.ENOTEMPTY) { // the daemon made a file there meanwhile
		err = os.RemoveAll(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, nil)
	id := s.submit(s.held())
	select {
	case err := <-ended:
		if !errors.As(err, new(*lostError)) {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	fresh := client.Open(client.Options{Paths: s.o.Paths, Config: s.o.Config})
	defer fresh.Close()
	if snapshot, err := fresh.Snapshot(t.Context(), time.Time{}); err != nil || len(snapshot.Jobs) != 1 || snapshot.Jobs[0].ID != id[0] {
		t.Errorf("the new one has %v, %v", snapshot, err)
	}
	if n := len(s.listJobs()); n != 1 {
		t.Errorf("its state has %d jobs", n)
	}
}

// A home's path may be longer than the kernel takes for a socket.
func TestLongHomePath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	s := serve(t, dir, nil)
	s.submit(s.held())
	if err := os.Remove(miniq.Socket(s.o.Paths)); err != nil {
		t.Fatal(err)
	}
	fresh := client.Open(client.Options{Paths: s.o.Paths, Config: s.o.Config})
	defer fresh.Close()
	s.await("it is reached", func() bool { _, err := fresh.Status(t.Context()); return err == nil })
	if err := s.startSecond(); !Running(err) {
		t.Errorf("a second daemon: %v", err)
	}
}

// A client with another runtime directory, such as in a user's cron job, finds the
// daemon of the same state.
func TestAnotherRuntimeDirectory(t *testing.T) {
	_, change := separateRuntime(t)
	s := serve(t, t.TempDir(), change)
	id := s.submit(s.held())[0]
	paths := s.o.Paths
	paths.Runtime = paths.State
	other := client.Open(client.Options{Paths: paths, Config: s.o.Config})
	defer other.Close()
	snapshot, err := other.Snapshot(t.Context(), time.Time{})
	if err != nil || len(snapshot.Jobs) != 1 || snapshot.Jobs[0].ID != id {
		t.Errorf("jobs %v, %v", snapshot, err)
	}
	s.stop()
	if _, err := other.Status(t.Context()); !errors.Is(err, backends.ErrUnreachable) {
		t.Errorf("stopped: %v", err)
	}
}
