package state

import (
	"bytes"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
)

func inspector(t interface {
	Helper()
	Fatal(...any)
},
) *Inspector {
	t.Helper()
	i, err := NewInspector()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// drawSegments draws what the runs of a job did on their hosts, as agents write it: for each
// segment the changes, numbered from 1.
func drawSegments(t *rapid.T, id backends.ID) [][]Change {
	var all [][]Change
	at := time.Unix(1.7e9, 0)
	for run := range rapid.IntRange(1, 4).Draw(t, "runs") {
		for h := range rapid.IntRange(1, 3).Draw(t, "hosts") {
			host := fmt.Sprintf("h%d", rapid.IntRange(1, 2).Draw(t, "host")*10+h)
			seq := uint64(0)
			var changes []Change
			add := func(c Change) {
				seq++
				at = at.Add(time.Duration(rapid.IntRange(-3, 9).Draw(t, "later")) * time.Second) // clocks differ
				c.ID, c.RunNo, c.Host, c.Seq, c.At = id, run+1, host, seq, at
				changes = append(changes, c)
			}
			add(Change{Event: "started", Begin: &Begin{Host: host}, Submit: &Submission{Owner: Owner{User: "ann", UID: "1001"}, Spec: backends.Spec{Name: "sim", Script: []byte("#!/bin/sh\n")}}})
			for range rapid.IntRange(0, 6).Draw(t, "words") {
				switch rapid.IntRange(0, 2).Draw(t, "word") {
				case 0:
					add(Change{Event: "progress", Set: &Setting{ProgressKey, strconv.Itoa(rapid.IntRange(0, 100).Draw(t, "percent"))}})
				case 1:
					add(Change{Event: "set", Set: &Setting{rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"), rapid.String().Draw(t, "value")}})
				default:
					add(Change{Event: "attached", Attach: &File{Name: rapid.SampledFrom([]string{"x.sh", "y"}).Draw(t, "name"), Executable: rapid.Bool().Draw(t, "executable"), Data: rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "data")}})
				}
			}
			if rapid.Bool().Draw(t, "ended") {
				add(Change{Event: "ended", End: &End{ExitCode: -1, User: time.Second, MaxRSS: 1 << 20}})
			}
			all = append(all, changes)
		}
	}
	return all
}

// Segments of a job that are merged in any order, each as often as one likes and in any state
// that it was in, give the same object, byte for byte, and no line is lost or doubled.
func TestMergeInAnyOrder(t *testing.T) {
	i := inspector(t)
	defer i.Close()
	id := backends.ID{Job: 17}
	rapid.Check(t, func(t *rapid.T) {
		segments := drawSegments(t, id)
		var whole, parts [][]byte
		lines := map[lineKey]bool{}
		for _, changes := range segments {
			for _, c := range changes {
				lines[lineKey{Segment{c.RunNo, c.Host}, c.Seq, 0}] = true
			}
			object, err := i.m.build(id, nil, changes)
			if err != nil {
				t.Fatal(err)
			}
			whole = append(whole, object)
			early, err := i.m.build(id, nil, changes[:rapid.IntRange(1, len(changes)).Draw(t, "so far")])
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, object, early)
		}
		want, err := i.Merge(id, whole...)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, parts[rapid.IntRange(0, len(parts)-1).Draw(t, "again")])
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0)).Shuffle(len(parts), func(a, b int) { parts[a], parts[b] = parts[b], parts[a] })
		cut := rapid.IntRange(1, len(parts)-1).Draw(t, "cut")
		left, err := i.Merge(id, parts[:cut]...)
		if err != nil {
			t.Fatal(err)
		}
		right, err := i.Merge(id, parts[cut:]...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := i.m.build(id, left, []Change{{ID: id, Merge: right}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err = i.Merge(id, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatal("the order of merging shows")
		}
		c, err := i.m.loadObject(got)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.history) != len(lines) {
			t.Fatalf("%d lines, want %d", len(c.history), len(lines))
		}
		for k := range c.history {
			if !lines[k] {
				t.Fatalf("line %+v was never written", k)
			}
		}
	})
}

// drawContent draws rows as no agent would write them: the same places with different content.
func drawContent(t *rapid.T) *content {
	segment := func() Segment {
		return Segment{rapid.IntRange(0, 2).Draw(t, "run"), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "host")}
	}
	key := func() lineKey {
		return lineKey{segment(), uint64(rapid.IntRange(0, 3).Draw(t, "seq")), int64(rapid.IntRange(0, 1).Draw(t, "n"))}
	}
	letter := func() string { return rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "text") }
	value := func() driver.Value {
		return rapid.SampledFrom([]driver.Value{nil, int64(0), int64(1), "x", "y"}).Draw(t, "value")
	}
	c := &content{spec: map[specKey]driver.Value{}, history: map[lineKey]line{}, results: map[Segment]result{}, settings: map[string]setting{}, files: map[string]file{}}
	for range rapid.IntRange(0, 5).Draw(t, "rows") {
		c.spec[specKey{rapid.SampledFrom([]string{"name", "command", endKey}).Draw(t, "key"), 0}] = letter()
		c.history[key()] = line{letter(), rapid.SampledFrom([]string{submittedEvent, "x", "y"}).Draw(t, "event"), letter()}
		c.results[segment()] = result{letter(), value(), value(), value(), value(), value(), value()}
		c.settings[letter()] = setting{key(), letter(), letter()}
		c.files[letter()] = file{key(), letter(), 0, letter()}
	}
	return c
}

