package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/state"
)

// keepTwoEnded keeps two ended jobs of a user in memory.
func keepTwoEnded(o *Options) { o.KeptEnded = 2 }

// memory returns how many ended jobs a daemon has in memory.
func (s *server) memory() int {
	s.t.Helper()
	status, err := s.client.Status(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return status.Ended
}

// Ended jobs that are no longer in memory can be looked up like others, also after a
// restart; a check accepts their state objects.
func TestPastJobs(t *testing.T) {
	s := serve(t, t.TempDir(), keepTwoEnded)
	array := s.spec("exit $LSB_JOBINDEX")
	array.Array = &backends.Array{Indices: []int{1, 2, 3}, Limit: 1}
	array.Env = append(array.Env, "SECRET=1")
	ids := s.submit(array, s.spec("exit 7"), s.held())
	if _, err := s.client.WaitEnded(t.Context(), ids[:2]); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Kill(t.Context(), ids[2:]).First(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.client.Kill(t.Context(), s.submit(s.held())).First(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if n := s.memory(); n > 2 {
			t.Errorf("%d ended jobs are in memory, want 2", n)
		}
		second := backends.ID{Job: ids[0].Job, Index: 2}
		jobs, err := s.client.Jobs(t.Context(), []backends.ID{ids[0], second, ids[1], ids[2], {Job: 77}})
		if err != nil || len(jobs) != 4 {
			t.Fatalf("%d past jobs, %v; want 4", len(jobs), err)
		}
		if j := jobs[0]; j.ID != ids[0] || j.State != backends.Exited || j.ExitCode != 1 {
			t.Errorf("the array: %+v; want it exited with 1", j)
		}
		if j := jobs[1]; j.ID != second || j.ExitCode != 2 || len(j.Hosts) != 1 || j.Ended.IsZero() {
			t.Errorf("its second element: %+v; want status 2", j)
		}
		if j := jobs[2]; j.ID != ids[1] || j.ExitCode != 7 || j.Name != "x" {
			t.Errorf("the job: %+v; want status 7", j)
		}
		if j := jobs[3]; j.ID != ids[2] || j.State != backends.Exited || j.Reason == "" {
			t.Errorf("the killed job: %+v; want its reason", j)
		}
		r, err := s.client.Record(t.Context(), ids[1])
		if err != nil || len(r.Runs) != 1 || r.Runs[0].ExitCode != 7 || len(r.Spec.Command) != 3 || r.Spec.Env != nil {
			t.Errorf("its record: %+v, %v", r, err)
		}
		if jobs, err := s.client.WaitEnded(t.Context(), ids[1:2]); err != nil || len(jobs) != 1 || jobs[0].ExitCode != 7 {
			t.Errorf("waiting for it: %+v, %v", jobs, err)
		}
		if err := s.client.Kill(t.Context(), ids[1:2]).First(); !errors.Is(err, backends.ErrUnknownJob) {
			t.Errorf("an end of it: %v", err)
		}
		found, err := Check(t.Context(), miniq.StateDir(s.o.Paths), false)
		if err != nil || len(found.Findings) != 0 || found.Objects != 9 {
			t.Errorf("a check: %+v, %v; want 9 objects and nothing to say", found, err)
		}
		s.stop()
		s = serve(t, s.o.Paths.State, keepTwoEnded)
	}
}

// A new job, and a changed one, may depend on jobs that ended and are no longer in
// memory. That holds after a kill -9 too, when these jobs' state objects are gone.
func TestDependenciesOnPastJobs(t *testing.T) {
	s := serve(t, t.TempDir(), keepTwoEnded)
	array := s.spec("exit $LSB_JOBINDEX")
	array.Array = &backends.Array{Indices: []int{1, 2}}
	ids := s.submit(s.spec("exit 0"), s.spec("exit 7"), array)
	if _, err := s.client.WaitEnded(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.client.Kill(t.Context(), s.submit(s.held())).First(); err != nil {
			t.Fatal(err)
		}
	}
	after := func(text string) backends.Spec {
		spec := s.held()
		spec.After = fmt.Sprintf(text, ids[0], ids[1], ids[2])
		return spec
	}
	good := s.submit(after("done(%[1]v) && exit(%[2]v, 7) && ended(%[3]v) && exit(%[3]v[2], 2)"), s.held())
	never := s.submit(after("done(%[2]v)"))[0]
	change := after("ended(%[2]v)").After
	if err := s.client.Abilities().Modify(t.Context(), good[1:], backends.Change{After: &change}).First(); err != nil {
		t.Fatal(err)
	}
	unknown := s.held()
	unknown.After = fmt.Sprintf("done(%v[9])", ids[2])
	if r := s.client.Submit(t.Context(), []backends.Spec{unknown})[0]; !errors.Is(r.Err, backends.ErrUnknownJob) {
		t.Errorf("a dependency on what was never there: %v", r.Err)
	}
	for _, id := range append(ids, backends.ID{Job: ids[2].Job, Index: 2}) {
		if err := os.Remove(state.Path(filepath.Join(miniq.StateDir(s.o.Paths), "jobs"), id)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range append(good, never) {
		found := slices.ContainsFunc(s.listJobs(), func(j backends.Job) bool { return j.ID == id })
		if !found {
			t.Errorf("job %v is not in the journal", id)
		}
	}
	if err := s.client.Release(t.Context(), append(good, never)).First(); err != nil {
		t.Fatal(err)
	}
	jobs, err := s.client.WaitEnded(t.Context(), good)
	if err != nil || len(jobs) != 2 || jobs[0].State != backends.Done || jobs[1].State != backends.Done {
		t.Errorf("they ended as %+v, %v; want both done", jobs, err)
	}
	if j := s.job(t, never); j.State != backends.Pending || j.Wait != backends.WaitDependency {
		t.Errorf("what can't come true: %+v; want it pending", j)
	}
}

// What one request may have looked up is bounded.
func TestManyDependenciesOnPastJobs(t *testing.T) {
	s := serve(t, t.TempDir(), keepTwoEnded)
	array := s.held()
	array.Array = &backends.Array{}
	var terms []string
	for i := 1; i <= maxPastEnds+1; i++ {
		array.Array.Indices = append(array.Array.Indices, i)
		terms = append(terms, fmt.Sprintf("1[%d]", i))
	}
	if err := s.client.Kill(t.Context(), s.submit(array)).First(); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Kill(t.Context(), s.submit(s.held(), s.held(), s.held())).First(); err != nil {
		t.Fatal(err)
	}
	spec := s.held()
	spec.After = strings.Join(terms, " || ")
	if r := s.client.Submit(t.Context(), []backends.Spec{spec})[0]; r.Err == nil || !strings.Contains(r.Err.Error(), "more than 1000") {
		t.Errorf("a dependency on %d past jobs: %v", len(terms), r.Err)
	}
}

// The state objects of past jobs go when these would be forgotten; those that
// ended later stay.
func TestPastJobsAreForgotten(t *testing.T) {
	s := serve(t, t.TempDir(), keepTwoEnded)
	var ids []backends.ID
	for range 6 {
		id := s.submit(s.held())[0]
		if err := s.client.Kill(t.Context(), []backends.ID{id}).First(); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	open := s.submit(s.held())[0]
	dir := filepath.Join(miniq.StateDir(s.o.Paths), "jobs")
	hour := time.Hour
	if c, err := s.client.Compact(t.Context(), &hour); err != nil || c.Forgotten != 0 {
		t.Fatalf("what ended within the hour: %+v, %v; want all kept", c, err)
	}
	old := time.Now().Add(-2 * hour)
	for _, id := range append(ids[:3:3], open) { // the open job's object is as old
		if err := os.Chtimes(state.Path(dir, id), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := s.client.Compact(t.Context(), &hour); err != nil || c.Forgotten != 3 {
		t.Errorf("with three that ended before: %+v, %v; want these gone", c, err)
	}
	for i, id := range append(ids, open) {
		if _, err := os.Stat(state.Path(dir, id)); (err == nil) != (i >= 3) {
			t.Errorf("object of job %v: %v", id, err)
		}
	}
	if c, err := s.client.Compact(t.Context(), new(time.Duration)); err != nil || c.Forgotten != 3 {
		t.Errorf("all that ended: %+v, %v; want three gone", c, err)
	}
	if jobs, err := s.client.Jobs(t.Context(), append(ids, open)); err != nil || len(jobs) != 1 || jobs[0].ID != open {
		t.Errorf("what is left: %+v, %v; want the open job", jobs, err)
	}
}

// remover counts the objects that it is to remove before it is waited for.
type remover struct {
	objects
	open, most, all int
}

func (r *remover) Remove(ids ...backends.ID) {
	r.open, r.all = r.open+len(ids), r.all+len(ids)
	r.most = max(r.most, r.open)
}

func (r *remover) Flush(context.Context) error {
	r.open = 0
	return nil
}

// However many objects go, what else is to be written waits for a bounded number only.
func TestPastJobsAreForgottenInParts(t *testing.T) {
	const folders, inEach = 5, 1000
	d := newDaemon(options(t, t.TempDir()), t.TempDir())
	for n := range folders * inEach {
		path := state.Path(d.objectDir(), backends.ID{Job: int64(n)})
		if n%inEach == 0 {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := &remover{}
	d.objects = r
	c, err := d.collect(time.Now().Add(time.Hour), func(ids []backends.ID) ([]bool, error) { return make([]bool, len(ids)), nil })
	if err != nil || c.gone != folders*inEach || r.all != c.gone || r.most > removedAtOnce {
		t.Errorf("%d are gone, %d were to be removed, %d at a time, %v; want %d, at most %d at a time", c.gone, r.all, r.most, err, folders*inEach, removedAtOnce)
	}
}
