package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/state"
)

// The events of each job, in order.
const (
	submitted   = 0
	started     = 1
	progressed  = 2 // and the five after it
	set         = 8
	ended       = 9
	eventsOfJob = 10
)

// fact is one event of a job. Both sides store all of it.
type fact struct {
	job  int64
	host string
	n    int // from 0
	at   time.Time
}

func (f *fact) event() string {
	switch f.n {
	case submitted:
		return "submitted"
	case started:
		return "started"
	case set:
		return "set"
	case ended:
		return "ended"
	}
	return "progress"
}

// percent and text are the job's progress at one of these events.
func (f *fact) percent() int { return 100 * (f.n - progressed + 1) / (set - progressed + 1) }

func (f *fact) text() string {
	return fmt.Sprintf("%-40s", fmt.Sprintf("step %d of job %d", f.n, f.job))
}

// resultKey is the setting that each job makes.
const resultKey = "result"

func (f *fact) result() string { return fmt.Sprintf("/scratch/%d/out", f.job) }

func (f *fact) detail() string {
	switch f.n {
	case submitted:
		return "by " + userOf(f.job)
	case started:
		return "on " + f.host
	case set:
		return resultKey + "=" + f.result()
	case ended:
		return "exit 0"
	}
	return fmt.Sprint(f.percent(), " ", f.text())
}

func userOf(job int64) string { return fmt.Sprint("user", job%50) }
func nameOf(job int64) string { return fmt.Sprint("job", job) }

const project = "chip7"

func commandOf(job int64) []string { return []string{"simulate", "--seed", fmt.Sprint(job), "top.v"} }

// change is the fact as a state object takes it.
func (f *fact) change() state.Change {
	c := state.Change{
		ID: backends.ID{Job: f.job}, RunNo: 1, Host: f.host, Seq: uint64(f.n) + 1, //nolint:gosec // it is positive
		At: f.at, Event: f.event(), Detail: f.detail(),
	}
	switch f.n {
	case submitted:
		s := &state.Submission{Owner: state.Owner{User: userOf(f.job), UID: fmt.Sprint(1000 + f.job%50)}}
		s.Spec.Name, s.Spec.Project, s.Spec.Command = nameOf(f.job), project, commandOf(f.job)
		c.Submit = s
	case started:
		c.Begin = &state.Begin{Host: f.host}
	case set:
		c.Set = &state.Setting{Key: resultKey, Value: f.result()}
	case ended:
		c.End = &state.End{At: f.at}
	default:
		c.Set = &state.Setting{Key: state.ProgressKey, Value: state.Progress{Percent: f.percent(), Text: f.text()}.String()}
	}
	return c
}

// host is a host of the farm, and its jobs.
type host struct {
	name string
	jobs []int64
}

// farm deals jobs out to hosts, in a random order that is the same in each run.
func farm(jobs, hosts int) []host {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same jobs each time
	all := make([]host, hosts)
	for i := range all {
		all[i].name = fmt.Sprintf("h%03d", i+1)
	}
	for i, j := range random.Perm(jobs) {
		h := &all[i%hosts]
		h.jobs = append(h.jobs, int64(j)+1)
	}
	return all
}

// epoch is when the first job is submitted.
var epoch = time.Unix(1_800_000_000, 0).UTC()

// facts returns the event n of each of a host's jobs.
func (h *host) facts(n int) []fact {
	list := make([]fact, 0, len(h.jobs))
	for _, j := range h.jobs {
		list = append(list, fact{j, h.name, n, epoch.Add(time.Duration(j)*time.Second + time.Duration(n)*10*time.Second)})
	}
	return list
}