// Whatever rows objects have, forged ones too, merging is commutative, associative and
// idempotent.
func TestMergeLaws(t *testing.T) {
	equal := cmp.Options{cmp.AllowUnexported(content{}, specKey{}, lineKey{}, line{}, result{}, setting{}, file{}), cmpopts.EquateEmpty()}
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawContent(t), drawContent(t), drawContent(t)
		if diff := cmp.Diff(merge(a, b), merge(b, a), equal); diff != "" {
			t.Fatal("order of two:", diff)
		}
		if diff := cmp.Diff(merge(merge(a, b), c), merge(a, merge(b, c)), equal); diff != "" {
			t.Fatal("order of three:", diff)
		}
		if diff := cmp.Diff(merge(a, b), merge(merge(a, b), a), equal); diff != "" {
			t.Fatal("repetition:", diff)
		}
	})
}

// What is beyond the bounds is dropped, the oldest first, whatever the order of merging.
func TestMergeIsBounded(t *testing.T) {
	part := func(run int, host string, from int) *content {
		c := &content{history: map[lineKey]line{}, settings: map[string]setting{}}
		c.history[lineKey{Segment{run, host}, 1, 0}] = line{event: submittedEvent}
		for n := range maxHistory {
			k := lineKey{Segment{run, host}, uint64(from + n + 2), 0}
			c.history[k] = line{event: "progress"}
			if n < mergedSettings {
				c.settings["s"+strconv.Itoa(from+n)] = setting{lineKey: k}
			}
		}
		return c
	}
	a, b, c := part(1, "a", 0), part(2, "b", 500), part(2, "c", 900)
	equal := cmp.Options{cmp.AllowUnexported(content{}, specKey{}, lineKey{}, line{}, result{}, setting{}, file{}), cmpopts.EquateEmpty()}
	m := merge(a, merge(b, c))
	if diff := cmp.Diff(m, merge(merge(c, a), merge(b, a)), equal); diff != "" {
		t.Error("the order shows:", diff)
	}
	runs, submitted := map[int]int{}, 0
	for k, l := range m.history {
		if l.event == submittedEvent {
			submitted++
		} else {
			runs[k.Run]++
		}
	}
	if runs[1] != 0 || runs[2] != maxHistory || submitted != 3 || len(m.settings) != mergedSettings {
		t.Errorf("lines by run %v, submissions %d, settings %d", runs, submitted, len(m.settings))
	}
	if got, want := m.sequence(), (Sequence{2, 900 + maxHistory + 1}); got != want {
		t.Errorf("sequence %v, want %v", got, want)
	}
}

