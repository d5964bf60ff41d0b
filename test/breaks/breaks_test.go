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
