package ledger

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/plan"
)

var (
	w47, w48 = calendar.Week{Year: 2026, Week: 47}, calendar.Week{Year: 2026, Week: 48}
	w49, w50 = calendar.Week{Year: 2026, Week: 49}, calendar.Week{Year: 2026, Week: 50}
	generous = RequestLimits{OpenOfUser: 100, OpenOfProject: 100, OfUserInDay: 100}
)

func ask(t *testing.T, l *Ledger, r Request) int64 {
	t.Helper()
	id, err := l.AddRequest(context.Background(), Editor{Who: r.By, At: at(0)}, r, generous, w48)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func states(t *testing.T, l *Ledger, this calendar.Week, all bool) map[int64]RequestState {
	t.Helper()
	found, err := l.Requests(context.Background(), this, all)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int64]RequestState{}
	for _, r := range found {
		got[r.ID] = r.State
	}
	return got
}

func TestRequestsAreStored(t *testing.T) {
	l := create(t)
	addProject(t, l, Project{Name: "A"})
	r := Request{Pool: Pool{"A", "bob", "s", "gpu"}, Slots: 4, From: w48, To: w50, Why: "why", UID: 7, By: "bob", Asked: at(0), State: RequestOpen}
	r.ID = ask(t, l, r)
	if got, err := l.Request(context.Background(), r.ID, w48); err != nil || cmp.Diff(r, got) != "" {
		t.Error(err, cmp.Diff(r, got))
	}
	by := Editor{Who: "ann (uid 3)", At: at(5)}
	if err := l.CloseRequest(context.Background(), by, r.ID, RequestDeclined, "no", w48); err != nil {
		t.Fatal(err)
	}
	r.State, r.Answer, r.Answerer, r.Answered = RequestDeclined, "no", by.Who, by.At
	if got, err := l.Request(context.Background(), r.ID, w48); err != nil || cmp.Diff(r, got) != "" {
		t.Error(err, cmp.Diff(r, got))
	}
	if err := l.CloseRequest(context.Background(), by, r.ID, RequestWithdrawn, "", w48); !errors.Is(err, ErrRequestAnswered) {
		t.Errorf("answered twice: %v", err)
	}
	if err := l.CloseRequest(context.Background(), by, 99, RequestWithdrawn, "", w48); !errors.Is(err, ErrUnknownRequest) {
		t.Error(err)
	}
}

