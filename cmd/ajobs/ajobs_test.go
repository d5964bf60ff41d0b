package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
	"github.com/allotment-hpc/allotment/internal/pty"
)

// answer is what a command line printed, and its exit code.
type answer struct {
	code           int
	stdout, stderr string
}

// bob types a command line.
func bob(t *testing.T, q *fake.Queue, words ...string) answer {
	t.Helper()
	var stdout bytes.Buffer
	code, stderr := bobAt(t, q, &stdout, words...)
	return answer{code, stdout.String(), stderr}
}

// bobAt is bob whose output goes elsewhere.
func bobAt(t *testing.T, q *fake.Queue, stdout io.Writer, words ...string) (code int, errors string) {
	t.Helper()
	var stderr bytes.Buffer
	code = run(words, bobsProcess(q, stdout, &stderr))
	return code, stderr.String()
}

// bobsProcess is that of a command of bob's.
func bobsProcess(q *fake.Queue, stdout, stderr io.Writer) process {
	return process{
		stdout: stdout, stderr: stderr, now: fake.Now,
		submitContext: func() (bsub.Context, error) { return bsub.Context{Now: fake.Now(), Dir: "/work"}, nil },
		user:          func() string { return "bob" }, host: func() string { return "login1" },
		open: func(context.Context, bool) (backends.Backend, error) { return q, nil },
		filter: func(_ context.Context, _ submit.Pending, c backends.Change, _ io.Writer) (backends.Change, error) {
			return c, nil
		},
		outlook: func(_ context.Context, jobs []backends.Job) map[backends.ID]string {
			return map[backends.ID]string{{Job: 7}: "3 jobs before it in the queue, \x1b[31m9 in all."}
		},
		explained: func(context.Context, []backends.ID, bool) map[backends.ID]story { return nil },
		allotd:    func(context.Context, string, url.Values, any) error { return errors.New("no allotd runs") },
		uses: func(context.Context, []backends.Job) (map[backends.ID]*bsub.Use, error) {
			return nil, errors.New("no allotd runs")
		},
		group: func(name string) (func(string) bool, error) {
			if name != "chipA" {
				return nil, fmt.Errorf("no project or group %q", name)
			}
			return func(user string) bool { return user == "alice" }, nil
		},
	}
}

func TestListOptionsSelectJobs(t *testing.T) {
	for line, want := range map[string]string{
		"ajobs":                       "1 3 5 7 2 4 5",
		"ajobs -u all":                "1 3 5 6 7 2 4 5",
		"ajobs -u alice":              "6",
		"ajobs -r":                    "1 5",
		"ajobs -p -w":                 "7 2 4 5",
		"ajobs -s":                    "3",
		"ajobs -rs":                   "1 3 5",
		"ajobs -d":                    "8",
		"ajobs -a":                    "1 3 5 7 2 4 5 8",
		"ajobs -q normal -J ar*":      "5 5",
		"ajobs -J arr[2]":             "5",
		"ajobs -J *r*n*":              "1 7",
		"ajobs -P chipA:synthesis -r": "1 5",
		"ajobs -P chipA -m n1":        "1 3 5",
		"ajobs 0":                     "1 3 5 7 2 4 5",
		"ajobs 6 2 -w":                "6 2",
		"ajobs 5":                     "5 5 5",
		"ajobs 5[2-3] 8":              "5 5 8",
		"ajobs -G chipA":              "6",
		"ajobs --since 3h":            "8 5",
		"ajobs -d --since 1d":         "8 5",
		"ajobs -a -since 1w -J arr":   "5 5 5",
		"ajobs --sort -jobid":         "7 5 5 4 3 2 1",
		"ajobs --sort stat,-jobid":    "7 5 2 4 5 1 3",
		"ajobs -W -r":                 "1 5",
	} {
		got := bob(t, fake.NewQueue(), strings.Fields(line)...)
		var ids []string
		for row := range strings.Lines(got.stdout) {
			if id := strings.Fields(row)[0]; id != "JOBID" {
				ids = append(ids, id)
			}
		}
		if strings.Join(ids, " ") != want || got.code != 0 || got.stderr != "" {
			t.Errorf("%s lists %v, code %d, %s; want %s", line, ids, got.code, got.stderr, want)
		}
	}
}

