package daemon

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/state"
)

// known is what the daemon that wrote a state had said of it, with texts
// escaped; see testdata/state1/make.go.
type known struct {
	Farm    *backends.Snapshot
	Records map[string]*backends.Record
	Specs   map[string]backends.Spec
}

// unpack returns the home of a daemon of format 1 that was killed, on a machine
// that went down then.
func unpack(t *testing.T) (dir string, k known) {
	t.Helper()
	dir = t.TempDir()
	f, err := os.Open("testdata/state1/state1.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(zip); ; {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, head.Name)
		if head.Typeflag == tar.TypeDir {
			err = os.Mkdir(path, fs.FileMode(head.Mode))
		} else {
			var data []byte
			if data, err = io.ReadAll(in); err == nil {
				err = os.WriteFile(path, data, fs.FileMode(head.Mode))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "miniq", "boot"), []byte("another boot"), 0o600); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "known.json"))
	if err == nil {
		err = json.Unmarshal(data, &k)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, k
}

// format1Options has the nodes of that time, and forgets nothing.
func format1Options(o *Options) {
	o.Config.Nodes = []miniq.Node{{Name: "n1", Slots: 4, Memory: 4 << 30}, {Name: "n2", Slots: 2, Memory: 2 << 30}}
	o.Config.KeepFinished = unit.Duration(100 * 365 * 24 * time.Hour)
}

// A state of format 1 is read: every job is there once, with all that was known
// of it, in the queue and in its state object.
func TestFormat1StateIsRead(t *testing.T) {
	dir, k := unpack(t)
	o := options(t, dir)
	format1Options(&o)
	d, err := recoverDaemon(o, filepath.Join(dir, "miniq"))
	if err != nil {
		t.Fatal(err)
	}
	d.objects.Close()
	_ = d.journal.f.Close()
	if diff := cmp.Diff(k.Farm, d.m.Snapshot(k.Farm.At, time.Time{})); diff != "" {
		t.Errorf("the queue (- before, + after):\n%s", diff)
	}
	if len(k.Farm.Jobs) < 14 || len(k.Farm.Ended) < 9 {
		t.Errorf("only %d and %d jobs were there", len(k.Farm.Jobs), len(k.Farm.Ended))
	}
	for text, want := range k.Records {
		id, err := backends.ParseID(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := state.Read(d.objectDir(), id)
		if err != nil {
			t.Errorf("job %s: %v", text, err)
			continue
		}
		spec := k.Specs[backends.ID{Job: id.Job}.String()]
		if id.Index > 0 { // its object is its own, or its array's
			spec.Array, got.Spec.Array = nil, nil
		}
		if diff := cmp.Diff(spec, got.Spec.MapTexts(backends.Escape)); diff != "" {
			t.Errorf("job %s as it was submitted:\n%s", text, diff)
		}
		if diff := cmp.Diff(want.Runs, got.Runs) + cmp.Diff(want.History, got.History); diff != "" {
			t.Errorf("job %s:\n%s", text, diff)
		}
	}
}

// A state of an earlier format becomes one of this format before anything is written,
// so that no earlier program takes what is new in it for something else.
func TestOlderStateIsUpgradedFirst(t *testing.T) {
	for _, older := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
		dir, _ := unpack(t)
		path := filepath.Join(dir, "miniq", snapshotName)
		head := func(format string) []byte { return []byte("allotment-miniq " + format + " ") }
		if err := edit(path, func(b []byte) []byte { return bytes.Replace(b, head("1"), head(older), 1) }); err != nil {
			t.Fatal(err)
		}
		o := options(t, dir)
		format1Options(&o)
		d, err := recoverDaemon(o, filepath.Join(dir, "miniq"))
		if err != nil {
			t.Fatalf("format %s: %v", older, err)
		}
		d.objects.Close()
		_ = d.journal.f.Close()
		if text, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(text, head("9")) {
			t.Errorf("format %s is still %.20q, %v", older, text, err)
		}
	}
}

