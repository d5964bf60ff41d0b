package page

import (
	"math"
	"time"

	"github.com/allotment-hpc/allotment/pba/simulate"
)

// hostile is a name that must be shown and must not act.
const hostile = `</title><script>alert(1)</script><img src=x onerror=alert(2)> "quoted' & 中文 ` + "\x1b[31m\u202egnp.exe"

// buckets is the number of steps of the fixture's charts.
const buckets = 300

// policies are the fixture's, in order.
func policies() []string { return []string{simulate.FIFO, simulate.Dedicated, simulate.PBA} }

// fixture is a result as a simulator would make it, of the given projects.
func fixture(projects ...string) *simulate.Result {
	from := time.Date(1993, 10, 1, 7, 0, 0, 0, time.UTC)
	to := from.AddDate(0, 3, 0)
	r := &simulate.Result{
		Trace: simulate.Source{
			Name: "NASA-iPSC-1993-3.1-cln.swf.gz", Format: "swf", Jobs: 18066, Repeated: 1,
			LeftOut: []simulate.LeftOut{{Why: "wider than the farm", Jobs: 12, JobShare: 0.0007, SlotSeconds: 360e3, WorkShare: 0.005}},
		},
		Farm: simulate.FarmSize{Slots: 128, Hosts: 128},
		Settings: simulate.Settings{
			Cycle: 20, PendingThreshold: 60, MinRuntime: 60, Headroom: 1.5, ScaleArrivals: 2, Promise: 100, Seed: 1,
		},
		Window: simulate.Window{From: from, To: to, Seconds: to.Sub(from).Seconds()},
		Within: 4211,
		Notes:  []string{"SWF names no projects: user 7 of the trace is project user7."},
	}
	for _, p := range projects {
		r.Guarantees = append(r.Guarantees, simulate.Guarantee{Project: p, Slots: 32})
		r.Farm.Fences = append(r.Farm.Fences, simulate.Fence{Project: p, Slots: 32})
	}
	for i, policy := range policies() {
		r.Policies = append(r.Policies, outcome(r, i, policy, projects))
	}
	return r
}

func outcome(r *simulate.Result, i int, policy string, projects []string) simulate.Outcome {
	k := float64(i)
	o := simulate.Outcome{
		Policy: policy,
		Within: fared("", 4211, 10*math.Pow(40, 2-k), 100),
		Rest:   fared("", 13855, 900+300*k, 0), Utilization: 0.656 - 0.008*k*(2-k), Useful: 0.656 - 0.008*k*(2-k) - 0.0005*k,
		StarvedSeconds: 1234567 / math.Pow(20, k), Cycles: 400000, Skipped: 310000, Series: series(r, i, projects),
	}
	for _, p := range projects {
		o.Projects = append(o.Projects, fared(p, 5000, 120, 90))
	}
	o.Projects = append(o.Projects, fared("", 13066, 900, 0))
	if policy == simulate.Dedicated {
		o.CannotRun = []simulate.LeftOut{{Why: "wider than what dedicated leaves the others", Jobs: 173, JobShare: 0.009, SlotSeconds: 18.3e6, WorkShare: 0.286}}
	}
	if policy == simulate.PBA {
		o.LostSeconds, o.LostShare = 2.1e6, 0.006
		o.Preemptions, o.Suspensions, o.Reclaims, o.Requested, o.Evicted, o.Ratio, o.Useless, o.Expired = 312, 31, 208, 1411, 1529, 1529.0/1411, 2, 1
		o.Rest.Preempted, o.Rest.Lost = 312, 2.1e6
		o.Within.OverPromise, o.Within.PutOff, o.Checked, o.Cheaper = 3, 2, 200, 1
	}
	return o
}

func fared(project string, jobs int, wait, clock float64) simulate.Group {
	return simulate.Group{
		Project: project, Jobs: jobs, Wait: simulate.Spread{Mean: wait, Median: wait / 9, P95: wait * 4.5, Max: wait * 31},
		Clock: simulate.Spread{Mean: clock / 7, P95: clock / 2, Max: clock}, Slowdown: simulate.Spread{Mean: 3.1, Median: 1, P95: 12.25, Max: 4410.5},
	}
}

