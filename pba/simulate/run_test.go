package simulate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/settings"
	"github.com/allotment-hpc/allotment/pba/simulate"
	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

// job is one of a trace: seconds after the start, seconds that it takes.
type job struct {
	at, takes, slots int
	user             string
}

func newStore(t testing.TB, jobs ...job) *trace.Store {
	t.Helper()
	s := new(trace.Store)
	t.Cleanup(func() { _ = s.Close() })
	err := s.Fill(func(yield func(trace.Record, error) bool) {
		for _, j := range jobs {
			r := trace.Record{Submitted: start().Add(time.Duration(j.at) * time.Second), Run: time.Duration(j.takes) * time.Second, Slots: j.slots, User: j.user, Project: j.user}
			if !yield(r, nil) {
				return
			}
		}
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func setup(store *trace.Store, slots int, entries ...simulate.PlanEntry) simulate.Setup {
	return simulate.Setup{
		Trace: store, Name: "test", Hosts: []backends.Host{{Name: "farm", Slots: slots}}, Plan: entries, Policy: settings.Default().Policy(),
		Filter:  esub.Settings{Config: esub.DefaultConfig(), NextInLine: backends.At(backends.LevelNext, backends.DefaultValue), SuspendFrees: true},
		Reserve: 10 * time.Minute, Policies: []string{simulate.FIFO, simulate.Dedicated, simulate.PBA}, Buckets: 10, Check: true,
	}
}

func planEntry(project string, slots int) simulate.PlanEntry {
	return simulate.PlanEntry{Allocation: plan.Allocation{Project: project, Guarantee: slots}}
}

// tester is a test, or a rapid one.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func mustRun(t tester, s simulate.Setup) *simulate.Result {
	t.Helper()
	r, err := simulate.Run(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// One job within the guarantee on a full farm, under each policy; all figures by hand.
func TestPolicies(t *testing.T) {
	// Ann fills the farm for 1,000 s from two jobs; bob has a guarantee of 2 of 4 slots and submits at 100 s.
	s := setup(newStore(t, job{0, 1000, 2, "ann"}, job{1, 999, 2, "ann"}, job{100, 50, 2, "bob"}, job{3000, 1, 1, "ann"}), 4, planEntry("bob", 2))
	r := mustRun(t, s)
	if r.Within != 1 || r.Trace.Jobs != 4 || r.Window.Seconds != 3000 || len(r.Trace.LeftOut) != 0 {
		t.Fatalf("%+v, %d within", r, r.Within)
	}
	fifo, dedicated, ours := r.Policies[0], r.Policies[1], r.Policies[2]
	check := func(what string, got, want float64) {
		t.Helper()
		if diff := got - want; diff > 0.001*want+1e-9 || diff < -0.001*want-1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	check("fifo: wait", fifo.Within.Wait.Max, 900)
	check("fifo: clock", fifo.Within.Clock.Max, 900)
	check("fifo: starved", fifo.StarvedSeconds, 840)
	check("fifo: useful", fifo.Useful, (1000*2+999*2+50*2)/(4*3000.0))
	check("dedicated: wait", dedicated.Within.Wait.Max, 0)
	check("dedicated: wait of the rest", dedicated.Rest.Wait.Max, 999)
	check("dedicated: waits of the rest", dedicated.Rest.Wait.Mean, 999/3.0)
	check("pba: wait", ours.Within.Wait.Max, 60)
	check("pba: clock", ours.Within.Clock.Max, 60)
	check("pba: starved", ours.StarvedSeconds, 0)
	// The job that started last is preempted at 160 s and starts over at 210 s.
	check("pba: lost", ours.LostSeconds, 159*2)
	check("pba: utilization", ours.Utilization, (1000*2+999*2+159*2+50*2)/(4*3000.0))
	check("pba: useful", ours.Useful, (1000*2+999*2+50*2)/(4*3000.0))
	check("pba: wait of the preempted job", ours.Rest.Wait.Max, 209)
	if ours.Preemptions != 1 || ours.Requested != 2 || ours.Evicted != 2 || ours.Ratio != 1 || ours.Useless != 0 || ours.Checked != 1 || ours.Cheaper != 0 {
		t.Errorf("pba: %+v", ours)
	}
	sum := 0.0
	for _, share := range ours.Series.Utilization {
		sum += share / float64(len(ours.Series.Utilization))
	}
	check("series", sum, ours.Utilization)
	check("series: guaranteed", ours.Series.Pools[0].Allocated[3], 2)
}

// The same story where bob's slots are to be there in seconds: after the mark's first cycle.
// More of his jobs come within the hour than twice his slots suffice for.
func TestSlotsInSeconds(t *testing.T) {
	jobs := []job{{0, 4000, 2, "ann"}, {1, 4000, 2, "ann"}, {105, 50, 2, "bob"}, {405, 50, 2, "bob"}, {705, 50, 2, "bob"}, {5000, 1, 1, "ann"}}
	s := setup(newStore(t, jobs...), 4, planEntry("bob", 2))
	s.Policies = []string{simulate.PBA, simulate.Seconds}
	for _, every := range []bool{false, true} {
		s.EveryCycle = every
		r := mustRun(t, s)
		site, seconds := r.Policies[0].Within, r.Policies[1].Within
		if site.Wait.Mean != 75 || seconds.Wait.Median != 1 || seconds.Wait.Max != 75 {
			t.Errorf("waits with 60 s %+v, with 0 s %+v; want 75, and 1, but 75 for the third job", site.Wait, seconds.Wait)
		}
		if a, b := r.Policies[0].Preemptions, r.Policies[1].Preemptions; a != 3 || b != 3 {
			t.Errorf("%d and %d preemptions", a, b)
		}
		if a, b := r.Policies[0].Cycles+r.Policies[0].Skipped, r.Policies[1].Cycles+r.Policies[1].Skipped; a != b {
			t.Errorf("%d and %d cycles at their beat", a, b)
		}
	}
}

// The same story with slots on standby: they are taken back ahead of each job, which starts
// after the mark's first cycle, and takes back none.
func TestSlotsOnStandby(t *testing.T) {
	jobs := []job{{0, 4000, 1, "ann"}, {0, 4000, 1, "ann"}, {1, 4000, 1, "ann"}, {1, 4000, 1, "ann"}, {205, 50, 2, "bob"}, {1005, 50, 1, "bob"}, {5000, 1, 1, "ann"}}
	s := setup(newStore(t, jobs...), 4, planEntry("bob", 2))
	s.Policies = []string{simulate.PBA}
	s.Policy.Thresholds, s.Policy.Standby = map[string]time.Duration{"bob": 0}, map[string]int{"bob": 2}
	for _, every := range []bool{false, true} {
		s.EveryCycle = every
		o := mustRun(t, s).Policies[0]
		if o.Within.Wait.Max != 1 || o.Useless != 0 || o.Preemptions < 2 || o.Preemptions > 4 {
			t.Errorf("waits %+v, %d preemptions, %d of no use; want 1 s each", o.Within.Wait, o.Preemptions, o.Useless)
		}
		if o.Evicted != o.Requested {
			t.Errorf("%d slots evicted for %d", o.Evicted, o.Requested)
		}
		t.Logf("%d preemptions, %d reclaims, useful %.3f, lost %v", o.Preemptions, o.Reclaims, o.Useful, o.LostSeconds)
	}
}

// A free slot counts for one of two jobs that slots are preempted for at the same time.
func TestRequestedSlots(t *testing.T) {
	s := setup(newStore(t, job{0, 1000, 1, "ann"}, job{0, 1000, 2, "ann"}, job{0, 1000, 4, "ann"}, job{100, 50, 2, "bob"}, job{100, 50, 2, "bob"}), 8, planEntry("bob", 4))
	s.Policies = []string{simulate.PBA}
	for _, kill := range []time.Duration{0, 30 * time.Second} {
		s.Kill = kill
		if o := mustRun(t, s).Policies[0]; o.Reclaims != 2 || o.Requested != 3 || o.Evicted != 3 || o.Cheaper != 0 {
			t.Errorf("jobs that go within %v: %d reclaims, %d slots requested, %d evicted, %d could be cheaper", kill, o.Reclaims, o.Requested, o.Evicted, o.Cheaper)
		}
	}
}

// The same jobs run under every policy. What is too wide for the farm is left out; what is
// too wide for a part of it can't run under dedicated alone, which shows that.
func TestJobsThatCannotRun(t *testing.T) {
	s := setup(newStore(t, job{0, 10, 3, "ann"}, job{1, 10, 4, "bob"}, job{2, 10, 9, "ann"}, job{3, 10, 1, "bob"}), 4, planEntry("bob", 2))
	r := mustRun(t, s)
	if diff := cmp.Diff([]simulate.LeftOut{{Why: "wider than the farm (4 slots)", Jobs: 1, JobShare: 0.25, SlotSeconds: 90, WorkShare: 90 / 170.0}}, r.Trace.LeftOut); diff != "" || r.Trace.Jobs != 3 {
		t.Errorf("%d jobs: %s", r.Trace.Jobs, diff)
	}
	want := []simulate.LeftOut{
		{Why: "wider than what dedicated fences off for project bob (2 slots)", Jobs: 1, JobShare: 0.25, SlotSeconds: 40, WorkShare: 40 / 170.0},
		{Why: "wider than what dedicated leaves the others (2 slots)", Jobs: 1, JobShare: 0.25, SlotSeconds: 30, WorkShare: 30 / 170.0},
	}
	for i, jobs := range []int{3, 1, 3} {
		o := &r.Policies[i]
		if ran := o.Within.Jobs + o.Rest.Jobs; ran != jobs {
			t.Errorf("%s: %d jobs ran, want %d", o.Policy, ran, jobs)
		}
		var cannot []simulate.LeftOut
		if o.Policy == simulate.Dedicated {
			cannot = want
		}
		if diff := cmp.Diff(cannot, o.CannotRun); diff != "" {
			t.Errorf("%s: %s", o.Policy, diff)
		}
	}
	s.Policies = []string{simulate.PBA}
	if alone := mustRun(t, s); !cmp.Equal(alone.Policies[0], r.Policies[2]) {
		t.Error("which policies are compared changes the jobs")
	}
	if share := r.Trace.LeftOut[0].Share(); share != "25.0 % of the jobs, 52.9 % of the slot-seconds" {
		t.Error(share)
	}
	s.Trace = newStore(t, job{2, 10, 9, "ann"})
	if _, err := simulate.Run(context.Background(), s); !errors.Is(err, simulate.ErrNothing) {
		t.Errorf("no job is left: %v", err)
	}
}

// noCounts clears the counts that depend on which cycles ran.
func noCounts(r *simulate.Result) *simulate.Result {
	for i := range r.Policies {
		r.Policies[i].Cycles, r.Policies[i].Skipped = 0, 0
	}
	return r
}

func compareWithoutSkipping(t tester, s simulate.Setup, describe func() string) (skipped int) {
	t.Helper()
	quick := mustRun(t, s)
	for _, o := range quick.Policies {
		skipped += o.Skipped
	}
	s.EveryCycle, s.EveryJob = true, true
	whole := mustRun(t, s)
	if diff := cmp.Diff(noCounts(whole), noCounts(quick)); diff != "" {
		t.Fatalf("skipping cycles changes the result (- all cycles, + fewer):\n%s\n%s", diff, describe())
	}
	return skipped
}

// Cycles that are skipped change nothing: random small farms, several hosts,
// pools that come and go, jobs that are suspended and jobs that are slow to go.
func TestSkippedCyclesChangeNothing(t *testing.T) {
	skipped := 0
	rapid.Check(t, func(t *rapid.T) {
		var jobs []job
		at := 0
		for range rapid.IntRange(1, 30).Draw(t, "jobs") {
			at += rapid.IntRange(0, 200).Draw(t, "gap")
			jobs = append(jobs, job{
				at, rapid.SampledFrom([]int{1, 15, 70, 300, 1500, 4000}).Draw(t, "takes"),
				rapid.SampledFrom([]int{1, 1, 1, 2, 3, 4}).Draw(t, "slots"), rapid.SampledFrom([]string{"ann", "bob", "cat"}).Draw(t, "user"),
			})
		}
		var store trace.Store
		defer store.Close()
		err := store.Fill(func(yield func(trace.Record, error) bool) {
			for _, j := range jobs {
				if !yield(trace.Record{Submitted: start().Add(time.Duration(j.at) * time.Second), Run: time.Duration(j.takes) * time.Second, Slots: j.slots, User: j.user, Project: j.user}, nil) {
					return
				}
			}
		}, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := setup(&store, 0, planEntry("bob", rapid.IntRange(1, 4).Draw(t, "bob")))
		s.Hosts = nil
		for i, slots := range rapid.SliceOfN(rapid.IntRange(1, 5), 1, 3).Draw(t, "hosts") {
			s.Hosts = append(s.Hosts, backends.Host{Name: fmt.Sprintf("n%d", i+1), Slots: slots})
		}
		if rapid.Bool().Draw(t, "a second pool") {
			p := planEntry("cat", rapid.IntRange(1, 3).Draw(t, "cat"))
			p.From = start().Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "from")) * time.Second)
			p.To = p.From.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "for")) * time.Second)
			s.Plan = append(s.Plan, p)
		}
		s.Policies = []string{simulate.FIFO, simulate.PBA}
		s.Suspend = rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "suspended")
		s.Kill = time.Duration(rapid.SampledFrom([]int{0, 30}).Draw(t, "kill")) * time.Second
		s.Reserve = time.Duration(rapid.SampledFrom([]int{0, 600}).Draw(t, "reserve")) * time.Second
		s.Policy.MaxVictimsPerProject = rapid.SampledFrom([]int{3, 100}).Draw(t, "cap")
		s.Policy.MinRuntime = time.Duration(rapid.SampledFrom([]int{0, 60}).Draw(t, "min_runtime")) * time.Second
		if !anyFits(s, jobs) {
			t.Skip("no job fits")
		}
		skipped += compareWithoutSkipping(t, s, func() string { return fmt.Sprintf("%+v\n%+v\n%+v", jobs, s.Hosts, s.Plan) })
	})
	if skipped == 0 {
		t.Error("no cycle was ever skipped")
	}
}

