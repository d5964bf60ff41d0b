package manager

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
)

// fillJob is one job of a farm whose jobs all have the same rank; each run ends at its limit or before.
type fillJob struct {
	spec  backends.Spec
	at    time.Duration // of its submission
	takes time.Duration
	id    backends.ID
}

func drawFillJob(t *rapid.T, most int) fillJob {
	j := fillJob{takes: time.Duration(rapid.IntRange(1, 400).Draw(t, "takes")) * 10 * time.Second}
	j.spec.Slots = rapid.IntRange(1, most).Draw(t, "slots")
	if rapid.IntRange(0, 7).Draw(t, "limited") > 0 {
		j.spec.RunLimit = j.takes + time.Duration(rapid.SampledFrom([]int{0, 0, 10, 600, 3600}).Draw(t, "beyond"))*time.Second
	}
	return j
}

// fillFarm plays jobs on a manager and calls after with each step.
type fillFarm struct {
	m      *Manager
	now    time.Time
	began  time.Time
	jobs   []fillJob
	ends   map[backends.ID]time.Time
	runs   map[backends.ID]int
	starts map[backends.ID]time.Time
	after  func()
}

func newFillFarm(cfg Config, hosts []backends.Host, jobs []fillJob) *fillFarm {
	f := &fillFarm{m: New(cfg), began: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), jobs: jobs, ends: map[backends.ID]time.Time{}, runs: map[backends.ID]int{}, starts: map[backends.ID]time.Time{}}
	f.now = f.began
	for _, h := range hosts {
		f.step(nodeUpOf(h))
	}
	return f
}

func (f *fillFarm) step(e Event) Result {
	effects, result := f.m.Step(f.now, e)
	for _, e := range effects {
		if s, ok := e.(StartRun); ok {
			f.starts[s.ID], f.runs[s.ID] = f.now, s.Run
		}
	}
	return result
}

// play submits the jobs, and lets them end, until none is left.
func (f *fillFarm) play() {
	for waiting := f.jobs; ; {
		for i := range f.jobs { // the starts of the last step
			j := &f.jobs[i]
			if at, ok := f.starts[j.id]; ok && f.runs[j.id] > 0 && f.ends[j.id].IsZero() {
				f.ends[j.id] = at.Add(j.takes)
			}
		}
		if f.after != nil {
			f.after()
		}
		next, first, isEnd := f.m.Wake(), backends.ID{}, false
		if len(waiting) > 0 {
			if at := f.began.Add(waiting[0].at); next.IsZero() || !at.After(next) {
				next = at
			}
		}
		for _, j := range f.jobs {
			if at := f.ends[j.id]; f.runs[j.id] > 0 && !at.IsZero() && (next.IsZero() || !at.After(next)) && (!isEnd || at.Before(next)) {
				next, first, isEnd = at, j.id, true
			}
		}
		if next.IsZero() {
			return
		}
		f.now = next
		switch {
		case isEnd:
			run := f.runs[first]
			f.runs[first] = 0
			f.step(Ended{ID: first, Run: run, Self: true})
		case len(waiting) > 0 && !f.began.Add(waiting[0].at).After(next):
			r := f.step(Submit{By: user, Specs: []backends.Spec{waiting[0].spec}})
			if r.Submitted[0].Err == nil {
				waiting[0].id = r.Submitted[0].ID
			}
			waiting = waiting[1:]
		default:
			f.step(Tick{})
		}
	}
}

