package lsf_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

func TestJobsOfAProfile(t *testing.T) {
	c := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Flavour: lsfstandin.LSF10})
	for _, options := range []string{"-H", "-H -app solver", "-H -app solver -J a[1-2]"} {
		if _, message, rc := c.Run(append(append([]string{"bsub"}, strings.Fields(options)...), "true")...); rc != 0 {
			t.Fatal(message)
		}
	}
	queue := open(t, c)
	ofProfile := queue.Abilities().OfProfile
	for profile, want := range map[string]map[int64]bool{"solver": {2: true, 3: true}, "other": {}} {
		has, err := ofProfile(t.Context(), profile)
		if err != nil {
			t.Errorf("%s: %v", profile, err)
			continue
		}
		for n := range int64(4) {
			if got := has(&backends.Job{ID: backends.ID{Job: n + 1}}); got != want[n+1] {
				t.Errorf("job %d has the profile %s: %v", n+1, profile, got)
			}
		}
	}
	if _, err := ofProfile(t.Context(), "-u"); err == nil || !strings.Contains(err.Error(), "no name") {
		t.Errorf("an option as a name: %v", err)
	}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := ofProfile(t.Context(), "solver"); !errors.Is(err, backends.ErrUnreachable) {
		t.Errorf("without an answer: %v", err)
	}
}

// Lava's bjobs reads -g and -app as something else: it is not asked.
func TestLavaHasNoGroups(t *testing.T) {
	able := open(t, lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Flavour: lsfstandin.Lava})).Abilities()
	_, byGroup := able.InGroup(t.Context(), "/x")
	_, byProfile := able.OfProfile(t.Context(), "x")
	for _, err := range []error{byGroup, byProfile} {
		if !errors.Is(err, backends.ErrUnable) || !strings.Contains(err.Error(), "lava's bjobs does not know it") {
			t.Errorf("%v", err)
		}
	}
}
