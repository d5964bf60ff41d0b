package ledger

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/internal/sqlite"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func addProject(t *testing.T, l *Ledger, p Project) {
	t.Helper()
	if err := l.AddProject(context.Background(), Editor{}, p); err != nil {
		t.Fatal(err)
	}
}

func changeAll(t *testing.T, l *Ledger, e Edit, changes ...Change) {
	t.Helper()
	if _, err := l.ChangeAllocations(context.Background(), e, changes); err != nil {
		t.Fatal(err)
	}
}

// TestLowering: what an edit takes off in the running week is remembered for the
// engine to spare.
func TestLowering(t *testing.T) { // R25
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	w48, w49 := calendar.Week{Year: 2026, Week: 48}, calendar.Week{Year: 2026, Week: 49}
	type step struct {
		minute int // after noon
		week   calendar.Week
		slots  int
	}
	for name, c := range map[string]struct {
		steps []step
		want  plan.Allocation // Guarantee, Lowered; LoweredAt in minutes
		at    int             // minute of LoweredAt
	}{
		"first set":                    {[]step{{0, w48, 10}}, plan.Allocation{Guarantee: 10}, 0},
		"raised":                       {[]step{{0, w48, 10}, {5, w48, 12}}, plan.Allocation{Guarantee: 12}, 0},
		"lowered":                      {[]step{{0, w48, 10}, {5, w48, 7}}, plan.Allocation{Guarantee: 7, Lowered: 3}, 5},
		"set to the same":              {[]step{{0, w48, 10}, {5, w48, 7}, {9, w48, 7}}, plan.Allocation{Guarantee: 7, Lowered: 3}, 5},
		"lowered again":                {[]step{{0, w48, 10}, {5, w48, 7}, {30, w48, 5}}, plan.Allocation{Guarantee: 5, Lowered: 5}, 30},
		"again, after the grace":       {[]step{{0, w48, 10}, {5, w48, 7}, {65, w48, 5}}, plan.Allocation{Guarantee: 5, Lowered: 2}, 65},
		"raised in part":               {[]step{{0, w48, 10}, {5, w48, 6}, {30, w48, 7}}, plan.Allocation{Guarantee: 7, Lowered: 3}, 5},
		"raised as before":             {[]step{{0, w48, 10}, {5, w48, 6}, {30, w48, 10}}, plan.Allocation{Guarantee: 10}, 0},
		"raised beyond":                {[]step{{0, w48, 10}, {5, w48, 6}, {30, w48, 20}}, plan.Allocation{Guarantee: 20}, 0},
		"withdrawn":                    {[]step{{0, w48, 10}, {5, w48, 0}}, plan.Allocation{Lowered: 10}, 5},
		"withdrawn, set again":         {[]step{{0, w48, 10}, {5, w48, 0}, {6, w48, 4}}, plan.Allocation{Guarantee: 4, Lowered: 6}, 5},
		"another week's is no concern": {[]step{{0, w48, 10}, {0, w49, 10}, {5, w49, 4}}, plan.Allocation{Guarantee: 10}, 0},
	} {
		l := create(t)
		addProject(t, l, Project{Name: "chipA"})
		for _, s := range c.steps {
			e := Edit{Editor: Editor{At: noon.Add(time.Duration(s.minute) * time.Minute)}, ThisWeek: w48, Grace: time.Hour}
			change := Change{Pool: Pool{Project: "chipA"}, Week: s.week}
			if s.slots > 0 {
				change.Terms = Terms{Slots: s.slots, SLA: plan.Velocity}
			}
			changeAll(t, l, e, change)
		}
		_, got, err := l.InForce(context.Background(), calendar.Period{Week: w48, Begin: at(1), End: at(2)}, noon)
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %v %v", name, got, err)
			continue
		}
		if c.want.Lowered > 0 {
			c.want.LoweredAt = noon.Add(time.Duration(c.at) * time.Minute)
		}
		if g := got[0]; g.Guarantee != c.want.Guarantee || g.Lowered != c.want.Lowered || !g.LoweredAt.Equal(c.want.LoweredAt) {
			t.Errorf("%s: %d slots, %d lowered at %v; want %+v", name, g.Guarantee, g.Lowered, g.LoweredAt, c.want)
		}
		if _, next, err := l.InForce(context.Background(), calendar.Period{Week: w49, Begin: at(1), End: at(2)}, noon); err != nil || len(next) > 0 && next[0].Lowered != 0 {
			t.Errorf("%s: the next week was lowered: %v %v", name, next, err)
		}
	}
}

