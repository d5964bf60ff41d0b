package backends_test

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// What is said of a job's runs: how long it waited, what was lost, when it ended last.
func TestPast(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 20, 12, minute, 0, 0, time.UTC) }
	run := func(from, to int, why string) backends.RunRecord {
		r := backends.RunRecord{Started: at(from), Why: why}
		if to > 0 {
			r.Ended = at(to)
		}
		return r
	}
	ended := backends.Job{State: backends.Done, Submitted: at(0), Started: at(20), Ended: at(30)}
	for name, c := range map[string]struct {
		job          backends.Job
		runs         []backends.RunRecord
		unread       bool
		waited, lost time.Duration
		last         time.Time
	}{
		"one run":                   {job: ended, runs: []backends.RunRecord{run(20, 30, "")}, waited: 20 * time.Minute, last: at(30)},
		"requeued":                  {job: ended, runs: []backends.RunRecord{run(2, 10, "requeued"), run(20, 30, "")}, waited: 12 * time.Minute, lost: 8 * time.Minute, last: at(30)},
		"requeued, saved":           {job: ended, runs: []backends.RunRecord{run(2, 10, "requeued; its checkpoint was made"), run(20, 30, "")}, waited: 12 * time.Minute, last: at(30)},
		"waits again":               {job: backends.Job{State: backends.Pending, Submitted: at(0), Started: at(2)}, runs: []backends.RunRecord{run(2, 10, "requeued")}, waited: 32 * time.Minute, lost: 8 * time.Minute, last: at(10)},
		"runs again":                {job: backends.Job{State: backends.Running, Submitted: at(0), Started: at(15)}, runs: []backends.RunRecord{run(2, 10, "requeued"), run(15, 0, "")}, waited: 7 * time.Minute, lost: 8 * time.Minute, last: at(10)},
		"killed before it started":  {job: backends.Job{State: backends.Exited, Submitted: at(0), Ended: at(9)}, waited: 9 * time.Minute, last: at(9)},
		"another user's":            {job: ended, unread: true, waited: 20 * time.Minute, last: at(30)},
		"another user's, and waits": {job: backends.Job{State: backends.Pending, Submitted: at(0), Started: at(2)}, unread: true, waited: 40 * time.Minute},
		"a clock that was put back": {job: ended, runs: []backends.RunRecord{run(20, 10, "requeued"), run(5, 30, "")}, waited: 20 * time.Minute, last: at(30)},
	} {
		p := backends.Past{Job: c.job, Record: &backends.Record{Runs: c.runs}}
		if c.unread {
			p.Record = nil
		}
		if waited, lost, last := p.Waited(at(40)), p.Lost(), p.LastEnd(); waited != c.waited || lost != c.lost || !last.Equal(c.last) {
			t.Errorf("%s: waited %v, lost %v, ended %v; want %v, %v, %v", name, waited, lost, last, c.waited, c.lost, c.last)
		}
	}
}

func TestNewest(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	job := func(id int64, ended int) backends.Past {
		return backends.Past{Job: backends.Job{ID: backends.ID{Job: id}, State: backends.Done, Ended: at.Add(time.Duration(ended) * time.Second)}}
	}
	got := backends.Newest([]backends.Past{job(4, 3), job(3, 1), job(2, 1), job(1, 2)}, 3)
	var ids []int64
	for _, p := range got.Jobs {
		ids = append(ids, p.Job.ID.Job)
	}
	if len(ids) != 3 || ids[0] != 3 || ids[1] != 1 || ids[2] != 4 || got.Older != 1 {
		t.Errorf("the last 3 are %v, %d older ones; want 3 1 4 and 1", ids, got.Older)
	}
	q := backends.PastQuery{User: "bob", Keep: func(j *backends.Job) bool { return j.Queue == "low" }}
	for want, j := range map[bool]backends.Job{true: {User: "bob", Queue: "low"}, false: {User: "amy", Queue: "low"}} {
		if q.Wants(&j) != want {
			t.Errorf("%+v is wanted: %v", j, !want)
		}
	}
	if q.Wants(&backends.Job{User: "bob"}) {
		t.Error("Keep is not asked")
	}
}
