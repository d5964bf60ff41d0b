package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/state"
)

// copyState returns a copy of a state, in a home of its own.
func copyState(t *testing.T, of string) (dir, served string) {
	t.Helper()
	for { // a daemon may rename and remove files meanwhile: a copy that missed one is inconsistent
		dir = t.TempDir()
		served = filepath.Join(dir, "miniq")
		err := os.CopyFS(served, os.DirFS(of))
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(served, func(path string, e fs.DirEntry, err error) error { // CopyFS goes by the umask
		if err == nil && e.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return errors.Join(err, os.Chmod(path, 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, served
}

// usedState returns a state as a kill leaves it: with a snapshot, a journal that goes on
// from there, and jobs that ended, wait and run.
func usedState(t *testing.T) (served string, s *server) {
	t.Helper()
	s = serve(t, t.TempDir(), nil)
	array, script := s.held(), s.held()
	array.Array = &backends.Array{Indices: []int{1, 3}}
	script.Command, script.Script = nil, []byte("echo script")
	ended := s.submit(array, script, s.spec("exit 0"), s.spec("exit 4"))[2:]
	if _, err := s.client.WaitEnded(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s = serve(t, s.o.Paths.State, nil)
	gate := filepath.Join(s.o.Paths.State, "gate")
	ids := s.submit(s.held(), s.spec("exit 5"), s.spec("while [ ! -e "+gate+" ]; do sleep 0.02; done"))
	if _, err := s.client.WaitEnded(t.Context(), ids[1:2]); err != nil {
		t.Fatal(err)
	}
	s.client.Kill(t.Context(), []backends.ID{{Job: 1, Index: 3}})
	if _, err := s.client.Record(t.Context(), ids[0]); err != nil { // all objects are written
		t.Fatal(err)
	}
	return filepath.Join(s.o.Paths.State, "miniq"), s
}

func check(t *testing.T, served string, repair bool) *Checked {
	t.Helper()
	c, err := Check(t.Context(), served, repair)
	if err != nil {
		t.Fatalf("check: %v", err)
	}
	return c
}

func TestSoundStateHasNoFindings(t *testing.T) {
	served, s := usedState(t)
	_, killed := copyState(t, served)
	old, _ := unpack(t)
	if c := check(t, served, false); len(c.Findings) != 0 || !c.Serving || c.Jobs != 8 {
		t.Errorf("while it is served: %+v", c)
	}
	if _, err := Check(t.Context(), served, true); !errors.Is(err, ErrServing) {
		t.Errorf("repairing what is served: %v, want %v", err, ErrServing)
	}
	s.stop()
	for what, served := range map[string]string{"stopped": served, "killed": killed, "format 1": filepath.Join(old, "miniq")} {
		before := contents(t, served)
		c := check(t, served, false)
		if len(c.Findings) != 0 || c.Serving || c.Jobs < 8 || c.Objects < 8 {
			t.Errorf("%s: %+v", what, c)
		}
		if diff := cmp.Diff(before, contents(t, served)); diff != "" {
			t.Errorf("%s: a check changed it:\n%s", what, diff)
		}
	}
}

func TestFindingsAndRepairs(t *testing.T) {
	served, _ := usedState(t)
	object := func(n string) string { return "jobs/0/" + n + ".db" }
	segment := func(served string) string {
		names, _ := segments(served)
		return names[len(names)-1]
	}
	write := func(name, text string) func(string) error {
		return func(served string) error { return os.WriteFile(filepath.Join(served, name), []byte(text), 0o600) }
	}
	for name, c := range map[string]struct {
		harm     func(served string) error
		file     string // "": the journal's last segment
		problem  string
		repaired bool
		left     string // what a second check still says
	}{
		"snapshot damaged": {write("queue", "rubbish"), "queue", "it is damaged", false, "it is damaged"},
		"snapshot newer":   {write("queue", "allotment-miniq 99 1 00000000\n{}"), "queue", "a newer version", false, "a newer version"},
		"journal gone":     {func(s string) error { return os.Remove(filepath.Join(s, segment(s))) }, "journal.*", "there is no journal", false, "no journal"},
		"journal cut off": {func(s string) error {
			return edit(filepath.Join(s, segment(s)), func(b []byte) []byte { return append(bytes.TrimRight(b, "\x00"), "0123abcd {"...) })
		}, "", "never finished, nor acknowledged", true, ""},
		"journal damaged in the middle": {func(s string) error {
			return edit(filepath.Join(s, segment(s)), func(b []byte) []byte { b[30] ^= 1; return b })
		}, "", "requests stood that were acknowledged", false, "acknowledged"},
		"journal with a gap": {func(s string) error {
			return edit(filepath.Join(s, segment(s)), func(b []byte) []byte {
				lines := bytes.SplitAfter(b, []byte{'\n'})
				return bytes.Join(slices.Delete(lines, 1, 2), nil)
			})
		}, "journal.*", "a part of the journal is missing", false, "missing"},
		"journal's end lost": {func(s string) error {
			return edit(filepath.Join(s, segment(s)), func(b []byte) []byte { return b[:bytes.IndexByte(b, '\n')+1] })
		}, "journal.*", "its end is missing", false, "its end is missing"},
		"object of an ended job damaged": {write(object("3"), "rubbish"), object("3"), "it is damaged", true, ""},
		"object of a held job damaged":   {write(object("2"), "rubbish"), object("2"), "it is damaged", true, "what job 2 is to run is not in it"},
		"object of an ended job missing": {func(s string) error { return os.Remove(filepath.Join(s, object("4"))) }, object("4"), "no state object", true, ""},
		"object of another job": {func(s string) error {
			data, err := os.ReadFile(filepath.Join(s, object("3")))
			return errors.Join(err, os.WriteFile(filepath.Join(s, object("4")), data, 0o600))
		}, object("4"), "it belongs to job 3", true, ""},
		"object of no job": {func(s string) error {
			data, err := os.ReadFile(filepath.Join(s, object("3")))
			return errors.Join(err, os.WriteFile(filepath.Join(s, object("77")), data, 0o600))
		}, object("77"), "the queue knows no job 77", true, ""},
		"record of no job": {write("nodes/n1/runs/99.0.1.run", "k 1 1\n"), "nodes/n1/runs/99.0.1.run", "the queue knows no job 99", true, ""},
		"left over":        {write(object("3")+".new", ""), object("3") + ".new", "left over", true, ""},
		"unknown file":     {write("notes", ""), "notes", "the queue has no such file", false, "no such file"},
		"open to others":   {func(s string) error { return os.Chmod(filepath.Join(s, "queue"), 0o644) }, "queue", "others can read", true, ""},
		"a link":           {func(s string) error { return os.Symlink("../queue", filepath.Join(s, "jobs/x")) }, "jobs/x", "no regular file", false, "no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, served := copyState(t, served)
			if err := c.harm(served); err != nil {
				t.Fatal(err)
			}
			if c.file == "" {
				c.file = segment(served)
			}
			found := check(t, served, false)
			if len(found.Findings) != 1 || found.Findings[0].File != c.file || !strings.Contains(found.Findings[0].Problem, c.problem) || found.Findings[0].Remedy == "" {
				t.Errorf("found %+v; want %s: %s", found.Findings, c.file, c.problem)
			}
			before := contents(t, served)
			found = check(t, served, true)
			if done := found.Left() == 0; done != c.repaired {
				t.Errorf("repaired: %+v; want %v", found.Findings, c.repaired)
			}
			if n := len(contents(t, served)); n < len(before) {
				t.Errorf("%d files were there, now %d", len(before), n)
			}
			again := check(t, served, false)
			texts := fmt.Sprintf("%+v", again.Findings)
			if c.left == "" && len(again.Findings) > 0 || !strings.Contains(texts, c.left) {
				t.Errorf("after the repair: %s; want %q", texts, c.left)
			}
		})
	}
}

// damagedCopy returns a copy of a state with some bytes of one of its files changed.
func damagedCopy(t *testing.T, of string, random *rand.Rand) (dir, served, file string) {
	t.Helper()
	dir, served = copyState(t, of)
	var names []string
	for name := range contents(t, served) {
		names = append(names, name)
	}
	slices.Sort(names)
	file = names[random.IntN(len(names))]
	err := edit(filepath.Join(served, file), func(b []byte) []byte {
		for range 1 + random.IntN(3) {
			if len(b) > 0 {
				b[random.IntN(len(b))] ^= byte(1 + random.IntN(255))
			}
		}
		return b
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, served, file
}

// Whatever byte of whatever file is damaged, a daemon finds every job, with its
// specification or a note that this is damaged, or it refuses in one line that
// says what to do. No file vanishes, and Check finds what keeps a daemon from
// starting or a job from running.
func TestDamagedByteLosesNothingSilently(t *testing.T) {
	served, s := usedState(t)
	_, sound := copyState(t, served)
	snapshot, err := s.client.Snapshot(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[backends.ID]backends.Spec)
	for _, j := range slices.Concat(snapshot.Jobs, snapshot.Ended) {
		r, err := state.Read(filepath.Join(sound, "jobs"), j.ID)
		if err != nil {
			t.Fatal(err)
		}
		want[j.ID] = r.Spec
	}
	for seed := range uint64(120) {
		dir, served, file := damagedCopy(t, sound, rand.New(rand.NewPCG(seed, 1)))
		before := contents(t, served)
		found := check(t, served, false)
		about := func(name string) bool {
			return slices.ContainsFunc(found.Findings, func(f Finding) bool { return f.File == name })
		}
		o := options(t, dir)
		o.Log = slog.New(slog.DiscardHandler)
		d, err := recoverDaemon(o, served)
		if err != nil {
			text := err.Error()
			if strings.Contains(text, "\n") || !strings.Contains(text, "put back") && !strings.Contains(text, "use that version") || !about(file) && !about("journal.*") {
				t.Errorf("seed %d, %s: refused with %q, and check found %+v", seed, file, text, found.Findings)
			}
			continue
		}
		d.objects.Close()
		_ = d.journal.f.Close()
		if diff := cmp.Diff(snapshot, d.m.Snapshot(snapshot.At, time.Time{})); diff != "" {
			t.Errorf("seed %d, %s: the queue (- before, + after):\n%s", seed, file, diff)
		}
		for id, spec := range want {
			r, err := state.Read(d.objectDir(), id)
			switch {
			case errors.Is(err, state.ErrCorrupt):
				if !about(file) {
					t.Errorf("seed %d, %s: %v, and check found %+v", seed, file, err, found.Findings)
				}
			case err != nil || !cmp.Equal(spec, r.Spec) && !slices.ContainsFunc(r.History, func(h backends.HistoryLine) bool { return h.Event == "damaged" }):
				t.Errorf("seed %d, %s: job %v: %v, %s", seed, file, id, err, cmp.Diff(spec, r.Spec))
			}
		}
		after := contents(t, served)
		if _, there := after[file]; !there || len(after) < len(before) {
			t.Errorf("seed %d: %s is gone, or another file", seed, file)
		}
	}
}

// With a damaged byte in every state object the queue serves on: all jobs are
// listed and looked at, those that wait end or say why they can't run, new ones
// run, and it comes up again.
func TestQueueServesWithDamagedObjects(t *testing.T) {
	served, s := usedState(t)
	_, sound := copyState(t, served)
	s.stop()
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 2))
		dir, served := copyState(t, sound)
		objects, err := filepath.Glob(filepath.Join(served, "jobs", "*", "*.db"))
		if err != nil || len(objects) < 8 {
			t.Fatalf("%d objects, %v", len(objects), err)
		}
		for _, path := range objects {
			err := edit(path, func(b []byte) []byte { b[random.IntN(len(b))] ^= byte(1 + random.IntN(255)); return b })
			if err != nil {
				t.Fatal(err)
			}
		}
		s := serve(t, dir, nil)
		snapshot, err := s.client.Snapshot(t.Context(), time.Time{})
		if err != nil || len(snapshot.Jobs)+len(snapshot.Ended) != 8 {
			t.Fatalf("seed %d: %d and %d jobs, %v", seed, len(snapshot.Jobs), len(snapshot.Ended), err)
		}
		var waiting []backends.ID
		for _, j := range slices.Concat(snapshot.Jobs, snapshot.Ended) {
			if r, err := s.client.Record(t.Context(), j.ID); err != nil || len(r.History) == 0 && j.State != backends.Held {
				t.Errorf("seed %d: job %v: %+v, %v", seed, j.ID, r, err)
			}
			if j.State == backends.Held {
				waiting = append(waiting, j.ID)
			}
		}
		if err := s.client.Release(t.Context(), waiting).First(); err != nil || len(waiting) == 0 {
			t.Errorf("seed %d: release %v: %v", seed, waiting, err)
		}
		jobs, err := s.client.WaitEnded(t.Context(), append(waiting, s.submit(s.spec("exit 9"))...))
		if err != nil {
			t.Fatal(err)
		}
		for i, j := range jobs {
			last := i == len(jobs)-1
			if last && j.ExitCode != 9 || !last && j.ExitCode != 0 && j.ExitCode != 126 {
				t.Errorf("seed %d: job %+v", seed, j)
			}
		}
		s.stop()
		for _, f := range check(t, served, false).Findings { // of objects that were not read
			if !strings.Contains(f.Problem, "it is damaged") {
				t.Errorf("seed %d: afterwards %+v", seed, f)
			}
		}
		serve(t, dir, nil).stop()
	}
}
