package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/internal/sqlite"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func at(seconds int) time.Time {
	return time.Date(2026, 11, 23, 12, 0, seconds, 123456789, time.UTC)
}

func create(t *testing.T) *Ledger {
	t.Helper()
	l, err := Create(filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func reopen(t *testing.T, l *Ledger) *Ledger {
	t.Helper()
	again, err := Open(l.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	return again
}

func job(n int) backends.ID { return backends.ID{Job: int64(n)} }

// fullMemory has a value in every field, so that one that is not stored shows.
func fullMemory() plan.Memory {
	return plan.Memory{
		LastCycle: at(20), LastAction: at(21), NextID: 8, EndedSince: at(19), PoolsSent: at(22),
		Clock: clock.Reading{Wall: at(22), Boot: 1<<63 + 5, Up: 6}, ClockSet: plan.ClockSet{At: at(23), By: -2 * time.Hour},
		Jobs: map[backends.ID]plan.JobMemory{
			job(1): {
				Pool: 3, Entered: at(1), Kept: 2, Clock: 61 * time.Second, ClockSeen: at(2),
				Requeues: 1, Expired: 2, Backoff: at(3), Written: backends.At(backends.LevelLow, 7), WrittenAt: at(8),
				Reserved: []string{"n1", "n2"}, ReservedUntil: at(9),
				History: []plan.Point{{At: at(4), Priority: 3020, Why: "given room in pool \"a\"\n"}},
			},
			{Job: 2, Index: 7}: {Requeues: 3, Lost: 12.5, GaveWay: true},
		},
		Reclaims: []plan.Reclaim{{
			ID: 7, Beneficiary: backends.ID{Job: 2, Index: 7}, Pool: 3, Project: "chipA", User: "alice", Need: 4,
			Hosts: []backends.Placement{{Host: "n1", Slots: 4}}, Phase: plan.Freed, Why: "because",
			Planned: at(5), Acted: at(6), Freed: at(7), Ended: time.Time{},
			Victims: []plan.Victim{
				{ID: job(9), Project: "chipB", User: "bob", Started: at(0), Slots: 3, Mode: backends.PreemptSuspend, RanFor: time.Hour, Fate: plan.Taken, Released: true, Save: time.Minute, Saved: plan.SaveFailed},
				{ID: job(4), User: "carol", Started: at(1), Slots: 1},
			},
		}},
		RunTimes: map[string][]plan.RunEnd{"chipA\x00\x00": {{ID: job(30), Ran: time.Second}, {ID: job(3), Ran: time.Minute}}},
		Throughput: map[int64]plan.ThroughputMemory{
			3: {Week: at(11), Finished: 31, SlotSeconds: 0.1 + 0.2, Guarantee: 12, Fell: at(12)},
			5: {Week: at(11)},
		},
		Dummies: dummy.Memory{
			Gathers: map[backends.ID]dummy.Gather{job(1): {Host: "n1", Since: at(13)}, {Job: 2, Index: 7}: {Backoff: at(14)}},
			Lights:  map[backends.ID]dummy.Light{job(5): {For: backends.ID{Job: 2, Index: 7}, Host: "n2", At: at(15)}},
			Placed:  true,
		},
		Trials: map[backends.ID]plan.Trial{
			job(1):             {Hosts: []string{"n1", "n2"}, Pinned: at(16)},
			{Job: 2, Index: 7}: {Refused: []plan.Refusal{{Hosts: []string{"n1"}, Times: 2, At: at(16), Until: at(17), Why: "BadConstraints", Of: "a1", Stands: true}}},
		},
	}
}

func TestMemoryRoundTrip(t *testing.T) {
	l := create(t)
	ctx := context.Background()
	if _, err := l.Load(ctx); err != nil {
		t.Fatal(err)
	}
	want := fullMemory()
	if _, err := l.Intend(ctx, Cycle{Mode: Live}, plan.Plan{Memory: want}); err != nil {
		t.Fatal(err)
	}
	got, err := reopen(t, l).Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("memory changed on its way (-stored +loaded):\n%s", d)
	}
}

func TestForgottenRowsAreDeleted(t *testing.T) {
	l := create(t)
	ctx := context.Background()
	m := fullMemory()
	if _, err := l.Intend(ctx, Cycle{Mode: Live}, plan.Plan{Memory: m}); err != nil {
		t.Fatal(err)
	}
	next := fullMemory()
	delete(next.Jobs, job(1))
	next.RunTimes = map[string][]plan.RunEnd{"chipB": {{ID: job(5), Ran: 1}}}
	next.Throughput = map[int64]plan.ThroughputMemory{3: {Week: at(11), Finished: 32, SlotSeconds: 1e9, Guarantee: 11, Fell: at(13)}}
	next.Trials = map[backends.ID]plan.Trial{job(1): {Hosts: []string{"n3"}}}
	next.Dummies.Gathers = map[backends.ID]dummy.Gather{job(1): {Host: "n2", Since: at(13)}}
	next.Dummies.Lights, next.Dummies.Placed = map[backends.ID]dummy.Light{}, false
	next.Reclaims[0].Phase, next.Reclaims[0].Ended = plan.HandedOver, at(30)
	next.Reclaims[0].Victims[1].Fate = plan.Gone
	if _, err := l.Intend(ctx, Cycle{Mode: Live}, plan.Plan{Memory: next}); err != nil {
		t.Fatal(err)
	}
	got, err := reopen(t, l).Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(next, got); d != "" {
		t.Errorf("(-stored +loaded):\n%s", d)
	}
	next.Reclaims, next.LastCycle = nil, at(30).Add(3*time.Hour)
	if _, err := l.Intend(ctx, Cycle{Mode: Live}, plan.Plan{Memory: next}); err != nil {
		t.Fatal(err)
	}
	if got, _ = l.Load(ctx); len(got.Reclaims) != 0 {
		t.Errorf("R22: a reclaim that closed three hours ago is still loaded")
	}
	if old, err := l.ReclaimsOf(ctx, job(9)); err != nil || len(old) != 1 {
		t.Errorf("explain needs the reclaim that job 9 was a victim of: %v, %v", old, err)
	}
}

// TestOnlyWhatChangedIsWritten counts rows written (R13: a cycle on many jobs writes a handful).
func TestOnlyWhatChangedIsWritten(t *testing.T) {
	l := create(t)
	ctx := context.Background()
	m := plan.Memory{Jobs: map[backends.ID]plan.JobMemory{}, Dummies: dummy.Memory{Gathers: map[backends.ID]dummy.Gather{}}}
	for i := range 2000 {
		m.Dummies.Gathers[job(i+1)] = dummy.Gather{Since: at(i % 60)}
		m.Jobs[job(i+1)] = plan.JobMemory{Pool: 1, Entered: at(i % 60), History: []plan.Point{{At: at(0), Why: "x"}}}
	}
	if _, err := l.Intend(ctx, Cycle{}, plan.Plan{Memory: m}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Load(ctx); err != nil {
		t.Fatal(err)
	}
	next := plan.Memory{Jobs: map[backends.ID]plan.JobMemory{}, Dummies: dummy.Memory{Gathers: maps.Clone(m.Dummies.Gathers)}}
	next.Dummies.Gathers[job(7)] = dummy.Gather{Host: "n1", Since: at(1)}
	for id, j := range m.Jobs {
		j.Entered = j.Entered.In(time.FixedZone("elsewhere", 3600)) // the same instant
		j.History = append([]plan.Point{}, j.History...)
		next.Jobs[id] = j
	}
	changed := next.Jobs[job(5)]
	changed.Clock = time.Minute
	next.Jobs[job(5)] = changed
	before := totalChanges(t, l)
	defer func() {
		if m, err := l.Load(ctx); err != nil || m.Jobs[job(5)].Clock != time.Minute {
			t.Errorf("the change was not written: %v %+v", err, m.Jobs[job(5)])
		}
	}()
	if _, err := l.Intend(ctx, Cycle{}, plan.Plan{Memory: next}); err != nil {
		t.Fatal(err)
	}
	if n := totalChanges(t, l) - before; n > 10 {
		t.Errorf("one job of 2,000 changed and %d rows were written", n)
	}
}

func totalChanges(t *testing.T, l *Ledger) int {
	t.Helper()
	var n int
	if err := l.db.QueryRow(`SELECT total_changes()`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestActionsHaveAnAuditRowBeforeAndAfterTheAct(t *testing.T) { // R18, R27
	l := create(t)
	ctx := context.Background()
	p := plan.Plan{Actions: []plan.Action{
		{Verb: plan.Rank, Job: job(1), Reason: "entered"},
		{Verb: plan.Requeue, Job: job(2), For: job(1), Reclaim: 4, Reason: "started most recently"},
		{Verb: plan.Requeue, Job: job(3), For: job(1), Reclaim: 4, Reason: "next"},
	}}
	id, err := l.Intend(ctx, Cycle{Who: "root (uid 0)", Mode: Live, Started: at(1), Snapshot: at(2)}, p)
	if err != nil {
		t.Fatal(err)
	}
	acts, err := reopen(t, l).Acts(ctx, job(2), 10)
	if err != nil {
		t.Fatal(err)
	}
	want := []Act{{
		At: at(1), Snapshot: at(2), Who: "root (uid 0)", Mode: Live, Verb: plan.Requeue,
		Job: job(2), For: job(1), Reclaim: 4, Reason: "started most recently", Outcome: Intended,
	}}
	if d := cmp.Diff(want, acts); d != "" {
		t.Errorf("intent:\n%s", d)
	}
	err = l.Outcome(ctx, id, []Outcome{
		{Action: 1, Result: Failed, Error: "permission denied", At: at(9)},
		{Action: 2, Result: Gone, At: at(50)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if acts, _ = l.Acts(ctx, job(2), 10); acts[0].Outcome != Failed || acts[0].Error != "permission denied" || !acts[0].At.Equal(at(9)) {
		t.Errorf("outcome: %+v", acts[0])
	}
	m, err := l.Load(ctx)
	if err != nil || !m.LastAction.Equal(at(9)) {
		t.Errorf("R8: last action %v, want %v: what was not tried is no action", m.LastAction, at(9))
	}
	if err := l.Finish(ctx, id, at(12), "a note"); err != nil {
		t.Fatal(err)
	}
	c, ok, err := l.LastCycle(ctx)
	if err != nil || !ok || !c.Finished.Equal(at(12)) || c.Actions != 3 || c.Note != "a note" {
		t.Errorf("cycle: %+v %v %v", c, ok, err)
	}
}

func TestDummyJobsHaveAuditRows(t *testing.T) { // R27, R31
	l := create(t)
	ctx := context.Background()
	p := plan.Plan{Actions: []plan.Action{
		{Verb: plan.Place, Job: job(1), Hosts: []string{"n1"}, Slots: []int{3}, Reason: "gathers 3 slots on n1"},
		{Verb: plan.Drop, Job: job(1), Dummies: []backends.ID{job(7), job(8)}, Reason: "ended"},
	}}
	if _, err := l.Intend(ctx, Cycle{Mode: Live}, p); err != nil {
		t.Fatal(err)
	}
	acts, err := reopen(t, l).Acts(ctx, job(1), 10)
	if err != nil || len(acts) != 2 || acts[0].Verb != plan.Place || acts[0].Dummies != 3 || acts[1].Verb != plan.Drop || acts[1].Dummies != 2 {
		t.Errorf("%+v, %v", acts, err)
	}
}

func TestObserveModeRecordsActionOnce(t *testing.T) { // R7
	l := create(t)
	ctx := context.Background()
	rank := plan.Action{Verb: plan.Rank, Job: job(1), Reason: "a"}
	requeue := plan.Action{Verb: plan.Requeue, Job: job(1), For: job(2), Reason: "b"}
	for _, step := range []struct {
		mode    Mode
		actions []plan.Action
		rows    int
	}{
		{Observe, []plan.Action{rank}, 1},
		{Observe, []plan.Action{rank}, 1},
		{Observe, []plan.Action{rank, requeue}, 2},
		{Observe, []plan.Action{requeue}, 2},
		{Observe, []plan.Action{rank, requeue}, 3}, // it came back
		{Live, []plan.Action{rank}, 4},
		{Live, []plan.Action{rank}, 5},
		{Observe, []plan.Action{rank}, 6},
	} {
		if _, err := l.Intend(ctx, Cycle{Mode: step.mode}, plan.Plan{Actions: step.actions}); err != nil {
			t.Fatal(err)
		}
		acts, err := l.Acts(ctx, job(1), 100)
		if err != nil || len(acts) != step.rows {
			t.Errorf("%d audit rows, %v; want %d: %+v", len(acts), err, step.rows, acts)
		}
	}
}

func TestEndedJobsStay(t *testing.T) {
	l := create(t)
	ctx := context.Background()
	j := backends.Job{
		ID: job(5), User: "u", Project: "p", Step: "s", Slots: 2, State: backends.Exited,
		Submitted: at(1), Started: at(2), Ended: at(3), ExitCode: 137, Requeues: 2,
	}
	ended := []Ended{{Job: j, Waited: time.Second, PBA: true, Memory: &plan.JobMemory{Pool: 4, Clock: time.Minute}}}
	for range 2 { // seen in two cycles
		if _, err := l.Intend(ctx, Cycle{Ended: ended}, plan.Plan{}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := l.EndedJob(ctx, job(5))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&ended[0], got); d != "" {
		t.Errorf("(-stored +read):\n%s", d)
	}
	if none, err := l.EndedJob(ctx, job(6)); none != nil || err != nil {
		t.Errorf("an unknown job: %v, %v", none, err)
	}
}

func TestNewerLedgerIsRefused(t *testing.T) {
	l := create(t)
	if _, err := l.db.Exec(`PRAGMA user_version = 99`); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := Open(l.path); !errors.Is(err, sqlite.ErrNewer) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}

func TestForeignLedgerIsRefused(t *testing.T) {
	l := create(t)
	l.Close()
	if os.Getuid() == 0 {
		if err := os.Chown(l.path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Chmod(l.path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(l.path); !errors.Is(err, trusted.ErrNotTrusted) {
		t.Errorf("error %v", err)
	}
}

func TestMissingLedgerNamesRemedy(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "ledger.db"))
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "pba init") {
		t.Errorf("error %v", err)
	}
	l := create(t)
	if again, err := Create(l.path); err == nil {
		again.Close()
		t.Error("an existing ledger was created again")
	}
}

// TestFullDiskLeavesNothingHalfDone limits the database by its own page limit,
// which fails a commit just as a full disk does.
func TestFullDiskLeavesNothingHalfDone(t *testing.T) {
	l := create(t)
	ctx := context.Background()
	if _, err := l.Intend(ctx, Cycle{}, plan.Plan{Memory: fullMemory()}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.db.Exec(`PRAGMA max_page_count = 1`); err != nil { // no page more than now
		t.Fatal(err)
	}
	big := fullMemory()
	big.NextID = 99
	p := plan.Plan{Memory: big}
	for i := range 3000 {
		p.Actions = append(p.Actions, plan.Action{Verb: plan.Rank, Job: job(i + 1), Reason: "a reason"})
	}
	_, err := l.Intend(ctx, Cycle{}, p)
	if err == nil || !strings.Contains(err.Error(), "free some space") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("error %v", err)
	}
	got, err := reopen(t, l).Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(fullMemory(), got); d != "" {
		t.Errorf("half a cycle was recorded:\n%s", d)
	}
	if acts, _ := reopen(t, l).Acts(ctx, job(1), 10); len(acts) != 0 {
		t.Errorf("%d intents were recorded", len(acts))
	}
}

func TestPlanEdits(t *testing.T) {
	l := create(t)
	ctx := context.Background()
	by := Editor{Who: "alice (uid 5)", At: at(1)}
	w48, w49 := calendar.Week{Year: 2026, Week: 48}, calendar.Week{Year: 2026, Week: 49}
	chipA, bobs := Pool{Project: "chipA"}, Pool{Project: "chipA", User: "bob", Step: "syn"}
	edit := Edit{Editor: by}
	if _, err := l.ChangeAllocations(ctx, edit, []Change{{chipA, w48, Terms{Slots: 5, SLA: plan.Velocity}}}); !errors.Is(err, ErrUnknownProject) {
		t.Errorf("unknown project: %v", err)
	}
	if err := l.AddProject(ctx, by, Project{Name: "chipA", Group: "chip", Managers: []string{"bob", "alice"}}); err != nil {
		t.Fatal(err)
	}
	if err := l.AddProject(ctx, by, Project{Name: "chipA", Group: "x"}); !errors.Is(err, ErrProjectExists) {
		t.Errorf("second of that name: %v", err)
	}
	all, err := l.Projects(ctx)
	if d := cmp.Diff([]Project{{Name: "chipA", Group: "chip", Managers: []string{"alice", "bob"}}}, all); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	if _, err := l.ChangeAllocations(ctx, edit, []Change{{chipA, w48, Terms{Slots: 5, SLA: plan.Velocity}}, {chipA, w49, Terms{Slots: 5, SLA: plan.Velocity}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.ChangeAllocations(ctx, edit, []Change{{bobs, w48, Terms{Slots: 2, SLA: plan.Velocity}}}); err != nil {
		t.Fatal(err)
	}
	inForce := func(w calendar.Week) []plan.Allocation {
		t.Helper()
		_, pools, err := l.InForce(ctx, calendar.Period{Week: w, Begin: at(1), End: at(2)}, at(0))
		if err != nil {
			t.Fatal(err)
		}
		return pools
	}
	pools := inForce(w48)
	want := []plan.Allocation{
		{Project: "chipA", Guarantee: 5, Begin: at(1), End: at(2), SLA: plan.Velocity},
		{Project: "chipA", User: "bob", Step: "syn", Guarantee: 2, Begin: at(1), End: at(2), SLA: plan.Velocity},
	}
	if d := cmp.Diff(want, pools, cmpopts.IgnoreFields(plan.Allocation{}, "ID")); d != "" {
		t.Errorf("in force: %s", d)
	}
	if next := inForce(w49); next[0].ID != pools[0].ID {
		t.Errorf("a pool must be the same over Monday: %v, then %v", pools, next)
	}
	if _, err := l.ChangeAllocations(ctx, edit, []Change{{Pool: bobs, Week: w48}, {Pool: bobs, Week: w49}}); !errors.Is(err, ErrUnknownAllocation) {
		t.Errorf("unset of nothing: %v", err)
	}
	if err := l.RemoveProject(ctx, by, "chipA", w48); err == nil || !strings.Contains(err.Error(), "2026-W48") {
		t.Errorf("removal of a project with slots: %v", err)
	}
	if err := l.RemoveProject(ctx, by, "chipA", calendar.Week{Year: 2027, Week: 1}); err != nil {
		t.Errorf("removal of a project with past slots: %v", err)
	}
	if rest, _ := l.Allocations(ctx, calendar.Week{Year: 2020, Week: 1}, calendar.Week{Year: 2030, Week: 1}); len(rest) != 0 {
		t.Errorf("slots of a removed project are still planned: %v", rest)
	}
	var edits int
	if err := l.db.QueryRow(`SELECT COUNT(*) FROM edit WHERE who = 'alice (uid 5)'`).Scan(&edits); err != nil || edits != 5 {
		t.Errorf("%d audit rows, want 5 (add, three weeks set, remove)", edits)
	}
}

func TestPause(t *testing.T) {
	l := create(t)
	ctx := context.Background()
	for _, step := range []struct{ set, changed bool }{{false, false}, {true, true}, {true, false}, {false, true}} {
		changed, err := l.SetPaused(ctx, Editor{}, step.set)
		if err != nil || changed != step.changed {
			t.Errorf("SetPaused(%v) = %v, %v", step.set, changed, err)
		}
		if paused, err := l.Paused(ctx); err != nil || paused != step.set {
			t.Errorf("Paused() = %v, %v", paused, err)
		}
	}
}

func TestGroupsCache(t *testing.T) {
	l := create(t)
	ctx := context.Background()
	want := map[string]Groups{"alice": {Names: []string{"a", "b"}, LookedUp: at(1)}, "x\ny": {Names: []string{}, LookedUp: at(2)}}
	if err := l.SetGroups(ctx, want); err != nil {
		t.Fatal(err)
	}
	got, err := reopen(t, l).Groups(ctx)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
}

// Only Create makes a ledger: any other file in its place is refused, by writers and
// readers, and not changed; the error says what to do.
func TestNonLedgerIsRefused(t *testing.T) {
	whole := func(t *testing.T) (path string, content []byte) {
		l := create(t)
		addProject(t, l, Project{Name: "chipA"})
		if _, err := l.db.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(l.path)
		if err != nil {
			t.Fatal(err)
		}
		return l.path, content
	}
	foreign := func(statement string) func(t *testing.T) []byte {
		return func(t *testing.T) []byte {
			path := filepath.Join(t.TempDir(), "foreign.db")
			db, err := sql.Open("sqlite3", path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = db.Exec(statement); errors.Join(err, db.Close()) != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return content
		}
	}
	cut := func(n int) func(t *testing.T) []byte {
		return func(t *testing.T) []byte { _, content := whole(t); return content[:n] }
	}
	for name, of := range map[string]func(t *testing.T) []byte{
		"empty":             func(*testing.T) []byte { return nil },
		"text":              func(*testing.T) []byte { return []byte("12345678") },
		"much text":         func(*testing.T) []byte { return bytes.Repeat([]byte("a ledger "), 4000) },
		"cut in the header": cut(16),
		"cut to a page":     cut(4096),
		"no schema":         foreign(`CREATE TABLE project (x)`),
		"foreign":           foreign(`CREATE TABLE bookmark (x); PRAGMA user_version = 2`),
		"foreign, newer":    foreign(`CREATE TABLE bookmark (x); PRAGMA user_version = 75`),
	} {
		for _, leftover := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, leftover), func(t *testing.T) {
				content := of(t)
				path := filepath.Join(t.TempDir(), "ledger.db")
				if leftover { // the WAL file of the one that was there
					l := create(t)
					addProject(t, l, Project{Name: "chipA"})
					for _, more := range []string{"-wal", "-shm"} {
						data, err := os.ReadFile(l.path + more)
						if err == nil {
							err = os.WriteFile(path+more, data, 0o600)
						}
						if err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := os.WriteFile(path, content, 0o600); err != nil {
					t.Fatal(err)
				}
				for _, open := range []func(string) (*Ledger, error){Open, OpenToRead} {
					l, err := open(path)
					if err == nil {
						_ = l.Close()
						t.Fatal("it was opened")
					}
					if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "`pba init`") {
						t.Errorf("got %v", err)
					}
				}
				if _, err := Create(path); !errors.Is(err, os.ErrExist) {
					t.Errorf("made anew: %v", err)
				}
				if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) && !leftover {
					t.Errorf("it was changed, to %d bytes, %v", len(now), err)
				}
			})
		}
	}
}

// Create leaves a whole ledger, and no temporary file.
func TestLedgerAppearsWhole(t *testing.T) {
	l := create(t)
	found, err := os.ReadDir(filepath.Dir(l.path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		if !strings.HasPrefix(e.Name(), "ledger.db") {
			t.Errorf("left: %s", e.Name())
		}
	}
}
