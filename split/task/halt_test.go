package task

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/await"
)

func TestParts(t *testing.T) {
	for item, want := range map[string]string{
		"a/b.c.d": "a/b.c.d a/b.c b.c.d a b.c 7", "f": "f f f . f 7", "x.y/z": "x.y/z x.y/z z x.y z 7", "/r.s": "/r.s /r r.s / r 7",
	} {
		if got := strings.Join(parts(item, 7), " "); got != want {
			t.Errorf("%q: %s, want %s", item, got, want)
		}
	}
	o := Order{Argv: []string{"{#}{/.}", "{} {.}"}, Mode: Each}
	if got := o.Arguments("d/e.f", 3); !slices.Equal(got, []string{"3e", "d/e.f d/e"}) {
		t.Errorf("%q", got)
	}
}

// An item that fails is tried again as often as the order says, and its last try counts.
func TestRetries(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	script := `read x; echo $x >>` + seen + `; echo try; test $(wc -l <` + seen + `) = 3`
	for retries, want := range map[int]string{2: "0+1 0 \"try\\n\" \"\"\n", 1: "0+1 1 \"try\\n\" \"\"\n"} {
		_ = os.Remove(seen)
		o := Order{Argv: []string{"sh", "-c", script}, Mode: Feed, First: 1, Count: 1, Slots: 1, Retries: retries}
		dir := directory(t, o, "again\n")
		if err := Run(dir, 1); err != nil {
			t.Fatal(err)
		}
		if got := results(t, dir, o); got != want {
			t.Errorf("%d retries: %s", retries, got)
		}
		if text, _ := os.ReadFile(seen); string(text) != strings.Repeat("again\n", retries+1) {
			t.Errorf("the tries read %q", text)
		}
	}
}

func TestTimeout(t *testing.T) {
	o := Order{
		Argv: []string{"sh", "-c", "echo $1; test $1 = 1 || { sleep 300 & wait; }", "sh", "{}"}, Mode: Each, First: 1, Count: 2, Numbers: true, Slots: 2,
		Timeout: 3 * time.Second,
	}
	dir := directory(t, o, "")
	if err := Run(dir, 1); err != nil {
		t.Fatal(err)
	}
	if got, want := results(t, dir, o), "0+1 0 \"1\\n\" \"\"\n1+1 124 \"2\\n\" \"asplit: ended after 3s (--timeout)\\n\"\n"; got != want {
		t.Errorf("%s", got)
	}
}

// A task that halts has a result of the items that began: they are its first.
func TestHalt(t *testing.T) {
	o := Order{
		Argv: []string{"sh", "-c", "test $1 != 3", "sh", "{}"}, Mode: Each, First: 1, Count: 1000, Numbers: true, Slots: 1, Halt: HaltSoon, Fails: 1,
	}
	dir := directory(t, o, "")
	if err := Run(dir, 1); err != nil {
		t.Fatal(err)
	}
	r, err := OpenResult(File(dir, 1, KindResult), 1, 1000)
	if err != nil || r.Count != 3 || r.Failed != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	_ = r.Close()

	// Another task's failures: by the file. What runs is ended.
	o.Argv, o.Halt, o.Fails = []string{"sh", "-c", "echo >{}began; sleep 300"}, HaltNow, 0
	dir = directory(t, o, "")
	t.Chdir(dir)
	over := make(chan error, 1)
	go func() { over <- Run(dir, 1) }()
	if !await.Every(t.Context(), 10*time.Millisecond, func() bool { _, err := os.Stat("1began"); return err == nil }) {
		t.Fatal("the item did not begin")
	}
	if err := os.WriteFile(filepath.Join(dir, FileHalt), []byte(HaltNow), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	if r, err = OpenResult(File(dir, 1, KindResult), 1, 1000); err != nil || r.Count != 1 || r.Failed != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	_ = r.Close()

	// A task that begins after that executes nothing.
	if err := os.Remove(File(dir, 1, KindResult)); err != nil {
		t.Fatal(err)
	}
	if err := Run(dir, 1); err == nil || !strings.Contains(err.Error(), "the split was halted") {
		t.Errorf("error is %v", err)
	}
}

func TestReadCount(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]Count{"": {}, "short": {}, countOf(5, 2): {5, 2}, countOf(1, 2): {}, countOf(MaxItems+1, 0): {}} {
		if err := os.WriteFile(File(dir, 1, KindCount), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := ReadCount(dir, 1); got != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func countOf(ended, failed uint64) string {
	return string(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, ended), failed))
}

func TestOrderBounds(t *testing.T) {
	good := Order{Argv: []string{"x"}, Mode: Each, First: 1, Count: 1, Slots: 1, Retries: MaxRetries, Timeout: MaxTimeout, Halt: HaltSoon}
	for what, spoil := range map[string]func(*Order){
		"": func(*Order) {}, "retries": func(o *Order) { o.Retries++ }, "timeout": func(o *Order) { o.Timeout++ }, "halt": func(o *Order) { o.Halt = "x" }, "period": func(o *Order) { o.Period = -1 },
		"numbers": func(o *Order) { o.Each = []int64{1, 2} },
	} {
		o := good
		spoil(&o)
		head, err := o.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadOrder(bytes.NewReader(head)); (err != nil) != (what != "") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Results of earlier versions, whose records have no times, or no added items, are read.
func TestOldResult(t *testing.T) {
	began := timeOf(3)
	for version, times := range map[string][]uint64{"asplit\x001": nil, "asplit\x002": {uint64(began.UnixNano()), 5, 2}} {
		record := binary.LittleEndian.AppendUint32(nil, 0)
		record = binary.LittleEndian.AppendUint32(record, 4)
		for _, n := range append([]uint64{0, 2, 0, 7}, times...) {
			record = binary.LittleEndian.AppendUint64(record, n)
		}
		r := Result{First: 1, Count: 4, Began: timeOf(1), Ended: timeOf(2), index: 2, records: 1}
		trailer := r.trailer(crc32.ChecksumIEEE(record))
		copy(trailer[56:], version)
		data := append(append([]byte("ok"), record...), trailer...)
		got, err := ReadResult(bytes.NewReader(data), int64(len(data)))
		if err != nil || got.Failed != 4 {
			t.Fatalf("%q: %+v, %v", version, got, err)
		}
		err = got.Each(func(r Record) error {
			if r.Status != 7 || r.Out != 2 || r.Added != 0 || r.Began.IsZero() != (times == nil) || times != nil && (!r.Began.Equal(began) || r.Took != 5 || r.Tries != 2) {
				t.Errorf("%q: %+v", version, r)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
