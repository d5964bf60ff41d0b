package daemon

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/miniq/manager"
)

// A line of the journal that is taken is written the same again, whatever stands
// in it; with its sum made right, every entry gets that far.
func FuzzJournalLine(f *testing.F) {
	f.Add([]byte(`{"q":1,"t":5,"e":{"tick":{}},"b":[{"c":["true"],"v":["A=1"]}],"x":{"Code":1}}`), true)
	f.Add([]byte("00000000 {}"), false)
	f.Fuzz(func(t *testing.T, line []byte, sound bool) {
		if sound {
			line = fmt.Appendf(nil, "%08x %s", crc32.Checksum(line, castagnoli()), line)
		}
		e, err := parseLine(line)
		if err != nil {
			return
		}
		_, _ = manager.DecodeEvent(e.Event)
		if e.Event == nil {
			return
		}
		first, err := appendEntry(nil, e)
		if err != nil {
			return // a year that JSON can't write
		}
		again, err := parseLine(bytes.TrimSuffix(first, []byte{'\n'}))
		if err != nil {
			t.Fatalf("%q: %v", first, err)
		}
		if second, err := appendEntry(nil, again); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%q became %q, %v", first, second, err)
		}
	})
}

// A snapshot is whole or an error.
func FuzzSnapshot(f *testing.F) {
	m := manager.New(manager.Config{})
	m.Step(time.Unix(5, 0), manager.NodeUp{Name: "n1", Slots: 2})
	state, err := m.State()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(fmt.Appendf(nil, snapshotHeader, format, 5, crc32.Checksum(state, castagnoli())), state, true)
	f.Add([]byte("allotment-miniq 99 1 00000000\n"), state, false)
	f.Add([]byte("allotment-miniq 1 -1 00000000"), []byte(nil), true)
	f.Fuzz(func(t *testing.T, head, state []byte, sound bool) {
		data := append(append([]byte{}, head...), state...)
		if sound {
			data = append(fmt.Appendf(nil, snapshotHeader, format, len(head), crc32.Checksum(state, castagnoli())), state...)
		}
		s, err := parseSnapshot(data)
		if err != nil {
			return
		}
		if s.m == nil || !bytes.HasSuffix(data, s.state) {
			t.Errorf("%q was read as %+v", data, s)
		}
	})
}
