package manager

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
)

// submitDummy submits one dummy job.
func (b *bench) submitDummy(by By, d backends.Dummy) (backends.ID, error) {
	b.do(Dummies(by, "", []backends.Dummy{d}))
	return b.last.Submitted[0].ID, b.last.Submitted[0].Err
}

// R31: a dummy job is what an administrator places for a job that has not ended, on
// one slot of one host, for a limited time; nothing else is.
func TestDummies(t *testing.T) {
	b := newBench(t, Config{}, 4, 4)
	heavy := b.submit(backends.Spec{Slots: 1, Queue: "low"})
	array := b.submit(backends.Spec{Slots: 1, Array: &backends.Array{Indices: []int{3}}})
	over := b.submit(spec(1))
	b.ends(over, 0)
	good := backends.Dummy{For: heavy, Host: "n2", Priority: 89, Limit: time.Hour}
	id, err := b.submitDummy(admin, good)
	if err != nil {
		t.Fatal(err)
	}
	b.starts(id)
	b.m = restored(b)
	want := backends.Job{
		ID: id, Name: "dummy for 1", User: admin.User, Queue: "low", State: backends.Running, Priority: good.Priority, Slots: 1, OneHost: true,
		Hosts: []backends.Placement{{Host: "n2", Slots: 1}}, Asked: []string{"n2"}, Submitted: b.now, Started: b.now, RunLimit: time.Hour,
		DummyFor: heavy, NoRequeue: true,
	}
	if diff := cmp.Diff(want, b.job(id)); diff != "" {
		t.Error(diff)
	}
	b.do(Requeue{admin, []backends.Act{{ID: id}}})
	if err := b.last.Errors[0]; !errors.Is(err, backends.ErrDenied) {
		t.Errorf("a dummy job is requeued: %v", err)
	}
	for what, c := range map[string]struct {
		by   By
		d    backends.Dummy
		want error // nil: any
	}{
		"the job's own user":       {user, backends.Dummy{For: heavy, Host: "n2", Priority: 5, Limit: time.Hour}, backends.ErrDenied},
		"no limit":                 {admin, backends.Dummy{For: heavy, Host: "n2", Priority: 89}, nil},
		"no host":                  {admin, backends.Dummy{For: heavy, Priority: 89, Limit: 1}, nil},
		"an unknown host":          {admin, backends.Dummy{For: heavy, Host: "n9", Priority: 89, Limit: 1}, nil},
		"for no job":               {admin, backends.Dummy{Host: "n2", Priority: 89, Limit: 1}, backends.ErrUnknownJob},
		"for an unknown job":       {admin, backends.Dummy{For: backends.ID{Job: 99}, Host: "n2", Limit: 1}, backends.ErrUnknownJob},
		"for all of an array":      {admin, backends.Dummy{For: array, Host: "n2", Limit: 1}, backends.ErrUnknownJob},
		"for what has ended":       {admin, backends.Dummy{For: over, Host: "n2", Limit: 1}, backends.ErrWrongState},
		"for another dummy":        {admin, backends.Dummy{For: id, Host: "n2", Limit: 1}, backends.ErrWrongState},
		"a level that there isn't": {admin, backends.Dummy{For: heavy, Host: "n2", Priority: 1 << 20, Limit: 1}, nil},
	} {
		if id, err := b.submitDummy(c.by, c.d); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v; want it refused: %v", what, id, err, c.want)
		}
	}
	if _, err := b.submitDummy(admin, backends.Dummy{For: backends.ID{Job: array.Job, Index: 3}, Host: "n2", Limit: 1}); err != nil {
		t.Errorf("for an element: %v", err)
	}
	twice := Dummies(admin, "key", []backends.Dummy{good, good})
	b.do(twice)
	first := b.last.Submitted
	b.do(twice)
	if diff := cmp.Diff(first, b.last.Submitted); diff != "" || first[0].Err != nil {
		t.Errorf("placed again under the same key:\n%s", diff)
	}
	b.after(time.Hour)
	if j := b.job(effectOf[KillRun](b).ID); !j.IsDummy() {
		t.Errorf("job %s is over its limit, want the dummy jobs alone", j.ID)
	}
	b.ends(id, 143)
	b.m = restored(b)
	if j := b.job(id); j.State != backends.Exited || j.DummyFor != heavy {
		t.Errorf("it ended as %+v, want it still known as a dummy job", j)
	}
}

// R29: a job that the submit filter holds does not start for a moment; its owner
// can't lift that, and it passes by itself.
func TestSubmittedHeldUntil(t *testing.T) {
	b := newBench(t, Config{}, 4)
	until := b.now.Add(10 * time.Minute)
	held := func() backends.ID { return b.submit(backends.Spec{Slots: 1, HeldUntil: until}) }
	id, released := held(), held()
	past := b.submit(backends.Spec{Slots: 1, HeldUntil: b.now})
	b.starts(past)
	b.m = restored(b)
	b.do(Release{user, []backends.ID{id}})
	if err := b.last.Errors[0]; !errors.Is(err, backends.ErrWrongState) {
		t.Errorf("its owner's release: %v", err)
	}
	b.do(HoldUntil{user, []backends.HoldUntil{{ID: id}}})
	if err := b.last.Errors[0]; !errors.Is(err, backends.ErrDenied) {
		t.Errorf("its owner's change: %v", err)
	}
	b.must(Modify{By: user, IDs: []backends.ID{id}, Change: backends.Change{Name: ptr("mine")}})
	b.waits(id, backends.WaitTime)
	if j := b.job(id); !j.HeldUntil.Equal(until) || !j.BeginTime.IsZero() {
		t.Errorf("held until %v, begins %v; want %v and no begin time", j.HeldUntil, j.BeginTime, until)
	}
	b.must(HoldUntil{admin, []backends.HoldUntil{{ID: released}}})
	b.starts(released)
	b.after(10 * time.Minute)
	b.starts(id)
	b.must(Requeue{admin, []backends.Act{{ID: id}}})
	b.ends(id, 143)
	b.starts(id) // a run later it is not held again
	b.do(Submit{By: user, Specs: []backends.Spec{{Slots: 1, HeldUntil: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}}})
	if b.last.Submitted[0].Err == nil {
		t.Error("held until a time that can't be written down")
	}
}
