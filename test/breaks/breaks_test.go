package main

import (
	"path/filepath"
	"testing"
)

// Each break fits the tree. Only `make breaks` and `make test-crash` show which test it
// makes fail.
func TestBreaksFit(t *testing.T) {
	all, err := readBreaks("testdata")
	if err != nil || len(all) == 0 {
		t.Fatalf("%d breaks, %v", len(all), err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if _, err := d.overlay(t.Context(), root, t.TempDir()); err != nil {
			t.Error(err)
		}
	}
}

// The parts have each break once.
func TestParts(t *testing.T) {
	seen := make([]int, 10)
	for _, text := range []string{"0/3", "1/3", "2/3"} {
		var p part
		if err := p.set(text); err != nil {
			t.Fatal(err)
		}
		for i := range seen {
			if p.has(i) {
				seen[i]++
			}
		}
	}
	for i, n := range seen {
		if n != 1 || !(&part{}).has(i) {
			t.Errorf("break %d is in %d parts", i, n)
		}
	}
	for _, bad := range []string{"", "3/3", "-1/3", "1", "0/0"} {
		if err := new(part).set(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