// TestUndoneGrantIsOpenAgain: and undoing that grants it again, unless its owner withdrew it.
func TestUndoneGrantIsOpenAgain(t *testing.T) {
	l := create(t)
	addProject(t, l, Project{Name: "A"})
	a := Pool{Project: "A"}
	id := ask(t, l, Request{Pool: a, Slots: 4, From: w48, To: w49, Why: "y", By: "bob", State: RequestOpen})
	edit := Edit{Editor: Editor{Who: "ann", At: at(1)}, ThisWeek: w48, Command: "alloc grant"}
	four := Change{Pool: a, Week: w49, Terms: Terms{Slots: 4, SLA: plan.Velocity}}
	if err := l.GrantRequest(t.Context(), edit, id, []Change{four}); err != nil {
		t.Fatal(err)
	}
	last := func() int64 {
		rows, err := l.Log(t.Context(), Query{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		return rows[0].Change
	}
	undo := func(slots int, want RequestState) {
		t.Helper()
		edit.Undoes, edit.Command = last(), "alloc undo"
		c := four
		if c.Slots = slots; slots == 0 {
			c.Terms = Terms{}
		}
		if _, err := l.ChangeAllocations(t.Context(), edit, []Change{c}); err != nil {
			t.Fatal(err)
		}
		if got := states(t, l, w48, true)[id]; got != want {
			t.Errorf("the request is %s, want %s", got, want)
		}
	}
	undo(0, RequestOpen)
	r, err := l.Request(t.Context(), id, w48)
	if err != nil || r.Answerer != "" || !r.Answered.IsZero() {
		t.Errorf("it is open again, and has an answer: %+v, %v", r, err)
	}
	undo(4, RequestGranted)
	undo(0, RequestOpen)
	undone := last()
	if err := l.CloseRequest(t.Context(), Editor{Who: "bob", At: at(2)}, id, RequestWithdrawn, "", w48); err != nil {
		t.Fatal(err)
	}
	edit.Undoes = undone
	if _, err := l.ChangeAllocations(t.Context(), edit, []Change{four}); err != nil || states(t, l, w48, true)[id] != RequestWithdrawn {
		t.Error(err, states(t, l, w48, true))
	}
}

// TestGrantIsAllOrNothing: neither the changes nor the answer stay where one fails.
func TestGrantIsAllOrNothing(t *testing.T) {
	l := create(t)
	addProject(t, l, Project{Name: "A"})
	id := ask(t, l, Request{Pool: Pool{Project: "A"}, Slots: 4, From: w48, To: w49, Why: "y", State: RequestOpen})
	edit := Edit{Editor: Editor{Who: "ann", At: at(1)}, ThisWeek: w48}
	set := func(w calendar.Week, slots int) Change {
		return Change{Pool: Pool{Project: "A"}, Week: w, Terms: Terms{Slots: slots, SLA: plan.Velocity}}
	}
	planned := func() int {
		all, err := l.Allocations(context.Background(), w48, w50)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if err := l.GrantRequest(context.Background(), edit, id, []Change{set(w48, 4), set(w49, 0)}); !errors.Is(err, ErrUnknownAllocation) {
		t.Error(err)
	}
	if err := l.GrantRequest(context.Background(), edit, id+1, []Change{set(w48, 4)}); !errors.Is(err, ErrUnknownRequest) {
		t.Error(err)
	}
	if n := planned(); n != 0 || states(t, l, w48, false)[id] != RequestOpen {
		t.Errorf("%d allocations after a grant that failed; %v", n, states(t, l, w48, true))
	}
	if err := l.GrantRequest(context.Background(), edit, id, []Change{set(w48, 4), set(w49, 4)}); err != nil {
		t.Fatal(err)
	}
	if n := planned(); n != 2 || states(t, l, w48, true)[id] != RequestGranted {
		t.Errorf("%d allocations; %v", n, states(t, l, w48, true))
	}
}

func TestRequestsExpireAndAreForgotten(t *testing.T) {
	l := create(t)
	addProject(t, l, Project{Name: "A"})
	over := ask(t, l, Request{Pool: Pool{Project: "A"}, Slots: 4, From: w47, To: w48, Why: "y"})
	runs := ask(t, l, Request{Pool: Pool{Project: "A"}, Slots: 4, From: w47, To: w49, Why: "y"})
	if diff := cmp.Diff(map[int64]RequestState{runs: RequestOpen}, states(t, l, w49, false)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[int64]RequestState{over: RequestExpired, runs: RequestOpen}, states(t, l, w49, true)); diff != "" {
		t.Error(diff)
	}
	if err := l.CloseRequest(context.Background(), Editor{}, over, RequestDeclined, "", w49); !errors.Is(err, ErrRequestAnswered) {
		t.Errorf("an expired one was answered: %v", err)
	}
	last, err := l.AddRequest(context.Background(), Editor{At: at(0).Add(8 * 24 * time.Hour)}, Request{Pool: Pool{Project: "A"}, Slots: 1, From: w49, To: w49, Why: "y"}, generous, w49)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := l.db.Begin()
	if err == nil {
		err = errors.Join(forget(context.Background(), tx, at(0).Add(9*24*time.Hour)), tx.Commit())
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int64]RequestState{runs: RequestOpen, last: RequestOpen}, states(t, l, w49, true)); diff != "" {
		t.Errorf("after old ones were forgotten: %s", diff)
	}
}

func TestRequestLimits(t *testing.T) {
	l := create(t)
	addProject(t, l, Project{Name: "A"})
	addProject(t, l, Project{Name: "B"})
	try := func(project string, uid int, after time.Duration) error {
		r := Request{Pool: Pool{Project: project}, Slots: 4, From: w48, To: w48, Why: "y", UID: uid}
		_, err := l.AddRequest(context.Background(), Editor{At: at(0).Add(after)}, r, RequestLimits{OpenOfUser: 2, OpenOfProject: 3, OfUserInDay: 4}, w48)
		return err
	}
	closeAll := func() {
		for id, state := range states(t, l, w48, false) {
			if err := l.CloseRequest(context.Background(), Editor{At: at(1)}, id, RequestWithdrawn, "", w48); err != nil {
				t.Fatal(state, err)
			}
		}
	}
	for i, x := range []struct {
		project string
		uid     int
		after   time.Duration
		refused bool
	}{
		{"A", 1, 0, false}, {"A", 1, 0, false}, {"B", 1, 0, true}, // two of a user
		{"A", 2, 0, false}, {"A", 2, 0, true}, {"B", 2, 0, false}, // three of a project
	} {
		if err := try(x.project, x.uid, x.after); errors.Is(err, ErrTooManyRequests) != x.refused {
			t.Errorf("%d: %v", i, err)
		}
	}
	closeAll()
	if err := errors.Join(try("A", 1, 0), try("A", 1, 0)); err != nil {
		t.Fatal(err)
	}
	closeAll()
	if err := try("A", 1, 23*time.Hour); !errors.Is(err, ErrTooManyRequests) {
		t.Errorf("a fifth within a day: %v", err)
	}
	if err := try("A", 1, 25*time.Hour); err != nil {
		t.Error(err)
	}
}

func TestRemovedProjectsRequestsAreClosed(t *testing.T) {
	l := create(t)
	addProject(t, l, Project{Name: "A"})
	id := ask(t, l, Request{Pool: Pool{Project: "A"}, Slots: 4, From: w48, To: w48, Why: "y"})
	if err := l.RemoveProject(context.Background(), Editor{Who: "ann", At: at(1)}, "A", w48); err != nil {
		t.Fatal(err)
	}
	if got := states(t, l, w48, true)[id]; got != RequestDeclined {
		t.Error(got)
	}
}
