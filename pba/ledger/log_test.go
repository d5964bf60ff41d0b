package ledger

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// TestTermsAreRead: the log's texts are read as they were written.
func TestTermsAreRead(t *testing.T) {
	for _, want := range []Terms{{}, {Slots: 5, SLA: plan.Velocity}, {Slots: 5, SLA: plan.Throughput, Jobs: 600}} {
		if got, err := parseTerms(want.String()); err != nil || got != want {
			t.Errorf("%q: %+v, %v", want, got, err)
		}
	}
	for _, bad := range []string{"x", "5 x", "5 throughput", "5 throughput 6 7", "05"} {
		if got, err := parseTerms(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, got)
		}
	}
}

// TestLog: what one command changed belongs together; what is so already is no change.
func TestLog(t *testing.T) {
	l, ctx := create(t), context.Background()
	addProject(t, l, Project{Name: "chipA"})
	addProject(t, l, Project{Name: "chipB"})
	w48, w49 := calendar.Week{Year: 2026, Week: 48}, calendar.Week{Year: 2026, Week: 49}
	set := func(e Edit, project string, slots int, weeks ...calendar.Week) int64 {
		t.Helper()
		var all []Change
		for _, w := range weeks {
			all = append(all, Change{Pool{Project: project}, w, Terms{Slots: slots, SLA: plan.Velocity}})
		}
		id, err := l.ChangeAllocations(ctx, e, all)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	bob := Edit{Editor: Editor{Who: "bob", At: at(10)}, Command: "alloc import", Comment: "tape-out"}
	first := set(bob, "chipA", 5, w48, w49)
	second := set(Edit{Editor: Editor{Who: "ann", At: at(20)}, Undoes: first}, "chipA", 6, w48, w49)
	third := set(Edit{Editor: Editor{Who: "ann", At: at(30)}}, "chipB", 1, w48)
	if id := set(bob, "chipA", 6, w48); id != 0 {
		t.Errorf("a change of nothing is change %d", id)
	}
	all, err := l.Log(ctx, Query{Project: "chipA", Limit: 2})
	if err != nil || len(all) != 4 || all[0].Change != second || all[1].Change != second || all[2].Change != first {
		t.Fatalf("%+v, %v", all, err)
	}
	if r := all[3]; r.Who != "bob" || !r.At.Equal(at(10)) || r.Command != "alloc import" || r.Comment != "tape-out" || r.What != "alloc set" || r.Pool.Project != "chipA" || r.Week != w49 || r.Was != (Terms{}) || r.Is.Slots != 5 {
		t.Errorf("%+v", r)
	}
	for name, c := range map[string]struct {
		query Query
		rows  int
	}{
		"all":        {Query{Limit: 99}, 7},
		"the latest": {Query{Limit: 1}, 1},
		"since":      {Query{Since: at(20), Limit: 99}, 3},
		"one":        {Query{Change: first, Limit: 1}, 2},
		"chipB":      {Query{Project: "chipB", Limit: 99}, 2},
	} {
		if got, err := l.Log(ctx, c.query); err != nil || len(got) != c.rows {
			t.Errorf("%s: %d rows, want %d; %v", name, len(got), c.rows, err)
		}
	}
	if got, err := l.LastOf(ctx, all[0].PoolID, w48); err != nil || len(got) != 1 || got[0].Change != second {
		t.Errorf("last of a cell: %+v, %v", got, err)
	}
	if got, err := l.Undoings(ctx); err != nil || len(got) != 1 || got[0] != (Undoing{second, first}) {
		t.Errorf("undoings: %v, %v", got, err)
	}
	if got, err := l.ByEditors(ctx, "ann", "ann by sudo"); err != nil || len(got) != 1 || got[0] != third {
		t.Errorf("ann's: %v, %v", got, err)
	}
}

// TestOlderLog: rows of a ledger without changes are changes by themselves, and belong to
// the project that their subject begins with.
func TestOlderLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	script, err := migrations.ReadFile("migrations/0001_ledger.sql")
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec(string(script) + `; PRAGMA user_version = 1;
		INSERT INTO project (name, unix_group) VALUES ('chip', 'g'), ('chipA', 'g');
		INSERT INTO edit (at, who, what, subject, before, after) VALUES (1, 'bob', 'project add', 'chipA', '', 'group=g managers='),
			(2, 'bob', 'alloc set', 'chipA 2026-W48', '', '5'), (3, 'bob', 'alloc set', 'chipA:mask on gpu 2026-W48', '', '5'),
			(4, 'bob', 'alloc set', 'chip 2026-W48', '', '5'), (5, 'bob', 'pause', '', '', '')`)
	if err := errors.Join(err, db.Close(), os.Chmod(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for project, want := range map[string]int{"chipA": 3, "chip": 1, "": 5} {
		if all, err := l.Log(t.Context(), Query{Project: project, Limit: 99}); err != nil || len(all) != want {
			t.Errorf("%q: %d rows, want %d; %v: %+v", project, len(all), want, err, all)
		}
	}
}
