package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// R33: what a job that was asked to save itself is shown as, and counted as, by the state in
// which Slurm has it. Its record was written before the signal, when one checkpoint had failed.
func TestAskedToSave(t *testing.T) {
	at := time.Unix(1795307972, 0).UTC()
	asked := record{mark: "r3", run: 2, until: at.Add(time.Hour), started: at.Add(-time.Hour), delayed: true, save: at.Add(time.Minute), failed: 1}
	const exit3 = "768"
	for name, test := range map[string]struct {
		state    string
		requeues int
		status   string
		want     backends.State
		failed   int
		ending   bool
		returns  bool
	}{
		"it saves itself":           {state: "R", requeues: 1, status: "0", want: backends.Running, failed: 1, ending: true},
		"it leaves its hosts":       {state: "CG", requeues: 1, status: "21760", want: backends.Running, failed: 1, ending: true},
		"saved":                     {state: "F", requeues: 1, status: "21760", want: backends.Pending, returns: true},
		"saved (24.11)":             {state: "F", requeues: 1, status: "85:0", want: backends.Pending, returns: true},
		"saved, and killed too":     {state: "F", requeues: 1, status: "85:9", want: backends.Pending, failed: 2, returns: true},
		"finished":                  {state: "CD", requeues: 1, status: "0", want: backends.Done},
		"failed":                    {state: "F", requeues: 1, status: exit3, want: backends.Pending, failed: 2, returns: true},
		"dead of the signal":        {state: "F", requeues: 1, status: "10", want: backends.Pending, failed: 2, returns: true},
		"its host went down":        {state: "NF", requeues: 1, status: "0", want: backends.Pending, failed: 2, returns: true},
		"cancelled":                 {state: "CA", requeues: 1, status: "15", want: backends.Exited},
		"at its time limit":         {state: "TO", requeues: 1, status: "15", want: backends.Exited},
		"saved and requeued":        {state: "PD", requeues: 2, status: "21760", want: backends.Pending},
		"failed and requeued":       {state: "PD", requeues: 2, status: exit3, want: backends.Pending, failed: 2},
		"killed and requeued":       {state: "PD", requeues: 2, status: "15", want: backends.Pending, failed: 2},
		"in its next run":           {state: "R", requeues: 2, status: "0", want: backends.Running, failed: 2},
		"its next run failed, too":  {state: "F", requeues: 2, status: exit3, want: backends.Exited},
		"its next run exited so":    {state: "F", requeues: 2, status: "21760", want: backends.Exited},
		"suspended meanwhile":       {state: "S", requeues: 1, status: "0", want: backends.Suspended, failed: 1},
		"requeued, leaves its host": {state: "CG", requeues: 2, status: "15", want: backends.Running, failed: 2, ending: true},
	} {
		t.Run(name, func(t *testing.T) {
			j := listedJob{factor: least}
			j.ID, j.Requeues = backends.ID{Job: 7}, test.requeues
			status, err := parseStatus(test.status)
			if err != nil {
				t.Fatal(err)
			}
			j.state, j.exited = test.state, exitCode(test.state, status)
			if err := j.parseState(test.state, "None", &cluster{at: at}); err != nil {
				t.Fatal(err)
			}
			Open(Options{}).addDetail(&j, detail{comment: asked.comment("allotment:1;", "")}, at)
			if j.State != test.want || j.FailedSaves != test.failed || j.Ending != test.ending || j.returning != test.returns || j.Lost {
				t.Errorf("%+v, returning %v", j.Job, j.returning)
			}
			if acted := !test.want.Ended() || test.requeues == 1; acted != (j.Mark == "r3") {
				t.Errorf("mark %q", j.Mark)
			}
			if test.returns && (j.Requeues != 2 || j.Wait != backends.WaitTime || j.Eligible() || !j.HeldUntil.Equal(asked.until) || !j.Started.IsZero() || len(j.Hosts) > 0) {
				t.Errorf("%+v, want it as after a requeue", j.Job)
			}
			if j.late(asked.save.Add(time.Second)) != (test.state == "R" && test.requeues == 1) || j.late(asked.save) {
				t.Error("late")
			}
		})
	}
}

// What became of a checkpoint is written down once, with what the next run looks for.
func TestSettledSave(t *testing.T) {
	for status, want := range map[int]record{85: {run: 2, saved: 2}, 3: {run: 2, failed: 2}} {
		j := listedJob{Job: backends.Job{State: backends.Pending, Requeues: 2}, exited: status, record: record{run: 2, save: time.Unix(5, 0), failed: 1}}
		for range 2 {
			if j.settleSave(); j.record.failed != want.failed || j.record.saved != want.saved || !j.record.save.IsZero() || j.failedSaves() != want.failed {
				t.Errorf("after status %d: %+v", status, j.record)
			}
		}
		if text := j.recordChange(); strings.Contains(text, ";saved=2;") != (status == backends.ExitSaved) || !strings.Contains(restarted, keySaved+"=$SLURM_RESTART_COUNT;") {
			t.Errorf("the next run looks in %q by %q", text, restarted)
		}
	}
}

