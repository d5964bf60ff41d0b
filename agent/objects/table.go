// Package objects keeps the state objects of this host's jobs of Slurm and LSF.
//
// What it decides is pure: a Table knows what objects there are, and turns samples of the host's
// jobs, what jobs set, and orders from allotd into changes of objects (state.Change). A Keeper
// carries them out: it has a state.Writer for each queue.
//
// A job's object begins where the job is first seen on this host. All that this host writes is
// in the segment of the job's run and this host, whose lines it counts from 1. A job of the
// bundled queue has its object with that queue's daemon, and none here.
package objects

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/state"
)

// Object is what is known of an object of this host.
type Object struct {
	User     int            // ID of the job's; measure.NoUser: not known
	Grouped  bool           // found by a control group: no user can make its name
	Sequence state.Sequence // of the whole object

	Run  int    // of the last segment that this host wrote; 0: none
	N    uint64 // its last line
	Live bool   // that run is still here

	Changed time.Time // last

	missed  int       // samples in a row that lack it
	gone    time.Time // the first of these
	cpu     uint64    // ns, of the last sample
	before  uint64    // ns, of groups that the run had before its present one
	peak    uint64    // bytes
	percent int       // of its progress in this run; -1: it has none
	said    *Said     // its progress, of any run; nil: it has none
	notes   int       // of its run, here

	settings, files map[string]bool // those that there are, and whether the run wrote them; nil: not known
	pushed          time.Time       // a copy, last
}

// Act is what is to be done with an object. Those of a job stay in order.
type Act struct {
	Job    state.Job
	Change *state.Change
	Aside  bool // set it aside: it is another job's, which had this number before. Table.Forget follows.
	Remove bool
}

// Table is what is known of all objects of this host. It is pure, and not safe for concurrent use.
type Table struct {
	Host string
	Keep time.Duration // after the last change of a job that is not here any more

	jobs    map[state.Job]*Object
	live    map[state.Job]bool
	changed map[state.Job]bool // to be announced
	left    map[state.Job]left // that are elsewhere now
	page    state.Job          // the last of the last page
}

// left is what remains of an object that has left this host.
type left struct {
	run int
	n   uint64
	at  time.Time
}

// Bounds of a table.
const (
	MaxObjects   = 50_000
	maxClaimed   = 2_000 // of a user, of jobs without a control group: any user can name some
	maxLeft      = 10_000
	leftTime     = 24 * time.Hour
	missedTwice  = 2 // a sample may miss a job, one by root's answer alone for instance
	allSettings  = 4 * state.MaxSettings
	allFiles     = 2 * state.MaxFiles
	maxAnnounced = 500 // entries of a page or a message
)

// NewTable returns one that knows no object.
func NewTable(host string, keep time.Duration) *Table {
	return &Table{Host: host, Keep: keep, jobs: map[state.Job]*Object{}, live: map[state.Job]bool{}, changed: map[state.Job]bool{}, left: map[state.Job]left{}}
}

// Add notes an object that is there already.
func (t *Table) Add(job state.Job, o *Object) {
	t.jobs[job] = o
	if o.Live {
		t.live[job] = true
	}
}

// Find returns what is known of an object; nil: there is none.
func (t *Table) Find(job state.Job) *Object { return t.jobs[job] }

// Forget drops what is known of an object that is not here any more.
func (t *Table) Forget(job state.Job) {
	if t.jobs[job] != nil {
		delete(t.jobs, job)
		delete(t.live, job)
		t.changed[job] = true
	}
}

// jobOf returns the name of a measured job; false: it gets no object here.
func jobOf(j *measure.Job) (state.Job, bool) {
	kept := (j.Queue == measure.Slurm || j.Queue == measure.LSF) && j.ID.Job > 0 && j.ID.Index >= 0 && j.User != measure.NoUser
	return state.Job{Queue: string(j.Queue), ID: j.ID}, kept
}

func grouped(j *measure.Job) bool { return j.Source != measure.FromProcesses }

