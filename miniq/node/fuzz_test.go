package node

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// A command is the same when it is written and read again, and a wish is still one line
// of a record.
func FuzzCommand(f *testing.F) {
	f.Add([]byte(`{"attach":{"runs":[{"run":"1.0.1","confirmed":true}]}}`))
	f.Add([]byte(`{"start":{"run":"1.2.3","script":"YQ=="}}` + "\x00atrue\x00eA=1\x00"))
	f.Add([]byte(`{"forget":"1.0.1"}` + "\x00x"))
	f.Add([]byte(`{"want":{"run":"1.0.1","verb":"note","text":"a\nw kill 0"},"forget":"1.0.1"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
		c, err := ReadCommand(bytes.NewReader(frame))
		if err != nil {
			return
		}
		if frame, err = c.Append(nil); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		again, err := ReadCommand(bytes.NewReader(frame))
		if diff := cmp.Diff(c, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", frame, err, diff)
		}
		if c.Want == nil {
			return
		}
		line := keeper.Want{Verb: c.Want.Verb, Grace: c.Want.Grace, Text: backends.Unescape(c.Want.Text), Signal: c.Want.Signal}.Line()
		switch c.Want.Verb {
		case keeper.Stop, keeper.Continue, keeper.Kill, keeper.Note, keeper.Signal:
			wanted := keeper.ParseRecord([]byte(line)).Wanted
			if n := len(wanted.PopAll()); n > 1 || n == 0 && (c.Want.Verb != keeper.Signal || c.Want.Signal > 0 && c.Want.Signal < 65) {
				t.Errorf("%q is %d wishes", line, n)
			}
		}
	})
}

func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"kind":"ended","run":"1.0.1","end":{"Code":1,"At":"2026-01-01T00:00:00Z","Text":"x"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var r, again Report
		roundTrip(t, body, &r, &again)
	})
}

func roundTrip[T any](t *testing.T, body []byte, first, again *T) {
	t.Helper()
	frame, err := miniq.AppendFrame(nil, json.RawMessage(body))
	if err != nil || miniq.ReadFrame(bufio.NewReader(bytes.NewReader(frame)), first) != nil {
		return
	}
	if frame, err = miniq.AppendFrame(nil, first); err != nil {
		return // a year that JSON can't write
	}
	if err := miniq.ReadFrame(bytes.NewReader(frame), again); err != nil {
		t.Fatalf("%q: %v", frame, err)
	}
	if diff := cmp.Diff(first, again, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%q:\n%s", frame, diff)
	}
}
