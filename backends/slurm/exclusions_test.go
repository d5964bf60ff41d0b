package slurm

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// excludingJobs are two elements of an array and a job for which slots may be freed, and one
// for which none are.
func excludingJobs() (jobs []*listedJob) {
	for _, j := range []backends.Job{
		{ID: backends.ID{Job: 7, Index: 1}, Priority: backends.At(backends.LevelNext, 0)},
		{ID: backends.ID{Job: 7, Index: 2}, Priority: backends.At(backends.LevelNext, 0)},
		{ID: backends.ID{Job: 8}, Priority: backends.At(backends.LevelNext, 0)},
		{ID: backends.ID{Job: 9}},
	} {
		j.State = backends.Pending
		jobs = append(jobs, &listedJob{Job: j})
	}
	return jobs
}

// What one process has asked of Slurm the next one knows, for a while: owners may change
// what they exclude.
func TestExclusionsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "exclusions.json")
	if err := os.Chmod(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	now, jobs := time.Now(), excludingJobs()
	first := exclusions{path: path}
	first.prepare(now)
	if got := first.unknown(jobs); !slices.Equal(got, []backends.ID{{Job: 7, Index: 1}, {Job: 8}}) {
		t.Fatalf("at first %v are unknown, want one element of job 7, and job 8", got)
	}
	first.add(jobs, map[int64][]string{7: {"n1"}, 8: nil, 9: {"n2"}}, now)
	first.keep(jobs)

	after := func(d time.Duration) *exclusions {
		e := &exclusions{path: path}
		e.prepare(now.Add(d))
		return e
	}
	next := after(time.Minute)
	if got := next.unknown(jobs); len(got) != 0 {
		t.Errorf("the next process asks for %v", got)
	}
	if got := next.hosts(); !slices.Equal(got[7], []string{"n1"}) || len(got) != 2 {
		t.Errorf("the next process has %v, want n1 of job 7, none of job 8, and no other job", got)
	}
	for _, d := range []time.Duration{exclusionsHold, -time.Minute} {
		if got := after(d).unknown(jobs); len(got) != 2 {
			t.Errorf("%v later, by its clock, a process asks for %v, want two jobs", d, got)
		}
	}
	next.forget(backends.ID{Job: 7, Index: 2})
	next.keep(jobs)
	if got := after(time.Minute).unknown(jobs); !slices.Equal(got, []backends.ID{{Job: 7, Index: 1}}) {
		t.Errorf("after job 7 was forgotten, %v are unknown", got)
	}
	next.keep(jobs[:2])
	if got := after(time.Minute).hosts(); len(got) != 0 {
		t.Errorf("%v are kept of jobs that are not there any more", got)
	}
}

// A file that is broken, or that others can write, is as good as none.
func TestExclusionsOfOthersAreNotRead(t *testing.T) {
	now := time.Now()
	for what, c := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"broken":         {`{"version":1,"jobs":{"7":`, 0o600},
		"a new version":  {`{"version":2,"jobs":{"7":{"read":` + strconv.FormatInt(now.Unix(), 10) + `}}}`, 0o600},
		"others' file":   {`{"version":1,"jobs":{"7":{"read":` + strconv.FormatInt(now.Unix(), 10) + `}}}`, 0o666},
		"no such number": {`{"version":1,"jobs":{"x":{"read":` + strconv.FormatInt(now.Unix(), 10) + `}}}`, 0o600},
	} {
		path := filepath.Join(t.TempDir(), "exclusions.json")
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		e := exclusions{path: path}
		e.prepare(now)
		if got := e.hosts(); len(got) != 0 {
			t.Errorf("%s: %v", what, got)
		}
	}
}
