package manager

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// TestFreeze: whatever happens to a queue while it is copied, the copy is what State gave
// when it was begun.
func TestFreeze(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 11, 23, 12, 0, 7, 0, time.UTC)
		m := New(Config{AgeingInterval: lawTick, AgeingCap: lawCap, MaxEnded: 6})
		m.Step(now, NodeUp{Name: "n0", Slots: 3})
		var f *Frozen
		var want []byte
		for range rapid.IntRange(20, 120).Draw(t, "steps") {
			if f == nil && rapid.IntRange(0, 4).Draw(t, "freeze") == 0 {
				var err error
				if want, err = m.State(); err != nil {
					t.Fatal(err)
				}
				f = m.Freeze()
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "pass")) * time.Second)
			m.Step(now, anyEvent(t, m, now))
			if f != nil && !f.More(rapid.IntRange(0, 3).Draw(t, "more")) {
				compareFrozen(t, f, want)
				f = nil
			}
		}
		for f != nil && f.More(1) {
		}
		if f != nil {
			compareFrozen(t, f, want)
		}
	})
}

func compareFrozen(t *rapid.T, f *Frozen, want []byte) {
	t.Helper()
	parts, err := f.Encode()
	if got := slices.Concat(parts...); err != nil || !bytes.Equal(got, want) {
		var was, copied any
		_ = json.Unmarshal(want, &was)
		_ = json.Unmarshal(got, &copied)
		t.Fatalf("the copy is another queue's (- was, + copied), %v:\n%s", err, cmp.Diff(was, copied))
	}
}

// anyEvent is one of all kinds, of whatever jobs.
func anyEvent(t *rapid.T, m *Manager, now time.Time) Event {
	number := func(what string, most int) int { return rapid.IntRange(0, most).Draw(t, what) }
	var all []backends.ID
	for id := range m.jobs {
		all = append(all, id)
	}
	slices.SortFunc(all, backends.ID.Compare)
	id := backends.ID{Job: 1}
	if len(all) > 0 {
		id = all[number("id", len(all)-1)]
	}
	j := m.jobs[id]
	if runs := m.Runs(); len(runs) > 0 && number("live", 1) == 0 {
		id = runs[number("run", len(runs)-1)].ID
		j = m.jobs[id]
	}
	run := 0
	if j != nil {
		run = j.run
	}
	if number("array", 5) == 0 {
		id.Index = 0
	}
	ids := []backends.ID{id}
	name := func() string { return rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "name") }
	after := func() string {
		return rapid.SampledFrom([]string{"", "", fmt.Sprintf("ended(%d)", id.Job), fmt.Sprintf("started(%d) && done(%d)", id.Job, max(id.Job-1, 1)), `exit("a")`}).Draw(t, "after")
	}
	soon := func() time.Time { return now.Add(time.Duration(number("soon", 60)-10) * time.Second) }
	act := backends.Act{ID: id, Mark: name(), Until: soon(), Save: anySave(t)}
	switch number("event", 21) {
	case 0:
		return Kill{admin, ids}
	case 1:
		return Requeue{admin, []backends.Act{act}}
	case 2:
		return Suspend{admin, []backends.Act{act}}
	case 3:
		return Resume{admin, ids}
	case 4:
		return Hold{user, ids}
	case 5:
		return Release{user, ids}
	case 6:
		return SetPriority{admin, []backends.PriorityChange{{ID: id, Priority: backends.At(backends.LevelNormal, 15+number("value", 20))}}}
	case 7:
		return Pin{admin, []backends.Pin{{ID: id, Hosts: []string{"n0"}}}}
	case 8:
		return HoldUntil{admin, []backends.HoldUntil{{ID: id, Until: soon()}}}
	case 9:
		return Reserve{admin, []backends.Reservation{{ID: id, Hosts: []string{"n0"}, Until: soon()}}}
	case 10:
		return Move{admin, ids, rapid.SampledFrom([]string{"low", "normal"}).Draw(t, "queue")}
	case 11:
		change := backends.Change{}
		if text := name(); number("rename", 1) == 0 {
			change.Name = &text
		} else {
			text = after()
			change.After = &text
		}
		return Modify{By: user, IDs: ids, Change: change}
	case 12:
		if number("down", 2) == 0 {
			return NodeDown{"n0"}
		}
		return NodeUp{Name: "n0", Slots: 1 + number("slots", 3), Closed: number("closed", 4) == 0}
	case 13:
		return Started{id, run}
	case 14:
		return StartFailed{ID: id, Run: run, Again: number("again", 1) == 0}
	case 15, 16:
		return Ended{ID: id, Run: run, ExitCode: anyExit(t), Self: number("self", 2) > 0, Asked: true}
	case 17:
		return RunLost{ID: id, Run: run}
	case 18:
		return Forget{EndedBefore: soon().Add(-time.Minute)}
	case 19:
		if number("clock", 2) > 0 {
			return Tick{}
		}
		by := time.Duration(number("jump", 7200)-3600) * time.Second
		return ClockRead{clock.Reading{Wall: now.Add(by), Boot: 1}, by}
	case 20:
		return Configure{Config{AgeingInterval: lawTick, AgeingCap: lawCap, MaxEnded: 3 + number("ended", 5), SlotsOnly: number("slotsOnly", 1) == 0}}
	}
	spec := backends.Spec{Name: name(), After: after(), Hold: number("hold", 4) == 0, RunLimit: time.Duration(number("limit", 1)) * time.Minute, Rerunnable: true}
	if number("an array", 2) == 0 {
		spec.Array = &backends.Array{Indices: []int{1, 2, 4}, Limit: number("limit of elements", 2)}
	}
	return Submit{By: user, Specs: []backends.Spec{spec}}
}
