package simulate_test

import (
	"os"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/backendtest"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

func start() time.Time { return time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC) }

func hosts(slots ...int) []backends.Host {
	all := make([]backends.Host, len(slots))
	for i, n := range slots {
		all[i] = backends.Host{Name: "n" + string(rune('1'+i)), Slots: n, Memory: int64(n) << 30}
	}
	return all
}

// The world passes the suite that every backend must pass. Its jobs' gates are
// checked whenever time passes.
func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		gates := map[backends.ID]string{}
		world := simulate.New(simulate.Config{
			Manager: manager.Config{AgeingInterval: time.Second, AgeingCap: 69},
			Hosts:   hosts(4, 4), Start: start(),
			Watch: func(_ time.Time, e manager.Effect) {
				switch e := e.(type) {
				case manager.StartRun:
					if len(e.Spec.Command) > 0 { // dummy jobs have none
						gates[e.ID] = e.Spec.Command[4]
					}
				case manager.Finished:
					delete(gates, e.Job.ID)
				}
			},
		})
		return backendtest.Harness{
			Backend: world, Dir: t.TempDir(), User: "pba", OtherQueue: "low", HoldsSpecs: true, NoProcesses: true,
			Step: func() {
				var opened []backends.ID
				for id, gate := range gates {
					if _, err := os.Stat(gate); err == nil {
						opened = append(opened, id)
					}
				}
				for _, id := range opened {
					world.End(id, 0)
				}
				world.Advance(world.Now().Add(100 * time.Millisecond))
			},
		}
	})
}

func lasting(work time.Duration) simulate.Work { return simulate.Work{Takes: work} }

func (f *fixture) submit(slots int, work simulate.Work) backends.ID {
	f.Helper()
	id, err := f.world.SubmitWork(manager.By{User: "ann"}, backends.Spec{Slots: slots, Project: "p"}, work)
	if err != nil {
		f.Fatal(err)
	}
	return id
}

type fixture struct {
	*testing.T
	world *simulate.World
}

func (f *fixture) advance(d time.Duration) { f.world.Advance(f.world.Now().Add(d)) }

func (f *fixture) job(id backends.ID) backends.Job {
	f.Helper()
	jobs, err := f.world.Jobs(f.Context(), []backends.ID{id})
	if err != nil || len(jobs) != 1 {
		f.Fatalf("query %v: %v, %v", id, jobs, err)
	}
	return jobs[0]
}

func newFixture(t *testing.T, slots ...int) *fixture {
	return &fixture{t, simulate.New(simulate.Config{Hosts: hosts(slots...), Start: start()})}
}

func (f *fixture) want(id backends.ID, state backends.State, at time.Duration) {
	f.Helper()
	j := f.job(id)
	if j.State != state || state.Ended() && !j.Ended.Equal(start().Add(at)) {
		f.Errorf("job %v is %v, ended %v after the start; want %v at %v", id, j.State, j.Ended.Sub(start()), state, at)
	}
}

// A requeued job starts its work over; a suspended one has its remainder left.
func TestWork(t *testing.T) {
	f := newFixture(t, 2)
	requeued, suspended := f.submit(1, lasting(time.Minute)), f.submit(1, lasting(time.Minute))
	f.advance(40 * time.Second)
	acts := []backends.Act{{ID: requeued}, {ID: suspended, Until: start().Add(time.Hour)}}
	if err := f.world.Requeue(t.Context(), acts[:1]).First(); err != nil {
		t.Fatal(err)
	}
	if err := f.world.Suspend(t.Context(), acts[1:]).First(); err != nil {
		t.Fatal(err)
	}
	f.advance(10 * time.Second)
	if err := f.world.Resume(t.Context(), []backends.ID{suspended}).First(); err != nil {
		t.Fatal(err)
	}
	f.advance(time.Hour)
	f.want(requeued, backends.Done, 100*time.Second)
	f.want(suspended, backends.Done, 70*time.Second)
}

// A killed run ends after its delay, and its slots are free only then.
func TestKillDelay(t *testing.T) {
	f := newFixture(t, 1)
	slow := f.submit(1, simulate.Work{Takes: time.Hour, KillDelay: 5 * time.Second})
	next := f.submit(1, lasting(time.Second))
	f.advance(time.Second)
	if err := f.world.Kill(t.Context(), []backends.ID{slow}).First(); err != nil {
		t.Fatal(err)
	}
	f.advance(4 * time.Second)
	if j := f.job(next); j.State != backends.Pending {
		t.Errorf("job %v is %v before the killed run ended", next, j.State)
	}
	f.advance(time.Minute)
	f.want(slow, backends.Exited, 6*time.Second)
	f.want(next, backends.Done, 7*time.Second)
	if code := f.job(slow).ExitCode; code != 128+15 {
		t.Errorf("exit code %d, want 128 + SIGTERM", code)
	}
}

// The same calls at the same times give the same world.
func TestDeterministic(t *testing.T) {
	run := func() []backends.Job {
		f := newFixture(t, 3, 2)
		for i := range 40 {
			f.submit(1+i%3, lasting(time.Duration(1+i%7)*time.Second))
			f.advance(time.Duration(i%2) * time.Second)
		}
		f.advance(time.Hour)
		farm, err := f.world.Snapshot(t.Context(), time.Time{})
		if err != nil || len(farm.Ended) != 40 {
			t.Fatalf("%d of 40 jobs ended, %v", len(farm.Ended), err)
		}
		return farm.Ended
	}
	first, second := run(), run()
	for i := range first {
		if !first[i].Started.Equal(second[i].Started) || first[i].ID != second[i].ID || !first[i].Ended.Equal(second[i].Ended) {
			t.Fatalf("job %v started %v, the second time %v", first[i].ID, first[i].Started, second[i].Started)
		}
	}
}
