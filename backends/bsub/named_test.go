package bsub_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

func TestJobsNamed(t *testing.T) {
	job := func(id int64, index int, user, name string) backends.Job {
		return backends.Job{ID: backends.ID{Job: id, Index: index}, User: user, Name: name}
	}
	farm := &backends.Snapshot{
		Jobs:  []backends.Job{job(1, 0, "bob", "sim"), job(2, 1, "bob", "arr"), job(2, 2, "bob", "arr"), job(3, 0, "ann", "sim"), job(4, 0, "bob", "arr[9]")},
		Ended: []backends.Job{job(5, 0, "bob", "sim"), job(6, 0, "bob", "past"), job(7, 0, "bob", "past")},
	}
	dummy := job(8, 0, "bob", "sim")
	dummy.DummyFor = backends.ID{Job: 1}
	farm.Jobs = append(farm.Jobs, dummy)
	for words, want := range map[string]string{
		"bob sim": "1", "bob arr": "2", "bob arr[2]": "2[2]", "bob past": "6, 7", "ann arr": "", " sim": "1, 3", "bob *": "",
	} {
		user, name, _ := strings.Cut(words, " ")
		if found, _ := bsub.JobsNamed(farm, user, name); bsub.ListIDs(found) != want {
			t.Errorf("%s: got %v, want %s", words, found, want)
		}
	}
	if _, known := bsub.JobsNamed(farm, "bob", "smi"); !slices.Equal(known, []string{"arr", "arr[9]", "past", "sim"}) {
		t.Errorf("known %q", known)
	}
	if got := bsub.ListIDs(make([]backends.ID, 100)); len(got) > 50 || !strings.HasSuffix(got, ", …") {
		t.Errorf("a hundred jobs: %s", got)
	}
}
