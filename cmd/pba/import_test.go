package main

import (
	"io"
	"strings"
	"testing"
)

// TestOnlyYesApplies: whatever else is answered at the terminal changes nothing.
func TestOnlyYesApplies(t *testing.T) {
	for answer, want := range map[string]bool{
		"y\n": true, "yes\n": true, " Yes \n": true,
		"\n": false, "n\n": false, "yess\n": false, "": false, "y": false,
	} {
		if got := agreed(strings.NewReader(answer), io.Discard); got != want {
			t.Errorf("%q: %v", answer, got)
		}
	}
}