// Sample takes what a sample saw: the jobs that are here. Those that two samples in a row lack
// have ended.
func (t *Table) Sample(jobs []measure.Job, at time.Time) (acts []Act) {
	seen := map[state.Job]*measure.Job{}
	for i := range jobs {
		if job, kept := jobOf(&jobs[i]); kept && t.counts(job, &jobs[i], seen[job]) {
			seen[job] = &jobs[i]
		}
	}
	for i := range jobs { // in their order
		if job, _ := jobOf(&jobs[i]); seen[job] == &jobs[i] {
			acts = append(acts, t.See(job, &jobs[i], at)...)
		}
	}
	for _, job := range t.sorted(t.live) {
		o := t.jobs[job]
		if j := seen[job]; j != nil && j.User == o.User {
			continue
		}
		if o.missed++; o.missed == 1 {
			o.gone = at
		}
		if o.missed >= missedTwice {
			acts = append(acts, t.end(job, o, o.gone))
			o.settings, o.files = nil, nil
		}
	}
	return acts
}

// counts reports whether one of two measured jobs with a name is the one: that with a control
// group, then that of the user whose object is here.
func (t *Table) counts(job state.Job, j, other *measure.Job) bool {
	switch o := t.jobs[job]; {
	case other == nil:
		return true
	case grouped(j) != grouped(other):
		return grouped(j)
	default:
		return o != nil && o.User == j.User
	}
}

// See takes one job that is here now.
func (t *Table) See(job state.Job, j *measure.Job, at time.Time) (acts []Act) {
	o := t.jobs[job]
	if o != nil && o.User != measure.NoUser && o.User != j.User {
		if grouped(j) {
			return []Act{{Job: job, Aside: true}}
		}
		return nil // any user can name a job's number
	}
	if o != nil {
		o.Grouped = o.Grouped || grouped(j)
	}
	run := t.runOf(job, j)
	switch {
	case run == 0 || o != nil && run < o.Run: // not known yet; or an environment that says so
		return nil
	case o != nil && o.Live && o.Run == run:
		o.missed = 0
		o.measure(j)
		return nil
	case o != nil && o.Live:
		acts = append(acts, t.end(job, o, at))
	}
	return append(acts, t.begin(job, j, run, at))
}

// runOf returns the run of a job that is here; 0: not known yet. LSF does not number runs: a job
// that comes back is in one more than are known.
func (t *Table) runOf(job state.Job, j *measure.Job) int {
	o := t.jobs[job]
	switch {
	case o != nil && o.Live && (j.Run == 0 || j.Queue != measure.Slurm):
		return o.Run
	case j.Queue == measure.Slurm:
		return min(j.Run, measure.MaxRun)
	case o != nil:
		return min(o.Sequence.Run+1, measure.MaxRun)
	default:
		return min(t.left[job].run+1, measure.MaxRun)
	}
}

func (t *Table) begin(job state.Job, j *measure.Job, run int, at time.Time) Act {
	o := t.jobs[job]
	c := state.Change{Event: "started", Detail: "on " + t.Host + claimedMark(j), Begin: &state.Begin{Host: t.Host}}
	if o == nil {
		o = &Object{User: j.User, Grouped: grouped(j), percent: -1, settings: map[string]bool{}, files: map[string]bool{}}
		t.jobs[job] = o
		if l := t.left[job]; l.run == run {
			o.Run, o.N = l.run, l.n
		}
		delete(t.left, job)
		c.Submit = &state.Submission{Owner: state.Owner{UID: strconv.Itoa(j.User)}}
	}
	if o.User == measure.NoUser {
		o.User = j.User
	}
	if o.Run == run { // it had no process for a while, such as between steps
		c.Event = "continued"
	} else {
		o.Run, o.N = run, 0
		if o.Sequence.Run == run { // it wrote here before
			o.N = o.Sequence.N
		}
		o.cpu, o.before, o.peak, o.percent, o.notes = 0, 0, 0, -1, 0
		for _, names := range []map[string]bool{o.settings, o.files} {
			for name := range names {
				names[name] = false
			}
		}
	}
	o.Live, o.missed = true, 0
	t.live[job] = true
	o.measure(j)
	return t.write(job, o, c, at)
}

