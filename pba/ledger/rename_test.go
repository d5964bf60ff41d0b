package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// cells returns the texts of all tables by table and column, sorted, but for what says how a
// thing was called at the time.
func cells(t *testing.T, l *Ledger) []string {
	t.Helper()
	tables, err := list(t.Context(), l.db, func(s *string) []any { return []any{s} }, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('edit', 'former_name')`)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, table := range tables {
		err := each(t.Context(), l.db, func(rows *sql.Rows) error {
			columns, err := rows.Columns()
			if err != nil {
				return err
			}
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			err = rows.Scan(into...)
			for i, v := range values {
				if b, is := v.([]byte); is {
					v = string(b)
				}
				if text, is := v.(string); is {
					all = append(all, fmt.Sprintf("%s.%s %q", table, columns[i], text))
				}
			}
			return err
		}, `SELECT * FROM `+table)
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(all)
	return all
}

// somePast gives a ledger a plan, requests, a past and a present of chipA and chip.
func somePast(t *testing.T, l *Ledger) {
	t.Helper()
	ctx := t.Context()
	for _, name := range []string{"chipA", "chip", "chipB"} {
		addProject(t, l, Project{Name: name, Group: "g", Managers: []string{"ann"}})
		if _, err := l.ChangeAllocations(ctx, Edit{Editor: Editor{Who: "ann", At: at(0)}, ThisWeek: w48}, []Change{
			{Pool: Pool{Project: name}, Week: w48, Terms: Terms{Slots: 4, SLA: plan.Velocity}},
			{Pool: Pool{Project: name, Step: "s"}, Week: w49, Terms: Terms{Slots: 2, SLA: plan.Velocity}},
		}); err != nil {
			t.Fatal(err)
		}
		ask(t, l, Request{Pool: Pool{Project: name}, Slots: 9, From: w48, To: w49, Why: "y", By: "bob", State: RequestOpen})
	}
	for i := range 2 { // the second counts what the first saw
		if _, err := l.Load(ctx); err != nil {
			t.Fatal(err)
		}
		m := fullMemory()
		m.LastCycle = at(20 + i)
		m.RunTimes["chip\x00\x00s"] = []plan.RunEnd{{ID: job(31), Ran: time.Second}}
		p := plan.Plan{Memory: m}
		c := Cycle{Mode: Live, Longest: time.Minute, Started: m.LastCycle, Snapshot: m.LastCycle}
		for k, name := range []string{"chipA", "chip"} {
			p.Pools = append(p.Pools, plan.PoolStatus{Allocation: plan.Allocation{ID: int64(k + 1), Project: name, Guarantee: 4}, Charged: 2})
			p.Beyond = append(p.Beyond, plan.Beyond{Project: name, Slots: 1})
			p.Uses = append(p.Uses, plan.Use{PoolID: int64(k + 1), Project: name, User: "bob", Slots: 2})
			c.Ended = append(c.Ended, Ended{Job: backends.Job{ID: job(50 + k), User: "bob", Project: name, Slots: 1, Submitted: at(1), Started: at(2), Ended: at(3)}})
		}
		if _, err := l.Intend(ctx, c, p); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRenamedProjectKeepsItsPast: after it every text of the ledger is as if the project had
// always been called so; the log says how things were called, and finds them by the new name.
func TestRenamedProjectKeepsItsPast(t *testing.T) {
	l, ctx := create(t), t.Context()
	somePast(t, l)
	was := cells(t, l)
	for _, table := range []string{"project", "ended_job", "reclaim", "use_hour", "user_hour", "run_time"} {
		if !slices.ContainsFunc(was, func(s string) bool { return strings.HasPrefix(s, table+".") && strings.Contains(s, `"chipA`) }) {
			t.Errorf("%s has nothing of chipA: this test is empty", table)
		}
	}
	logged, err := l.Log(ctx, Query{Project: "chipA", Limit: 99})
	if err != nil {
		t.Fatal(err)
	}
	by := Editor{Who: "root", At: at(60)}
	if err := l.RenameProject(ctx, by, "chipA", "tigris"); err != nil {
		t.Fatal(err)
	}
	want := cells(t, l)
	for i, s := range was {
		was[i] = strings.ReplaceAll(strings.ReplaceAll(s, `"chipA"`, `"tigris"`), `"chipA\x00`, `"tigris\x00`)
	}
	slices.Sort(was)
	if d := cmp.Diff(was, want); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	after, err := l.Log(ctx, Query{Project: "tigris", Limit: 99})
	if err != nil || len(after) != len(logged)+1 || after[0].What != "project rename" || after[0].Before != "chipA" || after[0].After != "tigris" {
		t.Errorf("%d rows, then %d: %+v, %v", len(logged), len(after), after[:min(1, len(after))], err)
	}
	for _, r := range after {
		if r.PoolID != 0 && r.Pool.Project != "tigris" {
			t.Errorf("an allocation of %+v", r.Pool)
		}
	}
	memory, err := reopen(t, l).Load(ctx)
	if err != nil || memory.Reclaims[0].Project != "tigris" || len(memory.RunTimes["tigris\x00\x00"]) != 2 || len(memory.RunTimes["chip\x00\x00s"]) != 1 {
		t.Errorf("%+v, %v", memory.RunTimes, err)
	}
	if p := projectNamed(t, l, "tigris"); !slices.Equal(p.Former, []string{"chipA"}) || !slices.Equal(p.Managers, []string{"ann"}) {
		t.Errorf("%+v", p)
	}
}

