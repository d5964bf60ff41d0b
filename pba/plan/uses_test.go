package plan

import (
	"fmt"
	"testing"
	"time"
)

// Uses are by the pool that is charged, and by the jobs' own user and step.
func TestUses(t *testing.T) {
	s := newScene(t, 4, 8).pool("chipA", 2).pool("chipA:syn", 1)
	s.job("ann", "chipA:syn", "n1", 3*time.Hour)
	s.job("ann", "chipA:sim", "n1", 2*time.Hour)
	s.job("cat", "chipA:sim", "n1", 2*time.Hour)
	s.job("cat", "chipA:sim", "n2", time.Minute)
	s.job("eve", "nosuch", "n3", time.Minute)
	got := fmt.Sprint(s.cycle().Uses)
	if want := "[{0  eve  1} {0 chipA cat sim 1} {1 chipA ann sim 1} {1 chipA cat sim 1} {2 chipA ann syn 1}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A user who names a new step with each job has a bounded number of rows.
func TestStepsOfUsesAreBounded(t *testing.T) {
	s := newScene(t, 4, 16).pool("chipA", 64)
	for i := range 64 {
		s.job("ann", fmt.Sprintf("chipA:s%d", i), fmt.Sprintf("n%d", 1+i/16), time.Hour)
	}
	all := s.cycle().Uses
	sum := 0
	for _, u := range all {
		sum += u.Slots
	}
	if len(all) != maxStepsShown+1 || sum != 64 {
		t.Errorf("%d rows of %d slots, want %d of 64", len(all), sum, maxStepsShown+1)
	}
}
