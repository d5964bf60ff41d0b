package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// testCLI runs command lines on a queue in memory and a ledger of its own.
type testCLI struct {
	process
	config configfile.Config
	out    bytes.Buffer
	errs   bytes.Buffer
}

func newTestCLI(t *testing.T, q *fake.Queue) *testCLI {
	t.Helper()
	dir := t.TempDir()
	c, err := configfile.LoadFrom(config.Paths{Config: dir + "/config.yaml", State: dir, Runtime: dir}, yamlplain.Convert)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Create(dir + "/ledger.db")
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	y := &testCLI{config: c}
	y.process = process{stdout: &y.out, stderr: &y.errs, System: desk.System{
		Now: fake.Now, EditWait: time.Second,
		Identify: func(configfile.Config) (desk.Caller, error) {
			return desk.Caller{Writes: true, Caller: settings.Caller{Owner: true}}, nil
		},
		Load:       func() (configfile.Config, error) { return y.config, nil },
		Open:       func(context.Context, configfile.Config) (backends.Backend, error) { return q, nil },
		Executable: func() (string, error) { return "/usr/bin/pba", nil },
	}}
	return y
}

// run runs a command line, and returns its exit code, stdout and stderr.
func (y *testCLI) run(line string) (code int, stdout, stderr string) {
	y.out.Reset()
	y.errs.Reset()
	code = commands.Main(newApp(y.process), append([]string{"pba"}, strings.Fields(line)...))
	return code, y.out.String(), y.errs.String()
}

// heavyQueue has a heavy job 1, which runs on n1 of four slots of 4 GiB with a dummy
// job, and two dummy jobs of a job 99 that is gone.
func heavyQueue() *fake.Queue {
	q := fake.NewQueue()
	q.Content.Hosts = []backends.Host{{Name: "n1", Slots: 4, Memory: 16 << 30}}
	q.Content.Jobs = q.Content.Jobs[:1]
	heavy := &q.Content.Jobs[0]
	heavy.Memory, heavy.OneHost = 7<<30, true
	for i, beneficiary := range []int64{1, 99, 99} {
		d := *heavy
		d.ID, d.User, d.Project, d.Memory, d.DummyFor = backends.ID{Job: int64(20 + i)}, "root", "", 0, backends.ID{Job: beneficiary}
		q.Content.Jobs = append(q.Content.Jobs, d)
	}
	q.Extra.Place = func(context.Context, []backends.Dummy) []backends.Submitted { return nil }
	return q
}

func TestDummiesPrune(t *testing.T) { // R31
	q := heavyQueue()
	y := newTestCLI(t, q)
	y.config.Dummies.Mode = settings.DummyMode(dummy.Reserve)
	if code, out, errs := y.run("dummies prune --dry-run"); code != 0 || out != "2 dummy jobs would be ended: job 99 is gone\n" || len(q.Calls) != 0 {
		t.Errorf("dry run: %d, %q, %q, did %q", code, out, errs, q.Calls)
	}
	if code, out, errs := y.run("dummies prune"); code != 0 || out != "2 dummy jobs ended: job 99 is gone\n" || !slices.Equal(q.Calls, []string{"kill 21", "kill 22"}) {
		t.Errorf("prune: %d, %q, %q, did %q", code, out, errs, q.Calls)
	}
	if _, out, _ := y.run("explain 20"); !strings.Contains(out, "Class dummy: it holds a slot for job 1,") {
		t.Errorf("explain of a dummy job: %s", out)
	}
	if _, out, _ := y.run("explain 1"); !strings.Contains(out, "Memory: it needs that of 2 slots on n1: 1 held beside its own 1.\n") {
		t.Errorf("explain of a heavy job: %s", out)
	}
	if _, out, _ := y.run("status"); !strings.Contains(out, "Dummy jobs: 3 running, 0 waiting, for 1 heavy job\n") {
		t.Errorf("status: %s", out)
	}
	if _, out, _ := y.run("status --json"); !strings.Contains(out, `"dummies": 3`) || !strings.Contains(out, `"slots": 2`) {
		t.Errorf("status: %s", out)
	}
	q.Content.Jobs = q.Content.Jobs[:2]
	if code, out, _ := y.run("dummies prune"); code != 0 || out != "There is no dummy job without a heavy job.\n" {
		t.Errorf("nothing to prune: %d, %q", code, out)
	}
	y.Identify = func(configfile.Config) (desk.Caller, error) { return desk.Caller{Writes: true, UID: 7, As: 7}, nil }
	if code, _, errs := y.run("dummies prune"); code != 1 || !strings.Contains(errs, "end dummy jobs") {
		t.Errorf("by another user: %d, %q", code, errs)
	}
}