// TestPastIsRenamedInParts: each has some days, newest first. What is recorded between two parts
// has the new name, and what a crash leaves is renamed by the next parts.
func TestPastIsRenamedInParts(t *testing.T) {
	l, ctx := create(t), t.Context()
	somePast(t, l)
	const days = 30
	for i := range days {
		ended := at(0).AddDate(0, 0, -i-1).UnixNano()
		for _, s := range []string{
			`INSERT INTO ended_job SELECT job + 100 + ?2, idx, submitted, user, project, step, slots, started, ?1, exit_code, requeues, waited, class, pool` + moreColumns(t, l, "ended_job", 14) + ` FROM ended_job WHERE job IN (50, 51)`,
			`INSERT INTO use_hour SELECT ?1 + 0 * ?2, pool, project, user, step, guaranteed, used, waiting FROM use_hour WHERE hour = (SELECT MAX(hour) FROM use_hour)`,
			`INSERT INTO user_hour SELECT ?1 + 0 * ?2, pool, project, user, step, used FROM user_hour WHERE hour = (SELECT MAX(hour) FROM user_hour)`,
		} {
			if _, err := l.db.Exec(s, ended, i*2); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := l.db.Exec(`UPDATE reclaim SET ended = ? WHERE id = (SELECT MIN(id) FROM reclaim)`, at(0).AddDate(0, 0, -days).UnixNano()); err != nil {
		t.Fatal(err)
	}
	left := func() (n int) {
		for _, s := range cells(t, l) {
			if strings.HasSuffix(s, ` "chipA"`) && !strings.HasPrefix(s, "past_name.") {
				n++
			}
		}
		return n
	}
	was := cells(t, l)
	all := left()
	if err := l.RenameProject(ctx, Editor{Who: "root", At: at(60)}, "chipA", "tigris"); err != nil {
		t.Fatal(err)
	}
	for parts := 0; ; parts++ {
		before := left()
		if parts == 0 && (before == 0 || before == all) {
			t.Fatalf("%d of %d are left after the first part", before, all)
		}
		if parts == 2 { // other projects can't have the name, and its own cycle goes on
			l = reopen(t, l)
			if err := l.AddProject(ctx, Editor{Who: "root", At: at(60)}, Project{Name: "chipA", Group: "g"}); err == nil || !strings.Contains(err.Error(), "former name of tigris") {
				t.Error(err)
			}
			if _, err := l.db.Exec(`DELETE FROM former_name`); err != nil {
				t.Fatal(err)
			}
			if err := l.AddProject(ctx, Editor{Who: "root", At: at(60)}, Project{Name: "chipA", Group: "g"}); err == nil || !strings.Contains(err.Error(), "whose past has it in part") {
				t.Error(err)
			}
		}
		done, err := l.RenamePast(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if now := left(); before-now > all/5 {
			t.Errorf("a part has %d of %d", before-now, all)
		}
		if done {
			if parts < 5 {
				t.Errorf("done after %d parts", parts)
			}
			break
		}
	}
	if done, err := l.RenamePast(ctx); !done || err != nil {
		t.Errorf("once more: %v, %v", done, err)
	}
	for i, s := range was {
		was[i] = strings.ReplaceAll(strings.ReplaceAll(s, `"chipA"`, `"tigris"`), `"chipA\x00`, `"tigris\x00`)
	}
	slices.Sort(was)
	if d := cmp.Diff(was, cells(t, l)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// moreColumns names a table's columns after the first n.
func moreColumns(t *testing.T, l *Ledger, table string, n int) (text string) {
	t.Helper()
	names, err := list(t.Context(), l.db, func(s *string) []any { return []any{s} }, `SELECT name FROM pragma_table_info(?)`, table)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names[n:] {
		text += ", " + name
	}
	return text
}

func projectNamed(t *testing.T, l *Ledger, name string) Project {
	t.Helper()
	_, p, err := projectID(context.Background(), l.db, name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestNamesThatAProjectCantHave: those of others, and former ones that jobs may have. What is
// refused changes nothing.
func TestNamesThatAProjectCantHave(t *testing.T) {
	l, ctx := create(t), t.Context()
	by := Editor{Who: "root", At: at(0)}
	for _, name := range []string{"A", "B", "gone"} {
		addProject(t, l, Project{Name: name, Group: "g"})
	}
	rename := func(from, to string) error {
		was := cells(t, l)
		err := l.RenameProject(ctx, by, from, to)
		if dry := l.CheckRename(ctx, from, to); err != nil && fmt.Sprint(dry) != err.Error() {
			t.Errorf("%s to %s: %v; checked before: %v", from, to, err, dry)
		}
		if err != nil && !slices.Equal(was, cells(t, l)) {
			t.Errorf("%s to %s was refused, and changed the ledger", from, to)
		}
		return err
	}
	if err := l.RemoveProject(ctx, by, "gone", w48); err != nil {
		t.Fatal(err)
	}
	if err := rename("A", "A2"); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ from, to, want string }{
		{"A", "C", `unknown project "A"`},
		{"B", "A2", `the project exists already: "A2"`},
		{"B", "B", `the project exists already: "B"`},
		{"B", "A", `"A" is a former name of A2, and unfinished jobs may still have it`},
		{"B", "gone", `a project "gone" was removed on 2026-11-23: in reports its past and that of "B" would be one`},
	} {
		if err := rename(x.from, x.to); err == nil || err.Error() != x.want {
			t.Errorf("%s to %s: %v", x.from, x.to, err)
		}
	}
	if err := l.AddProject(ctx, by, Project{Name: "A", Group: "g"}); err == nil || !strings.Contains(err.Error(), "former name of A2") {
		t.Error(err)
	}
	// It may have its own former name again, and then the other one is former.
	if err := errors.Join(rename("A2", "A"), rename("A", "A2"), rename("A2", "A3")); err != nil {
		t.Error(err)
	}
	if p := projectNamed(t, l, "A3"); !slices.Equal(p.Former, []string{"A", "A2"}) {
		t.Errorf("%+v", p)
	}
	for i := 4; i <= maxFormer+1; i++ {
		if err := rename(fmt.Sprintf("A%d", i-1), fmt.Sprintf("A%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	last := fmt.Sprintf("A%d", maxFormer+1)
	if err := rename(last, "A99"); err == nil || !strings.Contains(err.Error(), "20 former names") {
		t.Error(err)
	}
	if err := rename(last, "A3"); err != nil {
		t.Error(err)
	}
	if err := l.RemoveProject(ctx, by, "A3", w48); err != nil {
		t.Fatal(err)
	}
	if err := l.AddProject(ctx, by, Project{Name: "A2", Group: "g"}); err != nil {
		t.Errorf("a removed project has former names: %v", err)
	}
}

// TestFormerNameIsForgotten once a day has passed and no unfinished job has it.
func TestFormerNameIsForgotten(t *testing.T) {
	l, ctx := create(t), t.Context()
	addProject(t, l, Project{Name: "A", Group: "g"})
	if err := l.RenameProject(ctx, Editor{Who: "root", At: at(0)}, "A", "B"); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		after time.Duration
		jobs  []string
		kept  bool
	}{
		{time.Hour, nil, true},
		{formerKept + time.Hour, []string{"A"}, true},
		{formerKept + 2*time.Hour, []string{"other"}, false},
	} {
		cycleAt(t, l, Cycle{Former: x.jobs}, at(0).Add(x.after))
		if p := projectNamed(t, l, "B"); (len(p.Former) > 0) != x.kept {
			t.Errorf("after %v, of jobs with %q: %+v", x.after, x.jobs, p)
		}
	}
	if err := l.AddProject(ctx, Editor{Who: "root", At: at(0)}, Project{Name: "A", Group: "g"}); err != nil {
		t.Error(err)
	}
}