// TestWithdrawnInMidWeek: such a pool is in force without slots while its jobs
// are spared, and is listed nowhere else.
func TestWithdrawnInMidWeek(t *testing.T) { // R25
	l, ctx := create(t), context.Background()
	addProject(t, l, Project{Name: "chipA"})
	week := calendar.Week{Year: 2026, Week: 48}
	e := Edit{Editor: Editor{At: at(10)}, ThisWeek: week, Grace: time.Hour}
	chipA := Pool{Project: "chipA"}
	changeAll(t, l, e, Change{chipA, week, Terms{Slots: 5, SLA: plan.Velocity}})
	changeAll(t, l, e, Change{Pool: chipA, Week: week})
	if all, err := l.Allocations(ctx, week, week); err != nil || len(all) != 0 {
		t.Errorf("it is listed: %v %v", all, err)
	}
	if _, err := l.ChangeAllocations(ctx, e, []Change{{Pool: chipA, Week: week}}); !errors.Is(err, ErrUnknownAllocation) {
		t.Errorf("it can be withdrawn again: %v", err)
	}
	for _, c := range []struct {
		spared time.Time
		pools  int
	}{{at(9), 1}, {at(10), 0}} {
		if _, pools, err := l.InForce(ctx, calendar.Period{Week: week, Begin: at(1), End: at(2)}, c.spared); err != nil || len(pools) != c.pools {
			t.Errorf("spared since %v: %v %v", c.spared, pools, err)
		}
	}
	if err := l.RemoveProject(ctx, Editor{}, "chipA", week); err != nil {
		t.Errorf("its project can't go: %v", err)
	}
}

