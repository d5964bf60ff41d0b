package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
	"github.com/allotment-hpc/allotment/internal/pty"
)

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
