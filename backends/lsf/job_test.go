package lsf

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/allotment-hpc/allotment/backends"
)

// What LSF lists of a job, and what is remembered of it, make what is shown.
func TestJobs(t *testing.T) {
	submitted, run, now := noon.Add(-time.Hour), noon.Add(-10*time.Minute), noon
	at := func(state backends.State, change func(*listedJob)) *listedJob {
		j := &listedJob{Job: backends.Job{ID: backends.ID{Job: 12}, State: state, Submitted: submitted, Queue: "normal", Priority: backends.At(backends.LevelNormal, 20)}}
		switch state {
		case backends.Running, backends.Suspended:
			j.Started = run
		case backends.Done, backends.Exited:
			j.Started, j.Ended, j.ExitCode = run, now.Add(-time.Second), 130
		case backends.Pending, backends.Held:
			j.Wait = backends.WaitResources
		}
		if change != nil {
			change(j)
		}
		return j
	}
	requeued := entry{Submitted: submitted, Mark: "r1", Until: now.Add(time.Minute), Requeues: 1, Run: run, Acted: now.Add(-2 * time.Second), Requeuing: true, Returns: true}
	for name, x := range map[string]struct {
		listed *listedJob
		entry  entry
		want   func(*backends.Job)
	}{
		"nothing is remembered":     {at(backends.Running, nil), entry{}, func(*backends.Job) {}},
		"another job of its number": {at(backends.Running, nil), entry{Submitted: submitted.Add(-time.Hour), Mark: "r1", Requeues: 3}, func(*backends.Job) {}},
		"a vague job": {
			at(backends.Running, func(j *listedJob) { j.vague, j.Submitted = true, submitted.Truncate(time.Minute) }),
			entry{Submitted: submitted.Truncate(time.Minute).Add(7 * time.Second), Mark: "r1", Requeues: 3},
			func(j *backends.Job) { j.Submitted, j.Mark, j.Requeues = submitted.Truncate(time.Minute), "r1", 3 },
		},
		"told to go, and still there": {at(backends.Running, nil), requeued, func(j *backends.Job) { j.Mark, j.Requeues, j.Ending, j.HeldUntil = "r1", 1, true, requeued.Until }},
		"in the gap": {at(backends.Exited, nil), requeued, func(j *backends.Job) {
			j.Mark, j.Requeues, j.Ending, j.HeldUntil = "r1", 1, true, requeued.Until
			j.State, j.Ended, j.ExitCode = backends.Running, time.Time{}, 0
		}},
		"killed in the gap": {
			at(backends.Exited, func(j *listedJob) { j.Ended = now.Add(-time.Minute) }), func() entry { e := requeued; e.Acted = now.Add(-time.Minute); return e }(),
			func(j *backends.Job) { j.Mark, j.Requeues, j.Lost = "r1", 1, true },
		},
		"never told to go": {at(backends.Running, nil), func() entry { e := requeued; e.Acted = now.Add(-time.Minute); return e }(), func(j *backends.Job) { j.Mark, j.Requeues = "r1", 1 }},
		"back, and held by us": {at(backends.Held, nil), requeued, func(j *backends.Job) {
			j.Mark, j.Requeues, j.HeldUntil, j.State, j.Wait = "r1", 2, requeued.Until, backends.Pending, backends.WaitTime
		}},
		"back, and running": {at(backends.Running, func(j *listedJob) { j.Started = now }), requeued, func(j *backends.Job) { j.Mark, j.Requeues = "r1", 2 }},
		"held by its owner": {at(backends.Held, nil), entry{Submitted: submitted, Mark: "r1"}, func(j *backends.Job) { j.Mark = "r1" }},
		"a release that was not heard": {
			at(backends.Pending, func(j *listedJob) { j.BeginTime = now.Add(time.Hour) }),
			entry{Submitted: submitted, Ours: now.Add(time.Hour), Begin: now.Add(time.Minute)},
			func(j *backends.Job) {
				j.HeldUntil, j.BeginTime, j.Wait = now.Add(time.Hour), now.Add(time.Minute), backends.WaitTime
			},
		},
		"held by the engine": {
			at(backends.Pending, func(j *listedJob) { j.BeginTime = now.Add(time.Hour) }),
			entry{Submitted: submitted, Until: now.Add(time.Hour), Ours: now.Add(time.Hour), Begin: now.Add(time.Minute)},
			func(j *backends.Job) {
				j.HeldUntil, j.BeginTime, j.Wait = now.Add(time.Hour), now.Add(time.Minute), backends.WaitTime
			},
		},
		"its owner's begin time": {
			at(backends.Pending, func(j *listedJob) { j.BeginTime = now.Add(2 * time.Hour) }),
			entry{Submitted: submitted, Until: now.Add(time.Hour), Ours: now.Add(time.Hour)},
			func(j *backends.Job) { j.HeldUntil, j.Wait = now.Add(time.Hour), backends.WaitTime },
		},
		"a hold that is over": {at(backends.Pending, nil), entry{Submitted: submitted, Until: now, Ours: now}, func(*backends.Job) {}},
		"pinned": {
			at(backends.Pending, func(j *listedJob) { j.Asked = []string{"h2", "h1"} }),
			entry{Submitted: submitted, Pinned: []string{"h1", "h2"}, Asked: []string{"h3"}},
			func(j *backends.Job) { j.Pinned, j.Asked = []string{"h1", "h2"}, []string{"h3"} },
		},
		"its owner moved the pin": {at(backends.Pending, func(j *listedJob) { j.Asked = []string{"h4"} }), entry{Submitted: submitted, Pinned: []string{"h1"}, Asked: []string{"h3"}}, func(*backends.Job) {}},
		"suspended": {
			at(backends.Suspended, nil),
			entry{Submitted: submitted, Run: run, Suspended: true, Until: now.Add(time.Hour), Ran: time.Minute},
			func(j *backends.Job) { j.HeldUntil, j.RanFor = now.Add(time.Hour), time.Minute },
		},
		"resuming": {
			at(backends.Suspended, nil),
			entry{Submitted: submitted, Run: run, Suspended: true, Resuming: true, Resumed: run.Add(time.Minute)},
			func(j *backends.Job) { j.Resuming, j.Started = true, run.Add(time.Minute) },
		},
		"resumed": {
			at(backends.Running, nil),
			entry{Submitted: submitted, Run: run, Resumed: now.Add(-time.Second), Ran: time.Minute},
			func(j *backends.Job) { j.Started, j.RanFor = now.Add(-time.Second), time.Minute },
		},
		"ranked":                   {at(backends.Pending, func(j *listedJob) { j.priority = 92 }), entry{Submitted: submitted, Ranked: true, Number: 92, Rank: backends.At(backends.LevelHandOver, 243)}, func(j *backends.Job) { j.Priority = backends.At(backends.LevelHandOver, 243) }},
		"ranked by others":         {at(backends.Pending, func(j *listedJob) { j.priority = 60 }), entry{Submitted: submitted, Ranked: true, Number: 92, Rank: backends.At(backends.LevelHandOver, 243)}, func(j *backends.Job) { j.Priority = backends.At(backends.LevelVictim, 250) }},
		"ranked by an older scale": {at(backends.Pending, func(j *listedJob) { j.priority = 82 }), entry{Submitted: submitted, Ranked: true, Number: 82, Rank: backends.At(backends.LevelPBA, 140)}, func(j *backends.Job) { j.Priority = backends.At(backends.LevelPBA, 155) }},
		"raised after suspension":  {at(backends.Pending, func(j *listedJob) { j.priority = 100 }), entry{Submitted: submitted, Ranked: true, Rank: backends.At(backends.LevelVictim, 30)}, func(j *backends.Job) { j.Priority = backends.At(backends.LevelHandOver, 297) }},
		"in the low queue":         {at(backends.Pending, func(j *listedJob) { j.Queue = "low" }), entry{}, func(j *backends.Job) { j.Priority = backends.At(backends.LevelLow, 20) }},
		"not to be requeued":       {at(backends.Running, func(j *listedJob) { j.Tag = "allotment:1;norequeue=1;" }), entry{}, func(j *backends.Job) { j.NoRequeue = true }},
	} {
		want := x.listed.Job
		x.want(&want)
		p := &snapshot{at: now, scale: newScale(params{maxPriority: 100})}
		if d := cmp.Diff(want, newJob(x.listed, x.entry, p, "low").Job, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}
