package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
)

func TestActionsDependOnJobState(t *testing.T) {
	for line, want := range map[string]struct {
		did    string
		code   int
		output string
	}{
		"akill 1 2":               {"kill 1, kill 2", 0, "Job <1> is being terminated|Job <2> is being terminated"},
		"akill 8":                 {"", 1, "Job <8>: Job has already finished"},
		"akill 99":                {"", 1, "Job <99>: No matching job found"},
		"akill 5":                 {"kill 5[1], kill 5[2]", 0, "Job <5> is being terminated"},
		"akill 5[1-3]":            {"kill 5[1], kill 5[2]", 1, "Job <5[1]> is being terminated|Job <5[2]> is being terminated|Job <5[3]>: Job has already finished"},
		"akill 5 5[1]":            {"kill 5[1], kill 5[2]", 0, "Job <5> is being terminated|Job <5[1]> is being terminated"},
		"akill 1 1 99":            {"kill 1", 1, "Job <1> is being terminated|Job <99>: No matching job found"},
		"akill 0":                 {"kill 1, kill 2, kill 3, kill 4, kill 5[1], kill 5[2], kill 7", 0, "Job <5> is being terminated"},
		"akill -J arr 0":          {"kill 5[1], kill 5[2]", 0, "Job <5> is being terminated"},
		"akill -m n1 0":           {"kill 1, kill 3, kill 5[1]", 0, "Job <5[1]> is being terminated"},
		"akill -m n1 1":           {"", 2, "akill: the options choose among all jobs"},
		"akill -b 1 2":            {"kill 1, kill 2", 0, "Job <2> is being terminated"},
		"akill -r 1 2 8":          {"kill 2, kill now 1", 1, "Job <1> is being terminated|Job <2> is being terminated|Job <8>: Job has already finished"},
		"akill -r -s 9 1":         {"", 2, "akill: -r and -s exclude each other"},
		"akill -g /x 0":           {"kill 1, kill 7", 0, "Job <1> is being terminated|Job <7> is being terminated"},
		"akill -g /x/y 0":         {"kill 2", 0, "Job <2> is being terminated"},
		"akill -g /x -J urgent 0": {"kill 7", 0, "Job <7> is being terminated"},
		"akill -r -g /x -m n1 0":  {"kill now 1", 0, "Job <1> is being terminated"},
		"akill -g /none 0":        {"", 1, "akill: No matching job found"},
		"akill -g /x -u alice 0":  {"", 1, "akill: No matching job found"},
		"akill -g /x 1":           {"", 2, "akill: the options choose among all jobs"},
		"akill -g x 0":            {"", 2, "akill: option -g: job group \"x\": want a path that begins with /"},
		"akill -g / 0":            {"", 2, "akill: option -g: job group \"/\": want a name after each /"},
		"akill -app solver 0":     {"kill 2", 0, "Job <2> is being terminated"},
		"akill -app solver 2":     {"", 2, "akill: the options choose among all jobs"},
		"arequeue -e 8":           {"reopen 8", 0, "Job <8> is being requeued"},
		"arequeue -d 8":           {"", 1, "Job <8>: Job has failed: -e requeues it"},
		"arequeue -ed 8":          {"reopen 8", 0, "Job <8> is being requeued"},
		"arequeue -e 1 2":         {"", 1, "Job <1>: Job has not ended|Job <2>: Job has not started yet"},
		"arequeue -e 0":           {"reopen 8", 0, "Job <8> is being requeued"},
		"arequeue 99":             {"", 1, "Job <99>: No matching job found\n"},
		"arequeue -e 99":          {"", 1, "Job <99>: No matching job found: a queue keeps jobs that have ended for a while only: submit it again\n"},
		"arequeue -d 5":           {"reopen 5[3]", 0, "Job <5> is being requeued"},
		"arequeue -a 5":           {"requeue 5[1], reopen 5[3]", 0, "Job <5> is being requeued"},
		"arequeue -a 0":           {"requeue 1, requeue 3, requeue 5[1], reopen 8", 0, "Job <5[1]> is being requeued"},
		"akill -J x 0":            {"", 1, "akill: No matching job found"},
		"astop 1 2 3":             {"hold 2, suspend 1", 1, "Job <1> is being stopped|Job <2> is being stopped|Job <3>: Job has already been stopped"},
		"astop 5":                 {"hold 5[2], suspend 5[1]", 0, "Job <5> is being stopped"},
		"astop 0":                 {"hold 2, hold 5[2], hold 7, suspend 1, suspend 5[1]", 0, ""},
		"aresume 3 4 1":           {"resume 3, release 4", 1, "Job <3> is being resumed|Job <4> is being resumed|Job <1>: Job is not stopped"},
		"aresume 0":               {"resume 3, release 4", 0, "Job <3> is being resumed|Job <4> is being resumed"},
		"arequeue 1 3 2":          {"requeue 1, requeue 3", 1, "Job <1> is being requeued|Job <3> is being requeued|Job <2>: Job has not started yet"},
		"arequeue 8":              {"", 1, "Job <8>: Job has already finished"},
		"akill -u all 0":          {"kill 1, kill 2, kill 3, kill 4, kill 5[1], kill 5[2], kill 6, kill 7", 1, ""},
		"akill 6":                 {"kill 6", 1, "Job <6>: User permission denied"},
		"akill":                   {"", 2, "akill: no job named"},
		"akill x 1":               {"", 1, "akill: x: none of your jobs has this name"},
		"akill rnu":               {"", 1, "akill: rnu: none of your jobs has this name (did you mean run?)"},
		"akill 1x":                {"", 2, "akill: 1x: Illegal job ID."},
		"akill run 2":             {"kill 1, kill 2", 0, "Job <1> is being terminated"},
		"akill arr":               {"kill 5[1], kill 5[2]", 0, "Job <5> is being terminated"},
		"akill arr[2]":            {"kill 5[2]", 0, "Job <5[2]> is being terminated"},
		"akill hers":              {"", 1, "akill: hers: none of your jobs"},
		"akill ended":             {"", 1, "Job <8>: Job has already finished"},
		"akill -1":                {"", 2, "akill: -1: Illegal job ID."},
		"akill 0 1":               {"", 2, "akill: 0 means all jobs"},
		"akill -q low 1":          {"", 2, "akill: the options choose among all jobs"},
		"akill -zz 1":             {"", 2, "akill: unknown option"},
		"akill 1 -u all":          {"", 2, "akill: the options choose"},
		"akill 0 -J urg*":         {"kill 7", 0, "Job <7> is being terminated"},
	} {
		q := fake.NewQueue()
		q.Fail[backends.ID{Job: 6}] = fmt.Errorf("kill job 6: %w", backends.ErrDenied)
		q.Extra.Reopen, q.Extra.KillNow = q.Reopen, q.KillNow
		q.Extra.InGroup, q.Extra.OfProfile = fake.InGroup, fake.OfProfile
		for i, group := range map[int]string{0: "/x", 1: "/x/y", 7: "/x"} {
			q.Content.Jobs[i].Group = group
		}
		got := bob(t, q, strings.Fields(line)...)
		if did := strings.Join(q.Calls, ", "); did != want.did || got.code != want.code {
			t.Errorf("%s: did %s, code %d; want %s, code %d; %s", line, did, got.code, want.did, want.code, got.stderr)
		}
		for _, text := range strings.Split(want.output, "|") {
			if !strings.Contains(got.stdout+got.stderr, text) {
				t.Errorf("%s says\n%s%swant\n%s", line, got.stdout, got.stderr, text)
			}
		}
	}
}

