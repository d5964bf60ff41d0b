// Package profile says what jobs of a kind use, and how long they take, by their runs of the past (R45). It is pure:
// runs go in; what to ask for, what was wasted, and when a job ends come out.
package profile

import (
	"cmp"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/student"
)

// Kind is what jobs that do the same have in common.
type Kind struct {
	Project string `json:"project"`
	Step    string `json:"step,omitempty"`
	Command string `json:"command"` // the job's name with its numbers as #, or what it runs, if it has none
}

// KindOf returns the kind of a job. The command is used where it has no name.
func KindOf(j *backends.Job, command []string) Kind {
	name := j.Name
	if name == "" && len(command) > 0 {
		name = filepath.Base(command[0])
	}
	return Kind{j.Project, j.Step, numbers.ReplaceAllLiteralString(name, "#")}
}

var numbers = regexp.MustCompile(`[0-9]+`)

// Past is what is looked at of the past.
const (
	Days     = 30
	mostPast = 500 // jobs
)

// Query selects a user's jobs of a kind. Of those without a name RunsOf decides.
func (k Kind) Query(user string, now time.Time) backends.PastQuery {
	return backends.PastQuery{Since: now.AddDate(0, 0, -Days), User: user, Most: mostPast, Keep: func(j *backends.Job) bool {
		is := KindOf(j, nil)
		return is == k || j.Name == "" && is.Project == k.Project && is.Step == k.Step
	}}
}

// RunsOf returns the runs of a kind's jobs.
func (k Kind) RunsOf(past []backends.Past) (all []Run) {
	for i := range past {
		p := &past[i]
		if p.Record == nil || KindOf(&p.Job, p.Record.Spec.Command) != k {
			continue
		}
		if r, done := RunOf(p); done {
			all = append(all, r)
		}
	}
	return all
}

// Run is a run that ended by itself, with exit status 0.
type Run struct {
	Slots  int
	Took   time.Duration
	CPU    time.Duration // processor time; 0: not known
	Memory int64         // bytes: the most that it used; 0: not known
	Asked  int64         // bytes; 0: nothing, or not known
	Limit  time.Duration // its run limit; 0: none, or not known
	Ended  time.Time
}

// RunOf returns the run by which a job of the past was done; false: it was not. The queues know the memory of a
// job's largest process or task: that is the job's where it has one slot.
func RunOf(p *backends.Past) (r Run, done bool) {
	if p.Job.State != backends.Done || p.Record == nil || len(p.Record.Runs) == 0 {
		return Run{}, false
	}
	last := &p.Record.Runs[len(p.Record.Runs)-1]
	r = Run{
		Slots: max(1, p.Job.Slots), Took: last.Ended.Sub(last.Started), CPU: last.User + last.System,
		Asked: p.Job.Memory, Limit: p.Job.RunLimit, Ended: last.Ended,
	}
	if p.Job.Slots <= 1 {
		r.Memory = last.MaxRSS
	}
	return r, last.ExitCode == 0 && !last.Started.IsZero() && r.Took > 0
}

// Bounds of what is looked at.
const (
	Fewest = 5  // runs from which on anything is proposed
	Most   = 64 // the last ones count: what a job does changes
)

// Newest returns the last runs that count, oldest first.
func Newest(runs []Run) []Run {
	runs = slices.Clone(runs)
	slices.SortStableFunc(runs, func(a, b Run) int { return a.Ended.Compare(b.Ended) })
	return runs[max(0, len(runs)-Most):]
}

// Range is the least, the median and the most of a figure of some runs.
type Range struct {
	Runs               int // that have it
	Least, Middle, Top float64
}

// rangeOf returns the range of what is known.
func rangeOf(runs []Run, figure func(*Run) float64) (r Range, known []float64) {
	for i := range runs {
		if x := figure(&runs[i]); x > 0 {
			known = append(known, x)
		}
	}
	if slices.Sort(known); len(known) > 0 {
		r = Range{len(known), known[0], known[len(known)/2], known[len(known)-1]}
	}
	return r, known
}

// Advice is what a job of a kind should ask for. What is zero is not proposed.
type Advice struct {
	Runs   int           // that it follows from
	Memory int64         // bytes
	Slots  int           // that it keeps busy
	Limit  time.Duration // run limit

	Used, Cores, Took Range // bytes, processors and seconds of the runs
}

// Advise returns what a job with so many slots should ask for, by the runs of its kind: memory and a time that the
// next twenty runs keep to with a probability of 95 %, if they vary as these did.
func Advise(runs []Run, slots int) (a Advice) {
	runs = Newest(runs)
	a.Runs = len(runs)
	var memory, took []float64
	a.Used, memory = rangeOf(runs, func(r *Run) float64 { return float64(r.Memory) })
	a.Took, took = rangeOf(runs, func(r *Run) float64 { return r.Took.Seconds() })
	a.Cores, _ = rangeOf(runs, func(r *Run) float64 { return r.CPU.Seconds() / r.Took.Seconds() })
	if len(memory) >= Fewest {
		const step = 64 << 20
		a.Memory = int64(math.Ceil(bound(memory, 1.1, 2)/step)) * step
	}
	if len(took) >= Fewest {
		limit := bound(took, 1.2, 3)
		step := 60.0
		if limit > 3600 {
			step = 300
		}
		a.Limit = time.Duration(math.Ceil(limit/step)*step) * time.Second
	}
	if a.Cores.Runs >= Fewest {
		const spare = 0.1 // a processor is busy that waits a little
		if busy := max(1, int(math.Ceil(a.Cores.Top-spare))); busy < slots || a.Cores.Middle > float64(slots)+2*spare {
			a.Slots = busy
		}
	}
	return a
}

// bound returns what the next twenty values keep to with a probability of 95 %, if their logarithms are as normal as
// those of the given ones, which are sorted: the prediction limit of Student's distribution. It is least times the
// largest value at least, and most times that at most.
func bound(values []float64, least, most float64) float64 {
	const next, kept = 20, 0.95
	n := float64(len(values))
	mean, squares := 0.0, 0.0
	for _, v := range values {
		mean += math.Log(v) / n
	}
	for _, v := range values {
		squares += (math.Log(v) - mean) * (math.Log(v) - mean)
	}
	limit := math.Exp(mean + student.Quantile(math.Pow(kept, 1.0/next), n-1)*math.Sqrt(squares/(n-1)*(1+1/n)))
	top := values[len(values)-1]
	return min(max(limit, least*top), most*top)
}

// Ends is when a running job is expected to end.
type Ends struct {
	Runs                  int           // of its kind, that took longer than it has run
	Early, Expected, Late time.Duration // after its start: an eighth of them ended before Early, a half before Expected, seven eighths before Late
}

// Predict returns when a job of a kind ends that has run for so long; false: too few runs took that long.
func Predict(runs []Run, ran time.Duration) (Ends, bool) {
	runs = slices.DeleteFunc(Newest(runs), func(r Run) bool { return r.Took <= ran })
	if len(runs) < Fewest {
		return Ends{Runs: len(runs)}, false
	}
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(a.Took, b.Took) })
	at := func(part float64) time.Duration { return runs[min(int(part*float64(len(runs))), len(runs)-1)].Took }
	return Ends{len(runs), at(0.125), at(0.5), at(0.875)}, true
}