// A record that slurmctld has lost is known to the process that wrote it, of that run only.
func TestRecordThatSlurmctldLost(t *testing.T) {
	at := time.Unix(1795307972, 0).UTC()
	c := Open(Options{})
	asked := record{mark: "r3", run: 1, save: at.Add(time.Minute), delayed: true}
	c.saves[run{backends.ID{Job: 7}, at}] = asked
	j := listedJob{Job: backends.Job{ID: backends.ID{Job: 7}, State: backends.Running}, start: at, state: "R"}
	if c.addDetail(&j, detail{comment: "allotment:1;step=x;"}, at); j.Mark != "r3" || !j.forgotten || j.recordChange() != "AdminComment=allotment:1;step=x;"+asked.String() {
		t.Errorf("%+v", j)
	}
	j = listedJob{Job: backends.Job{ID: backends.ID{Job: 7}, State: backends.Running}, start: at.Add(time.Hour), state: "R"}
	if c.addDetail(&j, detail{}, at); j.Mark != "" || j.forgotten {
		t.Errorf("another run: %+v", j)
	}
}

// A job that Slurm did not requeue is lost.
func TestSavedJobThatIsNotRequeued(t *testing.T) {
	at := time.Unix(1795307972, 0).UTC()
	c := Open(Options{})
	c.refused[run{backends.ID{Job: 7}, at}] = true
	asked := record{mark: "r3", run: 1, save: at.Add(time.Minute), delayed: true}
	j := listedJob{Job: backends.Job{ID: backends.ID{Job: 7}, State: backends.Exited, ExitCode: backends.ExitSaved}, start: at, state: "F", exited: backends.ExitSaved}
	if c.addDetail(&j, detail{comment: asked.comment("", "")}, at); !j.Lost || j.State != backends.Exited || j.Mark != "r3" || j.returning {
		t.Errorf("%+v", j.Job)
	}
}

// Only jobs that may have been asked to save themselves are looked up after their end.
func TestEndedJobsThatAreLookedUp(t *testing.T) {
	for name, test := range map[string]struct {
		level backends.Level
		state string
		want  bool
	}{
		"a victim":          {backends.LevelVictim, "F", true},
		"one that finished": {backends.LevelVictim, "CD", true},
		"another job":       {backends.LevelNormal, "F", false},
	} {
		j := listedJob{Job: backends.Job{State: backends.Exited, Priority: backends.At(test.level, 20)}, state: test.state}
		if got := j.touched(time.Now()); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// No user's text is in a dependency, and what is not understood names no job.
func TestDependencies(t *testing.T) {
	for text, want := range map[string]string{
		"": "[] false", "(null)": "[] false", "afterok:12(unfulfilled)": "[12] false", "afterok:12_*(unfulfilled),afterany:13_4(failed)": "[12 13] false",
		"afternotok:7(unfulfilled)?aftercorr:8_*(unfulfilled)": "[7 8] false", "after:12+5(unfulfilled)": "[] false", "singleton(unfulfilled)": "[] true",
		"afterburstbuffer:9(unfulfilled),singleton(unfulfilled)": "[9] true", "afterok": "[] false", ",?:": "[] false",
	} {
		numbers, named := parseDependency(text)
		if got := fmt.Sprint(numbers, named); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	for list, want := range map[string]bool{"": false, "(null)": false, "85": true, "1,80-90,3": true, "1,86-90": false, "850": false, "85-": false, "-85": false} {
		if got := parseRequeueExit(list, 85); got != want {
			t.Errorf("RequeueExit %q: %v", list, got)
		}
	}
}

// Only a user's own jobs make a job one that is not asked.
func TestAwaited(t *testing.T) {
	d := dependents{{"alice", "12"}: true, {"alice", "=night"}: true}
	for name, test := range map[string]struct {
		user, name string
		id         int64
		want       bool
	}{
		"by its number":  {"alice", "x", 12, true},
		"by its name":    {"alice", "night", 13, true},
		"another job":    {"alice", "x", 13, false},
		"another user's": {"bob", "night", 12, false},
		"a strange name": {"alice", "=night", 13, false},
	} {
		if got := d.await(&listedJob{Job: backends.Job{ID: backends.ID{Job: test.id, Index: 3}, User: test.user, Name: test.name}}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The script of a job asks for its record only in a run after a requeue.
func TestRestartedIsAskedFor(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/scontrol", "#!/bin/sh\necho \"$3\" >>"+dir+"/asked\necho ' AdminComment=allotment:1;engine:1;run=2;failed=1;saved=2;'\n")
	for name, test := range map[string]struct {
		env  []string
		want string
	}{
		"the first run":      {[]string{"SLURM_JOB_ID=60"}, "unset"},
		"a saved one":        {[]string{"SLURM_JOB_ID=60", "SLURM_RESTART_COUNT=2"}, "1 60"},
		"another one":        {[]string{"SLURM_JOB_ID=60", "SLURM_RESTART_COUNT=3"}, "unset 60"},
		"an array's element": {[]string{"SLURM_JOB_ID=60", "SLURM_ARRAY_JOB_ID=60", "SLURM_ARRAY_TASK_ID=0", "SLURM_RESTART_COUNT=2"}, "1 60_0"},
		"inherited":          {[]string{"SLURM_JOB_ID=60", "ALLOTMENT_RESTARTED=1"}, "unset"},
	} {
		for _, shell := range []string{"sh", "bash -eu"} {
			writeFile(t, dir+"/asked", "")
			got := runShell(t, shell, dir, exports+`echo ${ALLOTMENT_RESTARTED-unset} $(cat `+dir+`/asked)`, append(test.env, "SLURM_JOB_PARTITION=main"))
			if got != test.want {
				t.Errorf("%s, %s: %q, want %q", name, shell, got, test.want)
			}
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// runShell runs a script with programs of a directory, and returns its output.
func runShell(t *testing.T, shell, dir, script string, env []string) string {
	t.Helper()
	argv := strings.Fields(shell)
	cmd := exec.Command(argv[0], append(argv[1:], "-c", script)...)
	cmd.Env = append([]string{"PATH=" + dir + ":/usr/bin:/bin"}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}
