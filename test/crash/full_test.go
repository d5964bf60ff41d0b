package crash

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/await"
)

// disk is a disk that fills up: a small file system of its own where that can be
// mounted, or a simulated one (every write below the daemon fails).
type disk interface {
	fill() error
	free() error
}

type tmpfs struct{ dir string }

func (d tmpfs) filler() string { return filepath.Join(d.dir, "filler") }
func (d tmpfs) free() error    { return os.Remove(d.filler()) }

func (d tmpfs) fill() error {
	f, err := os.OpenFile(d.filler(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	for written := 1; written > 0 && err == nil; { // ext4 reserves blocks for data that it has not allocated yet
		for written = 0; err == nil; {
			var n int
			n, err = f.Write(make([]byte, 512))
			written += n
		}
		if errors.Is(err, syscall.ENOSPC) {
			err = f.Sync()
		}
	}
	return errors.Join(err, f.Close())
}

type simulatedDisk struct{ path string }

func (d simulatedDisk) fill() error { return os.WriteFile(d.path, nil, 0o600) }
func (d simulatedDisk) free() error { return os.Remove(d.path) }

// TestFullDisk: on a full disk requests are refused with an error that says what to do,
// also by a daemon that was started on it; nothing is half done; with space again the
// daemon continues, and all acknowledged jobs end.
func TestFullDisk(t *testing.T) {
	bin := build(t)
	t.Run("simulated", func(t *testing.T) {
		f, err := newTempFarm(t, bin)
		if err != nil {
			t.Fatal(err)
		}
		full := filepath.Join(f.home, "full")
		m := &machine{Home: f.home, Bin: bin, Boot: bootName(0), Full: full}
		start := func() *running {
			r, err := m.on(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		r := start()
		fullDisk(t, f, simulatedDisk{full}, func() {
			_ = r.cmd.Process.Kill()
			<-r.gone
			r = start()
		})
	})
	t.Run("mounted", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "crash")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16m,mode=0700"); err != nil {
			t.Skipf("skip: no file system can be mounted here: %v", err)
		}
		defer func() {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}()
		t.Setenv("ALLOTMENT_HOME", dir)
		t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		f, err := newFarm(bin, dir)
		if err != nil {
			t.Fatal(err)
		}
		f.jobs = t.TempDir() // the jobs have space
		fullDisk(t, f, tmpfs{dir}, func() {
			for _, p := range f.find("daemon") {
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
		})
	})
}

func fullDisk(t *testing.T, f *farm, d disk, restart func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := &client{name: "c", f: f, q: f.Client, book: newBook(0), dice: newDice(1, 1)}
	stopped := false
	defer func() {
		if !stopped {
			_ = f.stop(context.WithoutCancel(ctx))
		}
	}()
	refused := make(map[string]bool)
	submit := func(change func(*backends.Spec)) (backends.ID, error) {
		spec, file := c.spec(300)
		if change != nil {
			change(spec)
		}
		r := f.Submit(ctx, []backends.Spec{*spec})[0]
		if r.Err == nil {
			c.book.record(r.ID, spec, file, backends.ID{})
		} else {
			refused[spec.Name] = true
		}
		return r.ID, r.Err
	}
	hold := func(s *backends.Spec) { s.Hold = true }
	held, err := submit(hold)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := submit(nil); err != nil { // its end comes while the disk is full
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	released := false
	refuses := func(when string) {
		t.Helper()
		for n := 0; ; n++ { // the journal may have room, up to a megabyte of it
			_, err := submit(func(s *backends.Spec) {
				s.Hold, s.Env = true, append(s.Env, "PADDING="+strings.Repeat("x", 64<<10))
			})
			if err == nil && n < 100 {
				continue
			}
			if err == nil || errors.Is(err, backends.ErrUnreachable) || !strings.Contains(err.Error(), "free some space in") {
				t.Fatalf("%s: a submission returns %v, want it refused with what to do", when, err)
			}
			break
		}
		// There may be room for this: it is done if and only if it is acknowledged.
		err := f.Release(ctx, []backends.ID{held}).First()
		released = released || err == nil
		jobs, err := f.Jobs(ctx, []backends.ID{held})
		if err != nil || len(jobs) != 1 || (jobs[0].State == backends.Held) == released {
			t.Errorf("%s: the held job, released: %v, is %+v, %v", when, released, jobs, err)
		}
	}
	must(d.fill())
	refuses("on a full disk")
	restart()
	refuses("from a daemon that was started on a full disk")
	must(d.free())
	await.Soon(func() bool { _, err = submit(nil); return err == nil })
	must(err)
	for id, j := range c.book.jobs {
		if j.spec.Hold && (id != held || !released) {
			must(f.Release(ctx, []backends.ID{id}).First())
		}
	}
	known, err := onslaught{}.end(ctx, f, c.book)
	must(err)
	stopped = true
	for _, j := range known {
		if refused[j.Name] {
			t.Errorf("job %v (%s) was refused, and is there", j.ID, j.Name)
		}
	}
	g := &judge{f: f, book: c.book}
	g.all(known)
	for _, p := range g.problems {
		t.Error(p)
	}
	t.Logf("%d jobs acknowledged, %d refused", len(c.book.jobs), len(refused))
}
