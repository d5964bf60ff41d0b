package main

import (
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

// jobJSON is a job as --json prints it. Times are UTC.
type jobJSON struct {
	ID          backends.ID          `json:"id"`
	Name        string               `json:"name"`
	User        string               `json:"user"`
	Project     string               `json:"project"`
	Step        string               `json:"step"`
	Queue       string               `json:"queue"`
	Group       string               `json:"group,omitempty"` // job group
	State       backends.State       `json:"state"`
	Class       string               `json:"class,omitempty"` // pba, dummy; else only the ledger knows it
	DummyFor    *backends.ID         `json:"dummy_for,omitempty"`
	Priority    int                  `json:"priority"`
	Level       string               `json:"level"`
	Slots       int                  `json:"slots"`
	Memory      int64                `json:"memory_bytes"`
	Needs       []backends.Amount    `json:"needs,omitempty"`          // of each host
	Suits       []string             `json:"suitable_hosts,omitempty"` // absent: any
	Hosts       []backends.Placement `json:"hosts"`
	Submitted   time.Time            `json:"submitted"`
	Started     *time.Time           `json:"started,omitempty"`
	Finished    *time.Time           `json:"finished,omitempty"`
	ExitCode    *int                 `json:"exit_code,omitempty"`
	Requeues    int                  `json:"requeues"`
	FailedSaves int                  `json:"failed_checkpoints,omitempty"` // in a row
	PreemptMode string               `json:"preempt_mode"`
	Reason      string               `json:"reason,omitempty"`
	Progress    string               `json:"progress,omitempty"` // percent, then the job's own text
}

func jobsJSON(jobs []backends.Job) []jobJSON {
	all := make([]jobJSON, len(jobs))
	for i := range jobs {
		all[i] = newJobJSON(&jobs[i])
	}
	return all
}

func newJobJSON(j *backends.Job) jobJSON {
	tag, _, _ := backends.ParseTag(j.Tag) // of a broken tag nothing is used
	out := jobJSON{
		ID: j.ID, Name: j.Name, User: j.User, Project: j.Project, Step: j.Step, Queue: j.Queue, Group: j.Group, State: j.State,
		Priority: j.Priority.Value(), Level: j.Priority.Level().String(), Slots: j.Slots, Memory: j.Memory, Hosts: j.Hosts,
		Needs: j.Needs, Submitted: j.Submitted.UTC(), Started: timeOrNil(j.Started), Finished: timeOrNil(j.Ended),
		Requeues: j.Requeues, FailedSaves: j.FailedSaves, PreemptMode: tag.Preempt.String(), Reason: j.Reason, Progress: j.Progress,
	}
	if j.Suits != nil {
		out.Suits = j.Suits.Hosts
	}
	switch {
	case j.IsDummy():
		out.Class, out.DummyFor = "dummy", &j.DummyFor
	case j.Priority.Level() >= backends.LevelPBA:
		out.Class = "pba"
	}
	if out.Hosts == nil {
		out.Hosts = []backends.Placement{}
	}
	if j.State.Ended() {
		out.ExitCode = &j.ExitCode
	}
	return out
}

// detailJSON is a job as -l --json prints it.
type detailJSON struct {
	jobJSON
	Command     []string               `json:"command"`
	Script      string                 `json:"script,omitempty"`
	Description string                 `json:"description"` // the filter's tag included
	Dir         string                 `json:"dir"`
	Stdin       string                 `json:"stdin,omitempty"`
	Stdout      string                 `json:"stdout,omitempty"`
	Stderr      string                 `json:"stderr,omitempty"`
	After       string                 `json:"after,omitempty"`
	Asked       []string               `json:"asked_hosts,omitempty"`
	Pinned      []string               `json:"pinned_hosts,omitempty"`
	Begin       *time.Time             `json:"begin,omitempty"`
	HeldUntil   *time.Time             `json:"held_until,omitempty"`
	RunLimit    float64                `json:"run_limit_seconds,omitempty"`
	Runs        []runJSON              `json:"runs"`
	History     []backends.HistoryLine `json:"history"`

	Settings []backends.SettingRecord `json:"settings,omitempty"`
	Files    []backends.FileRecord    `json:"files,omitempty"`
}

// runJSON is one run of a job.
type runJSON struct {
	Run      int        `json:"run"`
	Host     string     `json:"host"`
	Started  time.Time  `json:"started"`
	Finished *time.Time `json:"finished,omitempty"`
	ExitCode *int       `json:"exit_code,omitempty"`
	CPU      float64    `json:"cpu_seconds"`
	Memory   int64      `json:"max_memory_bytes"` // of the largest process
	Why      string     `json:"why,omitempty"`
}

func detailsJSON(jobs []backends.Job, records []*backends.Record) []detailJSON {
	all := make([]detailJSON, len(jobs))
	for i := range jobs {
		j, r := &jobs[i], records[i]
		if r == nil {
			r = &backends.Record{}
		}
		d := detailJSON{
			jobJSON: newJobJSON(j), Command: r.Spec.Command, Script: string(r.Spec.Script), Description: r.Spec.Description,
			Dir: r.Spec.Dir, Stdin: r.Spec.Stdin, Stdout: r.Spec.Stdout, Stderr: r.Spec.Stderr, After: r.Spec.After,
			Asked: j.Asked, Pinned: j.Pinned, Begin: timeOrNil(j.BeginTime), HeldUntil: timeOrNil(j.HeldUntil),
			RunLimit: j.RunLimit.Seconds(), History: r.History, Settings: r.Settings, Files: r.Files,
		}
		d.Runs = runsJSON(r.Runs)
		if d.History == nil {
			d.History = []backends.HistoryLine{}
		}
		all[i] = d
	}
	return all
}

func runsJSON(runs []backends.RunRecord) []runJSON {
	all := []runJSON{} // as JSON: []
	for i := range runs {
		run := &runs[i]
		one := runJSON{
			Run: run.Run, Host: run.Host, Started: run.Started.UTC(), Finished: timeOrNil(run.Ended),
			CPU: (run.User + run.System).Seconds(), Memory: run.MaxRSS, Why: run.Why,
		}
		if !run.Ended.IsZero() {
			one.ExitCode = &run.ExitCode
		}
		all = append(all, one)
	}
	return all
}

// pastJSON is the answer of ahist --json.
type pastJSON struct {
	Jobs   []pastJobJSON   `json:"jobs"`
	Totals bsub.PastTotals `json:"totals"`
}

// pastJobJSON is a job as ahist --json prints it.
type pastJobJSON struct {
	jobJSON
	Ending string    `json:"ending,omitempty"` // why it failed, or was requeued last
	Wait   float64   `json:"wait_seconds"`
	Lost   float64   `json:"lost_seconds"` // of requeued runs without a checkpoint
	Runs   []runJSON `json:"runs"`
}

func newPastJSON(all []backends.Past, now time.Time) pastJSON {
	out := pastJSON{Jobs: []pastJobJSON{}, Totals: bsub.TotalPast(all, now)}
	for i := range all {
		p := &all[i]
		one := pastJobJSON{jobJSON: newJobJSON(&p.Job), Ending: bsub.Ending(p), Wait: p.Waited(now).Seconds(), Lost: p.Lost().Seconds(), Runs: []runJSON{}}
		if p.Record != nil {
			one.Runs = runsJSON(p.Record.Runs)
		}
		out.Jobs = append(out.Jobs, one)
	}
	return out
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// hostJSON is a host as --json prints it.
type hostJSON struct {
	Name      string `json:"name"`
	State     string `json:"state"` // ok closed down
	Slots     int    `json:"slots"`
	Memory    int64  `json:"memory_bytes"`
	Running   int    `json:"running_slots"`
	Suspended int    `json:"suspended_slots"`

	Has      []backends.Amount `json:"resources,omitempty"`
	Features []string          `json:"features,omitempty"`
	Reason   string            `json:"reason,omitempty"` // why it is closed
}

func hostsJSON(hosts []bsub.HostUse) []hostJSON {
	all := make([]hostJSON, len(hosts))
	for i, h := range hosts {
		all[i] = hostJSON{h.Name, h.State.String(), h.Slots, h.Memory, h.Running, h.SystemSuspended + h.UserSuspended, h.Has, h.Features, h.Reason}
	}
	return all
}