func TestThroughputIsInForce(t *testing.T) { // R26
	l := create(t)
	addProject(t, l, Project{Name: "chipA"})
	week := calendar.Week{Year: 2026, Week: 53}
	changeAll(t, l, Edit{}, Change{Pool{Project: "chipA"}, week, Terms{Slots: 50, SLA: plan.Throughput, Jobs: 5000}})
	_, got, err := l.InForce(context.Background(), calendar.Period{Week: week, Begin: at(1), End: at(2)}, at(0))
	want := []plan.Allocation{{ID: 1, Project: "chipA", Guarantee: 50, SLA: plan.Throughput, Jobs: 5000, Begin: at(1), End: at(2)}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
}

// TestThroughputTermsAreStored: one that changes alone is written, too.
func TestThroughputTermsAreStored(t *testing.T) { // R26
	l, ctx := create(t), context.Background()
	m := plan.ThroughputMemory{Week: at(1), Finished: 1, SlotSeconds: 1, Guarantee: 1, Fell: at(1)}
	for _, change := range []func(){
		func() {},
		func() { m.Week = at(2) },
		func() { m.Finished = 2 },
		func() { m.SlotSeconds = 0.1 + 0.2 },
		func() { m.Guarantee = 2 },
		func() { m.Fell = at(2) },
		func() { m.Fell = time.Time{} },
	} {
		change()
		want := map[int64]plan.ThroughputMemory{7: m}
		if _, err := l.Intend(ctx, Cycle{}, plan.Plan{Memory: plan.Memory{Throughput: want}}); err != nil {
			t.Fatal(err)
		}
		got, err := l.Load(ctx)
		if d := cmp.Diff(want, got.Throughput); d != "" || err != nil {
			t.Errorf("%v %s", err, d)
		}
	}
}

func TestFlows(t *testing.T) {
	l, ctx := create(t), context.Background()
	by, week := Editor{}, calendar.Week{Year: 2026, Week: 48}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(err error, why string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("error %v, want %q", err, why)
		}
	}
	must(l.AddFlow(ctx, by, "rtl2gds", []string{"logic", "synthesis", "mask"}))
	refused(l.AddFlow(ctx, by, "rtl2gds", []string{"x"}), "exists already")
	addProject(t, l, Project{Name: "chipA", Group: "a", Flow: "rtl2gds", Managers: []string{}})
	if err := l.AddProject(ctx, by, Project{Name: "chipB", Flow: "none"}); !errors.Is(err, ErrUnknownFlow) {
		t.Errorf("unknown flow: %v", err)
	}
	all, err := l.Flows(ctx)
	if d := cmp.Diff([]Flow{{"rtl2gds", []string{"logic", "synthesis", "mask"}, []string{"chipA"}}}, all); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	projects, _, err := l.InForce(ctx, calendar.Period{Week: week}, time.Time{})
	if d := cmp.Diff([]plan.Project{{Name: "chipA", Group: "a", Steps: []string{"logic", "synthesis", "mask"}}}, projects); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	changeAll(t, l, Edit{}, Change{Pool{Project: "chipA", Step: "mask"}, week, Terms{Slots: 3, SLA: plan.Velocity}})
	refused(l.SetFlow(ctx, by, "rtl2gds", []string{"logic"}, week), `chipA has 3 slots for step "mask" in 2026-W48`)
	must(l.SetFlow(ctx, by, "rtl2gds", []string{"mask", "ret"}, week))
	refused(l.RemoveFlow(ctx, by, "rtl2gds"), "is used by chipA")
	must(l.AddFlow(ctx, by, "other", []string{"logic"}))
	refused(l.SetProject(ctx, by, Project{Name: "chipA", Flow: "other"}, week), `step "mask"`)
	must(l.SetProject(ctx, by, Project{Name: "chipA", Flow: "other"}, calendar.Week{Year: 2026, Week: 49})) // its week is over
	must(l.RemoveFlow(ctx, by, "rtl2gds"))
	must(l.SetProject(ctx, by, Project{Name: "chipA"}, week))
	must(l.RemoveFlow(ctx, by, "other"))
	if _, err := flowID(ctx, l.db, "other"); !errors.Is(err, ErrUnknownFlow) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestOldLedgerIsBroughtUpToDate: a plan of the first version stays as it was.
func TestOldLedgerIsBroughtUpToDate(t *testing.T) {
	script, err := migrations.ReadFile("migrations/0001_ledger.sql")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ledger.db")
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec(string(script) + `; PRAGMA user_version = 1;
		INSERT INTO project (name, unix_group) VALUES ('chipA', 'a');
		INSERT INTO pool (project, user, step) VALUES (1, 'bob', 'mask');
		INSERT INTO allocation VALUES (1, 2026, 53, 7)`)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenToRead(path); !errors.Is(err, sqlite.ErrOlder) {
		t.Errorf("a reader brings nothing up to date: %v", err)
	}
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	got, err := l.Allocations(context.Background(), calendar.Week{Year: 2026, Week: 1}, calendar.Week{Year: 2027, Week: 1})
	want := []Allocation{{ID: 1, Pool: Pool{"chipA", "bob", "mask", ""}, Week: calendar.Week{Year: 2026, Week: 53}, Terms: Terms{Slots: 7, SLA: plan.Velocity}}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	var broken int
	if err := l.db.QueryRow(`SELECT COUNT(*) FROM pragma_foreign_key_check`).Scan(&broken); err != nil || broken > 0 {
		t.Errorf("%d references lead nowhere: %v", broken, err)
	}
	week := want[0].Week // a pool on a host set is another one, with an ID that was never used
	changeAll(t, l, Edit{}, Change{Pool{"chipA", "bob", "mask", "gpu"}, week, Terms{Slots: 2, SLA: plan.Velocity}})
	want = append(want, Allocation{ID: 2, Pool: Pool{"chipA", "bob", "mask", "gpu"}, Week: week, Terms: Terms{Slots: 2, SLA: plan.Velocity}})
	got, err = l.Allocations(context.Background(), week, week)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	_, inForce, err := l.InForce(context.Background(), calendar.Period{Week: week}, time.Time{})
	if err != nil || len(inForce) != 2 || inForce[0].Hosts != "" || inForce[1].Hosts != "gpu" {
		t.Errorf("%v %+v", err, inForce)
	}
}

// TestReadersChangeNothing: a ledger opened to read shows everything, also while
// another process writes, and can't be written.
func TestReadersChangeNothing(t *testing.T) {
	l, ctx := create(t), context.Background()
	addProject(t, l, Project{Name: "chipA"})
	r, err := OpenToRead(l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	addProject(t, l, Project{Name: "chipB"})
	if all, err := r.Projects(ctx); err != nil || len(all) != 2 {
		t.Errorf("a reader sees %v, %v", all, err)
	}
	if err := r.AddProject(ctx, Editor{}, Project{Name: "chipC"}); err == nil {
		t.Error("a reader wrote")
	}
	if _, err := OpenToRead(filepath.Join(t.TempDir(), "ledger.db")); !errors.Is(err, ErrMissing) {
		t.Errorf("a missing ledger: %v", err)
	}
	if info, err := os.Stat(l.path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("everyone may read it: %v %v", info.Mode(), err)
	}
}