func (t *Table) end(job state.Job, o *Object, at time.Time) Act {
	o.Live = false
	delete(t.live, job)
	return t.write(job, o, state.Change{Event: "ended", End: &state.End{ExitCode: -1, At: at, User: time.Duration(o.before + o.cpu), MaxRSS: int64(o.peak)}}, at)
}

// byEnvironment ends the line of a beginning where no control group names the job.
const byEnvironment = ", by its environment"

func claimedMark(j *measure.Job) string {
	if grouped(j) {
		return ""
	}
	return byEnvironment
}

// claimed reports whether what a host wrote last of a job's beginning says that no control group
// named it.
func claimed(r *backends.Record, host string) (so bool) {
	for _, l := range r.History {
		if l.Host == host && (l.Event == "started" || l.Event == "continued") {
			so = strings.HasSuffix(l.Detail, byEnvironment)
		}
	}
	return so
}

// measure takes what the job has used until now. Its groups may have been made anew.
func (o *Object) measure(j *measure.Job) {
	if j.CPU.Known {
		if j.CPU.N < o.cpu {
			o.before += o.cpu
		}
		o.cpu = j.CPU.N
	}
	o.peak = max(o.peak, min(j.Peak.N, 1<<62))
}

// maxNotes is the most lines that Note writes of one run on a host.
const maxNotes = 200

// Note notes in a job's history what is done to it on this host. Where the object can't be written, or has enough of
// such lines of its run, it has no more.
func (t *Table) Note(job state.Job, event, detail string, at time.Time) (acts []Act) {
	o, err := t.writable(job)
	if err != nil || o.notes >= maxNotes {
		return nil
	}
	if o.notes++; o.notes == maxNotes {
		detail += "; what follows in this run is in the log of ahostd on " + t.Host + " alone"
	}
	return []Act{t.write(job, o, state.Change{Event: event, Detail: detail}, at)}
}

// write returns a change that is the next line of this host's segment.
func (t *Table) write(job state.Job, o *Object, c state.Change, at time.Time) Act {
	if c.Event != "" {
		o.N++
		if s := (state.Sequence{Run: o.Run, N: o.N}); s.Compare(o.Sequence) > 0 {
			o.Sequence = s
		}
		t.changed[job] = true
	}
	o.Changed = at
	c.ID, c.Seq, c.At, c.RunNo, c.Host = job.ID, o.N, at, o.Run, t.Host
	return Act{Job: job, Change: &c}
}

// Purge returns the removal of objects whose job is long over, and of the oldest where there are
// too many.
func (t *Table) Purge(now time.Time) (acts []Act) {
	var over []state.Job
	claimed := map[int][]state.Job{}
	for job, o := range t.jobs {
		switch {
		case o.Live:
		case now.Sub(o.Changed) >= t.Keep:
			acts = append(acts, Act{Job: job, Remove: true})
		case !o.Grouped:
			claimed[o.User] = append(claimed[o.User], job)
		default:
			over = append(over, job)
		}
	}
	oldest := func(list []state.Job, most int) []state.Job {
		if len(list) <= most {
			return list
		}
		slices.SortFunc(list, func(a, b state.Job) int {
			if c := t.jobs[b].Changed.Compare(t.jobs[a].Changed); c != 0 {
				return c
			}
			return compare(a, b)
		})
		for _, job := range list[most:] {
			acts = append(acts, Act{Job: job, Remove: true})
		}
		return list[:most]
	}
	for _, list := range claimed {
		over = append(over, oldest(list, maxClaimed)...)
	}
	oldest(over, MaxObjects)
	for job, l := range t.left {
		if now.Sub(l.at) >= leftTime || len(t.left) > maxLeft {
			delete(t.left, job)
		}
	}
	return acts
}
