package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/settings"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// TestManagersImportTables: a manager may change a table's cells of projects of the manager's
// own alone, and a cell that another manager changes before the answer is not overwritten.
func TestManagersImportTables(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	c, err := configfile.LoadFrom(config.Paths{Config: filepath.Join(dir, "config.yaml"), State: dir, Runtime: dir}, yamlplain.Convert)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Create(filepath.Join(dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	d, err := desk.Open(t.Context(), desk.System{
		Now:  func() time.Time { return now },
		Load: func() (configfile.Config, error) { return c, nil },
		Identify: func(configfile.Config) (desk.Caller, error) {
			return desk.Caller{Writes: true, UID: 7, As: 7, Caller: settings.Caller{User: "ann"}}, nil
		},
		Open: func(context.Context, configfile.Config) (backends.Backend, error) {
			return simulate.New(simulate.Config{Start: now, Hosts: []backends.Host{{Name: "n1", Slots: 100}}}), nil
		},
		EditWait: 10 * time.Second,
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	this := calendar.WeekOf(now, c.Timezone.Location())
	set := func(project string, slots int) {
		t.Helper()
		change := ledger.Change{Pool: ledger.Pool{Project: project}, Week: this, Terms: ledger.Terms{Slots: slots, SLA: plan.Velocity}}
		if _, err := l.ChangeAllocations(t.Context(), ledger.Edit{Editor: ledger.Editor{Who: "bob (uid 8)", At: now}}, []ledger.Change{change}); err != nil {
			t.Fatal(err)
		}
	}
	for name, manager := range map[string]string{"chipA": "ann", "chipB": "bob"} {
		if err := l.AddProject(t.Context(), ledger.Editor{At: now}, ledger.Project{Name: name, Group: "a", Managers: []string{manager}}); err != nil {
			t.Fatal(err)
		}
		set(name, 5)
	}
	g, err := d.ExportGrid(t.Context(), nil, desk.When{Weeks: "1"})
	if err != nil {
		t.Fatal(err)
	}
	var exported strings.Builder
	if err := g.WriteCSV(&exported); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "plan.csv")
	load := func(meanwhile func(), edits ...string) error {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.NewReplacer(edits...).Replace(exported.String())), 0o600); err != nil {
			t.Fatal(err)
		}
		return importPlan(t.Context(), d, importOptions{file: file}, answering(meanwhile), io.Discard, io.Discard)
	}
	is := func(what string, chipA, chipB int) {
		t.Helper()
		all, err := l.Allocations(t.Context(), this, this)
		if err != nil || len(all) != 2 || all[0].Slots != chipA || all[1].Slots != chipB {
			t.Errorf("%s: %+v, %v; want %d and %d", what, all, err, chipA, chipB)
		}
	}
	nothing := func() {}
	mine, theirs := []string{"chipA,,,,velocity,,5", "chipA,,,,velocity,,6"}, []string{"chipB,,,,velocity,,5", "chipB,,,,velocity,,6"}
	err = load(nothing, append(mine, theirs...)...)
	if err == nil || !strings.Contains(err.Error(), "cell A7: plan for chipB: you are ann (uid 7): only its managers") {
		t.Error(err)
	}
	is("another manager's project", 5, 5)
	if err := load(func() { set("chipA", 9) }, mine...); err == nil || !strings.Contains(err.Error(), "cell G6: chipA in 2026-W48: bob (uid 8) changed it from 5 to 9") {
		t.Error(err)
	}
	is("changed before the answer", 9, 5)
	set("chipA", 5)
	set("chipB", 8)
	if err := load(nothing, mine...); err != nil {
		t.Errorf("chipA has what was exported, again: %v", err)
	}
	is("a manager's own project", 6, 8)
}

// TestManyKeptCellsAreCounted: a manager whose colleagues planned a thousand cells meanwhile
// still sees the changes.
func TestManyKeptCellsAreCounted(t *testing.T) {
	var out strings.Builder
	printKept(&out, make([]desk.Difference, 25))
	if lines := strings.Split(out.String(), "\n"); len(lines) != 22 || lines[20] != "5 more keep what they have" {
		t.Errorf("%q", lines)
	}
}
