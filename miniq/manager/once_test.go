package manager

import (
	"errors"
	"strconv"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// TestKeyedSubmissionIsAcceptedOnce: a client that got no answer submits the same again,
// also after the queue was restored.
func TestKeyedSubmissionIsAcceptedOnce(t *testing.T) {
	b := newBench(t, Config{}, 4)
	submit := func(by By, key string, specs ...backends.Spec) []backends.Submitted {
		b.do(Submit{By: by, Key: key, Specs: specs})
		return b.last.Submitted
	}
	hosts := backends.Spec{Hosts: []string{"n2"}} // is refused, as long as there is no n2
	first := submit(user, "k", spec(1), hosts, spec(1))
	if first[0].Err != nil || first[1].Err == nil || first[2].Err != nil || b.last.Again != nil {
		t.Fatalf("at first: %+v", b.last)
	}
	state, err := b.m.State()
	if err != nil {
		t.Fatal(err)
	}
	if b.m, err = Restore(state); err != nil {
		t.Fatal(err)
	}
	b.must(NodeUp{Name: "n2", Slots: 1})
	again := submit(user, "k", spec(1), hosts, spec(1))
	if again[0] != first[0] || again[1].Err != nil || again[1].ID.Job != 3 || again[2] != first[2] {
		t.Errorf("again: %+v, want %+v, and what was refused taken", again, first)
	}
	if a := b.last.Again; !a[0] || a[1] || !a[2] {
		t.Errorf("again: %v", a)
	}
	if once := submit(user, "k", spec(1), hosts, spec(1)); once[1] != again[1] {
		t.Errorf("a third time: %+v, want %+v", once, again)
	}
	if s := submit(user, "k", spec(1))[0]; !errors.Is(s.Err, errKey) {
		t.Errorf("other jobs under the same key: %+v", s)
	}
	if s := submit(other, "k", spec(1), spec(1), spec(1)); s[0].ID.Job != 4 {
		t.Errorf("another user's key of the same name: %+v, want new jobs", s)
	}
	if s := submit(user, "", spec(1)); submit(user, "", spec(1))[0] == s[0] {
		t.Error("without a key the same job was meant")
	}
}

// TestKeysAreForgotten when there are many, the oldest first.
func TestKeysAreForgotten(t *testing.T) {
	b := newBench(t, Config{}, 1)
	specs := make([]backends.Spec, maxRemembered/4)
	id := func(key string) int64 {
		b.do(Submit{By: user, Key: key, Specs: specs})
		return b.last.Submitted[0].ID.Job
	}
	var ids []int64
	for i := range 5 {
		ids = append(ids, id(strconv.Itoa(i)))
	}
	if got := id("4"); got != ids[4] {
		t.Errorf("the newest is job %d, want %d", got, ids[4])
	}
	if got := id("0"); got == ids[0] {
		t.Error("the oldest is remembered for ever")
	}
	if len(b.m.keyed) != len(b.m.keys) || b.m.keyedJobs > maxRemembered {
		t.Errorf("%d keys, %d in order, %d jobs", len(b.m.keys), len(b.m.keyed), b.m.keyedJobs)
	}
}
