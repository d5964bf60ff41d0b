package simulate_test

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/simulate"
	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

// requested is a trace whose jobs have requested times, as users give them: a few round numbers, of
// which a job takes a part. Its jobs would keep a farm of so many slots as busy as load says. The
// same seed always gives the same trace.
func requested(seed uint64, jobs, slots int, load float64) []trace.Record {
	r := rand.New(rand.NewPCG(seed, 1))
	limits := []time.Duration{10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 12 * time.Hour}
	at, all := start(), make([]trace.Record, jobs)
	for i := range all {
		wide := 1 << r.IntN(6)
		if r.IntN(20) == 0 {
			wide = slots/2 + r.IntN(slots/2+1)
		}
		limit := limits[r.IntN(len(limits))]
		run := max(time.Second, time.Duration(float64(limit)*r.Float64()).Truncate(time.Second))
		user := string(rune('a' + r.IntN(5)))
		wide = min(wide, slots)
		all[i] = trace.Record{Submitted: at, Run: run, RunLimit: limit, Slots: wide, User: user, Project: user}
		at = at.Add(time.Duration(r.ExpFloat64() * run.Seconds() * float64(wide) / float64(slots) / load * float64(time.Second)).Truncate(time.Second))
	}
	return all
}

func storeOf(t tester, records []trace.Record) *trace.Store {
	t.Helper()
	s := new(trace.Store)
	if err := s.Fill(func(yield func(trace.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}, 0); err != nil {
		t.Fatal(err)
	}
	return s
}

// compareSchedules requires that each job starts at the same time under fifo and under pba.
func compareSchedules(t tester, s simulate.Setup) (starts int) {
	t.Helper()
	type begin struct {
		id backends.ID
		at time.Time
	}
	lists := map[string][]begin{}
	s.Starts = func(policy string, id backends.ID, at time.Time) {
		lists[policy] = append(lists[policy], begin{id, at})
	}
	s.Policies = []string{simulate.FIFO, simulate.PBA}
	mustRun(t, s)
	with, without := lists[simulate.PBA], lists[simulate.FIFO]
	if len(with) != len(without) {
		t.Fatalf("%d starts with pba, %d without", len(with), len(without))
	}
	for i := range with {
		if with[i] != without[i] {
			t.Fatalf("start %d: with pba job %v at %v, without job %v at %v", i, with[i].id, with[i].at, without[i].id, without[i].at)
		}
	}
	return len(with)
}

// Where nothing is guaranteed the schedule is the same as without pba, job for job: with no
// plan at all, and with projects that have no slots.
func TestWithoutPromisesTheScheduleIsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 64).Draw(t, "slots")
		store := storeOf(t, requested(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 150).Draw(t, "jobs"), slots, rapid.SampledFrom([]float64{0.5, 1, 2}).Draw(t, "load")))
		defer store.Close()
		s := setup(store, slots)
		if rapid.Bool().Draw(t, "projects") {
			s.Plan = []simulate.PlanEntry{planEntry("a", 0), planEntry("b", 0)}
		}
		if rapid.Bool().Draw(t, "two hosts") && slots > 1 {
			s.Hosts = []backends.Host{{Name: "n1", Slots: slots / 2}, {Name: "n2", Slots: slots - slots/2}}
		}
		s.Suspend = rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "suspend")
		s.Reserve = time.Duration(rapid.SampledFrom([]int{0, 60, 600}).Draw(t, "reserve")) * time.Second
		compareSchedules(t, s)
	})
}

// The same on a recorded trace, SCHEDULE_TRACE=FILE.swf.gz.
func TestWithoutPromisesARecordedScheduleIsTheSame(t *testing.T) {
	path := os.Getenv("SCHEDULE_TRACE")
	if path == "" {
		t.Skip("SCHEDULE_TRACE names no trace")
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, records, err := trace.Open(f, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	store := new(trace.Store)
	defer store.Close()
	if err := store.Fill(records, 0); err != nil {
		t.Fatal(err)
	}
	s := setup(store, 128)
	s.ScaleArrivals = 1.5
	t.Logf("%d starts are the same", compareSchedules(t, s))
}

// Requested times are what backfill lives on: with them wide jobs don't cost the others so much.
func TestBackfillFillsHoles(t *testing.T) {
	records := requested(1, 2000, 64, 0.9)
	with := storeOf(t, records)
	defer with.Close()
	for i := range records {
		records[i].RunLimit = 0
	}
	without := storeOf(t, records)
	defer without.Close()
	useful := map[bool]float64{}
	wait := map[bool]float64{}
	for limits, store := range map[bool]*trace.Store{true: with, false: without} {
		s := setup(store, 64)
		s.Policies = []string{simulate.FIFO}
		p := mustRun(t, s).Policies[0]
		useful[limits], wait[limits] = p.Useful, p.Rest.Wait.Mean
	}
	t.Logf("useful utilization %.3f with run limits, %.3f without; mean wait %.0f s and %.0f s", useful[true], useful[false], wait[true], wait[false])
	if useful[true] <= useful[false] || wait[true] >= wait[false] {
		t.Error("run limits gain nothing")
	}
}

// Jobs that end by their run limits are waited for, and yet no job of a pool waits longer than is
// promised.
func TestPromiseHoldsWhereEndsAreWaitedFor(t *testing.T) {
	reclaims := 0
	rapid.Check(t, func(t *rapid.T) {
		records := requested(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(50, 300).Draw(t, "jobs"), 32, 1.5)
		for i := range records { // most end by their limits, in seconds
			records[i].Slots = min(records[i].Slots, 8)
			records[i].RunLimit = max(time.Minute, records[i].RunLimit/20)
			records[i].Run = min(2*records[i].Run, records[i].RunLimit)
		}
		store := storeOf(t, records)
		defer store.Close()
		s := setup(store, 32, planEntry("a", 8), planEntry("b", 8))
		s.Check, s.Policies, s.ScaleArrivals = false, []string{simulate.PBA}, 12
		p := mustRun(t, s).Policies[0]
		if p.Within.OverPromise > 0 || p.Useless > 0 {
			t.Fatalf("%d jobs waited longer than is promised, %d evictions were useless: clock %+v", p.Within.OverPromise, p.Useless, p.Within.Clock)
		}
		reclaims += p.Reclaims
	})
	if t.Logf("%d reclaims", reclaims); reclaims == 0 {
		t.Error("nothing was ever preempted")
	}
}
