package nearest_test

import (
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/internal/nearest"
)

func TestOf(t *testing.T) {
	known := []string{"pend_reason", "jobid", "jobindex", "stat", "chipA", "chipB", "-u"}
	for word, want := range map[string]string{
		"pend_raeson": "pend_reason", "pendreason": "pend_reason", "jobld": "jobid", "JOBID": "jobid", "sta": "stat", "chipC": "chipA",
		"chpB": "chipB", "hosts": "", "x": "", "": "", strings.Repeat("a", 100): "", "st": "", "pen": "pend_reason", "-uall": "",
	} {
		if got := nearest.Of(word, known); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
	if got := nearest.Hint("jobdi", known); got != " (did you mean jobid?)" {
		t.Errorf("got %q", got)
	}
	if got := nearest.Hint("nothing", known); got != "" {
		t.Errorf("got %q", got)
	}
}
