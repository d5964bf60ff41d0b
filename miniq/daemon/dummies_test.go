package daemon

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Without adummy there are jobs, but no dummy jobs: placing one is an error that says why.
func TestDummiesNeedTheirProgram(t *testing.T) {
	s := serve(t, t.TempDir(), nil)
	heavy := s.submit(s.held())[0]
	got := s.client.Abilities().Place(t.Context(), []backends.Dummy{{For: heavy, Host: "n1", Limit: time.Hour}})[0]
	if !errors.Is(got.Err, backends.ErrUnable) || !strings.Contains(got.Err.Error(), "adummy") {
		t.Errorf("%v, %v; want %v that names adummy", got.ID, got.Err, backends.ErrUnable)
	}
}

// After a restart dummy jobs are known as such, and run what they would have run.
func TestDummiesOutliveTheDaemon(t *testing.T) {
	dir := t.TempDir()
	program := func(o *Options) { o.Dummy = "/bin/true" }
	s := serve(t, dir, program)
	heavy := s.submit(s.held())[0]
	full := s.spec("sleep 100")
	full.Slots = 4
	s.submit(full)
	got := s.client.Abilities().Place(t.Context(), slices.Repeat([]backends.Dummy{{For: heavy, Host: "n1", Limit: time.Hour}}, 2))
	for _, r := range got {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	ids := []backends.ID{got[0].ID, got[1].ID}
	if err := s.client.Hold(t.Context(), ids).First(); err != nil {
		t.Fatal(err)
	}
	s.stop() // which ends what runs
	s = serve(t, dir, program)
	jobs, err := s.client.Jobs(t.Context(), append(slices.Clone(ids), heavy))
	if err != nil || len(jobs) != 3 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	for i, want := range []backends.ID{heavy, heavy, {}} {
		if jobs[i].DummyFor != want {
			t.Errorf("job %v is shown as a dummy job for %v, want %v", jobs[i].ID, jobs[i].DummyFor, want)
		}
	}
	if err := s.client.Release(t.Context(), ids).First(); err != nil {
		t.Fatal(err)
	}
	ended, err := s.client.WaitEnded(t.Context(), ids)
	if err != nil || len(ended) != 2 || ended[0].State != backends.Done {
		t.Fatalf("they ended as %+v, %v", ended, err)
	}
	r, err := s.client.Record(t.Context(), ids[0])
	if err != nil || !slices.Equal(r.Spec.Command, []string{"/bin/true"}) || r.Spec.Stdout != os.DevNull {
		t.Errorf("its record: %+v, %v", r, err)
	}
}