// Dummy jobs belong to the user who runs the engine: on a user's own queue, to that
// user, who did not submit them.
func TestDummyJobsAreLeftOutByDefault(t *testing.T) {
	withDummies := func() *fake.Queue {
		q := fake.NewQueue()
		running, pending := q.Content.Jobs[0], q.Content.Jobs[7]
		running.ID, running.DummyFor = backends.ID{Job: 20}, backends.ID{Job: 5, Index: 1}
		pending.ID, pending.DummyFor = backends.ID{Job: 21}, backends.ID{Job: 5, Index: 1}
		q.Content.Jobs = append([]backends.Job{running, pending}, q.Content.Jobs...)
		return q
	}
	for line, want := range map[string]string{
		"ajobs":        "1 3 5 7 2 4 5",
		"ajobs -a":     "1 3 5 7 2 4 5 8",
		"ajobs -u all": "1 3 5 6 7 2 4 5 20 21",
		"ajobs -u bob": "1 3 5 7 2 4 5 20 21",
		"ajobs 20 2":   "20 2",
	} {
		got := bob(t, withDummies(), strings.Fields(line)...)
		var ids []string
		for row := range strings.Lines(got.stdout) {
			if id := strings.Fields(row)[0]; id != "JOBID" {
				ids = append(ids, id)
			}
		}
		if strings.Join(ids, " ") != want || got.code != 0 {
			t.Errorf("%s lists %v, want %s", line, ids, want)
		}
	}
	got := bob(t, withDummies(), "ajobs", "--json", "21", "7")
	var jobs []map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &jobs); err != nil || len(jobs) != 2 {
		t.Fatalf("%+v: %v", got, err)
	}
	if jobs[0]["class"] != "dummy" || jobs[0]["dummy_for"] != "5[1]" || jobs[1]["class"] != "pba" || jobs[1]["dummy_for"] != nil {
		t.Errorf("%v", jobs)
	}
	if got := bob(t, withDummies(), "ajobs", "-l", "20"); !strings.Contains(got.stdout, "Dummy Job For <5[1") {
		t.Errorf("ajobs -l: %s", got.stdout)
	}
	if got := bob(t, withDummies(), "ajobs", "-l", "7", "2"); !strings.Contains(got.stdout, "\n  3 jobs before it in the queue, \\x1b[31m9 in all.\n") || !strings.Contains(got.stdout, ": pba explain 2\n") {
		t.Errorf("ajobs -l: %s", got.stdout)
	}
	q := withDummies()
	if bob(t, q, "akill", "0"); len(q.Calls) == 0 || slices.Contains(q.Calls, "kill 20") {
		t.Errorf("akill 0 does %v", q.Calls)
	}
	q = withDummies()
	if bob(t, q, "akill", "-u", "all", "0"); !slices.Contains(q.Calls, "kill 20") {
		t.Errorf("akill -u all 0 does %v", q.Calls)
	}
}

