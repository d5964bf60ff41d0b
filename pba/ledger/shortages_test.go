package ledger

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/pba/plan"
)

// lacks records a cycle that sees what keeps jobs from starting.
func lacks(t *testing.T, l *Ledger, at time.Time, all ...plan.Shortage) {
	t.Helper()
	memory, err := l.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	memory.LastCycle = at
	if _, err := l.Intend(context.Background(), Cycle{Mode: Live, Longest: time.Minute, Started: at, Snapshot: at}, plan.Plan{Memory: memory, Shortages: all}); err != nil {
		t.Fatal(err)
	}
}

func TestShortagesAreAddedUpPerHour(t *testing.T) { // R46
	l := create(t)
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	memory := plan.Shortage{Cause: plan.LackMemory, Slots: 10, Free: 12, Lacking: 3<<30 + 1, Hosts: 2}
	lacks(t, l, noon.Add(-10*time.Second), memory) // nothing is known of the time before it
	lacks(t, l, noon.Add(20*time.Second), memory)  // 10 s before noon, 20 s after
	lacks(t, l, noon.Add(30*time.Second))
	lacks(t, l, noon.Add(40*time.Second), memory, plan.Shortage{Cause: plan.LackSlots, Slots: 5})
	got, err := l.WaitHours(context.Background(), noon, noon.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for30 := SlotTime(30 * time.Second)
	want := []WaitHour{
		{Hour: noon, Cause: plan.LackMemory, Waited: 10 * for30, Seen: 30 * time.Second, Free: 12 * for30, Lacking: 30_000 * (3<<10 + 1), Hosts: time.Minute},
		{Hour: noon, Cause: plan.LackSlots, Waited: SlotTime(50 * time.Second), Seen: 10 * time.Second},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// An hour has a bounded number of rows, and no wait is lost.
func TestNamesOfAnHourAreBounded(t *testing.T) { // R46
	l := create(t)
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	lacks(t, l, noon)
	for n := range 3 {
		var all []plan.Shortage
		for i := range 12 {
			all = append(all, plan.Shortage{Cause: plan.LackResource, Name: fmt.Sprintf("r%d", 12*n+i), Slots: 1, Free: 4})
		}
		lacks(t, l, noon.Add(time.Duration(n+1)*10*time.Second), append(all, plan.Shortage{Cause: plan.LackResource, Name: plan.OtherNames, Slots: 2, Free: 4})...)
	}
	all, err := l.WaitHours(context.Background(), noon, noon.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var waited SlotTime
	for _, h := range all {
		waited += h.Waited
	}
	if others := all[0]; len(all) != maxWaitRows+1 || others.Name != plan.OtherNames || others.Seen != 30*time.Second || others.Free != SlotTime(2*time.Minute) || waited != SlotTime(7*time.Minute) {
		t.Errorf("%d rows of %v slot-hours: %+v", len(all), waited.Hours(), others)
	}
}