// TestLawReservedJobsStartInTime: a job for which slots are kept starts no later than the time
// that was first found for it by run limits, if no job ranks above it.
func TestLawReservedJobsStartInTime(t *testing.T) {
	kept, late := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var hosts []backends.Host
		most := 0
		for i := range rapid.IntRange(1, 3).Draw(t, "hosts") {
			h := backends.Host{Name: fmt.Sprintf("n%d", i), Slots: rapid.IntRange(1, 8).Draw(t, "slots"), Memory: int64(rapid.SampledFrom([]int{0, 16}).Draw(t, "memory"))}
			if rapid.Bool().Draw(t, "gpu") {
				h.Has = []backends.Amount{{Name: "gpu", Count: 2}}
			}
			hosts, most = append(hosts, h), max(most, h.Slots)
		}
		jobs := make([]fillJob, rapid.IntRange(4, 24).Draw(t, "jobs"))
		for i := range jobs {
			j := drawFillJob(t, most)
			j.spec.Memory = int64(rapid.SampledFrom([]int{0, 0, 1, 5, 9}).Draw(t, "memory"))
			j.spec.OneHost, j.spec.Exclusive = rapid.Bool().Draw(t, "oneHost"), rapid.IntRange(0, 9).Draw(t, "exclusive") == 0
			if n := rapid.IntRange(-6, 2).Draw(t, "gpus"); n > 0 && slices.ContainsFunc(hosts, func(h backends.Host) bool { return len(h.Has) > 0 }) {
				j.spec.Needs = []backends.Amount{{Name: "gpu", Count: n}}
			}
			j.at = time.Duration(rapid.IntRange(0, 300).Draw(t, "at")) * time.Second
			if i > 0 {
				j.at += jobs[i-1].at
			}
			jobs[i] = j
		}
		f := newFillFarm(Config{ReserveAfter: 30 * time.Second, AgeingInterval: lawTick, AgeingCap: lawCap}, hosts, jobs)
		first := map[backends.ID]time.Time{}
		f.after = func() {
			if k := f.m.overdueJob; k != nil && !k.at.IsZero() && first[k.job.id].IsZero() {
				first[k.job.id] = k.at
				kept++
			}
			for id, by := range first {
				if start, started := f.starts[id]; started && start.After(by) || !started && f.now.After(by) {
					t.Fatalf("job %s had slots kept for it to start by %v; now it is %v, it started: %v, at %v\n%s", id, by, f.now, started, start, (&world{m: f.m, now: f.now}).dump())
				}
			}
		}
		f.play()
		for id, by := range first {
			if f.starts[id].Equal(by) {
				late++
			}
		}
	})
	t.Logf("slots were kept for %d jobs, %d started at the last moment", kept, late)
	if kept == 0 {
		t.Error("no slots were ever kept")
	}
}

// TestBackfillIsEASY compares the queue with EASY backfill written down naively, on one host.
func TestBackfillIsEASY(t *testing.T) {
	filled := 0
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(2, 12).Draw(t, "slots")
		jobs := make([]fillJob, rapid.IntRange(4, 24).Draw(t, "jobs"))
		for i := range jobs {
			jobs[i] = drawFillJob(t, slots)
			jobs[i].takes = jobs[i].takes/(10*time.Second)*(1000*time.Second) + time.Duration(i*17)*time.Second
			if jobs[i].spec.RunLimit > 0 {
				jobs[i].spec.RunLimit = jobs[i].takes + time.Duration(rapid.IntRange(0, 3).Draw(t, "beyond"))*10_000*time.Second
			}
			jobs[i].at = time.Duration(i*1000+i*23) * time.Second
		}
		want, n := easy(t, slots, jobs)
		f := newFillFarm(Config{ReserveAfter: 1}, []backends.Host{{Name: "n", Slots: slots}}, jobs)
		f.play()
		for i, j := range f.jobs {
			if got := f.starts[j.id].Sub(f.began); got != want[i] {
				t.Fatalf("on %d slots job %s (%d slots, limit %v, takes %v) started at %v, with EASY at %v\n%+v", slots, j.id, j.spec.Slots, j.spec.RunLimit, j.takes, got, want[i], jobs)
			}
		}
		filled += n
	})
	if t.Logf("%d jobs were started before another one", filled); filled == 0 {
		t.Error("nothing was ever filled in")
	}
}