func anyFits(s simulate.Setup, jobs []job) bool {
	slots := 0
	for _, h := range s.Hosts {
		slots += h.Slots
	}
	for _, j := range jobs {
		if j.slots <= slots {
			return true
		}
	}
	return false
}

// busyTrace is a synthetic trace: a day's waves of short and long, narrow and wide jobs
// of five users, at about the farm's whole capacity of 32 slots.
func busyTrace(n int) []job {
	r := rand.New(rand.NewPCG(7, 11))
	var jobs []job
	at := 0
	for i := range n {
		at += r.IntN(80)
		j := job{at: at, takes: 5 + r.IntN(300), slots: 1 << r.IntN(4), user: fmt.Sprintf("u%d", r.IntN(5))}
		if i%7 == 0 {
			j.takes *= 10
		}
		jobs = append(jobs, j)
	}
	return jobs
}

func TestSkippedCyclesChangeNothingOfABusyFarm(t *testing.T) {
	s := setup(newStore(t, busyTrace(600)...), 32, planEntry("u1", 8), planEntry("u2", 10))
	s.Suspend, s.Seed, s.Kill = 0.2, 5, 10*time.Second
	if compareWithoutSkipping(t, s, func() string { return "" }) == 0 {
		t.Error("no cycle was skipped")
	}
}