// A lower run never overwrites what a higher one set, and a job's own words survive the
// writer, a merge and a restart.
func TestOwnWords(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, new(bytes.Buffer))
	defer w.Close()
	id := backends.ID{Job: 3}
	at := time.Unix(1.7e9, 0).UTC()
	put := func(run int, host string, seq uint64, c Change) {
		c.ID, c.At, c.RunNo, c.Host, c.Seq = id, at, run, host, seq
		w.Put(c)
		flush(t, w)
	}
	put(2, "h2", 1, Change{Event: "started", Begin: &Begin{Host: "h2"}})
	put(2, "h2", 2, Change{Event: "set", Set: &Setting{"stage", "route"}})
	put(1, "h1", 9, Change{Event: "set", Set: &Setting{"stage", "place"}})
	put(1, "h1", 10, Change{Event: "attached", Attach: &File{Name: "go.sh", Executable: true, Data: []byte("#!/bin/sh\n")}})
	r := read(t, dir, id)
	want := []backends.SettingRecord{{Key: "stage", Value: "route", At: at, Run: 2, Host: "h2"}}
	if diff := cmp.Diff(want, r.Settings); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]backends.FileRecord{{Name: "go.sh", Size: 10, Executable: true, At: at, Run: 1, Host: "h1"}}, r.Files); diff != "" {
		t.Error(diff)
	}
	if len(r.History) != 4 || r.History[0].Host != "h1" || r.History[3].Event != "set" || r.History[3].Run != 2 {
		t.Errorf("history %+v, want the lines of run 1 first", r.History)
	}
	f, err := ReadFile(dir, id, "go.sh")
	if err != nil || !f.Executable || string(f.Data) != "#!/bin/sh\n" {
		t.Errorf("file %+v, %v", f, err)
	}
	if _, err := ReadFile(dir, id, "../go.sh"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	// The queue's own lines have no run's order: a setting outside of a run counts if it is later.
	other := backends.ID{Job: 4}
	w.Put(Change{ID: other, Seq: 1, RunNo: 1, At: at, Set: &Setting{"k", "in the run"}})
	w.Put(Change{ID: other, Seq: 2, RunNo: 0, At: at, Set: &Setting{"k", "after it"}})
	flush(t, w)
	if r := read(t, dir, other); len(r.Settings) != 1 || r.Settings[0].Value != "after it" {
		t.Errorf("settings %+v", r.Settings)
	}
}

