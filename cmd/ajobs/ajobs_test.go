package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/ask"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
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
		stateOf: func(context.Context, backends.ID) (*backends.Record, error) { return nil, ask.ErrNone },
		group: func(name string) (func(string) bool, error) {
			if name != "chipA" {
				return nil, fmt.Errorf("no project or group %q", name)
			}
			return func(user string) bool { return user == "alice" }, nil
		},
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
