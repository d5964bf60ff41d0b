package bsub_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

var submitted = time.Date(2026, 11, 20, 22, 54, 18, 0, time.UTC)

// cluster is the farm that the transcripts show.
func cluster() []backends.Job {
	job := func(id int64, index int, user, name, host string, slots int) backends.Job {
		j := backends.Job{
			ID: backends.ID{Job: id, Index: index}, User: user, Name: name, Queue: "normal",
			State: backends.Pending, Slots: slots, Submitted: submitted,
		}
		if host != "" {
			j.State, j.Hosts = backends.Running, []backends.Placement{{Host: host, Slots: slots}}
		}
		return j
	}
	held := job(792, 0, "bob", "held", "", 1)
	held.State = backends.Held
	return []backends.Job{
		job(789, 0, "alice", `name with "quotes" > and , <b>`, "lava4", 2),
		job(798, 0, "bob", "fill1", "lava4", 1),
		job(802, 0, "bob", "fill5", "lava4", 1),
		job(790, 0, "alice", "plain", "lava1", 1),
		job(791, 1, "bob", "arr", "lava1", 1),
		job(791, 2, "bob", "arr", "lava1", 1),
		job(791, 3, "bob", "arr[3]", "lava1", 1),
		job(793, 0, "bob", "span4", "lava3", 4),
		job(791, 4, "bob", "arr", "lava2", 1),
		job(799, 0, "bob", "fill2", "lava2", 1),
		job(800, 0, "bob", "fill3", "lava2", 1),
		job(801, 0, "bob", "fill4", "lava2", 1),
		held,
		job(803, 0, "bob", "fill6", "", 1),
	}
}