// Columns of one's own, and what is wrong with them.
func TestListLayouts(t *testing.T) {
	for _, test := range []struct {
		words []string
		want  answer
	}{
		{[]string{"-o", "jobid:5 stat:-6 job_name:4 pend_reason", "1", "7"}, answer{0, "JOBID   STAT *AME PEND_REASON\n1        RUN run  -\n7       PEND *ent no free sl*\n", ""}},
		{[]string{"-o", "id name delimiter='^'", "-noheader", "5"}, answer{0, "5^arr[1]\n5^arr[2]\n5^arr[3]\n", ""}},
		{[]string{"-o", "jobid:1 run_time pend_time", "-noheader", "1"}, answer{0, "1 60 second(s)    3540\n", ""}},
		{[]string{"-o", "cpu_used max_mem command", "-noheader", "1"}, answer{0, "1.5 second(s) 2 M             a\\x1b b\n", ""}},
		{[]string{"-o", "jobid pend_raeson"}, answer{2, "", "ajobs: option -o: unknown field \"pend_raeson\" (did you mean pend_reason?)\n"}},
		{[]string{"-o", "jobid:x"}, answer{2, "", "ajobs: option -o: field jobid: width \"x\": want a number from 1 to 4096, or - before it to align to the right\n"}},
		{[]string{"-o", "jobid delimiter=ab"}, answer{2, "", "ajobs: option -o: delimiter=ab: want one printable character, such as delimiter='^'\n"}},
		{[]string{"-o", "jobid", "-l"}, answer{2, "", "ajobs: -l and -o exclude each other\n"}},
		{[]string{"--sort", "jobdi"}, answer{2, "", "ajobs: option --sort: unknown field \"jobdi\" (did you mean jobid?)\n"}},
		{[]string{"--since", "soon"}, answer{2, "", "ajobs: option --since: \"soon\" is not a duration; write it like 12h, 2d or 1w\n"}},
		{[]string{"-r", "--since", "2d"}, answer{2, "", "ajobs: --since says how long ended jobs are listed: add -a or -d\n"}},
		{[]string{"-G", "chipB"}, answer{1, "", "ajobs: no project or group \"chipB\"\n"}},
		{[]string{"-sun"}, answer{2, "", "ajobs: unknown option -sun (did you mean --sum?): see ajobs --help\n"}},
		{[]string{"-rx"}, answer{2, "", "ajobs: unknown option -rx: see ajobs --help\n"}},
		{[]string{"-ruall"}, answer{2, "", "ajobs: unknown option -ruall: see ajobs --help\n"}},
		{[]string{"-sum", "-noheader"}, answer{0, "2          0          1          0          4          0\n", ""}},
		{[]string{"-sum", "--json", "-J", "none"}, answer{0, "{\n  \"running_slots\": 0,\n  \"system_suspended_slots\": 0,\n  \"user_suspended_slots\": 0,\n  \"pending_slots\": 0\n}\n", ""}},
		{[]string{"-A"}, answer{0, "JOBID    ARRAY_SPEC  OWNER   NJOBS  PEND  DONE   RUN  EXIT SSUSP USUSP PSUSP\n5        arr[1-3]    bob         3     1     1     1     0     0     0     0\n", ""}},
		{[]string{"-A", "1"}, answer{0, "", "No array found\n"}},
		{[]string{"-A", "--json", "1"}, answer{0, "[]\n", ""}},
		{[]string{"-r", "-noheader", "-X", "-J", "run"}, answer{0, "1       bob     RUN   normal     login1      n1          run        Nov 21 11:00\n                                             n1\n", ""}},
	} {
		q := fake.NewQueue()
		q.Content.Jobs[0].Hosts[0].Slots = 2
		q.Content.Jobs[7].Reason = "no free slots;"
		q.Extra.Record = func(_ context.Context, id backends.ID) (*backends.Record, error) {
			return &backends.Record{
				Spec: backends.Spec{Command: []string{"a\x1b", "b"}},
				Runs: []backends.RunRecord{{User: time.Second, System: time.Second / 2, MaxRSS: 2 << 20}},
			}, nil
		}
		if got := bob(t, q, append([]string{"ajobs"}, test.words...)...); got != test.want {
			t.Errorf("%q:\n%+v, want\n%+v", test.words, got, test.want)
		}
	}
}

// Slurm's record of a job lacks what it used: that is not zero.
func TestUseThatIsNotKnown(t *testing.T) {
	q := fake.NewQueue()
	q.Extra.Record = func(context.Context, backends.ID) (*backends.Record, error) {
		return &backends.Record{Runs: []backends.RunRecord{{Run: 1, Started: time.Unix(1, 0)}}}, nil
	}
	want := answer{0, "-          -               -\n", ""}
	if got := bob(t, q, "ajobs", "-o", "cpu_used max_mem mem", "-noheader", "1"); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// In a pipe each paragraph of -l is one line, however long.
func TestLongListIsNotFoldedInPipe(t *testing.T) {
	q := fake.NewQueue()
	q.Content.Jobs[0].Name = strings.Repeat("long name ", 30)
	for _, option := range []string{"-l", "-UF"} {
		got := bob(t, q, "ajobs", option, "1")
		if lines := strings.Split(got.stdout, "\n"); !strings.Contains(lines[0], q.Content.Jobs[0].Name) || got.code != 0 {
			t.Errorf("%s: %+v", option, got)
		}
	}
}

// At a terminal the lines of -l are as wide as it is; those of -UF are not broken there either.
func TestLongListAtTerminal(t *testing.T) {
	q := fake.NewQueue()
	q.Content.Jobs[0].Name = strings.Repeat("long name ", 10)
	for option, want := range map[string]bool{"-l": false, "-UF": true} {
		ours, theirs, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ours.Close() }()
		if err := unix.IoctlSetWinsize(int(theirs.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 60}); err != nil {
			t.Fatal(err)
		}
		text := make(chan string)
		go func() {
			all, _ := io.ReadAll(ours) // an error is the end of a terminal
			text <- string(all)
		}()
		code, errors := bobAt(t, q, theirs, "ajobs", option, "1")
		_ = theirs.Close()
		line, _, _ := strings.Cut(<-text, "\r\n")
		if whole := strings.Contains(line, q.Content.Jobs[0].Name); code != 0 || whole != want || !want && len(line) != 60 {
			t.Errorf("%s: code %d %s, %q", option, code, errors, line)
		}
	}
}

