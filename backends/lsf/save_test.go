package lsf

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
)

// Each line of the record, with what LSF shows, has one next step, whichever engine takes it: an
// engine may have died at any of them.
func TestNextSave(t *testing.T) {
	run, now := noon.Add(-time.Hour), noon
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	const wait = 30 * time.Second
	asked := func(s save) entry {
		s.Signal, s.Wait = "USR1", wait
		return entry{Run: run, Acted: ago(time.Minute), Requeuing: true, Save: s}
	}
	down := func(e entry, at time.Time) entry { e.Down = at; return e }
	type shown struct {
		state backends.State
		code  int
		ended time.Time
	}
	running, ended := shown{state: backends.Running}, func(code int) shown { return shown{backends.Exited, code, ago(time.Second)} }
	for name, x := range map[string]struct {
		entry  entry
		listed shown
		want   saveStep
		over   bool // it is not on its way back
	}{
		"recorded, and not asked":                 {asked(save{}), running, saveAsk, false},
		"recorded, and not asked for a long time": {func() entry { e := asked(save{}); e.Acted = ago(24 * time.Hour); return e }(), running, saveAsk, false},
		"asked":                               {asked(save{Sent: ago(wait)}), running, saveNothing, false},
		"asked, and stopped by its owner":     {asked(save{Sent: ago(wait + 4*time.Second)}), shown{state: backends.Suspended}, saveKill, false},
		"out of time":                         {asked(save{Sent: ago(wait + 4*time.Second)}), running, saveKill, false},
		"out of time while its host was down": {down(asked(save{Sent: ago(time.Hour)}), ago(time.Second)), running, saveNothing, false},
		"the clock was put back":              {asked(save{Sent: now.Add(time.Hour)}), running, saveKill, false},
		"saved":                               {asked(save{Sent: ago(wait)}), ended(backends.ExitSaved), savePutBack, false},
		"saved, not known to have been asked": {asked(save{}), ended(backends.ExitSaved), savePutBack, false},
		"saved long ago":                      {asked(save{Sent: ago(time.Hour)}), shown{backends.Exited, backends.ExitSaved, ago(50 * time.Minute)}, savePutBack, false},
		"failed":                              {asked(save{Sent: ago(wait)}), ended(138), savePutBack, false},
		"killed by its owner":                 {asked(save{Sent: ago(wait)}), ended(130), saveNothing, true},
		"finished":                            {asked(save{Sent: ago(wait)}), shown{state: backends.Done, ended: ago(time.Second)}, saveNothing, true},
		"judged, and not put back":            {asked(save{Sent: ago(wait), Judged: ago(10 * time.Second)}), ended(backends.ExitSaved), savePutBack, false},
		"judged an hour ago, and not tried":   {asked(save{Sent: ago(2 * time.Hour), Judged: ago(time.Hour)}), shown{backends.Exited, 85, ago(time.Hour)}, savePutBack, false},
		"killed an hour ago, and not tried":   {asked(save{Sent: ago(2 * time.Hour), Judged: ago(time.Hour), Killed: ago(time.Hour)}), shown{backends.Exited, 130, ago(time.Hour)}, savePutBack, false},
		"refused at first":                    {asked(save{Sent: ago(wait), Judged: ago(time.Hour), Tried: ago(time.Second)}), shown{backends.Exited, 85, ago(time.Hour)}, savePutBack, false},
		"refused for a minute":                {asked(save{Sent: ago(wait), Judged: ago(time.Minute), Tried: ago(time.Minute)}), shown{backends.Exited, 85, ago(time.Minute)}, saveNothing, true},
		"told to go":                          {asked(save{Sent: ago(time.Minute), Judged: ago(time.Second), Killed: ago(time.Second)}), running, saveNothing, false},
		"recorded to be told to go":           {asked(save{Sent: ago(time.Hour), Judged: ago(leaving), Killed: ago(leaving)}), running, saveKill, false},
		"in the gap":                          {asked(save{Sent: ago(time.Minute), Judged: ago(3 * time.Second), Killed: ago(3 * time.Second)}), ended(130), saveNothing, false},
		"ended instead of being requeued":     {asked(save{Sent: ago(time.Hour), Judged: ago(gap), Killed: ago(gap)}), shown{backends.Exited, 130, ago(gap)}, savePutBack, false},
	} {
		j := &job{listed: &listedJob{Job: backends.Job{State: x.listed.state, ExitCode: x.listed.code, Started: run, Ended: x.listed.ended}}, entry: x.entry}
		if got := j.nextSave(now); got != x.want || j.saveUnderway(now) == x.over {
			t.Errorf("%s: step %d, on its way back %v; want %d, %v", name, got, j.saveUnderway(now), x.want, !x.over)
		}
	}
}

