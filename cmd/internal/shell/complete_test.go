package shell

import (
	"bytes"
	"regexp"
	"slices"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
)

func TestJoinWords(t *testing.T) {
	for _, c := range []struct {
		bash, want []string
		strip      string
		last       int // where bash has the last word
	}{
		{[]string{"-P", "a", ":", "b", "ma"}, []string{"-P", "a:b", "ma"}, "", 5},
		{[]string{"-P", "a", ":"}, []string{"-P", "a:"}, "a:", 2},
		{[]string{"--project", "=", "ch"}, []string{"--project=ch"}, "--project=", 1},
		{[]string{"--project", "="}, []string{"--project="}, "--project=", 1},
		{[]string{""}, []string{""}, "", 1},
	} {
		got, strip, position := joinWords(c.bash)
		if !slices.Equal(got, c.want) || strip != c.strip || position(len(got)) != c.last {
			t.Errorf("%q: %q, %q, %d; want %q, %q, %d", c.bash, got, strip, position(len(got)), c.want, c.strip, c.last)
		}
	}
}

// TestJobIDs: the latest job first, an array under one ID until a bracket asks
// for its elements.
func TestJobIDs(t *testing.T) {
	farm := &backends.Snapshot{Jobs: []backends.Job{
		{ID: backends.ID{Job: 9}}, {ID: backends.ID{Job: 11, Index: 1}}, {ID: backends.ID{Job: 11, Index: 2}}, {ID: backends.ID{Job: 12}, State: backends.Running},
	}}
	for typed, want := range map[string][]string{
		"": {"12", "11", "9"}, "1": {"12", "11"}, "11[": {"11[2]", "11[1]"}, "3": nil,
	} {
		var got []string
		for _, a := range jobIDs(farm, typed, func(*backends.Job) bool { return true }) {
			got = append(got, a.Text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}

// TestOnlySafeNamesAreOffered: what a shell would run, or a terminal obey, is no
// candidate.
func TestOnlySafeNamesAreOffered(t *testing.T) {
	for name, want := range map[string]bool{
		"chipA": true, "chipA:synthesis": true, "2026-W48": true, "12[3]": true, "n1.example.org": true,
		"": false, "-rf": false, "a b": false, "$(x)": false, "`x`": false, "a;b": false, "a\x1b[2J": false, "a\nb": false, "*": false, ":files": false, "a|b": false, "ü": false,
	} {
		if got := regexp.MustCompile(safeName).MatchString(name); got != want {
			t.Errorf("%q is offered: %v, want %v", name, got, want)
		}
	}
}

// TestCompletionIsSilentOnErrors: a config that can't be read is no error at the tab key.
func TestCompletionIsSilentOnErrors(t *testing.T) {
	t.Setenv("ALLOTMENT_HOME", "/nonexistent")
	t.Setenv("ALLOTMENT_CONFIG", "/proc/self/mem")
	g := &grammar.Command{Name: "ajobs", Arguments: []grammar.Argument{{Name: "JOB", Many: true}}}
	for _, shell := range []string{"bash", "zsh", "fish", "other"} {
		var out bytes.Buffer
		complete(g, shell, []string{""}, &out)
		complete(g, shell, nil, &out)
		if out.Len() > 0 {
			t.Errorf("%s: %q", shell, out.String())
		}
	}
}
