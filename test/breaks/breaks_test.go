package main

import (
	"path/filepath"
	"testing"
)

// Each break still fits the tree; what it makes fail only `make breaks` tells.
func TestBreaksFit(t *testing.T) {
	all, err := readBreaks("testdata")
	if err != nil || len(all) == 0 {
		t.Fatalf("%d breaks, %v", len(all), err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	b := breaker{dir: root}
	for _, d := range all {
		if err := b.apply(t.Context(), d, "--check"); err != nil {
			t.Error(err)
		}
	}
}
