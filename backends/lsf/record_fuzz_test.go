package lsf

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// What is remembered of jobs is read back as it was written, or is an error.
func FuzzRecord(f *testing.F) {
	at := time.Date(2026, 11, 20, 22, 54, 18, 0, time.UTC)
	text, err := json.Marshal(recordFile{recordVersion, entries{
		{Job: 798}:           {Submitted: at, Run: at, Suspended: true, Mark: "r1", Until: at},
		{Job: 791, Index: 2}: {Submitted: at, Asked: []string{"lava1"}, Pinned: []string{"lava4"}, Ranked: true, Number: 90, Rank: backends.At(backends.LevelPBA, 120)},
	}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parseRecord(text)
		if err != nil {
			return
		}
		written, err := json.Marshal(recordFile{recordVersion, all})
		if err != nil {
			return // a time that JSON has no form for
		}
		again, err := parseRecord(written)
		if err != nil || len(again) != len(all) {
			t.Errorf("%d of %d jobs, %v", len(again), len(all), err)
		}
		if rewritten, err := json.Marshal(recordFile{recordVersion, again}); err != nil || !reflect.DeepEqual(written, rewritten) {
			t.Errorf("%s\n%s, %v", written, rewritten, err)
		}
	})
}
