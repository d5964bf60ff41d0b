package daemon

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/account"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/state"
)

// The name service is asked once a minute for each user, one question at a time; what
// it said holds while it can't be asked, and no longer once it says no.
func TestUserLookupsAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queries := 0
		var fails error
		u := users{lookup: func(context.Context, uint32) (account.Account, error) {
			queries++
			time.Sleep(time.Second)
			return account.Account{Name: "alice", Home: "/", Shell: "/bin/sh"}, fails
		}}
		expect := func(what string, times int, known bool) {
			t.Helper()
			done := make(chan knownUser)
			for range 3 {
				go func() { done <- u.get(7) }()
			}
			for range 3 {
				if a := <-done; (a.err == nil) != known || known && a.Name != "alice" {
					t.Errorf("%s: %q, %v", what, a.Name, a.err)
				}
			}
			if queries != times {
				t.Errorf("%s: asked %d times, want %d", what, queries, times)
			}
			if _, cached := u.cached(7); cached != known {
				t.Errorf("%s: cached %v", what, cached)
			}
		}
		expect("first", 1, true)
		time.Sleep(userCacheTime / 2)
		expect("soon after", 1, true)
		time.Sleep(userCacheTime)
		fails = errors.New("LDAP is down")
		expect("while it can't be asked", 2, true)
		expect("soon after that", 2, true)
		time.Sleep(userCacheTime)
		fails = account.ErrUnknown
		expect("gone", 3, false)
	})
}

func TestReassignedUserIDRunsNoJobs(t *testing.T) {
	a := knownUser{Account: account.Account{Name: "bob", UID: 7}}
	if a.mayRunAs("bob") != nil || a.mayRunAs("alice") == nil {
		t.Error("a job of alice runs as bob, which has her user ID now")
	}
}

// The user that a job runs as comes back from its state object, root too.
func TestOwnerOnDisk(t *testing.T) {
	dir := t.TempDir()
	w, err := state.NewWriter(disk.OS(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.Start()
	defer w.Close()
	for i, want := range []*runAs{nil, {UID: 0}, {UID: 1000, Limits: "nofile=1:2 core=0:-"}} {
		id := backends.ID{Job: int64(i + 1)}
		w.Put(state.Change{ID: id, Seq: uint64(i + 1), At: time.Now(), Submit: &state.Submission{Owner: want.owner("alice"), Spec: backends.Spec{Command: []string{"true"}}}})
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		o, err := state.ReadOwner(dir, id)
		if err != nil || o.User != "alice" {
			t.Fatalf("%+v, %v", o, err)
		}
		got, err := runAsOf(o)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v %s", err, diff)
		}
	}
}
