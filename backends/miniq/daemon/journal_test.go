package daemon

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/miniq/keeper"
	"github.com/allotment-hpc/allotment/backends/miniq/manager"
)

// A line of the journal holds what json.Marshal writes of its entry.
func TestLineIsJSON(t *testing.T) {
	submit, err := manager.EncodeEvent(manager.Submit{By: manager.By{User: "<ann>"}, Specs: []backends.Spec{{Name: "a\"b&\u2028"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []entry{
		{Seq: 1, At: time.Now().UnixNano(), Event: submit, Bodies: []body{{Command: []string{"<", "\x00"}, Script: []byte("x")}, {}}},
		{Seq: 1<<64 - 1, At: -1, Event: json.RawMessage(`{"tick":{}}`)},
		{Event: json.RawMessage(`{}`), Bodies: []body{}, End: &keeper.End{Code: 3, At: time.Now(), Text: "&"}},
	} {
		line, err := appendLine([]byte("before\n"), &e)
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

// What a kill or a power failure leaves at the journal's end may be taken away;
// damage to what was acknowledged never is.
func TestTorn(t *testing.T) {
	line := func(at int64, filling int) string {
		b, err := appendLine(nil, &entry{Seq: 1, At: at, Event: json.RawMessage(`{"tick":{}}`), Bodies: []body{{Dir: strings.Repeat("d", filling)}}})
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
		"its newline alone":           {line(7, 0)[:len(line(7, 0))-1] + "x", false},
		"a letter in the last line":   {"x" + line(7, 0)[1:], false},
		"a letter, and more":          {"x" + line(7, 0)[1:] + line(8, 0), false},
		"a hole, and several batches": {long[:600] + nothing + long[600+len(nothing):] + line(8, 0) + line(9, 0), false},
		"a NUL byte is no hole":       {long[:600] + "\x00" + long[601:], false},
	} {
		if got := torn([]byte(c.rest), 4096); got != c.want {
			t.Errorf("%s: torn is %v, want %v", name, got, c.want)
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
