package backends

import "time"

// CompactJob is a Job as JSON, in state objects and in miniq's messages: what is zero
// is left out, times are Unix time in nanoseconds. Its texts must be valid UTF-8 (see
// Escape).
type CompactJob struct {
	ID          ID            `json:"id"`
	Name        string        `json:"n,omitempty"`
	User        string        `json:"u,omitempty"`
	Project     string        `json:"p,omitempty"`
	Step        string        `json:"st,omitempty"`
	Queue       string        `json:"q,omitempty"`
	Group       string        `json:"g,omitempty"`
	Tag         string        `json:"t,omitempty"`
	State       State         `json:"s"`
	Wait        Wait          `json:"w,omitempty"`
	Reason      string        `json:"r,omitempty"`
	Priority    Priority      `json:"pr,omitempty"`
	Slots       int           `json:"sl,omitempty"`
	Memory      int64         `json:"m,omitempty"`
	OneHost     bool          `json:"oh,omitempty"`
	Hosts       []Placement   `json:"h,omitempty"`
	Asked       []string      `json:"a,omitempty"`
	Pinned      []string      `json:"pi,omitempty"`
	Shares      []int         `json:"ps,omitempty"`
	PinEnds     int64         `json:"pe,omitempty"`
	Planned     []string      `json:"pl,omitempty"`
	Keeps       []string      `json:"kp,omitempty"`
	Submitted   int64         `json:"ts,omitempty"`
	Started     int64         `json:"tr,omitempty"`
	Ended       int64         `json:"te,omitempty"`
	RunLimit    time.Duration `json:"rl,omitempty"`
	RanFor      time.Duration `json:"rf,omitempty"`
	BeginTime   int64         `json:"tb,omitempty"`
	HeldUntil   int64         `json:"hu,omitempty"`
	Requeues    int           `json:"rq,omitempty"`
	Awaited     bool          `json:"aw,omitempty"`
	FailedSaves int           `json:"fs,omitempty"`
	Mark        string        `json:"mk,omitempty"`
	DummyFor    ID            `json:"df,omitzero"`
	ExitCode    int           `json:"x,omitempty"`
	Unserved    string        `json:"us,omitempty"`
	MinHosts    int           `json:"hl,omitempty"`
	MaxHosts    int           `json:"hm,omitempty"`
	PerHost     int           `json:"ph,omitempty"`
	Unit        int           `json:"un,omitempty"`
	Needs       []Amount      `json:"ne,omitempty"`
	Set         int           `json:"hs,omitempty"` // where a message lists sets of hosts: 1 + the place of its Suits there; 0: nil
	Component   bool          `json:"co,omitempty"`
	HostNumber  int64         `json:"hn,omitempty"`
	ArrayLimit  int           `json:"al,omitempty"`
	Considered  int64         `json:"cs,omitempty"`
	NoRequeue   bool          `json:"nr,omitempty"`
	Interactive bool          `json:"i,omitempty"`
	Exclusive   bool          `json:"ex,omitempty"`
	Ending      bool          `json:"en,omitempty"`
	Lost        bool          `json:"lo,omitempty"`
	Resuming    bool          `json:"rs,omitempty"`
	Progress    string        `json:"pg,omitempty"`
}

// Compact is the job for JSON.
func (j *Job) Compact() CompactJob {
	return CompactJob{
		ID: j.ID, Name: j.Name, User: j.User, Project: j.Project, Step: j.Step, Queue: j.Queue, Group: j.Group, Tag: j.Tag,
		State: j.State, Wait: j.Wait, Reason: j.Reason, Priority: j.Priority, Slots: j.Slots, Memory: j.Memory,
		OneHost: j.OneHost, Hosts: j.Hosts, Asked: j.Asked, Pinned: j.Pinned, Shares: j.Shares, PinEnds: nanoseconds(j.PinEnds), Planned: j.Planned, Keeps: j.Keeps,
		Submitted: nanoseconds(j.Submitted), Started: nanoseconds(j.Started), Ended: nanoseconds(j.Ended), RunLimit: j.RunLimit, RanFor: j.RanFor,
		BeginTime: nanoseconds(j.BeginTime), HeldUntil: nanoseconds(j.HeldUntil), Requeues: j.Requeues, Awaited: j.Awaited, FailedSaves: j.FailedSaves, Mark: j.Mark, DummyFor: j.DummyFor, ExitCode: j.ExitCode,
		Unserved: j.Unserved, MinHosts: j.MinHosts, MaxHosts: j.MaxHosts, PerHost: j.PerHost, Unit: j.Unit, Needs: j.Needs,
		Component: j.Component, HostNumber: j.HostNumber, ArrayLimit: j.ArrayLimit, Considered: nanoseconds(j.Considered),
		NoRequeue: j.NoRequeue, Interactive: j.Interactive, Exclusive: j.Exclusive, Ending: j.Ending, Lost: j.Lost, Resuming: j.Resuming, Progress: j.Progress,
	}
}

// Job is what Compact was given, without Suits.
func (j *CompactJob) Job() Job {
	return Job{
		ID: j.ID, Name: j.Name, User: j.User, Project: j.Project, Step: j.Step, Queue: j.Queue, Group: j.Group, Tag: j.Tag,
		State: j.State, Wait: j.Wait, Reason: j.Reason, Priority: j.Priority, Slots: j.Slots, Memory: j.Memory,
		OneHost: j.OneHost, Hosts: j.Hosts, Asked: j.Asked, Pinned: j.Pinned, Shares: j.Shares, PinEnds: timeOf(j.PinEnds), Planned: j.Planned, Keeps: j.Keeps,
		Submitted: timeOf(j.Submitted), Started: timeOf(j.Started), Ended: timeOf(j.Ended), RunLimit: j.RunLimit, RanFor: j.RanFor,
		BeginTime: timeOf(j.BeginTime), HeldUntil: timeOf(j.HeldUntil), Requeues: j.Requeues, Awaited: j.Awaited, FailedSaves: j.FailedSaves, Mark: j.Mark, DummyFor: j.DummyFor, ExitCode: j.ExitCode,
		Unserved: j.Unserved, MinHosts: j.MinHosts, MaxHosts: j.MaxHosts, PerHost: j.PerHost, Unit: j.Unit, Needs: j.Needs,
		Component: j.Component, HostNumber: j.HostNumber, ArrayLimit: j.ArrayLimit, Considered: timeOf(j.Considered),
		NoRequeue: j.NoRequeue, Interactive: j.Interactive, Exclusive: j.Exclusive, Ending: j.Ending, Lost: j.Lost, Resuming: j.Resuming, Progress: j.Progress,
	}
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds).UTC()
}
