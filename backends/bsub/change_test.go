package bsub_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

func ptr[T any](v T) *T { return &v }

func TestChangesOfAPendingJob(t *testing.T) {
	for line, want := range map[string]backends.Change{
		"12 -n 4 -W 30":             {Slots: ptr(4), RunLimit: ptr(30 * time.Minute)},
		"-q low 12 13[2]":           {Queue: ptr("low")},
		"-bn -Wn -mn 12":            {BeginTime: new(time.Time), RunLimit: new(time.Duration), Hosts: new([]string)},
		"-Mn -Rn -wn -qn 12":        {Memory: new(int64), MemoryLimit: new(int64), OneHost: ptr(false), PerHost: ptr(0), After: new(string), Queue: new(string)},
		"-spn 12":                   {Priority: ptr(backends.Priority(20))},
		"-M 1G 12":                  {Memory: ptr(int64(1 << 30)), MemoryLimit: ptr(int64(1 << 30))},
		"-R span[hosts=1] 12":       {OneHost: ptr(true), PerHost: ptr(0)},
		"-n 6 -R span[ptile=2] 12":  {Slots: ptr(6), OneHost: ptr(false), PerHost: ptr(2)},
		"-R rusage[mem=1G/task] 12": {OneHost: ptr(false), PerHost: ptr(0), Memory: ptr(int64(2 << 30))},
		"-J a -Jd b -P c:d 12":      {Name: ptr("a"), Description: ptr("b"), Project: ptr("c:d")},
		"-n 1 -n 3 12":              {Slots: ptr(3)},
	} {
		l, err := bsub.ScanChange(strings.Fields(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		got, warnings, err := l.Change(here, &backends.Job{Slots: 2})
		if diff := cmp.Diff(want, got); err != nil || diff != "" || len(warnings) > 0 || l.Jobs[0] != "12" {
			t.Errorf("%s: %v, %v\n%s", line, err, warnings, diff)
		}
	}
	l, err := bsub.ScanChange([]string{"-n", "4", "12"})
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := l.Change(here, &backends.Job{Slots: 1}); err != nil || got.OneHost == nil || *got.OneHost {
		t.Errorf("a job that was on one host for want of slots: %+v, %v", got, err)
	}
	for _, line := range []string{"-sp 3 -n 4 12", "-spn -n 4 12"} {
		l, err := bsub.ScanChange(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		there := here
		there.Options = map[string]backends.OptionMeaning{"-sp": {Treatment: backends.Ignored, Note: "for a reason"}}
		got, warnings, err := l.Change(there, &backends.Job{Slots: 2})
		diff := cmp.Diff(backends.Change{Slots: ptr(4)}, got)
		if err != nil || diff != "" || len(warnings) != 1 || warnings[0] != "option -sp is ignored: for a reason" {
			t.Errorf("%s where -sp is ignored: %q, %v\n%s", line, warnings, err, diff)
		}
	}
	// Where the queue's own numbers are meant, asub's and amod's are the same.
	own := here
	own.QueuePriorities = true
	for line, want := range map[string]backends.Change{
		"-sp 77 12":      {QueuePriority: ptr(int64(77))},
		"-sp 77 -spn 12": {Priority: ptr(backends.Priority(20))},
	} {
		l, err := bsub.ScanChange(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := l.Change(own, &backends.Job{Slots: 2})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s in the queue's own count: %v\n%s", line, err, diff)
		}
	}
	for line, want := range map[string]string{
		"-o x 12": "can't be changed", "-n x 12": "is no number", "-J a[1-2] 12": "indices of an array", "-n": "needs an argument", "-rn 12": "can't be changed",
	} {
		l, err := bsub.ScanChange(strings.Fields(line))
		if err == nil {
			_, _, err = l.Change(here, &backends.Job{Slots: 2})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

func TestBatches(t *testing.T) {
	line, err := bsub.Scan([]string{"--batch", "f", "-P", "chipA", "-n", "2"})
	if err != nil {
		t.Fatal(err)
	}
	if file, given := line.Batch(); file != "f" || !given {
		t.Errorf("%q, %v", file, given)
	}
	got, err := line.BatchRequests([]byte("# a comment\n\n-J one true\n  -n 1 sh -c 'echo \"two words\"' # both\r\n"), here)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if a := got[0].Spec; a.Name != "one" || a.Project != "chipA" || a.Slots != 2 {
		t.Errorf("%+v", a)
	}
	if b := got[1].Spec; b.Slots != 1 || len(b.Command) != 3 || b.Command[2] != `echo "two words"` {
		t.Errorf("%+v", b)
	}
	for text, want := range map[string]string{
		"true\n-n x true": "line 2: option -n", "-n 1": "line 1: no command", "": "no job in it", "--batch=g true": "line 1: option -pack belongs",
		"-h": "line 1: -h and -V", "a 'b": "line 1: a ' is not closed", "\x00": "NUL", "-I true": "line 1: option -I: the jobs of a batch",
	} {
		if _, err := line.BatchRequests([]byte(text), here); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestDetailCountsFailedCheckpoints(t *testing.T) {
	var b strings.Builder
	j := backends.Job{ID: backends.ID{Job: 1}, State: backends.Pending, Slots: 1, Requeues: 3, FailedSaves: 2}
	if err := (bsub.Detail{}).Write(&b, &j, nil); err != nil || !strings.Contains(b.String(), "put back into the queue 3 time(s); its checkpoint failed 2 time(s) in a row;") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestDetailShowsNoControlCharacters(t *testing.T) {
	hostile := "x\x1b[31m\n\u202e"
	j := backends.Job{ID: backends.ID{Job: 1}, Name: hostile, User: hostile, Project: hostile, Queue: hostile, Reason: hostile, State: backends.Running, Slots: 1, Asked: []string{hostile}, Hosts: []backends.Placement{{Host: hostile, Slots: 1}}}
	r := &backends.Record{
		Spec: backends.Spec{Command: []string{hostile}, Description: hostile, Dir: hostile, Stdin: hostile, Stdout: hostile, Stderr: hostile, After: hostile},
		Runs: []backends.RunRecord{{Run: 1, Host: hostile, Ended: time.Unix(1, 0), Why: hostile}}, History: []backends.HistoryLine{{Event: hostile, Detail: hostile}},
	}
	var b strings.Builder
	if err := (bsub.Detail{FromHost: hostile}).Write(&b, &j, r); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(b.String(), func(r rune) bool { return r != '\n' && r < ' ' || r == '\u202e' }); i >= 0 {
		t.Errorf("byte %d of %q", i, b.String())
	}
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "x") {
			t.Errorf("a line of the user's own: %q", line)
		}
	}
}
