package daemon

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// A line of the journal holds what json.Marshal writes of its entry.
func TestLineIsJSON(t *testing.T) {
	submit, err := manager.EncodeEvent(manager.Submit{By: manager.By{User: "<ann>"}, Specs: []backends.Spec{{Name: "a\"b&\u2028"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []entry{
		{Seq: 1, At: time.Now().UnixNano(), Event: submit, Bodies: []body{{Command: []string{"<", "\x00"}, Script: []byte("x")}, {}}},
		{Event: submit, Bodies: []body{{
			Command: []string{"a", "", "ü"}, Script: []byte{0, 0xff, 3, 4}, Dir: "/d\x7f", Env: []string{"A=1", `B="`, "C=\\", "D=\t"}, Umask: 0o777,
			Stdin: "i", Stdout: "o", Stderr: "r", Truncate: backends.Truncate{Stderr: true}, Terminal: "t", PreExec: "<p>", PostExec: "q", As: &runAs{UID: 7, Limits: "<"},
		}}},
		{Seq: 1<<64 - 1, At: -1, Event: json.RawMessage(`{"tick":{}}`)},
		{Event: json.RawMessage(`{}`), Bodies: []body{}, End: &keeper.End{Code: 3, At: time.Now(), Text: "&"}},
	} {
		line, err := appendEntry([]byte("before\n"), &e)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		const head = "before\n00000000 "
		if got := string(line[len(head) : len(line)-1]); got != string(want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if read, err := parseLine(line[len("before\n") : len(line)-1]); err != nil || read.Seq != e.Seq {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// Bodies that differ in any one field are not equal.
func TestBodyEqual(t *testing.T) {
	for name, b := range map[string]body{
		"Command": {Command: []string{"x"}}, "Script": {Script: []byte("x")}, "empty script": {Script: []byte{}}, "Dir": {Dir: "x"}, "Env": {Env: []string{"x"}}, "Umask": {Umask: 1},
		"Stdin": {Stdin: "x"}, "Stdout": {Stdout: "x"}, "Stderr": {Stderr: "x"}, "Truncate": {Truncate: backends.Truncate{Stdout: true}}, "Terminal": {Terminal: "x"},
		"PreExec": {PreExec: "x"}, "PostExec": {PostExec: "x"},
		"As": {As: &runAs{UID: 1}}, "root": {As: &runAs{}},
	} {
		if again := b; !b.equal(&again) {
			t.Errorf("%s: the same body is not equal", name)
		}
		if b.equal(&body{}) || (&body{}).equal(&b) {
			t.Errorf("%s: makes no difference", name)
		}
	}
	if n := reflect.TypeFor[body]().NumField(); n != 13 {
		t.Errorf("a body has %d fields: this test has 13", n)
	}
}

// What a kill or a power failure leaves at the journal's end may be taken away;
// damage to what was acknowledged never is.
func TestTorn(t *testing.T) {
	line := func(at int64, filling int) string {
		b, err := appendEntry(nil, &entry{Seq: 1, At: at, Event: json.RawMessage(`{"tick":{}}`), Bodies: []body{{Dir: strings.Repeat("d", filling)}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	nothing := strings.Repeat("\x00", 2*512)
	long := line(7, 3000)
	for name, c := range map[string]struct {
		rest string
		want bool
	}{
		"cut off":                     {line(7, 0)[:20], true},
		"nothing was written":         {nothing, true},
		"a hole in the last batch":    {long[:600] + nothing + long[600+len(nothing):], true},
		"and more of that batch":      {long[:600] + nothing + long[600+len(nothing):] + line(7, 0) + line(7, 0), true},
		"all but its newline":         {line(7, 0)[:len(line(7, 0))-1] + "\x00", true},
		"its newline alone":           {line(7, 0)[:len(line(7, 0))-1] + "x", false},
		"a letter in the last line":   {"x" + line(7, 0)[1:], false},
		"a letter, and more":          {"x" + line(7, 0)[1:] + line(8, 0), false},
		"a hole, and several batches": {long[:600] + nothing + long[600+len(nothing):] + line(8, 0) + line(9, 0), false},
		"a NUL byte is no hole":       {long[:600] + "\x00" + long[601:], false},
	} {
		for _, ahead := range []int{0, 1, 3000} {
			if got := torn([]byte(c.rest+strings.Repeat("\x00", ahead)), 4096); got != c.want {
				t.Errorf("%s, with %d bytes of room behind: torn is %v, want %v", name, ahead, got, c.want)
			}
		}
	}
	const in = 400 // bytes of the last batch's first block
	for missing, want := range map[int]bool{in: true, in - 1: false} {
		rest := nothing[:missing] + long[missing:] + line(7, 0)
		if got := torn([]byte(rest), 4096+512-in); got != want {
			t.Errorf("without %d of the %d bytes in its first block: torn is %v, want %v", missing, in, got, want)
		}
	}
}

// A segment has room behind its last line, if the disk has it. Neither reading nor
// continuing the segment is affected.
func TestRoomAhead(t *testing.T) {
	d, dir := newDisk(), t.TempDir()
	j := &journal{disk: d, dir: dir}
	if err := j.rotate(1); err != nil {
		t.Fatal(err)
	}
	var all []byte
	look := func(what string, length int) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, segmentName(1)))
		if err != nil {
			t.Fatal(err)
		}
		if lines := bytes.TrimRight(data, "\x00"); !bytes.Equal(lines, all) || len(data) != length {
			t.Errorf("%s: %d bytes, %d of them lines, want %d and %d", what, len(data), len(lines), length, len(all))
		}
	}
	write := func(seq uint64) {
		t.Helper()
		line, err := appendEntry(nil, &entry{Seq: seq, Event: json.RawMessage(`{"tick":{}}`)})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, line...)
		if err := j.write(line); err != nil {
			t.Error(err)
		}
	}
	d.tight = true
	write(1)
	write(2)
	look("no room on the disk", len(all))
	d.tight = false
	write(3)
	room := len(all) + roomAhead
	look("room", room)
	write(4)
	look("the room is used", room)
	if err := j.f.Close(); err != nil {
		t.Fatal(err)
	}
	entries := 0
	j, seq, err := replay(d, dir, 0, slog.New(slog.DiscardHandler), func(*entry) error { entries++; return nil })
	if err != nil || seq != 4 || entries != 4 {
		t.Fatalf("%d entries up to %d, %v; want 4", entries, seq, err)
	}
	look("read again", len(all))
	write(5)
	look("room again", len(all)+roomAhead)
	if err := j.f.Close(); err != nil {
		t.Fatal(err)
	}
}

// appendEntry appends an entry as a line of the journal.
func appendEntry(b []byte, e *entry) ([]byte, error) {
	content, err := e.appendContent(nil)
	if err != nil {
		return b, err
	}
	return appendLine(b, e.Seq, e.At, content), nil
}
