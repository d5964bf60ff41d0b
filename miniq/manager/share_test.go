package manager

import (
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// Jobs that are alike and handed in one after the other have one work, another
// user's or a changed one has its own.
func TestEqualJobsShareWork(t *testing.T) {
	b := newBench(t, Config{}, 1)
	b.submit(spec(1)) // it runs
	hold := func() backends.ID {
		s := spec(1)
		s.Description = "same"
		return b.submit(s)
	}
	first, second := hold(), hold()
	b.must(Submit{By: other, Specs: []backends.Spec{{Slots: 1, Description: "same", Command: []string{"true"}}}})
	third := b.last.Submitted[0].ID
	work := func(id backends.ID) *work { return b.m.jobs[id].work }
	if work(first) != work(second) || work(first) == work(third) {
		t.Error("two jobs of one user do not share their work, or those of two do")
	}
	name := "x"
	b.must(Modify{By: user, IDs: []backends.ID{second}, Change: backends.Change{Name: &name}})
	if b.job(first).Name != "" || b.job(second).Name != "x" {
		t.Errorf("names %q and %q, want the second changed alone", b.job(first).Name, b.job(second).Name)
	}
	state, err := b.m.State()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Restore(state)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(again.Jobs(b.now, []backends.ID{first, second, third})); n != 3 {
		t.Errorf("%d jobs after a restart, want 3", n)
	}
	before := len(state)
	for range 100 {
		hold()
	}
	if state, err = b.m.State(); err != nil || len(state) > before+100*350 {
		t.Errorf("100 jobs alike take %d bytes of the state, %v", len(state)-before, err)
	}
}
