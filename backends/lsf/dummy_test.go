package lsf_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/lsf"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

const mallory = 54321

// bothFlavours runs a test on a cluster of each flavour.
func bothFlavours(t *testing.T, test func(t *testing.T, c *lsfstandin.Cluster, e engine)) {
	t.Parallel()
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		t.Run(string(flavour), func(t *testing.T) {
			t.Parallel()
			c := lsfstandin.New(t, lsfstandin.Options{
				RootMaySubmit: true,
				Flavour:       flavour, Hosts: 2, Slots: 1, Users: map[string]lsfstandin.UserConfig{"mallory": {UID: mallory, GID: mallory, Home: "/tmp"}},
			})
			test(t, c, newEngine(t, c, c.Bin(), filepath.Join(t.TempDir(), "lsf.json")))
		})
	}
}

// listed returns a job as LSF itself has it.
func listed(t *testing.T, c *lsfstandin.Cluster, id backends.ID) lsfstandin.Job {
	t.Helper()
	p, err := c.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range p.Jobs {
		if j.ID == id.Job && j.Index == id.Index {
			return j
		}
	}
	t.Fatalf("LSF knows no job %v", id)
	return lsfstandin.Job{}
}

func TestDummyJobs(t *testing.T) {
	bothFlavours(t, func(t *testing.T, c *lsfstandin.Cluster, e engine) {
		e.await(e.submit("h1"), "a full host", is(backends.Running))
		r := e.Submit(t.Context(), []backends.Spec{{Name: "heavy", Queue: "high", Dir: "/", Hold: true, Command: []string{"true"}, Priority: backends.At(backends.LevelNormal, backends.DefaultValue)}})
		heavy, submitDummies := r[0].ID, e.Abilities().Place
		if r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
		// Our filter recognises dummy jobs by this.
		filter := fmt.Sprintf("#!/bin/sh\n[ \"$%s\" = %v ] || exit \"$LSB_SUB_ABORT_VALUE\"\n", backends.DummyVariable, heavy)
		if err := os.WriteFile(filepath.Join(c.ServerDir(), "esub"), []byte(filter), 0o755); err != nil {
			t.Fatal(err)
		}
		rank := backends.At(backends.LevelHandOver, 221)
		submitted := submitDummies(t.Context(), []backends.Dummy{
			{For: heavy, Host: "h1", Priority: rank, Limit: time.Hour},
			{For: heavy, Host: "h2", Priority: rank, Limit: time.Hour},
			{For: backends.ID{Job: 999}, Host: "h1", Priority: rank, Limit: time.Hour},
			{For: heavy, Host: "h1 h2", Priority: rank, Limit: time.Hour},
			{For: heavy, Host: "h1", Priority: rank},
		})
		if submitted[0].Err != nil || submitted[1].Err != nil || !errors.Is(submitted[2].Err, backends.ErrUnknownJob) || submitted[3].Err == nil || submitted[4].Err == nil {
			t.Fatalf("%+v", submitted)
		}
		waits, runs := submitted[0].ID, submitted[1].ID
		if in := listed(t, c, waits); in.Stat != lsfstandin.PEND || in.Priority <= 50 || in.Queue != "high" || in.RunLimit != time.Hour || in.Memory != 0 || in.Rerunnable {
			t.Errorf("LSF has it as %+v", in)
		}
		j := e.await(runs, "the dummy on the free host", is(backends.Running))
		if len(j.Hosts) != 1 || j.Hosts[0] != (backends.Placement{Host: "h2", Slots: 1}) || j.RunLimit != time.Hour || !j.NoRequeue || j.Memory != 0 {
			t.Errorf("%+v", j)
		}
		for _, id := range []backends.ID{waits, runs} {
			if j := e.queryJob(id); j.DummyFor != heavy || j.Slots != 1 || j.Queue != "high" {
				t.Errorf("%+v", j)
			}
		}
		if j := e.queryJob(heavy); j.IsDummy() {
			t.Errorf("the job itself is one: %+v", j)
		}
		if err := os.Remove(filepath.Join(c.ServerDir(), "esub")); err != nil {
			t.Fatal(err)
		}
		if err := e.Requeue(t.Context(), []backends.Act{{ID: runs}}).First(); !errors.Is(err, backends.ErrWrongState) {
			t.Errorf("requeued: %v", err)
		}
		if err := e.SetPriority(t.Context(), []backends.PriorityChange{{ID: waits, Priority: backends.At(backends.LevelPlaceholder, 20)}}).First(); err != nil {
			t.Error(err)
		}
		if err := e.Kill(t.Context(), []backends.ID{waits, runs}).First(); err != nil {
			t.Error(err)
		}
		for _, id := range []backends.ID{waits, runs} {
			if j := e.await(id, "its end", func(j backends.Job) bool { return j.State.Ended() }); j.DummyFor != heavy {
				t.Errorf("ended: %+v", j)
			}
		}
		if err := e.Kill(t.Context(), []backends.ID{heavy}).First(); err != nil {
			t.Error(err)
		}
		if err := submitDummies(t.Context(), []backends.Dummy{{For: heavy, Host: "h2", Priority: rank, Limit: time.Hour}})[0].Err; !errors.Is(err, backends.ErrWrongState) {
			t.Errorf("for a job that has ended: %v", err)
		}
	})
}

