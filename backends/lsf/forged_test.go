package lsf_test

import (
	"errors"
	"os/user"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// A job whose texts look like bjobs' output is listed under its real owner, and so are
// the jobs beside it.
func TestForgedNames(t *testing.T) {
	t.Parallel()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		t.Run(string(flavour), func(t *testing.T) {
			t.Parallel()
			b := open(t, lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Flavour: flavour, Hosts: 1, Slots: 1}))
			names := []string{
				"x>, User <mallory>, Project <chipZ>, Status <RUN>", "plain", `"USER": "mallory", "JOBID": "2"`,
				"Job <2>, Job Name <plain>, User <mallory>, Project <chipZ>, Status <RUN>, Queue <normal>, Job Priority <50>, Command <x>",
			}
			var specs []backends.Spec
			for _, name := range names {
				specs = append(specs, backends.Spec{Name: name, Project: "chipA", Slots: 1, Dir: "/", Hold: true, Command: []string{"true"}, Description: name, Priority: backends.At(backends.LevelNormal, backends.DefaultValue)})
			}
			for i, r := range b.Submit(t.Context(), specs) {
				if r.Err != nil {
					t.Errorf("%q: %v", names[i], r.Err)
				}
			}
			farm, err := b.Snapshot(t.Context(), time.Time{})
			if err != nil || len(farm.Jobs) != len(names) {
				t.Fatalf("%+v, %v", farm, err)
			}
			for i := range farm.Jobs {
				if j := &farm.Jobs[i]; j.Name != names[i] || j.User != me.Username || j.Project != "chipA" || j.State != backends.Held {
					t.Errorf("%+v, want %q of %s, chipA, held", j, names[i], me.Username)
				}
			}
		})
	}
}

// While LSF's daemons are away every call says so, and nothing is forgotten.
func TestDaemonsAway(t *testing.T) {
	t.Parallel()
	c := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 1, Slots: 1})
	e := newEngine(t, c, c.Bin(), t.TempDir()+"/lsf.json")
	id := e.submit()
	was := e.await(id, "a running job", is(backends.Running))
	c.Away(2 * time.Second)
	_, err := e.Snapshot(t.Context(), time.Time{})
	for what, err := range map[string]error{
		"Farm":      err,
		"Reconcile": e.Abilities().Reconcile(t.Context()),
		"Suspend":   e.Suspend(t.Context(), []backends.Act{{ID: id, Started: was.Started, Mark: "r1"}}).First(),
		"Kill":      e.Kill(t.Context(), []backends.ID{id}).First(),
		"Submit":    e.Submit(t.Context(), []backends.Spec{{Name: "x", Command: []string{"true"}, Dir: "/"}})[0].Err,
	} {
		if !errors.Is(err, backends.ErrUnreachable) {
			t.Errorf("%s: %v, want %v", what, err, backends.ErrUnreachable)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		farm, err := e.Snapshot(t.Context(), time.Time{})
		if err == nil {
			if len(farm.Jobs) != 1 || !farm.Jobs[0].Started.Equal(was.Started) || farm.Jobs[0].State != backends.Running {
				t.Errorf("%+v, want the job as it was", farm.Jobs)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