func series(r *simulate.Result, i int, projects []string) simulate.Series {
	s := simulate.Series{Start: r.Window.From, Bucket: r.Window.Seconds / buckets}
	wave := func(at, speed float64) float64 { return math.Abs(math.Sin(at*speed+float64(i)/4) * math.Cos(at/17)) }
	for b := range buckets {
		s.Utilization = append(s.Utilization, min(1, 0.3+0.7*wave(float64(b), 0.7)))
		s.Waiting = append(s.Waiting, 100*wave(float64(b), 0.3))
	}
	for _, name := range append(append([]string{}, projects...), "") {
		p := simulate.Pool{Project: name}
		for b := range buckets {
			allocated := 32.0
			if name == "" {
				allocated = 0
			} else if b > 200 {
				allocated = 48
			}
			p.Held = append(p.Held, 60*wave(float64(b), 0.5))
			p.Allocated = append(p.Allocated, allocated)
			p.Waiting = append(p.Waiting, 200*wave(float64(b), 0.2)/float64(i*i+1))
		}
		s.Pools = append(s.Pools, p)
	}
	for b, end := range []float64{0, 1, 5, 10, 20, 40, 60, 80, 100, 120, 180, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800, -1} {
		bin := simulate.WaitBin{Seconds: end, Rest: 400 + 70*i*(b%3)}
		if b == 0 {
			bin.Within, bin.Rest = 2000, 3000
		} else if b < 20-5*i {
			bin.Within = 120
		}
		if b < 9 {
			bin.Clock = bin.Within
		}
		s.Waits = append(s.Waits, bin)
	}
	return s
}

func sweeps() []simulate.Sweep {
	var all []simulate.Sweep
	for _, s := range []struct {
		name     string
		standard float64
		values   []float64
	}{
		{"pending_threshold", 60, []float64{0, 20, 40, 60, 120, 300, 600}},
		{"min_runtime", 60, []float64{0, 30, 60, 120, 300, 600}},
		{"headroom", 1.5, []float64{1, 1.25, 1.5, 2, 3}},
	} {
		sweep := simulate.Sweep{Setting: s.name, Default: s.standard}
		for i, v := range s.values {
			o := outcome(&simulate.Result{Window: simulate.Window{Seconds: 1}}, 2, simulate.PBA, nil)
			o.Within.Clock.Max = 40 + 100*float64(i)
			o.LostShare = 0.02 / float64(i+1)
			o.Useful -= o.LostShare / 3
			o.Preemptions = 600 / (i + 1)
			sweep.Points = append(sweep.Points, simulate.SweepPoint{Value: v, Outcome: o})
		}
		all = append(all, sweep)
	}
	return all
}

// fixturePage has two runs, sweeps, and hostile texts wherever a text can be.
func fixturePage() Page {
	plain, several := fixture("user7"), fixture("chipA", hostile, "chipC", "d", "e", "f", "g")
	several.Trace.Name, several.Trace.Format, several.Trace.OneSlot = hostile, hostile, true
	several.Trace.BadLines = []string{"line 7: field 4, run time: " + hostile}
	several.Trace.LeftOut = append(several.Trace.LeftOut, simulate.LeftOut{Why: hostile, Jobs: 1})
	several.Guarantees[0].User, several.Guarantees[0].Step = hostile, hostile
	several.Notes = []string{hostile}
	return Page{
		Command: "pba simulate --trace NASA-iPSC-1993-3.1-cln.swf.gz --farm 128 --policy fifo,dedicated,pba --scale-arrivals 2.0 --guarantee user:7=32 --html report.html " + hostile,
		Version: hostile, Runs: []Run{{"User 7 holds 32", plain}, {hostile, several}}, Sweeps: sweeps(),
	}
}
