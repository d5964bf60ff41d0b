package miniq

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Why a run ended is in the history of its job, among lines that say something else.
func TestRunsAreExplained(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	line := func(minute, run int, event, detail string) backends.HistoryLine {
		return backends.HistoryLine{At: at.Add(time.Duration(minute) * time.Minute), Run: run, Event: event, Detail: detail}
	}
	type lines = []backends.HistoryLine
	for name, c := range map[string]struct {
		state   backends.State
		reason  string
		why     string // of the first run, by its keeper
		history lines
		want    [2]string // the second run is alive: ""
	}{
		"requeued by a user": {backends.Running, "", "", lines{line(1, 0, "requeue", "by amy"), line(2, 1, "run ended", "exit status 137")}, [2]string{"requeued by amy"}},
		"by the engine": {
			backends.Running, "", "",
			lines{line(1, 0, "requeue", "by root until 2026-11-20T13:00:00Z r7"), line(1, 1, "notice", "requeued for chipA by pba"), line(2, 1, "run ended", "")},
			[2]string{"requeued for chipA by pba"},
		},
		"asked to save itself": {
			backends.Running, "", "",
			lines{line(1, 1, "notice", "requeued for chipA by pba"), line(1, 0, "requeue", "by root r7 asked to save its work: SIGUSR1:10s"), line(2, 0, "notice", "its checkpoint was made: the next run can go on from there")},
			[2]string{"requeued for chipA by pba; its checkpoint was made: the next run can go on from there"},
		},
		"suspended before, then requeued": {
			backends.Running, "", "",
			lines{line(1, 0, "suspend", "by root r6"), line(1, 1, "notice", "suspended for chipB by pba"), line(2, 0, "requeue", "by amy")},
			[2]string{"requeued by amy"},
		},
		"put back after it had failed": {backends.Running, "", "", lines{line(2, 1, "run ended", "exit status 1"), line(3, 0, "requeue", "by amy")}, [2]string{"exit 0; put back into the queue by amy"}},
		"its keeper was lost":          {backends.Running, "", "exit unknown: gone", lines{line(1, 1, "lost", "gone")}, [2]string{"exit unknown: gone"}},
	} {
		history := append(lines{line(0, 0, "submitted", "by amy"), line(0, 1, "start", "on n1 (1)")}, c.history...)
		history = append(history, line(5, 2, "start", "on n1 (1)"), line(6, 0, "requeue", "by zoe"))
		r := backends.Record{Runs: []backends.RunRecord{{Run: 1, Ended: at.Add(2 * time.Minute), Why: c.why}, {Run: 2}}, History: history}
		explainRuns(&backends.Job{State: c.state, Reason: c.reason}, &r)
		if got := [2]string{r.Runs[0].Why, r.Runs[1].Why}; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		state   backends.State
		reason  string
		history lines
		want    string
	}{
		"killed":                  {backends.Exited, "killed", lines{line(1, 0, "kill", "by amy"), line(1, 1, "notice", "killed by amy")}, "killed by amy"},
		"over its run limit":      {backends.Exited, "killed", lines{line(1, 1, "notice", "killed: over its run limit of 1m0s")}, "killed: over its run limit of 1m0s"},
		"not found":               {backends.Exited, "run x: no such file", nil, "run x: no such file"},
		"done before the requeue": {backends.Done, "", lines{line(1, 0, "requeue", "by amy")}, ""},
	} {
		r := backends.Record{Runs: []backends.RunRecord{{Run: 1, Ended: at.Add(2 * time.Minute)}}, History: append(lines{line(0, 1, "start", "on n1 (1)")}, c.history...)}
		explainRuns(&backends.Job{State: c.state, Reason: c.reason}, &r)
		if got := r.Runs[0].Why; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