// A queue that can't says so.
func TestUnableToAct(t *testing.T) {
	for line, want := range map[string]string{
		"arequeue -e 8":   "Job <8>: requeue a job that has ended: not possible on this queue: submit it again\n",
		"akill -r 1":      "Job <1>: end a job without waiting for it (-r): not possible on this queue: akill without -r ends it; ",
		"akill -g /x 0":   "akill: choose jobs by their job group (-g): not possible on this queue: choose by -J NAME* or -P PROJECT\n",
		"akill -app x 0":  "akill: choose jobs by their application profile (-app): not possible on this queue: choose by -J NAME* or -P PROJECT\n",
		"ajobs -g /x":     "ajobs: choose jobs by their job group (-g): not possible on this queue: choose by -J NAME* or -P PROJECT\n",
		"ajobs -app x -a": "ajobs: choose jobs by their application profile (-app): not possible on this queue: choose by -J NAME* or -P PROJECT\n",
	} {
		q := fake.NewQueue()
		if got := bob(t, q, strings.Fields(line)...); got.code != 1 || got.stdout != "" || !strings.HasPrefix(got.stderr, want) || len(q.Calls) > 0 {
			t.Errorf("%s: %+v, did %v, want %s", line, got, q.Calls, want)
		}
	}
}

func TestKillRacesWithJobEnd(t *testing.T) {
	q := fake.NewQueue()
	q.Fail[backends.ID{Job: 1}] = fmt.Errorf("kill job 1: %w", backends.ErrWrongState)
	q.Fail[backends.ID{Job: 5, Index: 1}] = fmt.Errorf("kill job 5[1]: %w", backends.ErrWrongState)
	got := bob(t, q, "akill", "1", "5")
	want := answer{1, "Job <5> is being terminated\n", "Job <1>: Job has already finished\n"}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Of all jobs, those that end before they are killed are no error, and have no line.
func TestKillAllWhileJobsEnd(t *testing.T) {
	q := fake.NewQueue()
	q.Content.Jobs = q.Content.Jobs[4:6] // the array's
	second := q.Content.Jobs[0]
	second.ID = backends.ID{Job: 9}
	q.Content.Jobs = append(q.Content.Jobs, second)
	q.Fail[backends.ID{Job: 9}] = fmt.Errorf("kill job 9: %w", backends.ErrWrongState)
	q.Fail[backends.ID{Job: 5, Index: 1}] = fmt.Errorf("kill job 5[1]: %w", backends.ErrUnknownJob)
	if got, want := bob(t, q, "akill", "0"), (answer{0, "Job <5> is being terminated\n", ""}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := bob(t, q, "arequeue", "0"), (answer{1, "", ""}); got.code != want.code {
		t.Errorf("a job that can't be requeued any more: %+v", got)
	}
}

// A name that several jobs have is no job: which they are is said.
func TestNameOfSeveralJobs(t *testing.T) {
	q := fake.NewQueue()
	q.Content.Jobs[1].Name = "run"
	for _, command := range []string{"akill", "ajobs", "aswitch low", "apeek"} {
		q.Extra.Modify = func(context.Context, []backends.ID, backends.Change) backends.Errors { panic("nothing is changed") }
		q.Extra.Output = func(context.Context, backends.ID) (string, error) { panic("nothing is read") }
		got := bob(t, q, append(strings.Fields(command), "run")...)
		if !strings.HasSuffix(got.stderr, "run: 2 of your jobs have this name: name one of them by its ID (1, 2), or choose all by -J\n") || got.code != 1 || len(q.Calls) > 0 {
			t.Errorf("%s: %+v", command, got)
		}
	}
	if got := bob(t, q, "ajobs", "urgent", "-noheader"); !strings.HasPrefix(got.stdout, "7 ") {
		t.Errorf("%+v", got)
	}
}

// atop and abot are the queue's to carry out.
func TestReorder(t *testing.T) {
	for line, want := range map[string]answer{
		"atop 2":        {0, "top 2 1\nJob <2> has been moved to position 1 from top.\n", ""},
		"atop wait 3":   {0, "top 2 3\nJob <2> has been moved to position 3 from top.\n", ""},
		"abot 5[2] 2":   {0, "bottom 5[2] 2\nJob <5[2]> has been moved to position 2 from bottom.\n", ""},
		"atop 6":        {1, "top 6 1\n", "Job <6>: User permission denied\n"},
		"atop 99":       {1, "top 99 1\n", "Job <99>: No matching job found\n"},
		"atop 7":        {1, "top 7 1\n", "Job <7>: job 7: other priorities\n"},
		"atop 2 0":      {2, "", "atop: position 0: want a number from 1 on\n"},
		"atop 2 first":  {2, "", "atop: position first: want a number from 1 on\n"},
		"abot 2 1 3":    {2, "", "abot: unexpected argument \"3\": want abot JOB [POSITION]\n"},
		"abot":          {2, "", "abot: too few arguments: want abot JOB [POSITION]\n"},
		"abot 0":        {2, "", "abot: no job named: give the ID or the name of a waiting job\n"},
		"atop wiat":     {1, "", "atop: wiat: none of your jobs has this name (did you mean wait?)\n"},
		"atop -u all 2": {2, "", "atop: unknown option -u: see atop --help\n"},
	} {
		q := fake.NewQueue()
		done := ""
		q.Extra.Reorder = func(_ context.Context, ids []backends.ID, position int, bottom bool) backends.Errors {
			done = fmt.Sprintf("%s %s %d\n", map[bool]string{false: "top", true: "bottom"}[bottom], ids[0], position)
			return backends.Errors{map[int64]error{6: backends.ErrDenied, 7: errors.New("job 7: other priorities"), 99: backends.ErrUnknownJob}[ids[0].Job]}
		}
		got := bob(t, q, strings.Fields(line)...)
		if got.stdout = done + got.stdout; got != want {
			t.Errorf("%s: %+v, want %+v", line, got, want)
		}
	}
	if got := bob(t, fake.NewQueue(), "atop", "2"); got.code != 1 || got.stderr != "atop: change the order of your jobs: not possible on this queue: lower the others by amod -sp, such as amod -sp 10 JOB\n" {
		t.Errorf("on a queue that can't: %+v", got)
	}
}

// aswitch goes through the filter, and says where the job is afterwards.
func TestSwitchQueues(t *testing.T) {
	for line, want := range map[string]answer{
		"aswitch low 2":    {0, "Job <2> is switched to queue <low>\n", ""},
		"aswitch low wait": {0, "Job <2> is switched to queue <low>\n", ""},
		"aswitch night 2":  {0, "Job <2> is switched to queue <lowest>\n", ""}, // the filter's
		"aswitch low 5":    {0, "Job <5> is switched to queue <low>\n", ""},
		"aswitch low 1 8":  {1, "", "Job <1>: Job has started already\nJob <8>: Job has already finished\n"},
		"aswitch nihgt 2":  {1, "", "aswitch: nihgt: No such queue (did you mean night?)\n"},
		"aswitch low":      {2, "", "aswitch: too few arguments: want aswitch QUEUE JOB...\n"},
		"aswitch low 0":    {2, "", "aswitch: no job named: give the IDs of pending jobs\n"},
	} {
		q := fake.NewQueue()
		q.Extra.Queues = func(context.Context) ([]backends.Queue, error) {
			return []backends.Queue{{Name: "low"}, {Name: "night"}, {Name: "normal"}}, nil
		}
		q.Extra.Filters = true
		q.Extra.Modify = func(_ context.Context, ids []backends.ID, c backends.Change) backends.Errors {
			for i := range q.Content.Jobs {
				if j := &q.Content.Jobs[i]; j.ID.Job == ids[0].Job {
					if j.Queue = *c.Queue; j.Queue == "night" {
						j.Queue = "lowest"
					}
				}
			}
			return make(backends.Errors, len(ids))
		}
		if got := bob(t, q, strings.Fields(line)...); got != want {
			t.Errorf("%s: %+v, want %+v", line, got, want)
		}
	}
}

// An array that LSF's own commands can't make may have an element 0.
func TestElementZero(t *testing.T) {
	q := fake.NewQueue()
	zero := q.Content.Jobs[0]
	zero.ID = backends.ID{Job: 9, Index: backends.ZeroIndex}
	q.Content.Jobs = append(q.Content.Jobs, zero)
	if got := bob(t, q, "akill", "9[0]"); got.stdout != "Job <9[0]> is being terminated\n" || strings.Join(q.Calls, ", ") != "kill 9[0]" {
		t.Errorf("%+v, did %q", got, q.Calls)
	}
	if got := bob(t, q, "ajobs", "9[0]"); !strings.Contains(got.stdout, "run[0]") {
		t.Errorf("%+v", got)
	}
}

// Where the queue asks the filter itself, amod asks none, keeps nothing in the
// description, and leaves alone what was recorded there.
func TestModifyWhereQueueRunsFilter(t *testing.T) {
	for line, want := range map[string]struct {
		answer
		changed string
	}{
		"amod -P chipB 2":      {answer{0, "Parameters of job <2> are being changed\n", ""}, "chipB"},
		"amod -P chipB 7":      {answer{0, "Parameters of job <7> are being changed\n", ""}, "chipB"},
		"amod -Jd text 2":      {answer{0, "Parameters of job <2> are being changed\n", ""}, "text"},
		"amod -Jd text 7":      {answer{1, "", "Job <7>: " + errTagged.Error() + "\n"}, ""},
		"amod -sp 3 -W 10 2":   {answer{0, "Parameters of job <2> are being changed\n", "amod: warning: option -sp is ignored: here\n"}, ""},
		"amod -m n1 -n 2 2":    {answer{2, "", "amod: option -m is not possible on this queue: here\n"}, ""},
		"amod -W 10 -P x:y 99": {answer{1, "", "Job <99>: No matching job found\n"}, ""},
	} {
		q := fake.NewQueue()
		q.Content.Jobs[7].Tag = "allotment:1;step=a;"
		var changed backends.Change
		q.Extra.ForWrappers = backends.ForWrappers{
			Filters: true,
			Options: func() map[string]backends.OptionMeaning {
				return map[string]backends.OptionMeaning{"-sp": {Treatment: backends.Ignored, Note: "here"}, "-m": {Treatment: backends.Refused, Note: "here"}}
			},
			Modify: func(_ context.Context, ids []backends.ID, c backends.Change) backends.Errors {
				changed = c
				return make(backends.Errors, len(ids))
			},
		}
		got := bob(t, q, strings.Fields(line)...)
		if got != want.answer {
			t.Errorf("%s: %+v, want %+v", line, got, want.answer)
		}
		text := ""
		for _, field := range []*string{changed.Project, changed.Description} {
			if field != nil {
				text += *field
			}
		}
		if text != want.changed || changed.Priority != nil {
			t.Errorf("%s: changes %+v, want %q", line, changed, want.changed)
		}
	}
}

// amod -W changes a running job where the queue lets it, and says what the queue has then.
func TestRunLimitOfAStartedJob(t *testing.T) {
	const changed = "Parameters of job <1> are being changed\n"
	for name, c := range map[string]struct {
		line string
		fail error
		has  time.Duration
		want answer
	}{
		"raised":            {"amod -W 90 1", nil, 90 * time.Minute, answer{0, "Run limit of job <1> is 90 min now\n" + changed, ""}},
		"removed":           {"amod -Wn 3", nil, 0, answer{0, "Run limit of job <3> is none now\nParameters of job <3> are being changed\n", ""}},
		"denied":            {"amod -W 90 1", fmt.Errorf("scontrol: no operator: %w", backends.ErrDenied), time.Hour, answer{1, "", "Job <1>: scontrol: no operator: " + backends.ErrDenied.Error() + ": its run limit is 60 min as before\n"}},
		"not as asked for":  {"amod -W 90 1", nil, time.Hour, answer{1, "", "Job <1>: asked for a run limit of 90 min: the queue has it as 60 min\n"}},
		"with other things": {"amod -W 90 -n 2 1", nil, 0, answer{1, "", "Job <1>: Job has started already\n"}},
		"unreachable":       {"amod -W 90 1", fmt.Errorf("ask: %w", backends.ErrUnreachable), 0, answer{75, "", "amod: ask: " + backends.ErrUnreachable.Error() + "\n"}},
	} {
		q := fake.NewQueue()
		q.Extra.Modify = func(_ context.Context, ids []backends.ID, _ backends.Change) backends.Errors {
			for i := range q.Content.Jobs {
				if q.Content.Jobs[i].ID == ids[0] {
					q.Content.Jobs[i].RunLimit = c.has
				}
			}
			return backends.Errors{c.fail}
		}
		if got := bob(t, q, strings.Fields(c.line)...); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
