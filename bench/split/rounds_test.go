package main

import (
	"math"
	"testing"
	"time"
)

// at returns the time so many seconds after the start.
func at(seconds float64) time.Time {
	return time.Unix(0, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func TestFromRound(t *testing.T) {
	rounds := []round{
		{began: at(0), ended: at(1), items: 100},
		{began: at(1), ended: at(4), items: 1000},
		{began: at(4), ended: at(6), items: 375}, // 1 s of work
		{began: at(6), ended: at(7), items: 375},
	}
	for n, want := range map[int]float64{1: 7 / (1850 * 0.004 / 1.5), 3: 1.5, 4: 1} {
		if got, ok := fromRound(n, rounds); !ok || math.Abs(got-want) > 1e-6 {
			t.Errorf("from round %d on: %v, %v; want %v", n, got, ok, want)
		}
	}
	if _, ok := fromRound(5, rounds); ok {
		t.Error("there is no fifth round")
	}
}

func TestRecovery(t *testing.T) {
	rounds := []round{
		{began: at(0), under: true}, {began: at(2), under: false}, {began: at(4), under: false}, {began: at(6), under: true}, {began: at(8), under: true},
	}
	for _, c := range []struct {
		change   float64
		took, of int
	}{{3, 2, 3}, {1, 3, 4}, {5, 1, 2}, {9, 0, 0}} {
		if took, of := recovery(rounds, at(c.change)); took != c.took || of != c.of {
			t.Errorf("changed at %v s: %d of %d rounds, want %d of %d", c.change, took, of, c.took, c.of)
		}
	}
	if took, of := recovery(rounds[1:3], at(1)); took != 0 || of != 2 {
		t.Errorf("never under: %d of %d rounds, want 0 of 2", took, of)
	}
}

func TestCheckFindsWrongResults(t *testing.T) {
	const one, two = "1 83dcefb7\n", "2 1ad5be0d\n"
	for _, c := range []struct {
		results string
		good    bool
	}{{one + two, true}, {two + one, false}, {one, false}, {one + two + two, false}, {one + "2 1ad5be0d", false}, {one + "2 00000000\n", false}} {
		if err := check([]byte(c.results), 2); (err == nil) != c.good {
			t.Errorf("%q: %v", c.results, err)
		}
	}
}
