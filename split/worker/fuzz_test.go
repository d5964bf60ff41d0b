package worker

import (
	"encoding/json"
	"testing"

	"github.com/allotment-hpc/allotment/split"
)

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"run":"a","seq":1,"running":2,"done":1,"leaving":"idle"}`))
	f.Add([]byte(`{"run":"a","seq":1,"leaving":"else"}`))
	f.Add([]byte(`{"seq":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseState(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parseState(again); err != nil && len(again) <= maxMessage || err == nil && back != s {
			t.Errorf("%+v, %v; was %+v", back, err, s)
		}
	})
}

func FuzzOrder(f *testing.F) {
	f.Add([]byte(`{"run":"a","seq":1,"take":2,"end":true}`))
	f.Add([]byte(`{"take":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := parseOrder(text)
		if err == nil && (o.Take < 0 || o.Seq < 0 || len(o.Run) > maxRun) || err != nil && o != (split.WorkerOrder{}) && len(o.Run) == 0 && o.Take < 0 {
			t.Errorf("%+v, %v", o, err)
		}
	})
}

func FuzzName(f *testing.F) {
	for _, name := range []string{"task-1", "task-01", "task--1", "n1", "task-9999999999999999999"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if n := parseName(name); n != 0 && (n < 0 || nameOf(n) != name) {
			t.Errorf("%q: %d", name, n)
		}
	})
}

func FuzzPlaces(f *testing.F) {
	f.Add("h:1 sha256:0000000000000000000000000000000000000000000000000000000000000000 secret\n[::1]:2 sha256:0000000000000000000000000000000000000000000000000000000000000000 secret\n")
	f.Add("h:1 sha256:0000000000000000000000000000000000000000000000000000000000000000\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parsePlaces(text)
		if err == nil && (len(all) == 0 || len(all) > maxPlaces) {
			t.Errorf("%d places", len(all))
		}
		for _, e := range all {
			if err == nil && (e.Secret == "" || e.Address == "-") {
				t.Errorf("%+v", e)
			}
		}
	})
}