// And the queue goes on with it: a job that ended while no daemon served has its
// status, lost ones are reported so, the rest runs when it may.
func TestFormat1StateIsServed(t *testing.T) {
	dir, k := unpack(t)
	s := serve(t, dir, format1Options)
	ctx := t.Context()
	extra := s.client.Abilities()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	named := make(map[string]backends.ID)
	var open, killed []backends.ID
	for _, j := range k.Farm.Jobs {
		named[j.Name], open = j.ID, append(open, j.ID)
		switch {
		case j.State == backends.Held:
			must("release", s.client.Release(ctx, []backends.ID{j.ID}).First())
		case !j.BeginTime.IsZero():
			must("begin at once", extra.Modify(ctx, []backends.ID{j.ID}, backends.Change{BeginTime: new(time.Time)}).First())
		}
	}
	for changes := uint64(0); ; { // the other one whose keeper was lost begins anew
		r, err := s.client.Record(ctx, named["rerun"])
		must("look at the job that runs again", err)
		if len(r.Runs) == 2 {
			if !strings.Contains(r.Runs[0].Why, "exit unknown") {
				t.Errorf("it ran like %+v, want the first run lost", r.Runs)
			}
			break
		}
		changes, err = s.client.WaitChange(ctx, changes)
		must("wait", err)
	}
	killed = append(killed, named["rerun"], named["requeued"])
	must("kill", s.client.Kill(ctx, killed).First())
	ended, err := s.client.WaitEnded(ctx, open)
	must("wait for the end of all", err)
	if len(ended) != len(open) {
		t.Errorf("%d jobs ended, want %d", len(ended), len(open))
	}
	for i := range ended {
		j, want := &ended[i], 0
		switch {
		case j.ID == named["unseen"]:
			want = 7
		case j.ID == named["lost"], k.Farm.Jobs[i].State == backends.Suspended:
			if want = j.ExitCode; j.State != backends.Exited || !strings.Contains(j.Reason, "not known") {
				t.Errorf("job %+v, want its exit unknown", j)
			}
		case slices.Contains(killed, j.ID):
			want = j.ExitCode
		}
		if j.ID != open[i] || j.ExitCode != want {
			t.Errorf("job %+v, want job %v, ended with %d", j, open[i], want)
		}
	}
	last := s.submit(s.spec("exit 0"))[0]
	must("wait for a new one", errOf(s.client.WaitEnded(ctx, []backends.ID{last})))
	snapshot, err := s.client.Snapshot(ctx, time.Time{})
	must("read the queue", err)
	if all := len(k.Farm.Jobs) + len(k.Farm.Ended) + 1; len(snapshot.Jobs) != 0 || len(snapshot.Ended) != all || last.Job != 23 {
		t.Errorf("%d jobs have not ended, %d have, the last one is %v; want 0, %d and 23", len(snapshot.Jobs), len(snapshot.Ended), last, all)
	}
}

func errOf[T any](_ T, err error) error { return err }

// A state that a newer version wrote is refused, in one line, and left as it is.
func TestNewerStateIsRefused(t *testing.T) {
	newer := map[string]func(state string) error{
		"snapshot": func(state string) error {
			return edit(filepath.Join(state, snapshotName), func(b []byte) []byte {
				return bytes.Replace(b, []byte("allotment-miniq 1 "), []byte("allotment-miniq 99 "), 1)
			})
		},
		"an event": func(state string) error {
			names, err := segments(state)
			if err != nil {
				return err
			}
			return edit(filepath.Join(state, names[len(names)-1]), func(b []byte) []byte {
				lines := bytes.SplitAfter(b, []byte{'\n'})
				e, err := parseLine(bytes.TrimSuffix(lines[2], []byte{'\n'}))
				if err != nil {
					t.Fatal(err)
				}
				e.Event = json.RawMessage(`{"teleport":{}}`)
				if lines[2], err = appendEntry(nil, e); err != nil {
					t.Fatal(err)
				}
				return bytes.Join(lines, nil)
			})
		},
	}
	for name, change := range newer {
		t.Run(name, func(t *testing.T) {
			dir, _ := unpack(t)
			state := filepath.Join(dir, "miniq")
			if err := change(state); err != nil {
				t.Fatal(err)
			}
			before := contents(t, state)
			o := options(t, dir)
			format1Options(&o)
			err := Run(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), "newer version") || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line that says newer version", err)
			}
			if diff := cmp.Diff(before, contents(t, state)); diff != "" {
				t.Errorf("it was touched:\n%s", diff)
			}
		})
	}
}

func edit(path string, change func([]byte) []byte) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, change(data), 0o600)
}

// contents returns the checksums of all files below a directory, by their names.
func contents(t *testing.T, dir string) map[string]uint32 {
	t.Helper()
	all := make(map[string]uint32)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		all[name] = crc32.Checksum(data, castagnoli())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
