package daemon

import (
	"encoding/json"
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