// A job that another user describes as a dummy job is none. A dummy job of root's is one
// for the owner of a state directory, too.
func TestForgedDummy(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can be two users")
	}
	bothFlavours(t, func(t *testing.T, c *lsfstandin.Cluster, _ engine) {
		state := t.TempDir()
		if err := os.Chown(state, mallory, mallory); err != nil {
			t.Fatal(err)
		}
		ours, admins := newEngine(t, c, c.Bin(), filepath.Join(t.TempDir(), "lsf.json")), newEngine(t, c, c.Bin(), filepath.Join(state, "lsf.json"))
		heavy := ours.submit()
		submitted := ours.Abilities().Place(t.Context(), []backends.Dummy{{For: heavy, Host: "h1", Priority: backends.At(backends.LevelPBA, 120), Limit: time.Hour}})
		if submitted[0].Err != nil {
			t.Fatal(submitted[0].Err)
		}
		in := listed(t, c, submitted[0].ID)
		message, wrong, _ := c.RunAs(mallory, mallory, "bsub", "-H", "-J", in.Name, "-Jd", in.Description, in.Command)
		var forged backends.ID
		if _, err := fmt.Sscanf(message, "Job <%d>", &forged.Job); err != nil {
			t.Fatal(message, wrong)
		}
		if j := ours.queryJob(forged); j.IsDummy() || j.User != "mallory" {
			t.Errorf("another user's passes for one: %+v", j)
		}
		// mallory owns the state directory, and so is the engine.
		if j := admins.queryJob(submitted[0].ID); j.DummyFor != heavy {
			t.Errorf("root's: %+v", j)
		}
	})
}

