package profile

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

func past(name string, slots int, took, cpu time.Duration, memory int64, change ...func(*backends.Past)) backends.Past {
	start := time.Unix(1_700_000_000, 0)
	p := backends.Past{
		Job: backends.Job{Name: name, Project: "chipA", Step: "syn", State: backends.Done, Slots: slots, Started: start, Ended: start.Add(took), Memory: 64 << 30},
		Record: &backends.Record{Runs: []backends.RunRecord{
			{Run: 1, Started: start.Add(-time.Hour), Ended: start.Add(-time.Minute), ExitCode: 143, MaxRSS: 1 << 40},
			{Run: 2, Started: start, Ended: start.Add(took), User: cpu, MaxRSS: memory},
		}},
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

// R45: jobs are of a kind that have the same project, step and name but for its numbers; a run counts that did the
// job's work.
func TestRuns(t *testing.T) {
	for want, x := range map[string]struct {
		name    string
		command []string
	}{"run_#": {name: "run_17"}, "a#b#": {name: "a1b007"}, "syn.sh": {command: []string{"/home/ann/syn.sh", "-x"}}, "": {}} {
		if got := KindOf(&backends.Job{Name: x.name, Project: "chipA", Step: "syn"}, x.command); got != (Kind{"chipA", "syn", want}) {
			t.Errorf("%q, %q: %+v", x.name, x.command, got)
		}
	}
	p := past("a", 1, time.Minute, 30*time.Second, 7<<20)
	if r, done := RunOf(&p); !done || r.Took != time.Minute || r.CPU != 30*time.Second || r.Memory != 7<<20 || r.Asked != 64<<30 || r.Slots != 1 {
		t.Errorf("%+v, %v", r, done)
	}
	p = past("a", 4, time.Minute, 30*time.Second, 7<<20)
	if r, done := RunOf(&p); !done || r.Memory != 0 || r.Slots != 4 {
		t.Errorf("of several slots: %+v, %v", r, done)
	}
	for name, change := range map[string]func(*backends.Past){
		"it failed":     func(p *backends.Past) { p.Job.State = backends.Exited },
		"it waits":      func(p *backends.Past) { p.Job.State = backends.Pending },
		"its exit code": func(p *backends.Past) { p.Record.Runs[1].ExitCode = 1 },
		"no record":     func(p *backends.Past) { p.Record = nil },
		"no run":        func(p *backends.Past) { p.Record.Runs = nil },
		"no start":      func(p *backends.Past) { p.Record.Runs[1].Started = time.Time{} },
		"no time":       func(p *backends.Past) { p.Record.Runs[1].Ended = p.Record.Runs[1].Started },
	} {
		p := past("a", 1, time.Minute, 0, 1, change)
		if r, done := RunOf(&p); done {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// made returns runs of a kind whose memory and time are drawn around 2 GiB and an hour.
func made(random *rand.Rand, n int, spread float64) (all []Run) {
	for i := range n {
		all = append(all, Run{
			Slots: 8, Took: time.Duration(3600 * math.Exp(spread*random.NormFloat64()) * 1e9), CPU: 90 * time.Minute,
			Memory: int64(2 << 30 * math.Exp(spread*random.NormFloat64())), Ended: time.Unix(int64(i), 0),
		})
	}
	return all
}

// R45: what is proposed after five runs, and after more, the next twenty keep to, in 19 of 20 cases or so, and it is
// not far above what they use.
func TestAdviceIsKept(t *testing.T) {
	const cases, next = 800, 20
	random := rand.New(rand.NewPCG(45, 0))
	for _, n := range []int{5, 10, 30} {
		for _, spread := range []float64{0.01, 0.05, 0.1, 0.2} {
			kept, limits, beyond := 0, 0, 0.0
			for range cases {
				all := made(random, n+next, spread)
				a := Advise(all[:n], 8)
				memory, took := true, true
				for _, r := range all[n:] {
					memory, took = memory && r.Memory <= a.Memory, took && r.Took <= a.Limit
				}
				if memory {
					kept++
				}
				if took {
					limits++
				}
				beyond += float64(a.Memory) / a.Used.Middle / cases
			}
			if least := cases * 93 / 100; (kept < least || limits < least) && spread < 0.2 { // the most that is proposed cuts that
				t.Errorf("%d runs that vary by %.2f: memory is kept to in %d of %d cases, the limit in %d", n, spread, kept, cases, limits)
			}
			if most := 1.15 + 9*spread; beyond > most {
				t.Errorf("%d runs that vary by %.2f: %.2f times the median is proposed, want %.2f at most", n, spread, beyond, most)
			}
		}
	}
}

func TestAdvice(t *testing.T) {
	runs := func(n, slots int, cores float64) (all []Run) {
		for i := range n {
			all = append(all, Run{Slots: slots, Took: 10 * time.Minute, CPU: time.Duration(cores * 600e9), Memory: 1000 << 20, Ended: time.Unix(int64(i), 0)})
		}
		return all
	}
	if a := Advise(runs(4, 8, 2), 8); a.Memory != 0 || a.Limit != 0 || a.Slots != 0 || a.Runs != 4 {
		t.Errorf("of four runs: %+v", a)
	}
	if a := Advise(runs(5, 8, 2), 8); a.Memory != 1152<<20 || a.Limit != 12*time.Minute || a.Slots != 2 {
		t.Errorf("of five runs: %+v", a)
	}
	for cores, want := range map[float64]int{0.2: 1, 1: 1, 1.05: 1, 1.2: 2, 7: 7, 7.2: 0, 8.1: 0, 12: 12} {
		if a := Advise(runs(9, 8, cores), 8); a.Slots != want {
			t.Errorf("%.2f processors of 8 are busy: %d slots are proposed, want %d", cores, a.Slots, want)
		}
	}
	old := runs(Most, 8, 2)
	for i := range 2 * Most {
		old = append(old, Run{Slots: 8, Took: time.Minute, Memory: 100 << 20, Ended: time.Unix(int64(1000+i), 0)})
	}
	if a := Advise(old, 8); a.Memory != 128<<20 || a.Runs != Most {
		t.Errorf("what was long ago counts: %+v", a)
	}
}

// R45: the expected end of four of five running jobs is within 20 % of their time, wherever they are in it.
func TestEndsArePredicted(t *testing.T) {
	random := rand.New(rand.NewPCG(45, 1))
	const cases = 2000
	near, between := 0, 0
	for range cases {
		all := made(random, 31, 0.12)
		took := all[30].Took
		e, known := Predict(all[:30], time.Duration(float64(took)*0.7*random.Float64()))
		if !known {
			continue
		}
		if math.Abs(e.Expected.Seconds()-took.Seconds()) <= 0.2*took.Seconds() {
			near++
		}
		if e.Early <= took && took <= e.Late {
			between++
		}
	}
	if near < cases*80/100 {
		t.Errorf("%d of %d expected ends are within 20 %%", near, cases)
	}
	if between < cases*65/100 || between > cases*85/100 {
		t.Errorf("%d of %d ends are between early and late, want three quarters", between, cases)
	}
	if e, known := Predict(made(random, 30, 0.12), 100*time.Hour); known {
		t.Errorf("of one that takes longer than all before: %+v", e)
	}
}