// An object of schema 1, as versions before wrote it, is read, and is of this schema when it
// is next written.
func TestOlderSchema(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile("testdata/schema1.db")
	if err != nil {
		t.Fatal(err)
	}
	id := backends.ID{Job: 12}
	path := Path(dir, id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	before := read(t, dir, id)
	if before.Spec.Name != "old" || len(before.History) != 3 || len(before.Runs) != 1 || before.Runs[0].Host != "n1" {
		t.Fatalf("record %+v", before)
	}
	w := open(t, dir, new(bytes.Buffer))
	defer w.Close()
	w.Put(Change{ID: id, Seq: 3, RunNo: 1, At: time.Unix(1.7e9, 0), Event: "ended"}) // it has this line
	w.Put(Change{ID: id, Seq: 9, RunNo: 2, At: time.Unix(1.7e9, 0), Event: "start", Begin: &Begin{Host: "n2"}, Set: &Setting{"k", "v"}})
	flush(t, w)
	after := read(t, dir, id)
	if diff := cmp.Diff(before.History, after.History[:3]); diff != "" || len(after.History) != 4 || len(after.Runs) != 2 || len(after.Settings) != 1 {
		t.Errorf("record %+v\n%s", after, diff)
	}
}

// An object from elsewhere that is anything but a job's object is refused.
func TestForeignObjects(t *testing.T) {
	i := inspector(t)
	defer func() { i.Close() }()
	id := backends.ID{Job: 7}
	sound := func() []byte {
		object, err := i.m.build(id, nil, []Change{{ID: id, RunNo: 1, Host: "h1", Seq: 1, At: time.Unix(1.7e9, 0), Event: "started", Begin: &Begin{Host: "h1"}, Set: &Setting{"a", "b"}, Submit: &Submission{Owner: Owner{User: "ann"}, Spec: backends.Spec{Command: []string{"true"}}}}})
		if err != nil {
			t.Fatal(err)
		}
		return object
	}
	with := func(queries ...string) []byte {
		m, err := newMemory()
		if err != nil {
			t.Fatal(err)
		}
		defer m.close()
		object := sound()
		if err := m.conn.Deserialize(append(object[:len(object):len(object)], make([]byte, 4<<20)...), "main"); err != nil {
			t.Fatal(err)
		}
		for _, q := range queries {
			if err := m.exec(q); err != nil {
				t.Fatal(q, err)
			}
		}
		object, err = m.serialize()
		if err != nil {
			t.Fatal(err)
		}
		return object
	}
	r, s, err := i.Read(sound(), id)
	if err != nil || s != (Sequence{1, 1}) || r.Spec.Command[0] != "true" {
		t.Fatalf("a sound object: %+v %v %v", r, s, err)
	}
	if _, _, err := i.Read(with("UPDATE history SET detail = 'x'"), id); err != nil {
		t.Fatalf("another sound object: %v", err)
	}
	for name, object := range map[string][]byte{
		"empty":           nil,
		"text":            []byte(strings.Repeat("x", 4096)),
		"another job's":   with("UPDATE spec SET value = 8 WHERE key = 'job'"),
		"trigger":         with("CREATE TRIGGER t AFTER INSERT ON history BEGIN DELETE FROM spec; END"),
		"view":            with("CREATE VIEW v AS SELECT * FROM spec"),
		"view as a table": with("DROP TABLE results", "CREATE VIEW results AS SELECT 1 AS run"),
		"another table":   with("CREATE TABLE t (x)"),
		"index":           with("CREATE INDEX i ON history (at)"),
		"check":           with("DROP TABLE results", "CREATE TABLE results (run INTEGER CHECK (length(randomblob(1000000000)) > 0), host, started, ended, exit_code, user_us, system_us, max_rss, why)"),
		"generated":       with("DROP TABLE history", "CREATE TABLE history (seq, n, run, host, at, event, detail AS (hex(zeroblob(500000000))))"),
		"missing table":   with("DROP TABLE results"),
		"newer":           with("PRAGMA user_version = 99"),
		"older":           with("PRAGMA user_version = 1"),
		"other program's": with("PRAGMA application_id = 1"),
		"forged run":      with("UPDATE history SET run = 9223372036854775807"),
		"negative run":    with("UPDATE history SET run = -5"),
		"forged line":     with("UPDATE history SET seq = 9223372036854775807"),
		"negative line":   with("UPDATE history SET seq = -1"),
		"time":            with("UPDATE history SET at = 'soon'"),
		"long detail":     with("UPDATE history SET detail = hex(zeroblob(100000))"),
		"many lines":      with("WITH RECURSIVE c(x) AS (SELECT 2 UNION ALL SELECT x+1 FROM c WHERE x < 5000) INSERT INTO history SELECT x, 0, 1, 'h', '2026-01-01T00:00:00Z', 'e', '' FROM c"),
		"long value":      with("UPDATE settings SET value = hex(zeroblob(5000))"),
		"forged setting":  with("UPDATE settings SET run = 5000000"),
		"name of a key":   with("UPDATE settings SET key = '../x'"),
		"name of a file":  with("INSERT INTO files VALUES ('../x', 1, '2026-01-01T00:00:00Z', 1, 'h', 1, 0, x'00')"),
		"long file":       with("INSERT INTO files VALUES ('x', 1, '2026-01-01T00:00:00Z', 1, 'h', 1, 0, zeroblob(1048577))"),
		"specification":   with("UPDATE spec SET value = 'false' WHERE key = 'command'"),
		"cut off":         sound()[:2048],
	} {
		if _, _, err := i.Read(object, id); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, want %v", name, err, ErrCorrupt)
		}
		if _, err := i.Merge(id, sound(), object); !errors.Is(err, ErrCorrupt) {
			t.Errorf("merge of %s: %v, want %v", name, err, ErrCorrupt)
		}
	}
	if _, _, err := i.Read(sound(), id); err != nil {
		t.Errorf("after all these: %v", err)
	}
}

func TestNamesOfJobs(t *testing.T) {
	for _, j := range []Job{{"slurm", backends.ID{Job: 12}}, {"lsf", backends.ID{Job: 12, Index: 3}}, {"slurm", backends.ID{Job: 12, Index: backends.ZeroIndex}}} {
		if got, err := ParseJob(j.String()); err != nil || got != j {
			t.Errorf("%v reads as %v, %v", j, got, err)
		}
	}
	for _, name := range []string{"", "slurm", "slurm/", "slurm/0", "slurm/-1", "slurm/+1", "slurm/01", "slurm/1.", "slurm/1.0", "slurm/1.+2", "slurm/1/2", "../1", "pbs/1", "slurm/../1", "slurm/1\x00", "slurm/9223372036854775808", "slurm/١"} {
		if j, err := ParseJob(name); err == nil {
			t.Errorf("%q reads as %v", name, j)
		}
	}
}
