package desk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// someResult is what a cycle saw, with host sets that jobs share.
func someResult() *pba.Result {
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	sets := []*backends.HostSet{{Hosts: []string{"n1", "n2"}}, {Hosts: []string{"n3"}}}
	job := func(n int64, set *backends.HostSet) backends.Job {
		return backends.Job{ID: backends.ID{Job: n}, User: "ann", State: backends.Pending, Slots: 1, Submitted: at, Suits: set}
	}
	farm := &backends.Snapshot{
		At: at, Hosts: []backends.Host{{Name: "n1", Slots: 4, Memory: 1 << 30}},
		Jobs:  []backends.Job{job(1, sets[0]), job(2, nil), job(3, sets[1]), job(4, sets[0])},
		Ended: []backends.Job{job(5, sets[1])},
	}
	r := &pba.Result{Rules: pba.Rules{Observe: true}, Note: "note"}
	r.State = plan.State{Farm: farm, Memory: plan.Memory{Jobs: map[backends.ID]plan.JobMemory{{Job: 1}: {Pool: 7, Entered: at}}}, Groups: map[string][]string{"ann": {"a"}}}
	r.State.Abilities = backends.ForEngine{SuspendFrees: true, Pin: func(context.Context, []backends.Pin) backends.Errors { return nil }}
	r.Plan = plan.Make(r.State, plan.Policy{}, at)
	return r
}

// viewDesk returns a desk whose views a server wants.
func viewDesk(t *testing.T) *Desk {
	t.Helper()
	d := &Desk{Config: configfile.Config{Paths: config.Paths{State: t.TempDir()}}, facts: &queueFacts{}}
	stop, err := d.WantViews(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return d
}

// TestViewIsWrittenForServersAlone: while none runs there is no view, so that one that starts
// shows no old one.
func TestViewIsWrittenForServersAlone(t *testing.T) {
	d := &Desk{Config: configfile.Config{Paths: config.Paths{State: t.TempDir()}}, facts: &queueFacts{}}
	var f viewFile
	cycle := func(want bool) {
		t.Helper()
		if err := d.writeView(someResult()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.get(viewPath(d.Config)); (err == nil) != want {
			t.Errorf("%v, want a view: %v", err, want)
		}
	}
	serve := func() (stop func()) {
		t.Helper()
		stop, err := d.WantViews(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stop
	}
	cycle(false)
	first, second := serve(), serve()
	cycle(true)
	first()
	cycle(true)
	second()
	if _, err := f.get(viewPath(d.Config)); err != nil { // what the last cycle saw
		t.Error(err)
	}
	cycle(false)
	defer serve()()
	if _, err := f.get(viewPath(d.Config)); !Temporary(err) || !strings.Contains(err.Error(), "no cycle has ended since allotd started") {
		t.Errorf("after a start: %v", err)
	}
	cycle(true)
}

func TestViewIsReadAsItWasWritten(t *testing.T) {
	d, r := viewDesk(t), someResult()
	fixed := backends.FixedShare{Slots: 3}
	able := d.facts.record(backends.ForFilter{
		Marks:    true,
		Fixed:    func(context.Context) (backends.FixedShare, error) { return fixed, nil },
		HookRank: func(context.Context, backends.Priority) (int64, error) { return 0, backends.ErrUnable },
	})
	if _, err := able.Fixed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := able.HookRank(t.Context(), 0); !errors.Is(err, backends.ErrUnable) {
		t.Fatal(err)
	}
	if err := d.writeView(r); err != nil {
		t.Fatal(err)
	}
	var f viewFile
	v, err := f.get(viewPath(d.Config))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*r, v.Result, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(pba.Result{}), cmp.FilterPath(
		func(p cmp.Path) bool { return p.Last().String() == ".Abilities" }, cmp.Ignore())); diff != "" {
		t.Errorf("the view differs (-written +read):\n%s", diff)
	}
	jobs := v.Result.State.Farm.Jobs
	if jobs[0].Suits != jobs[3].Suits || jobs[1].Suits != nil {
		t.Error("jobs don't share their host set")
	}
	if got := v.Result.State.Abilities; got.Pin == nil || got.Move != nil || !got.SuspendFrees || got.Pin(t.Context(), nil) != nil {
		t.Errorf("abilities: %+v", got)
	}
	noted := v.Facts.forFilter()
	if got, err := noted.Fixed(t.Context()); got != fixed || err != nil || !noted.Marks || noted.Accounts != nil {
		t.Errorf("facts: %+v, %v", got, err)
	}
	if _, err := noted.HookRank(t.Context(), 0); !errors.Is(err, backends.ErrUnable) {
		t.Errorf("rank: %v", err)
	}
	if again, err := f.get(viewPath(d.Config)); again != v || err != nil {
		t.Errorf("an unchanged view is read again: %v", err)
	}
	info, err := os.Stat(viewPath(d.Config))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want a file that is its owner's alone", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(d.Paths.State, ".view*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestViewThatCantBeReadIsTemporary(t *testing.T) {
	d := viewDesk(t)
	var f viewFile
	if _, err := f.get(viewPath(d.Config)); !Temporary(err) {
		t.Errorf("missing: %v", err)
	}
	if err := os.WriteFile(viewPath(d.Config), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.get(viewPath(d.Config)); !Temporary(err) {
		t.Errorf("broken: %v", err)
	}
	q := viewed{func() (*view, error) { return f.get(viewPath(d.Config)) }}
	if _, err := q.Snapshot(t.Context(), time.Time{}); !Temporary(err) {
		t.Errorf("snapshot: %v", err)
	}
	if err := q.Kill(t.Context(), []backends.ID{{Job: 1}}).First(); !errors.Is(err, backends.ErrUnable) {
		t.Errorf("kill: %v", err)
	}
}