func TestPruneReportsFailedKills(t *testing.T) {
	q := heavyQueue()
	q.Fail[backends.ID{Job: 22}] = backends.ErrDenied
	if code, _, errs := newTestCLI(t, q).run("dummies prune"); code != 1 || !strings.Contains(errs, "(try again)") {
		t.Errorf("%d, %q", code, errs)
	}
	q = heavyQueue() // it has ended by itself
	q.Fail[backends.ID{Job: 22}] = backends.ErrUnknownJob
	if code, out, errs := newTestCLI(t, q).run("dummies prune"); code != 0 || !strings.Contains(out, "job 99 is gone") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
}

func TestStatusOfGatheringJobs(t *testing.T) {
	s := &desk.Status{Heavy: []desk.HeavyStatus{
		{Job: "5", User: "ann", Project: "chipA", Host: "h3", Slots: 3, Dummies: 2, Gathers: true},
		{Job: "6", Slots: 2, Gathers: true},
		{Job: "7", Host: "h1", Slots: 2, Dummies: 1},
	}}
	s.Farm.Dummies = 3
	var out bytes.Buffer
	printHeavy(&out, s)
	want := "Dummy jobs: 3 running, 0 waiting, for 3 heavy jobs\nGathering: job 5 of ann (chipA) needs 3 slots on h3: 2 held for it\nGathering: job 6 of  (-) needs 2 slots\n"
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
}

func TestReportDummies(t *testing.T) {
	q := heavyQueue()
	y := newTestCLI(t, q)
	if code, out, _ := y.run("report dummies"); code != 0 || !strings.HasPrefix(out, "No dummy jobs were placed since ") {
		t.Errorf("of nothing: %d, %q", code, out)
	}
	ctx := context.Background()
	l, err := ledger.Open(y.config.Paths.State + "/ledger.db")
	if err != nil {
		t.Fatal(err)
	}
	at := fake.Now().Add(-30 * time.Minute)
	id, err := l.Intend(ctx, ledger.Cycle{Mode: ledger.Live, Started: at, Snapshot: at}, plan.Plan{Actions: []plan.Action{
		{Verb: plan.Place, Job: backends.ID{Job: 1}, Hosts: []string{"n1"}, Slots: []int{2}},
	}})
	if err := errors.Join(err, l.Outcome(ctx, id, []ledger.Outcome{{Result: ledger.Done, At: at}}), l.Close()); err != nil {
		t.Fatal(err)
	}
	// It started 29 minutes after that.
	for line, want := range map[string]string{
		"report dummies --csv":                  "project,user,heavy_jobs,dummies,median_gather_seconds,max_gather_seconds,held_slot_hours\nchipA,bob,1,2,1740.00,1740.00,1.00\n",
		"report dummies":                        "chipA    bob   ",
		"report dummies --json --project chipA": `"held_slot_hours": 1`,
	} {
		if code, out, errs := y.run(line); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: %d, %q, %q", line, code, out, errs)
		}
	}
	if code, _, errs := y.run("report dummies --project nosuch"); code != 1 || !strings.Contains(errs, `unknown project "nosuch"`) {
		t.Errorf("of another project: %d, %q", code, errs)
	}
	q.Down = backends.ErrUnreachable
	if code, out, errs := y.run("report dummies"); code != 0 || !strings.Contains(out, "1.00") || !strings.Contains(errs, "warning: the owners of unfinished jobs are unknown") {
		t.Errorf("of a queue that is away: %d, %q, %q", code, out, errs)
	}
}
