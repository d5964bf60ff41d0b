package manager

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// farmOf has something of everything: an array, a dependency, a held job, a
// running one, one that has ended.
func farmOf(t testing.TB) *Manager {
	t.Helper()
	m := New(Config{AgeingInterval: time.Minute, AgeingCap: 69, ReserveAfter: time.Minute})
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	step := func(e Event) Result {
		at = at.Add(time.Second)
		_, r := m.Step(at, e)
		return r
	}
	step(NodeUp{Name: "n1", Slots: 4, Memory: 4 << 32})
	step(Submit{By: user, Specs: []backends.Spec{
		{Name: "a", Slots: 1, RunLimit: time.Hour},
		{Name: "b", Slots: 2, Array: &backends.Array{Indices: []int{1, 2, 5}, Limit: 1}},
		{Name: "c", After: `done(a) && !exit(2, >3) || started("b")`, Slots: 4},
		{Hold: true, Slots: 3},
		{Slots: 4, Memory: 1 << 30},
		{Slots: 1},
	}})
	step(Started{ID: backends.ID{Job: 1}, Run: 1})
	step(Dummies(admin, "", []backends.Dummy{{For: backends.ID{Job: 1}, Host: "n1", Limit: time.Hour}}))
	step(Ended{ID: backends.ID{Job: 6}, Run: 1, ExitCode: 3})
	step(Reserve{By: admin, Reservations: []backends.Reservation{{ID: backends.ID{Job: 5}, Hosts: []string{"n1"}, Until: at.Add(time.Hour)}}})
	return m
}

// exercise does with a queue whatever can be done with any.
func exercise(t *testing.T, m *Manager) {
	t.Helper()
	at := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	m.Step(at, Tick{})
	f := m.Snapshot(at, time.Time{})
	var ids []backends.ID
	for i := range f.Jobs {
		ids = append(ids, f.Jobs[i].ID)
	}
	m.Jobs(at, ids)
	m.Runs()
	m.Step(at, NodeUp{Name: "n9", Slots: 8, Memory: 8 << 32})
	m.Step(at, Kill{By: admin, IDs: ids})
	m.Step(at, Forget{EndedBefore: at.Add(time.Hour)})
	if _, err := m.State(); err != nil {
		t.Errorf("a state that can't be written: %v", err)
	}
}

// A state is restored whole, so that it is written the same again, or refused.
func FuzzRestore(f *testing.F) {
	state, err := farmOf(f).State()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(state)
	f.Add([]byte(`{"Version":1}`))
	f.Add(bytes.Replace(state, []byte(`"Slots":4`), []byte(`"Slots":-4`), 1))
	f.Add(bytes.Replace(state, []byte(`"State":"running",`), nil, 1))
	f.Fuzz(func(t *testing.T, state []byte) {
		m, err := Restore(state)
		if err != nil {
			return
		}
		first, err := m.State()
		if err != nil {
			t.Skip() // a year that JSON can't write
		}
		again, err := Restore(first)
		if err != nil {
			t.Fatalf("%s\nis not restored: %v", first, err)
		}
		if second, err := again.State(); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s\nbecame %s, %v", first, second, err)
		}
		exercise(t, m)
	})
}

// An event is read as it was written, or refused; whatever one says, the queue
// goes on.
func FuzzDecodeEvent(f *testing.F) {
	for _, e := range []Event{
		Submit{By: user, Specs: []backends.Spec{{Name: "\xff", Slots: 2, After: "done(1)"}}},
		Dummies(admin, "", []backends.Dummy{{For: backends.ID{Job: 1}, Host: "n1", Limit: time.Hour}}),
		Kill{By: user, IDs: []backends.ID{{Job: 2}}},
		Requeue{By: admin, Acts: []backends.Act{{ID: backends.ID{Job: 1}, Until: time.Unix(2e9, 0).UTC()}}},
		Requeue{By: admin, Acts: []backends.Act{{ID: backends.ID{Job: 1}, Save: backends.Checkpoint{Signal: "SIGUSR1", Wait: time.Minute}}}},
		Suspend{By: admin, Acts: []backends.Act{{ID: backends.ID{Job: 1}}}},
		SetPriority{By: admin, Rankings: []backends.PriorityChange{{ID: backends.ID{Job: 3}, Priority: 3020}}},
		Pin{By: admin, Pins: []backends.Pin{{ID: backends.ID{Job: 3}, Hosts: []string{"n1"}}}},
		Ended{ID: backends.ID{Job: 1}, Run: 1},
		RunLost{ID: backends.ID{Job: 1}, Run: 1},
		StartFailed{ID: backends.ID{Job: 1}, Run: 1},
		NodeUp{Name: "n1", Slots: 1},
		NodeDown{Name: "n1"},
		NodeGone{Name: "n1"},
		Configure{},
		Forget{EndedBefore: time.Unix(2e9, 0).UTC()},
		Move{By: admin, IDs: []backends.ID{{Job: 3}}, Queue: "low"},
		Modify{By: admin, IDs: []backends.ID{{Job: 4}}, Change: backends.Change{Slots: new(int)}},
		Tick{},
	} {
		line, err := EncodeEvent(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := DecodeEvent(line)
		if err != nil {
			return
		}
		first, err := EncodeEvent(e)
		if err != nil {
			return // a year that JSON can't write
		}
		again, err := DecodeEvent(first)
		if err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		if second, err := EncodeEvent(again); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s became %s, %v", first, second, err)
		}
		m := farmOf(t)
		m.Step(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), e)
		exercise(t, m)
	})
}

// A dependency is a condition on jobs that are there, or an error that names
// what is wrong, also where it is nested as deeply as it is long.
func FuzzDependency(f *testing.F) {
	for _, s := range []string{`done(1)`, `1 && "a" || !ended(2[5])`, `exit(1, >= 3)`, `started(b)`, `((((1))))`, `!!!!1`, `done(`, `"`, `exit(1,)`, `99`} {
		f.Add(s)
	}
	m := farmOf(f)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := m.parseCondition("ann", text, nil)
		if err != nil || c == nil {
			if (c == nil) == (strings.TrimSpace(text) != "") && err == nil {
				t.Errorf("%q is no condition", text)
			}
			return
		}
		met := m.evaluate(c)
		again, err := parseAgain(text, c.leaves)
		if err != nil || m.evaluate(again) != met || len(again.leaves) != len(c.leaves) {
			t.Errorf("%q: read again it is another one: %v", text, err)
		}
	})
}

// A state in which one number is another one is refused, or a queue that goes on.
func FuzzRestoreNumbers(f *testing.F) {
	state, err := farmOf(f).State()
	if err != nil {
		f.Fatal(err)
	}
	numbers := regexp.MustCompile(`[:\[,]-?\d+`).FindAllIndex(state, -1)
	for i := range numbers {
		for _, value := range []int64{0, -1, 1, 7, 1 << 40} {
			f.Add(uint16(i), value)
		}
	}
	f.Fuzz(func(t *testing.T, which uint16, value int64) {
		at := numbers[int(which)%len(numbers)]
		changed := append(append(append([]byte{}, state[:at[0]+1]...), strconv.FormatInt(value, 10)...), state[at[1]:]...)
		m, err := Restore(changed)
		if err != nil {
			return
		}
		exercise(t, m)
	})
}
