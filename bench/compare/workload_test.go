package main

import (
	"slices"
	"testing"
	"time"
)

// All guaranteed jobs of a workload are within the guarantee, and the farm has more work than
// it can do.
func TestWorkload(t *testing.T) {
	for _, s := range scenes() {
		for seed := range uint64(20) {
			all := s.workload(seed)
			if !slices.Equal(all, s.workload(seed)) {
				t.Fatalf("%s, seed %d: another workload the second time", s.Name, seed)
			}
			var work time.Duration
			bursts, before := 0, time.Duration(-1)
			for i, j := range all {
				work += j.length
				if got, err := parseName(j.name()); err != nil || got != j {
					t.Fatalf("%q is read as %+v, %v", j.name(), got, err)
				}
				if i > 0 && j.at < all[i-1].at || j.at >= window || j.length < tick {
					t.Errorf("%s, seed %d: %s is out of its bounds", s.Name, seed, j.name())
				}
				if !j.guaranteed {
					continue
				}
				if j.at != before {
					bursts, before = bursts+1, j.at
				}
				busy := 0 // on slots of its own, with itself
				for _, other := range all {
					if other.guaranteed && other.at <= j.at && other.at+other.length > j.at {
						busy++
					}
				}
				if busy > guarantee {
					t.Errorf("%s, seed %d: %d guaranteed jobs at %v", s.Name, seed, busy, j.at)
				}
			}
			if bursts < 5 || work < slots*window {
				t.Errorf("%s, seed %d: %d bursts, %v of work", s.Name, seed, bursts, work)
			}
		}
	}
}

func TestParseName(t *testing.T) {
	for _, name := range []string{"", "guaranteed-1", "other-1.0-2.0", "background-1.0-x", "background-1.0-2.0-3.0"} {
		if j, err := parseName(name); err == nil {
			t.Errorf("%q is read as %+v", name, j)
		}
	}
}