// What a job that was asked to save itself is shown as: lost only if it did not end for good.
func TestSavingJobIsShown(t *testing.T) {
	run, now := noon.Add(-time.Hour), noon
	for name, x := range map[string]struct {
		state backends.State
		code  int
		tried time.Time
		want  func(*backends.Job) bool
	}{
		"saves itself": {backends.Running, 0, time.Time{}, func(j *backends.Job) bool { return j.State == backends.Running && j.Ending }},
		"has saved":    {backends.Exited, backends.ExitSaved, time.Time{}, func(j *backends.Job) bool { return j.State == backends.Running && j.Ending && j.Ended.IsZero() }},
		"is refused":   {backends.Exited, backends.ExitSaved, now.Add(-2 * repairPeriod), func(j *backends.Job) bool { return j.State == backends.Exited && j.Lost }},
		"finished":     {backends.Done, 0, time.Time{}, func(j *backends.Job) bool { return j.State == backends.Done && !j.Lost }},
		"was killed":   {backends.Exited, 130, time.Time{}, func(j *backends.Job) bool { return j.State == backends.Exited && !j.Lost }},
	} {
		listed := &listedJob{Job: backends.Job{State: x.state, ExitCode: x.code, Started: run}}
		if x.state.Ended() {
			listed.Ended = now.Add(-2 * repairPeriod)
		}
		e := entry{Mark: "r1", Run: run, Acted: now.Add(-time.Second), Requeuing: true, FailedSaves: 1, Save: save{Signal: "USR1", Sent: now.Add(-time.Second), Judged: x.tried, Tried: x.tried}}
		if j := newJob(listed, e, &snapshot{at: now, scale: newScale(params{maxPriority: 100})}, "low"); !x.want(&j.Job) || j.FailedSaves != 1 || j.Mark != "r1" {
			t.Errorf("%s: %+v", name, j.Job)
		}
	}
}

// A signal that would end LSF's own shell is never sent: the job counts as one that can't
// save itself.
func TestSignalsThatLSFCantDeliver(t *testing.T) {
	for signal, sent := range map[string]string{"SIGUSR1": "USR1", "SIGTERM": "TERM", "SIGWINCH": "WINCH", "SIGALRM": "", "SIGQUIT": "", "": ""} {
		saves := backends.Checkpoint{Signal: signal, Wait: time.Second}
		if got := saveOf(&backends.Act{Save: saves}, &backends.Job{}); got.Signal != sent {
			t.Errorf("%s: it is asked by %q, want %q", signal, got.Signal, sent)
		}
		if signal == "" {
			continue
		}
		listed := &listedJob{Job: backends.Job{State: backends.Running, Tag: backends.Tag{Checkpoint: saves}.String()}}
		j := newJob(listed, entry{}, &snapshot{at: noon, scale: newScale(params{maxPriority: 100})}, "")
		if (j.FailedSaves >= backends.MaxFailedSaves) != (sent == "") {
			t.Errorf("%s: %d failed checkpoints", signal, j.FailedSaves)
		}
	}
}

func TestJudgeOnce(t *testing.T) {
	e := entry{FailedSaves: 1}
	e.judge(noon, false)
	e.judge(noon.Add(time.Second), false)
	if e.FailedSaves != 2 || !e.Save.Judged.Equal(noon) {
		t.Errorf("%+v", e)
	}
	e.Save = save{}
	if e.judge(noon, true); e.FailedSaves != 0 {
		t.Errorf("%+v", e)
	}
	if (entry{FailedSaves: 1}).empty() {
		t.Error("a failed checkpoint is forgotten")
	}
}

func TestRequeueValues(t *testing.T) {
	text := "\nQUEUE: normal\n  -- REQUEUE_EXIT_VALUES:  85\nHOSTS:  all\nREQUEUE_EXIT_VALUES:  30 EXCLUDE(20 85)\n\nQUEUE: night\nREQUEUE_EXIT_VALUES:  all ~1 ~2\nQUEUE: low\nHOSTS:  all\n"
	want := map[string]exitValues{"normal": {exact: []int{30, 20, 85}}, "night": {all: true, but: []int{1, 2}}}
	got := parseRequeueValues([]byte(text))
	if d := cmp.Diff(want, got, cmp.AllowUnexported(exitValues{})); d != "" {
		t.Error(d)
	}
	for queue, x := range map[string]struct{ listed, has bool }{"normal": {true, true}, "night": {false, true}, "low": {}} {
		if v := got[queue]; v.listed(backends.ExitSaved) != x.listed || v.has(backends.ExitSaved) != x.has {
			t.Errorf("%s: %+v", queue, v)
		}
	}
	if v := got["night"]; v.has(2) || v.has(0) {
		t.Errorf("%+v", v)
	}
}
