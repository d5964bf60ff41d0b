package lsf

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

func stateDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

var full = entry{
	Submitted: noon, Mark: "r7", Until: noon.Add(time.Hour), Requeues: 2, Run: noon.Add(1), Acted: noon.Add(2), Requeuing: true, Returns: true, Suspended: true,
	Resuming: true, Resumed: noon.Add(3), Ran: 4, Begin: noon.Add(5), Ours: noon.Add(6), Was: noon.Add(8), Down: noon.Add(9), Freed: true, Asked: []string{"h1"}, Pinned: []string{"h2", "h3"}, Ranked: true, Number: 74,
	Rank: backends.At(backends.LevelHandOver, 220), Gone: noon.Add(7),
	Save:        save{Signal: "USR1", Wait: 10, Sent: noon.Add(11), Judged: noon.Add(12), Tried: noon.Add(14), Killed: noon.Add(13), User: "bob", Project: "chipB:layout"},
	FailedSaves: 1,
}

// The next process reads all that was written.
func TestRecordIsReadBack(t *testing.T) {
	path := filepath.Join(stateDir(t), "lsf.json")
	want := entries{{Job: 12}: full, {Job: 13, Index: 4}: {Submitted: noon, Mark: "r8"}}
	one := record{path: path}
	if all, err := one.read(); err != nil || len(all) != 0 {
		t.Fatalf("no file: %v, %v", all, err)
	}
	err := one.change(func(all entries) {
		for id, e := range want {
			all[id] = e
		}
		all[backends.ID{Job: 14}] = entry{Submitted: noon} // nothing to remember
	})
	if err != nil {
		t.Fatal(err)
	}
	two := record{path: path}
	got, err := two.read()
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want it to be 0600", info.Mode(), err)
	}
	if text, err := json.Marshal(full); err != nil || strings.Count(string(text), `":`) != reflect.TypeFor[entry]().NumField()+reflect.TypeFor[save]().NumField() {
		t.Errorf("%s, %v: a field of an entry is not in the file, or not in this test", text, err)
	}
}

// No change gets lost among several processes.
func TestRecordOfManyWriters(t *testing.T) {
	path := filepath.Join(stateDir(t), "lsf.json")
	const writers, each = 4, 10
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			r := record{path: path} // as another process has it
			for i := range each {
				err := r.change(func(all entries) {
					all[backends.ID{Job: int64(1 + w*each + i)}] = entry{Submitted: noon, Mark: "r" + strconv.Itoa(i)}
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	r := record{path: path}
	if all, err := r.read(); err != nil || len(all) != writers*each {
		t.Errorf("%d entries, %v; want %d", len(all), err, writers*each)
	}
}

func TestUntrustedRecord(t *testing.T) {
	path := filepath.Join(stateDir(t), "lsf.json")
	r := record{path: path}
	for text, want := range map[string]string{"{": "unexpected end", `{"version":2}`: "version 2", "": "unexpected end"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := r.read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", text, all, err)
		}
		if err := r.change(func(entries) { t.Error("it was changed") }); err == nil {
			t.Errorf("%q: it was written", text)
		}
	}
	if err := os.WriteFile(path, []byte(`{"version":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := r.read(); !errors.Is(err, trusted.ErrNotTrusted) {
		t.Errorf("anybody may write it: %v", err)
	}
}

// Without a file entries last as long as the process.
func TestRecordWithoutAFile(t *testing.T) {
	var r record
	for _, mark := range []string{"r1", "r2"} {
		if err := r.change(func(all entries) { all[backends.ID{Job: 1}] = entry{Mark: mark} }); err != nil {
			t.Fatal(err)
		}
		if all, err := r.read(); err != nil || all[backends.ID{Job: 1}].Mark != mark {
			t.Errorf("%v, %v; want %s", all, err, mark)
		}
	}
}

func TestPrune(t *testing.T) {
	all := entries{{Job: 1}: {Mark: "alive"}, {Job: 2}: {Mark: "gone"}, {Job: 3}: {Mark: "long gone", Gone: noon.Add(-25 * time.Hour)}, {Job: 4}: {Mark: "back", Gone: noon.Add(-25 * time.Hour)}}
	all.prune(noon, func(id backends.ID, _ entry) bool { return id.Job == 1 || id.Job == 4 })
	want := entries{{Job: 1}: {Mark: "alive"}, {Job: 2}: {Mark: "gone", Gone: noon}, {Job: 4}: {Mark: "back"}}
	if d := cmp.Diff(want, all); d != "" {
		t.Error(d)
	}
}