// Jobs that snapshots leave out change nothing where users with guarantees have long queues, and
// jobs of other users wait for weeks.
func TestUnlistedJobsChangeNothing(t *testing.T) {
	jobs := busyTrace(700)
	for i := range jobs {
		jobs[i].at /= 4
	}
	for _, order := range [][]plan.Criterion{{plan.ByPending}, {plan.ByStart, plan.ByOverSubscribed, plan.ByPending}} {
		s := setup(newStore(t, jobs...), 32, planEntry("u1", 8), planEntry("u2", 10))
		s.Suspend, s.Seed, s.Kill, s.Policy.VictimOrder = 0.2, 5, 10*time.Second, order
		s.Policies = []string{simulate.FIFO, simulate.Dedicated, simulate.PBA, simulate.Seconds}
		compareWithoutSkipping(t, s, func() string { return "" })
	}
}

// A throughput pool's guarantee follows the time: no cycle is skipped, and yet it ends.
func TestThroughput(t *testing.T) {
	p := planEntry("bob", 2)
	p.SLA, p.Jobs, p.Begin, p.End = plan.Throughput, 100, start(), start().Add(7*24*time.Hour)
	s := setup(newStore(t, job{0, 1000, 4, "ann"}, job{100, 50, 2, "bob"}), 4, p)
	s.Policies = []string{simulate.PBA}
	if o := mustRun(t, s).Policies[0]; o.Skipped != 0 || o.Preemptions != 1 {
		t.Errorf("%d cycles were skipped, %d jobs preempted", o.Skipped, o.Preemptions)
	}
}

