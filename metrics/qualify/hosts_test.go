package qualify

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// fakeQueue is a queue whose jobs are calls of a function, and end at once.
type fakeQueue struct {
	mu     sync.Mutex
	specs  []backends.Spec
	run    func(host, dir string, number int) backends.State
	states map[backends.ID]backends.State
	killed []backends.ID
}

func (f *fakeQueue) Submit(_ context.Context, specs []backends.Spec) []backends.Submitted {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]backends.Submitted, len(specs))
	for i, s := range specs {
		f.specs = append(f.specs, s)
		if s.Hosts[0] == "refused" {
			all[i].Err = errors.New("no such host")
			continue
		}
		all[i].ID = backends.ID{Job: int64(len(f.specs))}
		number, err := strconv.Atoi(s.Command[3])
		if err != nil {
			all[i].Err = err
			continue
		}
		f.states[all[i].ID] = f.run(s.Hosts[0], s.Command[2], number)
	}
	return all
}

func (f *fakeQueue) Jobs(_ context.Context, ids []backends.ID) ([]backends.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []backends.Job
	for _, id := range ids {
		if f.states[id] != 0 {
			all = append(all, backends.Job{ID: id, State: f.states[id]})
		}
	}
	return all, nil
}

func (f *fakeQueue) Kill(_ context.Context, ids []backends.ID) backends.Errors {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killed = append(f.killed, ids...)
	return nil
}

func (f *fakeQueue) Changes() func(context.Context) error {
	return func(ctx context.Context) error {
		_ = clock.Sleep(ctx, 10*time.Millisecond)
		return context.Cause(ctx)
	}
}

func TestHosts(t *testing.T) { synctest.Test(t, testHosts) }

func testHosts(t *testing.T) {
	dir := t.TempDir()
	f := &fakeQueue{states: map[backends.ID]backends.State{}, run: func(host, dir string, number int) backends.State {
		r := example()
		switch host {
		case "silent":
			if err := os.WriteFile(dir+"/"+strconv.Itoa(number)+".log", []byte("no \x1b[1mprogram"), 0o600); err != nil {
				t.Error(err)
			}
			return backends.Exited
		case "full":
			r = Result{Version: version, Error: "no space left"}
		}
		if err := writeFile(ResultFile(dir, number), r); err != nil {
			t.Error(err)
		}
		return backends.Done
	}}
	h := &Hosts{Queue: f, Dir: dir, Job: backends.Spec{Project: "chipA", Dir: "/work"}, Argv: []string{"/bin/asplit", "__qualify"}}
	got := map[string]string{}
	h.Measure(context.Background(), []Request{{"good", 0}, {"refused", 1}, {"silent", 1}, {"full", 4}}, func(a Answer) {
		got[a.Host] = a.Result.Fingerprint
		if a.Err != nil {
			got[a.Host] = a.Err.Error()
		}
	})
	for host, want := range map[string]string{"good": "f00", "refused": "no such host", "silent": `job 3 ended without a result: no \x1b[1mprogram`, "full": "no space left"} {
		if !strings.HasSuffix(got[host], want) {
			t.Errorf("%s: %q, want %q", host, got[host], want)
		}
	}
	for i, slots := range []int{1, 1, 1, 4} {
		s := f.specs[i]
		if s.Slots != slots || !s.OneHost || len(s.Hosts) != 1 || s.Project != "chipA" || s.Dir != "/work" || s.RunLimit == 0 ||
			!slices.Equal(s.Command, []string{"/bin/asplit", "__qualify", dir, strconv.Itoa(i + 1)}) {
			t.Errorf("job %d: %+v", i, s)
		}
	}
}

func TestHostsAborted(t *testing.T) { synctest.Test(t, testHostsAborted) }

func testHostsAborted(t *testing.T) {
	f := &fakeQueue{states: map[backends.ID]backends.State{}, run: func(string, string, int) backends.State { return backends.Pending }}
	h := &Hosts{Queue: f, Dir: t.TempDir(), Argv: []string{"asplit", "__qualify"}}
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("enough")) })
	var answers []Answer
	h.Measure(ctx, []Request{{"a", 1}, {"b", 1}}, func(a Answer) { answers = append(answers, a) })
	if len(answers) != 2 || answers[0].Err == nil || answers[0].Err.Error() != "enough" || len(f.killed) != 2 {
		t.Errorf("%v; killed: %v", answers, f.killed)
	}
}
