package desk

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// TestEditWaitsForTheLockAndGivesUp: a cycle that hangs does not block edits for ever.
func TestEditWaitsForTheLockAndGivesUp(t *testing.T) {
	dir := t.TempDir()
	d := &Desk{Config: configfile.Config{Paths: config.Paths{State: dir}}, sys: System{EditWait: 20 * time.Millisecond}}
	unlock, err := pba.Lock(context.Background(), dir, pba.EditLock, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := false
	do := func() error { done = true; return nil }
	if err := d.locked(context.Background(), do); !errors.Is(err, pba.ErrBusy) || !Temporary(err) || done {
		t.Errorf("a lock that is held: %v, done %v", err, done)
	}
	unlock()
	if err := d.locked(context.Background(), do); err != nil || !done {
		t.Errorf("a lock that is free: %v, done %v", err, done)
	}
}

func TestCronQuoting(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/bin/pba":  "/usr/bin/pba",
		"/my dir/pba":   "'/my dir/pba'",
		"/50%/it's/pba": `'/50\%/it'\''s/pba'`,
	} {
		if got := quote(path); got != want {
			t.Errorf("quote(%q) = %s, want %s", path, got, want)
		}
	}
}

func TestReportShowsJobsThatAreTooWide(t *testing.T) { // R35
	all := []plan.TooWide{
		{Job: backends.ID{Job: 5}, User: "ann", Project: "chipA", Slots: 124, Beside: 96, Lost: 500.5 * 3600},
		{Job: backends.ID{Job: 6}, User: "bob", Slots: 100, Beside: 96, Lost: 450 * 3600},
	}
	if got := showTooWide(all, ""); len(got) != 2 || got[0].Job != "5" || got[0].Lost != 500.5 || got[0].Why != all[0].Why() || got[1].User != "bob" {
		t.Errorf("%+v", got)
	}
	if got := showTooWide(all, "chipA"); len(got) != 1 || got[0].Job != "5" {
		t.Errorf("of chipA: %+v", got)
	}
	if got := showTooWide(all, "chipB"); got == nil || len(got) != 0 {
		t.Errorf("of chipB: %+v", got)
	}
}

func TestHeavyStatusNamesOwner(t *testing.T) {
	farm := &backends.Snapshot{Jobs: []backends.Job{{ID: backends.ID{Job: 5}, User: "ann", Project: "chipA"}}}
	got := showHeavy([]plan.HeavyStatus{
		{Job: backends.ID{Job: 5}, Host: "h3", Need: 3, Dummies: 2, Gathers: true},
		{Job: backends.ID{Job: 6}, Need: 2, Gathers: true},
	}, farm)
	want := []HeavyStatus{
		{Job: "5", User: "ann", Project: "chipA", Host: "h3", Slots: 3, Dummies: 2, Gathers: true},
		{Job: "6", Slots: 2, Gathers: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