func written(t *testing.T, table bsub.JobTable, jobs ...backends.Job) string {
	t.Helper()
	table.FromHost = "lava0"
	var b strings.Builder
	if err := table.Write(&b, jobs); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestJobsAreWrittenAsByBjobs(t *testing.T) {
	jobs := cluster()
	want := answered(t, "list.txt", "bjobs -u all -w").stdout
	if diff := cmp.Diff(want, written(t, bsub.JobTable{Wide: true}, jobs...)); diff != "" {
		t.Errorf("wide (-cluster +ours):\n%s", diff)
	}
	jobs[12].Reason, jobs[13].Reason = "Job slot limit reached: 5 hosts", "Job slot limit reached: 5 hosts;"
	want = answered(t, "list.txt", "bjobs -u all -p").stdout
	if diff := cmp.Diff(want, written(t, bsub.JobTable{Reasons: true}, jobs[12:]...)); diff != "" {
		t.Errorf("pending (-cluster +ours):\n%s", diff)
	}
	jobs[1].State = backends.Suspended
	want = answered(t, "actions.txt", "bjobs 798").stdout
	if diff := cmp.Diff(want, written(t, bsub.JobTable{}, jobs[1])); diff != "" {
		t.Errorf("one suspended job (-cluster +ours):\n%s", diff)
	}
}

func TestLongNamesAreCut(t *testing.T) {
	j := cluster()[0]
	j.User, j.Queue, j.Name = "bartholomew", "a_very_long_queue", "a_rather_long_name"
	j.Hosts = []backends.Placement{{Host: "compute-node-17", Slots: 2}, {Host: "c2", Slots: 1}}
	want := `JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME
789     barthol RUN   a_very_lon lava0       *te-node-17 *long_name Nov 20 22:54
                                             c2
`
	if diff := cmp.Diff(want, written(t, bsub.JobTable{}, j)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestHostileNamesStayOnTheirLine(t *testing.T) {
	j := cluster()[1]
	j.Name, j.User, j.Queue = "a\nb\x1b[31mc\u202e\x00\xff", "u\r", "q\x07"
	j.Reason = "line\nline"
	for _, table := range []bsub.JobTable{{}, {Wide: true}, {Reasons: true}, {Reasons: true, Wide: true}} {
		lines := strings.Split(strings.TrimSuffix(written(t, table, j), "\n"), "\n")
		rows := 2
		if table.Reasons {
			rows = 3
		}
		if len(lines) != rows {
			t.Errorf("%+v: %d lines, want %d: %q", table, len(lines), rows, lines)
		}
		for _, line := range lines {
			if !utf8.ValidString(line) || strings.ContainsAny(line, "\r\x1b\x00\x07\u202e") {
				t.Errorf("%+v: a control character in %q", table, line)
			}
		}
	}
	if got, want := bsub.Visible("a\nb\x1bc\u202e\xffé\\n"), `a\nb\x1bc\u202e\xffé\n`; got != want {
		t.Errorf("Visible = %s, want %s", got, want)
	}
}

func TestArrayElementNames(t *testing.T) {
	for id, want := range map[backends.ID]string{
		{Job: 1}: "a", {Job: 1, Index: 3}: "a[3]", {Job: 1, Index: backends.ZeroIndex}: "a[0]",
	} {
		if got := bsub.JobName(&backends.Job{ID: id, Name: "a"}); got != want {
			t.Errorf("%v is %s, want %s", id, got, want)
		}
	}
}

func TestStatesMatchLSF(t *testing.T) {
	states := map[backends.State]string{
		backends.Pending: "PEND", backends.Running: "RUN", backends.Held: "PSUSP", backends.Suspended: "USUSP",
		backends.Done: "DONE", backends.Exited: "EXIT", 0: "UNKWN",
	}
	for state, want := range states {
		if got := bsub.Stat(&backends.Job{State: state}); got != want {
			t.Errorf("%v = %s, want %s", state, got, want)
		}
	}
	for _, j := range []backends.Job{
		{State: backends.Suspended, Resuming: true},
		{State: backends.Suspended, HeldUntil: submitted},
	} {
		if got := bsub.Stat(&j); got != "SSUSP" {
			t.Errorf("%+v = %s, want SSUSP", j, got)
		}
	}
}

func hostTable(t *testing.T, f *backends.Snapshot, wide, suspendFrees bool) string {
	t.Helper()
	var b strings.Builder
	if err := bsub.WriteHosts(&b, bsub.UseHosts(f), wide, suspendFrees); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestHostsAreWrittenAsByBhosts(t *testing.T) {
	f := &backends.Snapshot{Jobs: cluster(), Hosts: []backends.Host{
		{Name: "lava0"}, {Name: "lava1", Slots: 4}, {Name: "lava2", Slots: 4}, {Name: "lava3", Slots: 4}, {Name: "lava4", Slots: 4},
	}}
	for command, wide := range map[string]bool{"bhosts": false, "bhosts -w": true} {
		if diff := cmp.Diff(answered(t, "hosts.txt", command).stdout, hostTable(t, f, wide, false)); diff != "" {
			t.Errorf("%s (-cluster +ours):\n%s", command, diff)
		}
	}
}

func TestSuspendedJobsCloseHostOnlyIfTheyHoldSlots(t *testing.T) {
	jobs := cluster()
	jobs[0].State, jobs[1].State, jobs[1].Resuming = backends.Suspended, backends.Suspended, true
	f := &backends.Snapshot{Jobs: jobs, Hosts: []backends.Host{{Name: "lava4", Slots: 4}, {Name: "x", Slots: 1, State: backends.HostClosed}, {Name: "y", State: backends.HostDown}}}
	want := `HOST_NAME          STATUS          JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV 
lava4              ok                 -      4      4      1      1      2      0
x                  closed_Adm         -      1      0      0      0      0      0
y                  unavail            -      0      0      0      0      0      0
`
	if diff := cmp.Diff(want, hostTable(t, f, true, true)); diff != "" {
		t.Errorf("slots freed (-want +got):\n%s", diff)
	}
	if got := hostTable(t, f, true, false); !strings.Contains(got, "closed_Full") {
		t.Errorf("slots kept: want closed_Full in\n%s", got)
	}
}

func TestLinesMatchLSF(t *testing.T) {
	for got, want := range map[string]string{
		bsub.SubmittedLine(789, "normal", true): answered(t, "submit.txt", "bsub -H -J held sleep 10").stdout,
		bsub.SubmittedLine(12, "low", false):    "Job <12> is submitted to queue <low>.",
		bsub.Kill.Line("793"):                   answered(t, "actions.txt", "bkill 793").stdout,
		bsub.Stop.Line("798"):                   answered(t, "actions.txt", "bstop 798").stdout,
		bsub.Resume.Line("798"):                 answered(t, "actions.txt", "bresume 798").stdout,
		bsub.Requeue.Line("799"):                answered(t, "actions.txt", "brequeue 799").stdout,
	} {
		want = strings.TrimRight(strings.ReplaceAll(want, "792", "789"), " \n")
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	_, err := bsub.ParseJobArg("nonsense")
	if want := answered(t, "actions.txt", "bkill nonsense").stderr; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestFieldsPrintWhatTheyName(t *testing.T) {
	j := backends.Job{
		ID: backends.ID{Job: 12, Index: 3}, Name: "arr", User: "bob", Project: "chipA", Step: "synthesis", Queue: "night", Group: "/chipA/nightly", State: backends.Running,
		Slots: 3, Hosts: []backends.Placement{{Host: "n1", Slots: 2}, {Host: "n2", Slots: 1}}, Submitted: submitted, Started: submitted.Add(time.Minute),
		RunLimit: 2 * time.Hour, RanFor: 30 * time.Minute, Requeues: 2, Progress: "40 half",
	}
	record := backends.Record{
		Spec: backends.Spec{Description: "words", After: "done(3)", Stdin: "in", Stdout: "out", Stderr: "err", Dir: "/d", MemoryLimit: 1 << 30, Script: []byte("#!/bin/sh\n")},
		Runs: []backends.RunRecord{{User: time.Minute}, {User: time.Second, System: 2 * time.Second, MaxRSS: 3 << 10, Why: "over the limit"}},
	}
	ended := j
	ended.State, ended.Ended, ended.ExitCode = backends.Exited, submitted.Add(3*time.Minute), 3
	names := bsub.FieldNames()
	f, err := bsub.ParseFormat(strings.Join(names, " ") + " delimiter=;")
	if err != nil {
		t.Fatal(err)
	}
	if !f.NeedsRecords() {
		t.Error("the records are needed")
	}
	var b strings.Builder
	table := bsub.FormatTable{Format: f, NoHeader: true, FromHost: "login", Now: submitted.Add(11 * time.Minute)}
	if err := table.Write(&b, []bsub.Row{{Job: &j, Record: &record}, {Job: &ended, Record: &record}, {Job: &j}}); err != nil {
		t.Fatal(err)
	}
	want := "12;3;RUN;bob;night;arr[3];words;chipA:synthesis;/chipA/nightly;0;normal;done(3);#!/bin/sh;-;-;-;login;n1;2*n1:n2;2;40% half;Nov 20 22:54;Nov 20 22:55;-;Nov 21 00:25 L;" +
		"1:20 L;2400 second(s);60;1.0 second(s);2.0 second(s);3.0 second(s);3 K;3 K;-;-;-;-;-;-;-;3;3;3;3;3;1 G;120;in;out;err;/d;/d;2;12[3];0.0s;40m00s;0.0s;1m03s;3 K;2*n1:n2;-;over the limit\n" +
		"12;3;EXIT;bob;night;arr[3];words;chipA:synthesis;/chipA/nightly;0;normal;done(3);#!/bin/sh;-;3;over the limit;login;n1;2*n1:n2;2;40% half;Nov 20 22:54;Nov 20 22:55;-;Nov 20 22:57;" +
		"-;120 second(s);60;1.0 second(s);2.0 second(s);3.0 second(s);3 K;3 K;-;-;-;-;-;-;-;3;3;3;3;3;1 G;120;in;out;err;/d;/d;2;12[3];0.0s;2m00s;0.0s;1m03s;3 K;2*n1:n2;Nov 20 22:57;exit 3: over the limit\n" +
		"12;3;RUN;bob;night;arr[3];-;chipA:synthesis;/chipA/nightly;0;normal;-;-;-;-;-;login;n1;2*n1:n2;2;40% half;Nov 20 22:54;Nov 20 22:55;-;Nov 21 00:25 L;" +
		"1:20 L;2400 second(s);60;-;-;-;-;-;-;-;-;-;-;-;-;3;3;3;3;3;-;120;-;-;-;-;-;2;12[3];1m00s;40m00s;-;-;-;2*n1:n2;-;-\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Each line of ajobs -l is broken at the terminal's width, and goes on indented.
func TestDetailIsAsWideAsTheTerminal(t *testing.T) {
	j := cluster()[0]
	j.Name = strings.Repeat("x", 300)
	for _, width := range []int{60, 100} {
		var b strings.Builder
		if err := (bsub.Detail{Width: width}).Write(&b, &j, nil); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(b.String(), "\n")
		if utf8.RuneCountInString(lines[0]) != width || utf8.RuneCountInString(lines[1]) != width || !strings.HasPrefix(lines[1], strings.Repeat(" ", 21)+"x") {
			t.Errorf("width %d:\n%s", width, b.String())
		}
	}
}
