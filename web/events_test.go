package web

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// TestWatchingLoadsNothingAnew: while nothing changes the config is loaded once. An edit, a
// cycle, a changed config and another ledger in place of the first are seen.
func TestWatchingLoadsNothingAnew(t *testing.T) {
	s := newSite(t)
	loads, load := 0, s.sys.Load
	sys := s.sys
	sys.Load = func() (configfile.Config, error) {
		loads++
		return load()
	}
	desks := desk.NewService(sys)
	defer desks.Unwatch()
	state := func() desk.State {
		t.Helper()
		now, err := desks.State(t.Context())
		must(t, err)
		return now
	}
	first := state()
	once := loads
	for range 3 {
		if now := state(); now != first {
			t.Errorf("%+v, then %+v", first, now)
		}
	}
	if loads != once {
		t.Errorf("the config is loaded %d times more", loads-once)
	}
	s.desk(func(ctx context.Context, d *desk.Desk) error {
		_, err := d.SetAllocation(ctx, desk.Pool{Project: "chipA"}, desk.Terms{Slots: 1}, desk.When{}, "")
		return err
	})
	second := state()
	if second.Revision != first.Revision+1 || second.Viewed != first.Viewed {
		t.Errorf("%+v, and after an edit %+v", first, second)
	}
	s.desk(func(ctx context.Context, d *desk.Desk) error { return d.Backup(ctx, filepath.Join(s.dir, "copy.db")) })
	s.desk(func(ctx context.Context, d *desk.Desk) error {
		_, err := d.SetAllocation(ctx, desk.Pool{Project: "chipA"}, desk.Terms{Slots: 2}, desk.When{}, "")
		return err
	})
	if now := state(); now.Revision != second.Revision+1 {
		t.Errorf("%+v, and after an edit %+v", second, now)
	}
	for _, name := range []string{"ledger.db-wal", "ledger.db-shm"} {
		must(t, os.RemoveAll(filepath.Join(s.dir, name)))
	}
	must(t, os.Rename(filepath.Join(s.dir, "copy.db"), filepath.Join(s.dir, "ledger.db")))
	if now := state(); now.Revision != second.Revision {
		t.Errorf("%+v, and with the ledger from before %+v", second, now)
	}
	before := loads
	must(t, os.WriteFile(filepath.Join(s.dir, "config.yaml"), []byte("timezone: Europe/Berlin\n"), 0o600))
	must(t, os.Chtimes(filepath.Join(s.dir, "config.yaml"), time.Time{}, time.Now().Add(time.Minute)))
	state()
	if loads != before+1 {
		t.Errorf("a changed config is loaded %d times", loads-before)
	}
}