// The same seed gives the same result, another one another.
func TestSeed(t *testing.T) {
	s := setup(newStore(t, busyTrace(300)...), 32, planEntry("u1", 8), planEntry("u2", 10))
	s.Suspend, s.Kill, s.Policies = 0.5, 30*time.Second, []string{simulate.PBA}
	first := mustRun(t, s)
	if diff := cmp.Diff(first, mustRun(t, s)); diff != "" {
		t.Errorf("a second time: %s", diff)
	}
	s.Seed = 2
	if other := mustRun(t, s); cmp.Equal(first.Policies, other.Policies) {
		t.Error("another seed draws the same")
	}
}

// Arrivals come more densely, traces follow each other, wide jobs come in parts.
func TestWorkload(t *testing.T) {
	s := setup(newStore(t, job{0, 10, 2, "ann"}, job{100, 10, 1, "bob"}), 4, planEntry("bob", 2))
	s.Policies, s.ScaleArrivals, s.Repeat = []string{simulate.PBA}, 2, 3
	if r := mustRun(t, s); r.Trace.Jobs != 6 || r.Window.Seconds != 2*100+50 {
		t.Errorf("repeated: %d jobs in %v s", r.Trace.Jobs, r.Window.Seconds)
	}
	s.Repeat, s.OneSlot = 1, true
	if r := mustRun(t, s); r.Trace.Jobs != 3 || r.Window.Seconds != 50 {
		t.Errorf("one slot: %d jobs in %v s", r.Trace.Jobs, r.Window.Seconds)
	}
	s.Policies = []string{"lottery"}
	if _, err := simulate.Run(context.Background(), s); err == nil || !strings.Contains(err.Error(), `policy "lottery" is not known`) {
		t.Errorf("an unknown policy: %v", err)
	}
}

// BenchmarkJobs is a whole simulation under pba, by the job.
func BenchmarkJobs(b *testing.B) {
	s := setup(newStore(b, busyTrace(2000)...), 32, planEntry("u1", 8))
	s.Policies, s.Check, s.Buckets = []string{simulate.PBA}, false, 0
	for b.Loop() {
		mustRun(b, s)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2000, "ns/job")
}
