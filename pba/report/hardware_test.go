package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// hoursOfFarm returns what a ledger has after a farm was as it is for so many hours: each cycle
// sees the same.
func hoursOfFarm(t *testing.T, farm *backends.Snapshot, hours int) []ledger.WaitHour {
	t.Helper()
	l, err := ledger.Create(t.TempDir() + "/ledger.db")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	able := backends.ForEngine{ManagesMemory: true}
	for n := range 4*hours + 1 {
		memory, err := l.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		at := noon.Add(time.Duration(n) * 15 * time.Minute)
		farm.At = at
		p := plan.Make(plan.State{Farm: farm, Abilities: able, Memory: memory}, plan.Policy{Cycle: time.Minute, HoldLimit: time.Minute}, at)
		if _, err := l.Intend(t.Context(), ledger.Cycle{Mode: ledger.Observe, Longest: time.Hour, Started: at, Snapshot: at}, p); err != nil {
			t.Fatal(err)
		}
	}
	all, err := l.WaitHours(t.Context(), noon, noon.AddDate(1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// farmOf has four hosts of 8 slots and 64 GiB, each with a job of so many slots and so much
// memory, and jobs of 16 GiB that wait for a slot.
func farmOf(slots int, memory int64, waiting int) *backends.Snapshot {
	farm := &backends.Snapshot{}
	add := func(j backends.Job) {
		j.ID, j.User, j.Queue, j.OneHost, j.Submitted = backends.ID{Job: int64(len(farm.Jobs) + 1)}, "eve", "normal", true, noon.Add(-time.Hour)
		farm.Jobs = append(farm.Jobs, j)
	}
	for i := range 4 {
		name := fmt.Sprintf("n%d", i+1)
		farm.Hosts = append(farm.Hosts, backends.Host{Name: name, Slots: 8, Memory: 64 << 30})
		add(backends.Job{State: backends.Running, Started: noon.Add(-time.Hour), Slots: slots, Memory: memory << 30, Hosts: []backends.Placement{{Host: name, Slots: slots}}})
	}
	for range waiting {
		add(backends.Job{State: backends.Pending, Wait: backends.WaitResources, Slots: 1, Memory: 16 << 30})
	}
	return farm
}

// A farm whose jobs wait for memory alone is named as such, with what lacked; one whose jobs wait
// for slots is not.
func TestPlantedLacks(t *testing.T) { // R46
	rows, words := Lacks(hoursOfFarm(t, farmOf(2, 64, 24), 10), []By{ByWeek}, time.UTC)
	check(t, rows, []Lack{{Key: Key{Week: "2026-W48"}, Cause: plan.LackMemory, Waited: 240, Hours: 10, Waiting: 24, Free: 24, Hosts: 4, Lacking: 96}})
	check(t, words, []string{"Memory kept 240 slot-hours of jobs waiting, in 10 hours, while 24 slots were free on average: on average they lacked 96 GiB on each of 4 hosts."})

	rows, words = Lacks(hoursOfFarm(t, farmOf(8, 16, 24), 10), []By{ByWeek}, time.UTC)
	check(t, rows, []Lack{{Key: Key{Week: "2026-W48"}, Cause: plan.LackSlots, Waited: 240, Hours: 10, Waiting: 24}})
	check(t, words, []string{"Slots kept 240 slot-hours of jobs waiting, in 10 hours: on average 24 slots more would have let them start."})

	// With memory for all, those that wait lack nothing: they start.
	if rows, words = Lacks(hoursOfFarm(t, farmOf(2, 0, 12), 2), nil, time.UTC); len(rows)+len(words) > 0 {
		t.Errorf("%+v, %q", rows, words)
	}
}

// Little evidence carries no sentence, and what no hardware helps has none.
func TestLacksInWords(t *testing.T) { // R46
	hour := func(cause plan.Cause, name string, waited float64, seen time.Duration) ledger.WaitHour {
		return ledger.WaitHour{Hour: noon, Cause: cause, Name: name, Waited: slotHours(waited), Seen: seen, Free: slotHours(2 * seen.Hours()), Lacking: seen.Milliseconds() << 10, Hosts: seen}
	}
	for name, c := range map[string]struct {
		hours []ledger.WaitHour
		want  string
	}{
		"nothing":         {nil, ""},
		"half an hour":    {[]ledger.WaitHour{hour(plan.LackMemory, "", 90, 30*time.Minute)}, ""},
		"a twentieth":     {[]ledger.WaitHour{hour(plan.ByRules, "", 95, time.Hour), hour(plan.LackMemory, "", 5, time.Hour)}, ""},
		"rules":           {[]ledger.WaitHour{hour(plan.ByRules, "", 95, time.Hour), hour(plan.Unexamined, "", 95, time.Hour)}, ""},
		"a resource":      {[]ledger.WaitHour{hour(plan.LackResource, "gpu", 3120, 2*time.Hour)}, "gpu kept 3,120 slot-hours of jobs waiting, in 2 hours, while 2 slots were free on average."},
		"other resources": {[]ledger.WaitHour{hour(plan.LackResource, plan.OtherNames, 9, time.Hour)}, ""},
		"hosts":           {[]ledger.WaitHour{hour(plan.LackResource, "", 1.5, time.Hour)}, "Want of hosts that suit kept 1.5 slot-hours of jobs waiting, in 1 hour, while 2 slots were free on average."},
		"many hours": {
			[]ledger.WaitHour{hour(plan.LackSlots, "", 1234567, 1234*time.Hour)},
			"Slots kept 1,234,567 slot-hours of jobs waiting, in 1,234 hours: on average 1,000 slots more would have let them start.",
		},
	} {
		if _, words := Lacks(c.hours, nil, time.UTC); strings.Join(words, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, words, c.want)
		}
	}
}