// easy returns when EASY backfill starts each job, and how many it starts before a job that
// waits.
func easy(t *rapid.T, slots int, jobs []fillJob) (starts []time.Duration, filled int) {
	starts = make([]time.Duration, len(jobs))
	var running, queue []int
	next, now := 0, time.Duration(-time.Hour)
	for next < len(jobs) || len(running) > 0 {
		at, ends := time.Duration(1<<62), -1
		for k, i := range running {
			if end := starts[i] + jobs[i].takes; end < at {
				at, ends = end, k
			}
		}
		if next < len(jobs) && jobs[next].at <= at {
			if jobs[next].at == at {
				t.Skip("two events at one time")
			}
			at, ends = jobs[next].at, -1
			queue = append(queue, next)
			next++
		} else {
			running = slices.Delete(running, ends, ends+1)
		}
		if at-now < searchEvery {
			t.Skip("the reservation is not searched anew so soon")
		}
		now = at
		free := slots
		for _, i := range running {
			free -= jobs[i].spec.Slots
		}
		start := func(i int) {
			starts[i], free = now, free-jobs[i].spec.Slots
			running = append(running, i)
		}
		for len(queue) > 0 && jobs[queue[0]].spec.Slots <= free {
			start(queue[0])
			queue = queue[1:]
		}
		if len(queue) == 0 {
			continue
		}
		shadow, extra := shadowOf(free, jobs, running, starts, jobs[queue[0]].spec.Slots)
		passed := map[[2]int]bool{}
		queue = append(queue[:1:1], slices.DeleteFunc(slices.Clone(queue[1:]), func(i int) bool {
			s, shape := jobs[i].spec, [2]int{jobs[i].spec.Slots, limitClass(jobs[i].spec.RunLimit)}
			inTime := s.RunLimit > 0 && now+s.RunLimit <= shadow
			if passed[shape] || s.Slots > free || !inTime && s.Slots > extra {
				passed[shape] = true
				return false
			}
			if !inTime {
				extra -= s.Slots
			}
			start(i)
			filled++
			return true
		})...)
	}
	return starts, filled
}

// shadowOf returns when by run limits a job will have its slots, and how many more will be free
// then; 0 and 0 where that is not known.
func shadowOf(free int, jobs []fillJob, running []int, starts []time.Duration, need int) (shadow time.Duration, extra int) {
	limited := slices.DeleteFunc(slices.Clone(running), func(i int) bool { return jobs[i].spec.RunLimit == 0 })
	end := func(i int) time.Duration { return starts[i] + jobs[i].spec.RunLimit }
	slices.SortFunc(limited, func(a, b int) int { return int(end(a) - end(b)) })
	for k, i := range limited {
		free += jobs[i].spec.Slots
		if free >= need && (k+1 == len(limited) || end(limited[k+1]) > end(i)) {
			return end(i), free - need
		}
	}
	return 0, 0
}

// Two runs end by their limits at one time: what the first leaves is not filled while the other ends.
func TestNoBackfillWhileRunsAreEnded(t *testing.T) {
	minutes := func(n int) time.Duration { return time.Duration(n) * time.Minute }
	jobs := []fillJob{
		{spec: backends.Spec{Slots: 1, RunLimit: minutes(60)}, takes: minutes(60)},
		{spec: backends.Spec{Slots: 1, RunLimit: minutes(60)}, takes: minutes(60)},
		{spec: backends.Spec{Slots: 2, RunLimit: minutes(60)}, takes: minutes(60), at: minutes(1)},
		{spec: backends.Spec{Slots: 1, RunLimit: time.Second}, takes: time.Second, at: minutes(59) + 59500*time.Millisecond},
	}
	f := newFillFarm(Config{ReserveAfter: time.Minute}, []backends.Host{{Name: "n", Slots: 2}}, jobs)
	f.play()
	if wide, short := f.starts[f.jobs[2].id].Sub(f.began), f.starts[f.jobs[3].id].Sub(f.began); wide != minutes(60) || short < minutes(120) {
		t.Errorf("the wide job started after %v and the short one after %v; want them at %v, and after the wide one's end", wide, short, minutes(60))
	}
}