// A hold that the filter set is the engine's, not a begin time of the owner's.
func TestFilterHold(t *testing.T) {
	bothFlavours(t, func(t *testing.T, c *lsfstandin.Cluster, e engine) {
		until := time.Now().Add(time.Hour).Truncate(time.Minute).Add(37 * time.Second)
		held := backends.Tag{Held: until.Unix()}
		esub := fmt.Sprintf("#!/bin/sh\ngrep -q mine \"$LSB_SUB_PARM_FILE\" || echo LSB_SUB_BEGIN_TIME=%d >>\"$LSB_SUB_MODIFY_FILE\"\necho 'LSB_SUB_JOB_DESCRIPTION=\"%s\"' >>\"$LSB_SUB_MODIFY_FILE\"\n", until.Unix(), held)
		filter := filepath.Join(c.ServerDir(), "esub")
		if err := os.WriteFile(filter, []byte(esub), 0o755); err != nil {
			t.Fatal(err)
		}
		for i, options := range [][]string{{}, {"-J", "mine", "-b", time.Now().Add(2 * time.Hour).Format("15:04")}} {
			if _, message, rc := c.Run(append(append([]string{"bsub"}, options...), "sleep", "600")...); rc != 0 {
				t.Fatal(i, message)
			}
		}
		if err := os.Remove(filter); err != nil {
			t.Fatal(err)
		}
		id, mine := backends.ID{Job: 1}, backends.ID{Job: 2}
		if j := e.queryJob(id); !j.HeldUntil.Equal(until) || !j.BeginTime.IsZero() || j.State != backends.Pending || j.Wait != backends.WaitTime {
			t.Errorf("held until %v, and shown is %+v", until, j)
		}
		if j := e.queryJob(mine); !j.HeldUntil.IsZero() || j.BeginTime.IsZero() {
			t.Errorf("its owner's own begin time: %+v", j)
		}
		hold := e.Abilities().HoldUntil
		longer := until.Add(time.Hour)
		if err := hold(t.Context(), []backends.HoldUntil{{ID: id, Until: longer}}).First(); err != nil {
			t.Fatal(err)
		}
		if j := e.queryJob(id); !j.HeldUntil.Equal(longer) || !j.BeginTime.IsZero() {
			t.Errorf("renewed: %+v", j)
		}
		if err := hold(t.Context(), []backends.HoldUntil{{ID: id}}).First(); err != nil {
			t.Fatal(err)
		}
		e.checkReleased(c, id)
	})
}

// A job submitted with a hold is like one that the filter held; it runs in the end even
// without the engine.
func TestSubmittedHeld(t *testing.T) {
	bothFlavours(t, func(t *testing.T, c *lsfstandin.Cluster, e engine) {
		until := time.Now().Add(time.Hour)
		r := e.Submit(t.Context(), []backends.Spec{{Name: "heavy", Dir: "/", Command: []string{"true"}, HeldUntil: until, Priority: backends.At(backends.LevelNormal, backends.DefaultValue), Description: "mine"}})
		if r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
		config := lsf.DefaultConfig()
		config.Bin, config.EnvDir = c.Bin(), c.EnvDir()
		withoutRecord := engine{lsf.Open(lsf.Options{Config: config}), t}
		in := listed(t, c, r[0].ID)
		if j := withoutRecord.queryJob(r[0].ID); !j.HeldUntil.Equal(in.Begin) || in.Begin.Before(until.Truncate(time.Second)) || in.Begin.After(until.Add(2*time.Minute)) || !j.BeginTime.IsZero() {
			t.Errorf("begins at %v, and shown is %+v", in.Begin, j)
		}
		if _, text, err := backends.ParseTag(in.Description); err != nil || text != "mine" {
			t.Errorf("%q, %v", in.Description, err)
		}
		if err := e.Abilities().HoldUntil(t.Context(), []backends.HoldUntil{{ID: r[0].ID}}).First(); err != nil {
			t.Fatal(err)
		}
		e.checkReleased(c, r[0].ID)
	})
}

// amod -sp counts as asub -sp does, in LSF's own numbers.
func TestModifyQueuePriority(t *testing.T) {
	bothFlavours(t, func(t *testing.T, c *lsfstandin.Cluster, e engine) {
		submitted := e.Submit(t.Context(), []backends.Spec{{Command: []string{"sleep", "60"}, Hold: true, Slots: 1, Dir: "/tmp"}})[0]
		if submitted.Err != nil {
			t.Fatal(submitted.Err)
		}
		able := e.Abilities()
		if !able.CountsPriorities {
			t.Error("its priorities are not its own")
		}
		number := int64(37)
		if err := able.Modify(t.Context(), []backends.ID{submitted.ID}, backends.Change{QueuePriority: &number}).First(); err != nil {
			t.Fatal(err)
		}
		if got := listed(t, c, submitted.ID); got.UserPriority != 37 && got.Priority != 37 {
			t.Errorf("%+v", got)
		}
		number = 101
		if err := able.Modify(t.Context(), []backends.ID{submitted.ID}, backends.Change{QueuePriority: &number}).First(); err == nil {
			t.Error("more than MAX_USER_PRIORITY is taken")
		}
	})
}
