package lsf_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// checkReleased checks in LSF's own record that a job starts by itself within two minutes.
func (e engine) checkReleased(c *lsfstandin.Cluster, id backends.ID) {
	e.t.Helper()
	in := listed(e.t, c, id)
	if in.Begin.After(time.Now().Add(2*time.Minute)) || in.Stat == lsfstandin.PSUSP {
		e.t.Errorf("LSF has it as %s, to begin at %v", in.Stat, in.Begin)
	}
	if j := e.queryJob(id); !j.HeldUntil.IsZero() || !j.BeginTime.IsZero() {
		e.t.Errorf("released, and shown is %+v", j)
	}
}

// newBusyCluster returns a cluster with one slot, in which a job runs: others wait.
func newBusyCluster(t *testing.T, flavour lsfstandin.Flavour, clears bool) (*lsfstandin.Cluster, engine, string) {
	t.Helper()
	c := lsfstandin.New(t, lsfstandin.Options{
		Hosts: 1, Slots: 1, Flavour: flavour, RootMaySubmit: true,
		Edit: func(c *lsfstandin.Config) { c.Unkind.BeginNeverClears = !clears },
	})
	record := filepath.Join(t.TempDir(), "lsf.json")
	e := newEngine(t, c, c.Bin(), record)
	e.await(e.submit(), "a full host", is(backends.Running))
	return c, e, record
}

// A release is read back: where bmod -bn leaves a begin time in 2106, the job gets one
// shortly ahead, and the owner's own is restored.
func TestReleaseIsReadBack(t *testing.T) {
	t.Parallel()
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		for _, clears := range []bool{true, false} {
			t.Run(fmt.Sprint(flavour, " clears ", clears), func(t *testing.T) {
				t.Parallel()
				c, e, _ := newBusyCluster(t, flavour, clears)
				ids := []backends.ID{e.submit(), e.submit(), e.submit()}
				own := time.Now().Add(3 * time.Hour).Truncate(time.Minute)
				if _, message, rc := c.Run("bmod", "-b", own.Format("1:2:15:04"), ids[1].String()); rc != 0 {
					t.Fatal(message)
				}
				hold := func(until time.Time) {
					t.Helper()
					all := make([]backends.HoldUntil, len(ids))
					for i, id := range ids {
						all[i] = backends.HoldUntil{ID: id, Until: until}
					}
					if err := e.Abilities().HoldUntil(t.Context(), all).First(); err != nil {
						t.Fatal(err)
					}
				}
				hold(time.Now().Add(5 * time.Hour))
				hold(time.Now().Add(6 * time.Hour))
				for range 2 { // the second time nothing is to be done
					hold(time.Time{})
					if err := e.Abilities().Reconcile(t.Context()); err != nil {
						t.Fatal(err)
					}
					e.checkReleased(c, ids[0])
					e.checkReleased(c, ids[2])
					if j, in := e.queryJob(ids[1]), listed(t, c, ids[1]); !j.BeginTime.Equal(own) || !j.HeldUntil.IsZero() || !in.Begin.Equal(own) {
						t.Errorf("its owner wants %v; LSF has %v, and shown is %+v", own, in.Begin, j)
					}
				}
				hold(time.Now().Add(7 * time.Hour))
				if j := e.queryJob(ids[1]); !j.BeginTime.Equal(own) || !j.HeldUntil.After(own) {
					t.Errorf("held again: %+v", j)
				}
			})
		}
	}
}

// A release that LSF refuses is an error, and the job still shows as held.
func TestReleaseIsRefused(t *testing.T) {
	t.Parallel()
	c, e, record := newBusyCluster(t, lsfstandin.Lava, false)
	id, until := e.submit(), time.Now().Add(time.Hour)
	hold := []backends.HoldUntil{{ID: id, Until: until}}
	if err := e.Abilities().HoldUntil(t.Context(), hold).First(); err != nil {
		t.Fatal(err)
	}
	barred := newEngine(t, c, dying(t, c, "bmod"), record)
	if err := barred.Abilities().HoldUntil(t.Context(), []backends.HoldUntil{{ID: id}}).First(); err == nil {
		t.Error("it was released, by its word")
	}
	if j := e.queryJob(id); j.HeldUntil.Before(until.Truncate(time.Minute)) || !j.BeginTime.IsZero() {
		t.Errorf("a release that LSF did not hear of: %+v", j)
	}
	if err := e.Abilities().HoldUntil(t.Context(), []backends.HoldUntil{{ID: id}}).First(); err != nil {
		t.Error(err)
	}
	e.checkReleased(c, id)
}

// Jobs that an earlier version left with a begin time in 2106 are freed, and on lava
// those of a user's own bmod -bn, too. An owner's begin time stays.
func TestStuckJobsAreFreed(t *testing.T) {
	t.Parallel()
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		t.Run(string(flavour), func(t *testing.T) {
			t.Parallel()
			c, e, record := newBusyCluster(t, flavour, false)
			ours, users, own := e.submit(), e.submit(), e.submit()
			until := time.Now().Add(time.Hour)
			if err := e.Abilities().HoldUntil(t.Context(), []backends.HoldUntil{{ID: ours, Until: until}}).First(); err != nil {
				t.Fatal(err)
			}
			// As that version leaves it: by its note the hold is over.
			text, err := os.ReadFile(record)
			if err != nil {
				t.Fatal(err)
			}
			fields := slices.DeleteFunc(strings.Split(string(text), ","), func(f string) bool { return strings.HasPrefix(f, `"until"`) })
			if err := os.WriteFile(record, []byte(strings.Join(fields, ",")), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, argv := range [][]string{{"bmod", "-bn", ours.String()}, {"bmod", "-bn", users.String()}, {"bmod", "-b", "2:7:06:28", own.String()}} {
				if _, message, rc := c.Run(argv...); rc != 0 {
					t.Fatal(message)
				}
			}
			if j := e.queryJob(ours); j.HeldUntil.Year() != 2106 || !j.BeginTime.IsZero() {
				t.Errorf("stuck by us, and shown is %+v", j)
			}
			if err := e.Abilities().Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			e.checkReleased(c, ours)
			if flavour == lsfstandin.Lava {
				e.checkReleased(c, users)
			}
			if in, j := listed(t, c, own), e.queryJob(own); in.Begin.Format("1:2:15:04") != "2:7:06:28" || !j.BeginTime.Equal(in.Begin) || !j.HeldUntil.IsZero() {
				t.Errorf("its owner's begin time is %v, and shown is %+v", in.Begin, j)
			}
		})
	}
}

// amod -bn clears a begin time.
func TestModifyClearsBeginTime(t *testing.T) {
	t.Parallel()
	c, e, _ := newBusyCluster(t, lsfstandin.Lava, false)
	id, none := e.submit(), time.Time{}
	if _, message, rc := c.Run("bmod", "-b", time.Now().Add(time.Hour).Format("15:04"), id.String()); rc != 0 {
		t.Fatal(message)
	}
	if err := e.Abilities().Modify(t.Context(), []backends.ID{id}, backends.Change{BeginTime: &none}).First(); err != nil {
		t.Fatal(err)
	}
	e.checkReleased(c, id)
}
