package pba

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/pba/ledger"
)

type groupCache map[string]ledger.Groups

func (c groupCache) Groups(context.Context) (map[string]ledger.Groups, error) {
	return maps.Clone(c), nil
}

func (c groupCache) SetGroups(_ context.Context, groups map[string]ledger.Groups) error {
	maps.Copy(c, groups)
	return nil
}

func TestGroupsAreCachedAndOutliveTheirDirectory(t *testing.T) { // R4
	synctest.Test(t, func(t *testing.T) {
		cache, asked, away := groupCache{}, 0, false
		d := &Directory{Cache: cache, Lookup: func(user string) ([]string, error) {
			asked++
			if away || user == "ghost" {
				return nil, errors.New("no answer")
			}
			return []string{user + "s"}, nil
		}}
		check := func(when string, wantAsked int, want map[string][]string) {
			t.Helper()
			got, err := d.Of(context.Background(), []string{"ghost", "alice", "alice"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" || asked != wantAsked {
				t.Errorf("%s: %d questions, want %d\n%s", when, asked, wantAsked, diff)
			}
		}
		alice := map[string][]string{"alice": {"alices"}}
		check("at first", 2, alice)
		check("at once again", 3, alice)
		time.Sleep(fresh)
		away = true
		check("the directory is away", 5, alice)
		d.ReadOnly, away = true, false
		before := cache["alice"].LookedUp
		check("read only", 7, alice)
		if cache["alice"].LookedUp != before {
			t.Error("a reader wrote the cache")
		}
	})
}

func TestSlowDirectoryKeepsNoCycleWaiting(t *testing.T) { // R4
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		d := &Directory{Cache: groupCache{}, Lookup: func(string) ([]string, error) {
			<-free
			return nil, nil
		}}
		var users []string
		for i := range 100 {
			users = append(users, fmt.Sprint("user", i))
		}
		began := time.Now()
		if got, err := d.Of(context.Background(), users); err != nil || len(got) != 0 {
			t.Errorf("%v %v", got, err)
		}
		if took := time.Since(began); took != patience {
			t.Errorf("100 users took %v, want %v", took, patience)
		}
		close(free)
		synctest.Wait()
	})
}

func TestSystemGroups(t *testing.T) {
	d := &Directory{Cache: groupCache{}}
	groups, err := d.Of(context.Background(), []string{"root", "no such user"})
	if err != nil || len(groups) != 1 || len(groups["root"]) == 0 {
		t.Errorf("%v %v", groups, err)
	}
	ids, err := d.IDs(context.Background(), []string{"root", "no such group"})
	if err != nil || len(ids) != 1 || ids["root"] != 0 {
		t.Errorf("%v %v", ids, err)
	}
}
