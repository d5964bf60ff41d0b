package miniq

import (
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unixtime"
)

// Job is a backends.Job on the wire: what is zero is left out, times are Unix
// time in nanoseconds, texts are escaped.
type Job struct {
	ID          backends.ID          `json:"id"`
	Name        string               `json:"n,omitempty"`
	User        string               `json:"u,omitempty"`
	Project     string               `json:"p,omitempty"`
	Step        string               `json:"st,omitempty"`
	Queue       string               `json:"q,omitempty"`
	Tag         string               `json:"t,omitempty"`
	State       backends.State       `json:"s"`
	Wait        backends.Wait        `json:"w,omitempty"`
	Reason      string               `json:"r,omitempty"`
	Priority    backends.Priority    `json:"pr,omitempty"`
	Slots       int                  `json:"sl,omitempty"`
	Memory      int64                `json:"m,omitempty"`
	OneHost     bool                 `json:"oh,omitempty"`
	Hosts       []backends.Placement `json:"h,omitempty"`
	Asked       []string             `json:"a,omitempty"`
	Pinned      []string             `json:"pi,omitempty"`
	Shares      []int                `json:"ps,omitempty"`
	PinEnds     int64                `json:"pe,omitempty"`
	Keeps       []string             `json:"kp,omitempty"`
	Submitted   int64                `json:"ts,omitempty"`
	Started     int64                `json:"tr,omitempty"`
	Ended       int64                `json:"te,omitempty"`
	RunLimit    time.Duration        `json:"rl,omitempty"`
	RanFor      time.Duration        `json:"rf,omitempty"`
	BeginTime   int64                `json:"tb,omitempty"`
	HeldUntil   int64                `json:"hu,omitempty"`
	Requeues    int                  `json:"rq,omitempty"`
	Mark        string               `json:"mk,omitempty"`
	DummyFor    backends.ID          `json:"df,omitzero"`
	ExitCode    int                  `json:"x,omitempty"`
	NoRequeue   bool                 `json:"nr,omitempty"`
	Interactive bool                 `json:"i,omitempty"`
	Exclusive   bool                 `json:"ex,omitempty"`
	Ending      bool                 `json:"en,omitempty"`
	Lost        bool                 `json:"lo,omitempty"`
	Resuming    bool                 `json:"rs,omitempty"`
}

// ToJob makes a job of the daemon ready for the wire; its texts are escaped already.
func ToJob(j *backends.Job) Job {
	return Job{
		ID: j.ID, Name: j.Name, User: j.User, Project: j.Project, Step: j.Step, Queue: j.Queue, Tag: j.Tag,
		State: j.State, Wait: j.Wait, Reason: j.Reason, Priority: j.Priority, Slots: j.Slots, Memory: j.Memory,
		OneHost: j.OneHost, Hosts: j.Hosts, Asked: j.Asked, Pinned: j.Pinned, Shares: j.Shares, PinEnds: unixtime.Of(j.PinEnds), Keeps: j.Keeps,
		Submitted: unixtime.Of(j.Submitted), Started: unixtime.Of(j.Started), Ended: unixtime.Of(j.Ended), RunLimit: j.RunLimit, RanFor: j.RanFor,
		BeginTime: unixtime.Of(j.BeginTime), HeldUntil: unixtime.Of(j.HeldUntil), Requeues: j.Requeues, Mark: j.Mark, DummyFor: j.DummyFor, ExitCode: j.ExitCode,
		NoRequeue: j.NoRequeue, Interactive: j.Interactive, Exclusive: j.Exclusive, Ending: j.Ending, Lost: j.Lost, Resuming: j.Resuming,
	}
}

// Backend is the job as callers of the client see it.
func (j *Job) Backend() backends.Job {
	return backends.Job{
		ID: j.ID, Name: Unescape(j.Name), User: j.User, Project: Unescape(j.Project), Step: Unescape(j.Step), Queue: Unescape(j.Queue), Tag: Unescape(j.Tag),
		State: j.State, Wait: j.Wait, Reason: Unescape(j.Reason), Priority: j.Priority, Slots: j.Slots, Memory: j.Memory,
		OneHost: j.OneHost, Hosts: j.Hosts, Asked: mapAll(j.Asked, Unescape), Pinned: mapAll(j.Pinned, Unescape), Shares: j.Shares, PinEnds: unixtime.Time(j.PinEnds), Keeps: mapAll(j.Keeps, Unescape),
		Submitted: unixtime.Time(j.Submitted), Started: unixtime.Time(j.Started), Ended: unixtime.Time(j.Ended), RunLimit: j.RunLimit, RanFor: j.RanFor,
		BeginTime: unixtime.Time(j.BeginTime), HeldUntil: unixtime.Time(j.HeldUntil), Requeues: j.Requeues, Mark: Unescape(j.Mark), DummyFor: j.DummyFor, ExitCode: j.ExitCode,
		NoRequeue: j.NoRequeue, Interactive: j.Interactive, Exclusive: j.Exclusive, Ending: j.Ending, Lost: j.Lost, Resuming: j.Resuming,
	}
}

// BackendJobs are the jobs of an answer as callers of the client see them.
func BackendJobs(jobs []Job) []backends.Job {
	out := make([]backends.Job, len(jobs))
	for i := range jobs {
		out[i] = jobs[i].Backend()
	}
	return out
}
