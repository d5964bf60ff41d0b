package objects

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/state"
)

// Loaded reports whether it is known which settings and files an object has: see LoadNames.
func (o *Object) Loaded() bool { return o.settings != nil }

// Load takes from an object, as it is, what decisions on later writes need.
func (o *Object) Load(r *backends.Record, s state.Sequence, host string) {
	o.Sequence = s
	for _, run := range r.Runs {
		if run.Host == host && run.Run >= o.Run {
			o.Run, o.Live = run.Run, run.Ended.IsZero()
			o.before, o.cpu, o.peak = uint64(run.User), 0, uint64(run.MaxRSS)
		}
	}
	for _, l := range r.History {
		if l.At.After(o.Changed) {
			o.Changed = l.At
		}
		if l.Host == host && l.Run == o.Run {
			o.N++ // at least: the oldest may have been dropped
		}
	}
	if s.Run == o.Run {
		o.N = max(o.N, s.N)
	}
	o.percent = -1
	o.takeSaid(r)
	if o.Live {
		o.LoadNames(r)
	}
}

// LoadNames takes which settings and files an object has.
func (o *Object) LoadNames(r *backends.Record) {
	o.settings, o.files = map[string]bool{}, map[string]bool{}
	for i := range r.Settings {
		s := &r.Settings[i]
		o.settings[s.Key] = s.Run == o.Run
		if s.Key == state.ProgressKey && s.Run == o.Run {
			if p, err := state.ParseProgress(s.Value); err == nil {
				o.percent = p.Percent
			}
		}
	}
	for i := range r.Files {
		o.files[r.Files[i].Name] = r.Files[i].Run == o.Run
	}
}

// Said is how far a job is, by its own words.
type Said struct {
	state.Progress
	At  time.Time
	run int
}

// takeSaid takes how far the job is from its object, where that is later than what is known.
func (o *Object) takeSaid(r *backends.Record) {
	for i := range r.Settings {
		s := &r.Settings[i]
		if s.Key != state.ProgressKey || o.said != nil && (s.Run < o.said.run || s.Run == o.said.run && s.At.Before(o.said.At)) {
			continue
		}
		if p, err := state.ParseProgress(s.Value); err == nil {
			o.said = &Said{p.Brief(), s.At, s.Run}
		}
	}
}

// Said returns how far jobs of a sample are, by their own words. An object counts for the job of
// its user alone, and while its run is here.
func (t *Table) Said(jobs []measure.Job) map[measure.Key]Said {
	var all map[measure.Key]Said
	for i := range jobs {
		job, kept := jobOf(&jobs[i])
		o := t.jobs[job]
		if !kept || o == nil || !o.Live || o.User != jobs[i].User || o.said == nil {
			continue
		}
		if all == nil {
			all = map[measure.Key]Said{}
		}
		all[jobs[i].Key] = *o.said
	}
	return all
}

// room returns what keeps a name from being written, where names says which there are, and
// whether the present run wrote them.
func room(names map[string]bool, name, what string, ofRun, all int) error {
	if names[name] {
		return nil
	}
	n := 0
	for _, own := range names {
		if own {
			n++
		}
	}
	_, there := names[name]
	if n >= ofRun || !there && len(names) >= all {
		return fmt.Errorf("it has %d %s: %w", max(n, min(len(names), ofRun)), what, state.ErrBounds)
	}
	return nil
}

// Set is a job's own setting. A percentage of progress is a line of its history when it has
// changed: the text alone is none.
func (t *Table) Set(job state.Job, s state.Setting, at time.Time) (Act, error) {
	o, err := t.writable(job)
	if err == nil {
		err = state.CheckSetting(s)
	}
	if err == nil {
		err = room(o.settings, s.Key, "settings", state.MaxSettings, allSettings)
	}
	if err != nil {
		return Act{}, err
	}
	o.settings[s.Key] = true
	c := state.Change{Set: &s, Event: "set", Detail: s.Key}
	if s.Key == state.ProgressKey {
		p, _ := state.ParseProgress(s.Value) // CheckSetting has
		c.Event, c.Detail = "progress", backends.Escape(p.String())
		if p.Percent == o.percent {
			c.Event, c.Detail = "", ""
		}
		o.percent, o.said = p.Percent, &Said{p.Brief(), at, o.Run}
	}
	return t.write(job, o, c, at), nil
}

// Attach is a file that the job has travel with it.
func (t *Table) Attach(job state.Job, f state.File, at time.Time) (Act, error) {
	o, err := t.writable(job)
	if err == nil {
		err = state.CheckFile(f)
	}
	if err == nil {
		err = room(o.files, f.Name, "files", state.MaxFiles, allFiles)
	}
	if err != nil {
		return Act{}, err
	}
	o.files[f.Name] = true
	return t.write(job, o, state.Change{Attach: &f, Event: "attached", Detail: f.Name}, at), nil
}

// writable returns an object that can be written. Where this host wrote none of it yet its
// segment is that of the last run.
func (t *Table) writable(job state.Job) (*Object, error) {
	o := t.jobs[job]
	if o == nil {
		return nil, fmt.Errorf("no state object of job %v is here: %w", job, fs.ErrNotExist)
	}
	if !o.Loaded() {
		return nil, fmt.Errorf("what the state object of job %v holds is not read yet", job)
	}
	if o.Run == 0 {
		o.Run, o.N = max(o.Sequence.Run, 1), o.Sequence.N
	}
	return o, nil
}

var errOther = errors.New("it is of another user's job")

// Merge takes another object of a job, verified, of a user, with a sequence.
func (t *Table) Merge(job state.Job, object []byte, user int, s state.Sequence, at time.Time) (Act, error) {
	o := t.jobs[job]
	if o != nil && o.User != measure.NoUser && user != measure.NoUser && o.User != user {
		return Act{}, errOther
	}
	if o == nil {
		o = &Object{User: user, Grouped: true, percent: -1}
		t.jobs[job] = o
	}
	if o.User == measure.NoUser {
		o.User = user
	}
	if s.Compare(o.Sequence) > 0 {
		o.Sequence = s
	}
	if o.Run == s.Run && o.Run > 0 {
		o.N = max(o.N, s.N)
	}
	delete(t.left, job)
	o.settings, o.files = nil, nil // what is there now is read when it is next needed
	o.Changed = at
	t.changed[job] = true
	return Act{Job: job, Change: &state.Change{ID: job.ID, At: at, Merge: object}}, nil
}

// Left takes that a job's object, as it was at s, is on another host now. It is removed here,
// unless its run is here, or something was written since.
func (t *Table) Left(job state.Job, s state.Sequence, at time.Time) (Act, bool) {
	o := t.jobs[job]
	if o == nil || o.Live || o.Sequence != s {
		return Act{}, false
	}
	t.left[job] = left{o.Run, o.N, at}
	return Act{Job: job, Remove: true}, true
}
