package manager

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// TestEventsRoundTrip: what the journal gives back is what was written, also text
// that was no UTF-8: a path may be anything.
func TestEventsRoundTrip(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 123456789, time.UTC)
	id := backends.ID{Job: 12, Index: 3}
	latin := backends.Escape("caf\xe9")
	full := backends.Spec{
		Name: latin, Project: latin, Description: latin, Priority: -980, Slots: 2, Memory: 5, OneHost: true, Hosts: []string{"n1"},
		Command: []string{"cat", latin, "\x00"}, Script: []byte("\xff\x00"), Dir: "/" + latin, Env: []string{"A=" + latin, "B=1"},
		Umask: 0o22, Stdout: latin, RunLimit: time.Second, BeginTime: at, HeldUntil: at, Array: &backends.Array{Indices: []int{1, 4}, Limit: 1}, After: "done(1)",
	}
	for _, e := range []Event{
		Submit{By: user, Key: "key", Specs: []backends.Spec{full, {}}, Next: []bool{true, false}, Past: []PastEnd{{ID: id}}},
		Dummies(admin, "key", []backends.Dummy{{For: id, Host: "n1", Priority: 89, Limit: time.Hour}}),
		Kill{user, []backends.ID{id}},
		KillNow{user, []backends.ID{id}},
		Requeue{admin, []backends.Act{{ID: id, Started: at, Until: at, Grace: time.Second, Save: backends.Checkpoint{Command: "/a " + latin, Wait: time.Second}, Mark: "r1", Notice: "n"}}},
		Suspend{admin, []backends.Act{{ID: id}}},
		Resume{user, []backends.ID{id}},
		Hold{user, []backends.ID{id}},
		Release{user, []backends.ID{id}},
		SetPriority{admin, []backends.PriorityChange{{ID: id, Priority: 4120}}},
		Pin{admin, []backends.Pin{{ID: id, Hosts: []string{"n1"}}}},
		HoldUntil{admin, []backends.HoldUntil{{ID: id, Until: at}}},
		Reserve{admin, []backends.Reservation{{ID: id, Hosts: []string{"n1"}, Until: at}}},
		Move{user, []backends.ID{id}, "low"},
		Reorder{user, []backends.ID{id}, 2, true},
		Reopen{user, []backends.ID{id}},
		Note{user, id, "progress", "40 " + latin, "40 " + latin, "result", true, []byte{0, 255}},
		Modify{user, []backends.ID{id}, backends.Change{Name: &latin, Hosts: &[]string{latin}, Slots: new(int), BeginTime: &at, RunLimit: new(time.Duration)}, []PastEnd{{id, true, 7}}},
		NodeUp{Name: "n1", Slots: 4, Memory: 16, Closed: true},
		NodeDown{"n1"},
		NodeGone{"n1"},
		Started{id, 2},
		Stopped{id, 2},
		StartFailed{id, 2, "why", true, 7},
		Ended{id, 2, 143, true, "why", true, true, true},
		RunLost{id, 2, "why"},
		Tick{},
		Forget{at},
		ClockRead{clock.Reading{Wall: at, Boot: 1 << 63, Up: time.Hour}, -2 * time.Hour},
		Configure{Config{SlotsOnly: true, ReserveAfter: 1, Queues: []Queue{{"low", backends.LevelLow}}}},
	} {
		line, err := EncodeEvent(e)
		if err != nil || bytes.ContainsRune(line, '\n') {
			t.Fatalf("%T: %q, %v", e, line, err)
		}
		back, err := DecodeEvent(line)
		if diff := cmp.Diff(e, back); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", line, err, diff)
		}
	}
	if full.Command[1] != latin {
		t.Error("encoding changed the event")
	}
}

// A change to any host stays one.
func TestChangeToAnyHostRoundTrip(t *testing.T) {
	line, err := EncodeEvent(Modify{Change: backends.Change{Hosts: new([]string)}})
	if err != nil {
		t.Fatal(err)
	}
	if back, err := DecodeEvent(line); err != nil || back.(Modify).Change.Hosts == nil {
		t.Errorf("%s: %+v, %v", line, back, err)
	}
}

func TestMalformedEvents(t *testing.T) {
	if _, err := EncodeEvent(nil); err == nil {
		t.Error("encoded no event")
	}
	for _, line := range []string{"", "{}", "null", "[]", `{"dance":{}}`, `{"tick":{},"kill":{}}`, `{"kill":{"IDs":["x"]}}`, `{"submit":[]}`} {
		if e, err := DecodeEvent([]byte(line)); err == nil {
			t.Errorf("%s gives %#v", line, e)
		}
	}
	b := newBench(t, Config{}, 1)
	b.do(&Tick{})
	if b.last.Errors.First() == nil {
		t.Error("accepted a pointer")
	}
}

// TestStateRoundTrip with text that was no UTF-8; TestLaws has the rest.
func TestStateRoundTrip(t *testing.T) {
	latin, bad := backends.Escape("caf\xe9"), backends.Escape("\xff")
	b := newBench(t, Config{}, 1)
	id := b.submit(backends.Spec{Name: latin, Command: []string{bad}})
	waits := b.submit(backends.Spec{Name: latin})
	b.m = restored(b)
	if name := b.job(id).Name; name != latin {
		t.Errorf("name %q", name)
	}
	if c := b.m.Runs()[0].Spec.Command[0]; c != bad {
		t.Errorf("command %q", c)
	}
	after := b.submit(backends.Spec{After: "ended(\"" + latin + "\")"})
	b.must(Kill{user, []backends.ID{waits}})
	b.waits(after, backends.WaitResources)
}

func TestRestoreRefuses(t *testing.T) {
	b := newBench(t, Config{}, 1)
	b.submit(backends.Spec{Array: &backends.Array{Indices: []int{1, 2}}})
	state, err := b.m.State()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{`"Version":1`, `"Version":2`, "version 2"},
		{`"Work":0`, `"Work":1`, "incomplete"},
		{`"Hosts":[{"Name":"n1"`, `"Hosts":[{"Name":"n2"`, "no host"},
		{`"Arrays":[{"Job":1`, `"Arrays":[{"Job":2`, "no array"},
		{`{"Slots":1,`, `{"Slots":0,`, "0 slots"},
		{`{"Version"`, `{"Version`, "invalid"},
	} {
		broken := strings.Replace(string(state), c.from, c.to, 1)
		if broken == string(state) {
			t.Fatalf("no %s in %s", c.from, state)
		}
		if _, err := Restore([]byte(broken)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.to, err)
		}
	}
}
