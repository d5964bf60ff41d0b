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

// TestOnlyYesApplies: any other answer changes nothing.
func TestOnlyYesApplies(t *testing.T) {
	for answer, want := range map[string]bool{
		"y\n": true, "yes\n": true, " Yes \n": true,
		"\n": false, "n\n": false, "yess\n": false, "": false, "y": false,
	} {
		if got := confirm(strings.NewReader(answer), io.Discard); got != want {
			t.Errorf("%q: %v", answer, got)
		}
	}
}

// answering is a terminal whose user does something else before typing yes.
type answering func()

func (a answering) Read(p []byte) (int, error) {
	a()
	return copy(p, "y\n"), nil
}

// TestImportFailsIfPlanChanged: what was shown is what is applied, or
// nothing.
func TestImportFailsIfPlanChanged(t *testing.T) {
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
			return desk.Caller{Writes: true, Caller: settings.Caller{Owner: true}}, nil
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
	if err := l.AddProject(context.Background(), ledger.Editor{At: now}, ledger.Project{Name: "chipA", Group: "a"}); err != nil {
		t.Fatal(err)
	}
	this := calendar.WeekOf(now, c.Timezone.Location())
	file := filepath.Join(dir, "plan.yaml")
	text := "from: W\nto: W\nprojects: [chipA]\nallocations: [{week: W, project: chipA, slots: 5}]\n"
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "W", this.String())), 0o600); err != nil {
		t.Fatal(err)
	}
	set := func(slots int) {
		_, err := l.ChangeAllocations(context.Background(), ledger.Edit{}, []ledger.Change{{Pool: ledger.Pool{Project: "chipA"}, Week: this, Terms: ledger.Terms{Slots: slots, SLA: plan.Velocity}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	apply := func(meanwhile func()) (int, error) {
		err := importPlan(context.Background(), d, importOptions{file: file}, answering(meanwhile), io.Discard, io.Discard)
		all, listErr := l.Allocations(context.Background(), this, this)
		if listErr != nil || len(all) != 1 {
			t.Fatal(all, listErr)
		}
		return all[0].Slots, err
	}
	if slots, err := apply(func() { set(7) }); err == nil || !strings.Contains(err.Error(), "another edit changed the plan meanwhile") || slots != 7 {
		t.Errorf("%d slots, %v", slots, err)
	}
	if slots, err := apply(func() {}); err != nil || slots != 5 {
		t.Errorf("%d slots, %v", slots, err)
	}
}