// Of other users' jobs the records can't be read: one line says so.
func TestUnreadableRecordsAreReportedOnce(t *testing.T) {
	q := fake.NewQueue()
	q.Extra.Record = func(context.Context, backends.ID) (*backends.Record, error) { return nil, backends.ErrDenied }
	got := bob(t, q, "ajobs", "-o", "jobid cpu_used", "-noheader", "1", "2", "3")
	if want := (answer{0, "1       -\n2       -\n3       -\n", "ajobs: the records of 3 jobs can't be read; the first, of job <1>: permission denied\n"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A queue that does not answer is asked once, not for each job.
func TestRecordsOfUnreachableQueue(t *testing.T) {
	q := fake.NewQueue()
	asked := 0
	q.Extra.Record = func(_ context.Context, id backends.ID) (*backends.Record, error) {
		if asked++; id.Job == 1 {
			return &backends.Record{}, nil
		}
		return nil, fmt.Errorf("record: %w", backends.ErrUnreachable)
	}
	got := bob(t, q, "ajobs", "-o", "jobid cpu_used", "-noheader", "1", "2", "3", "4")
	if want := (answer{0, "1       -\n2       -\n3       -\n4       -\n", "ajobs: the records of 3 jobs can't be read; the first, of job <2>: record: the queue can't be reached\n"}); got != want || asked != 2 {
		t.Errorf("%+v, want %+v; it was asked %d times", got, want, asked)
	}
}

func TestNoJobsToList(t *testing.T) {
	for line, want := range map[string]answer{
		"ajobs -u nobody":        {0, "", "No unfinished job found\n"},
		"ajobs -u nobody -p":     {0, "", "No pending job found\n"},
		"ajobs -u nobody -r":     {0, "", "No running job found\n"},
		"ajobs -u nobody -s":     {0, "", "No suspended job found\n"},
		"ajobs -u nobody -a":     {0, "", "No job found\n"},
		"ajobs -u nobody -d":     {0, "", "No DONE/EXIT job found\n"},
		"ajobs -u nobody --json": {0, "[]\n", ""},
		"ajobs 99 98[2]":         {1, "", "Job <99> is not found\nJob <98[2]> is not found\n"},
	} {
		if got := bob(t, fake.NewQueue(), strings.Fields(line)...); got != want {
			t.Errorf("%s: %+v, want %+v", line, got, want)
		}
	}
}

func TestJobsAsJSON(t *testing.T) {
	got := bob(t, fake.NewQueue(), "ajobs", "--json", "7", "8", "1")
	var jobs []map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &jobs); err != nil || len(jobs) != 3 {
		t.Fatalf("%+v: %v", got, err)
	}
	want := map[string]any{
		"id": "8", "name": "ended", "user": "bob", "project": "chipA", "step": "synthesis", "queue": "normal", "state": "exited",
		"priority": 20.0, "level": "normal", "slots": 1.0, "memory_bytes": 0.0, "hosts": []any{},
		"submitted": "2026-11-21T11:00:00Z", "started": "2026-11-21T11:59:00Z", "finished": "2026-11-21T11:59:59Z",
		"exit_code": 3.0, "requeues": 0.0, "preempt_mode": "requeue",
	}
	if diff := cmp.Diff(want, jobs[1]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if jobs[0]["class"] != "pba" || jobs[0]["priority"] != 120.0 || jobs[0]["started"] != nil {
		t.Errorf("a PBA job: %v", jobs[0])
	}
	if diff := cmp.Diff([]any{map[string]any{"host": "n1", "slots": 1.0}}, jobs[2]["hosts"]); diff != "" {
		t.Errorf("hosts: %s", diff)
	}
}

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

func TestJobsOfAGroup(t *testing.T) {
	q := fake.NewQueue()
	q.Extra.InGroup = fake.InGroup
	for i := range q.Content.Jobs {
		q.Content.Jobs[i].Group = []string{"/x", "/x/y"}[i%2]
	}
	for line, want := range map[string]string{
		"ajobs -noheader -g /x -o jobid":               "1\n3\n5\n",
		"ajobs -noheader -g /x -m n1 -o jobid":         "1\n3\n5\n",
		"ajobs -noheader -g /x -r -u all -o jobid":     "1\n5\n6\n",
		"ajobs -noheader -g /x/y -J wait -o job_group": "/x/y\n",
	} {
		if got := bob(t, q, strings.Fields(line)...); got.code != 0 || strings.ReplaceAll(got.stdout, " ", "") != want {
			t.Errorf("%s: %+v, want %q", line, got, want)
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

func TestQueueErrorIsReportedFirst(t *testing.T) {
	q := fake.NewQueue()
	q.Fail[backends.ID{Job: 5, Index: 1}] = fmt.Errorf("requeue job 5[1]: %w", backends.ErrDenied)
	want := answer{1, "", "Job <5>: User permission denied\n"}
	if got := bob(t, q, "arequeue", "5"); got != want {
		t.Errorf("%+v, want %+v (5[2] is pending, that is no news)", got, want)
	}
}

func TestUnreachableQueueExits75(t *testing.T) {
	q := fake.NewQueue()
	q.Down = fmt.Errorf("connect: %w", backends.ErrUnreachable)
	for _, line := range []string{"ajobs", "ajobs 1", "ahosts", "akill 1", "astop 0"} {
		if got := bob(t, q, strings.Fields(line)...); got.code != 75 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s: %+v, want exit code 75 and one line", line, got)
		}
	}
	q = fake.NewQueue() // it dies between two calls
	q.Fail[backends.ID{Job: 2}] = fmt.Errorf("kill: %w", backends.ErrUnreachable)
	if got := bob(t, q, "akill", "1", "2"); got.code != 75 || got.stdout != "Job <1> is being terminated\n" {
		t.Errorf("%+v, want exit code 75 after the first job's line", got)
	}
}

func TestHostsAreListed(t *testing.T) {
	got := bob(t, fake.NewQueue(), "ahosts", "-w")
	want := `HOST_NAME          STATUS          JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV 
n1                 ok                 -      4      4      3      0      1      0
n2                 unavail            -      4      0      0      0      0      0
`
	if got.stdout != want || got.code != 0 {
		t.Errorf("%+v", got)
	}
	got = bob(t, fake.NewQueue(), "ahosts", "n1", "x\x1b", "--json")
	if got.code != 1 || got.stderr != "x\\x1b: Bad host name\n" || !strings.Contains(got.stdout, `"running_slots": 3`) || strings.Contains(got.stdout, "n2") {
		t.Errorf("%+v", got)
	}
}

func TestLongListsOfHostsAndQueues(t *testing.T) {
	q := fake.NewQueue()
	q.Content.Hosts[0].Has = []backends.Amount{{Name: "gpu", Count: 2}}
	q.Content.Hosts[0].Features = []string{"big"}
	q.Content.Jobs[0].Needs = []backends.Amount{{Name: "gpu", Count: 1}}
	q.Content.Jobs[0].Memory = 512 << 20
	q.Content.Jobs[0].Name = "ru\x1bn"
	want := `HOST  n1
STATUS          MAX  NJOBS    RUN  SSUSP  USUSP
ok                4      4      3      0      1

 MEMORY: 1 G, jobs asked for 512 M
 RESOURCE: gpu=2, jobs have 1
 FEATURES: big
 JOBS:
  JOBID        USER       STAT  SLOTS QUEUE      JOB_NAME
  1            bob        RUN       1 normal     ru\x1bn
  3            bob        USUSP     1 normal     stop
  5[1]         bob        RUN       1 normal     arr[1]
  6            alice      RUN       1 normal     hers

HOST  n2
STATUS          MAX  NJOBS    RUN  SSUSP  USUSP
unavail           4      0      0      0      0
 JOBS: none
`
	if got := bob(t, q, "ahosts", "-l"); got.code != 0 || got.stdout != strings.ReplaceAll(want, "\x1b", "\\x1b") {
		t.Errorf("%s", cmp.Diff(want, got.stdout))
	}
	q.Extra.Queues = func(context.Context) ([]backends.Queue, error) {
		return []backends.Queue{{Name: "low", Level: backends.LevelLow}, {Name: "normal", Level: backends.LevelNormal, Default: true}}, nil
	}
	want = `QUEUE: low
  -- Its jobs begin at the level low.

PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP
  -1 Open:Active       -    -    -    -     0     0     0     0

 USERS: none

QUEUE: normal
  -- This is the default queue.
  -- Its jobs begin at the level normal.

PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP
   0 Open:Active       -    -    -    -     8     3     3     2

 USERS:
  USER        PEND   RUN  SUSP
  alice          0     1     0
  bob            3     2     2
`
	if got := bob(t, q, "aqueues", "-l"); got.code != 0 || got.stdout != want {
		t.Errorf("%s", cmp.Diff(want, got.stdout))
	}
	if got := bob(t, q, "ahosts", "-l", "--json"); got.code != 2 || got.stderr != "ahosts: -l can't be combined with -w or --json\n" {
		t.Errorf("%+v", got)
	}
}

func TestHelpAndVersionOfEveryCommand(t *testing.T) {
	var names []string
	for _, app := range apps(process{}) {
		names = append(names, app.Name)
	}
	if want := []string{"ajobs", "ahosts", "aqueues", "akill", "astop", "aresume", "arequeue", "apeek", "aswitch", "ahist", "atop", "abot"}; !slices.Equal(names, want) {
		t.Errorf("commands %v, want %v", names, want)
	}
	for _, name := range append(names, "amod") {
		got := bob(t, fake.NewQueue(), name, "--help")
		if got.code != 0 || !strings.Contains(got.stdout, "EXIT CODES") || !strings.Contains(got.stdout, name) || got.stderr != "" {
			t.Errorf("%s --help: %+v", name, got)
		}
		if got := bob(t, fake.NewQueue(), name, "--version"); got.code != 0 || !strings.HasPrefix(got.stdout, name+" ") {
			t.Errorf("%s --version: %+v", name, got)
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

// LSF names an array's elements arr[1] and arr[2]: they are found by the array's name.
func TestArrayElementsWithOwnNames(t *testing.T) {
	for line, want := range map[string]int{"ajobs -J arr": 2, "ajobs -J arr[2]": 1, "ajobs -J a*r": 2, "ajobs -J ar": 0, "ajobs -J [2]": 0} {
		q := fake.NewQueue()
		for i := range q.Content.Jobs {
			if j := &q.Content.Jobs[i]; j.ID.Index > 0 {
				j.Name += fmt.Sprintf("[%d]", j.ID.Index)
			}
		}
		if got := bob(t, q, strings.Fields(line)...); max(strings.Count(got.stdout, "\n")-1, 0) != want {
			t.Errorf("%s: %+v, want %d", line, got, want)
		}
	}
}

// What the queue's own bqueues prints is printed: queues without jobs too, and no
// number that it does not give.
func TestNativeQueueListIsPrinted(t *testing.T) {
	q := fake.NewQueue()
	q.Extra.Queues = func(context.Context) ([]backends.Queue, error) {
		return []backends.Queue{
			{Name: "night", Columns: &backends.QueueRow{Priority: 70, Status: "Closed:Inact_Win", Max: "10", PerUser: "2", PerProcessor: "1.0", PerHost: "-"}},
			{Name: "normal", Default: true, Columns: &backends.QueueRow{Priority: 30, Status: "Open:Active", Max: "-", PerUser: "-", PerProcessor: "-", PerHost: "-", Jobs: 18, Pending: 2, Running: 16}},
		}, nil
	}
	got := bob(t, q, "aqueues")
	want := "QUEUE_NAME      PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP \n" +
		"night             70 Closed:Inact_Win  10    2  1.0    -     0     0     0     0 \n" +
		"normal            30 Open:Active       -    -    -    -    18     2    16     0 \n"
	if got.stdout != want || got.code != 0 {
		t.Errorf("%+v, want\n%s", got, want)
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
