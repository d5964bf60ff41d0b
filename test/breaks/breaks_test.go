package main

import (
	"path/filepath"
	"testing"
)

// Each break still fits the tree; what it makes fail only `make breaks` and
// `make test-crash` tell.
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
