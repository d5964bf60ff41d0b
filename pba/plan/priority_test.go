package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// lsfScene is a scene on a queue that does not age jobs and whose users may set any priority for
// their jobs (LSF).
func lsfScene(t *testing.T) *scene {
	t.Helper()
	s := newScene(t, 2, 2)
	s.state.Abilities.Ages, s.state.Abilities.AgeCap = 0, 0
	return s
}

func claiming(p backends.Priority) func(*backends.Job) {
	return func(j *backends.Job) { j.Priority = p }
}

// R11, R13: a priority that its owner chose puts no normal job above others for longer than
// a cycle, whenever it was chosen, whatever it claims, and whether a project is planned or not.
func TestOwnersClaimIsReset(t *testing.T) {
	fair := backends.At(backends.LevelNormal, backends.DefaultValue)
	for _, claim := range []backends.Priority{
		21, 27, 89, 90, 999,
		backends.At(backends.LevelVictim, 20), backends.At(backends.LevelPlaceholder, 20), backends.At(backends.LevelNext, 20),
		backends.At(backends.LevelPBA, 120), backends.At(backends.LevelHandOver, 227), backends.At(backends.LevelHandOver, 999),
	} {
		s := lsfScene(t)
		id := s.job("bob", "", "", time.Hour, claiming(claim))
		for n := range 3 {
			p := s.cycle()
			s.rank(p)
			if got := s.at(id).Priority; got != fair {
				t.Errorf("claim %d, cycle %d: its priority is %d, want %d", claim, n+1, got, fair)
			}
			why := p.Memory.Jobs[id].History
			if len(why) == 0 || !strings.Contains(why[len(why)-1].Why, "it was raised outside pba") {
				t.Errorf("claim %d, cycle %d: its history is %+v", claim, n+1, why)
			}
			if again := s.cycle(); len(again.Actions) > 0 {
				t.Errorf("claim %d, cycle %d: reset, it is changed again: %+v", claim, n+1, again.Actions)
			}
			s.at(id).Priority = claim // once more
		}
	}
}

// What an earlier version remembered as written need not be earned: owners claimed it.
func TestRememberedClaimIsNotEarned(t *testing.T) {
	s := lsfScene(t)
	id := s.job("bob", "", "", time.Hour, claiming(27))
	s.state.Memory.Jobs = map[backends.ID]JobMemory{id: {Written: 27, WrittenAt: s.now.Add(-time.Hour)}}
	s.rank(s.cycle())
	if got := s.at(id).Priority; got != 20 {
		t.Errorf("its priority is %d, want 20", got)
	}
}

// An owner may lower a job, before and after it was put back, and raise it to the default.
func TestOwnersMayLowerTheirJobs(t *testing.T) {
	s := lsfScene(t).pool("chipA", 1)
	s.job("ann", "chipA", "n1", time.Hour)
	id, other := s.job("bob", "", "", time.Hour, claiming(10)), s.job("bob", "", "", time.Hour, claiming(99))
	s.rank(s.cycle())
	s.at(other).Priority = 5
	if p := s.cycle(); len(p.Actions) > 0 {
		t.Errorf("a lowered job is changed: %+v", p.Actions)
	}
	s.at(id).Priority, s.at(other).Priority = 20, 20
	if p := s.cycle(); len(p.Actions) > 0 {
		t.Errorf("a job that its owner reset to the default is changed: %+v", p.Actions)
	}
}

// R12: within a pool a claim gains no place, either, and the engine's ranks are no claims.
func TestClaimGainsNoRoom(t *testing.T) {
	s := lsfScene(t).pool("chipA", 1)
	honest := s.job("ann", "chipA", "", time.Hour)
	s.job("cat", "chipA", "", time.Minute, claiming(backends.At(backends.LevelHandOver, 227)))
	p := s.cycle()
	if poolOf(p, honest) == 0 {
		t.Error("the older job has no room: the claim of a younger one has it")
	}
	s.rank(p)
	if got := s.at(honest).Priority; got != backends.At(backends.LevelPBA, 120) {
		t.Errorf("the older job's priority is %d, want 120 of its pool", got)
	}
	// A PBA job's owner raises it further: it has what the engine wrote, no more.
	s.at(honest).Priority = backends.At(backends.LevelHandOver, 999)
	s.rank(s.cycle())
	if got := s.at(honest).Priority; got != backends.At(backends.LevelPBA, 120) {
		t.Errorf("raised within its pool its priority is %d, want 120 of its pool", got)
	}
}

// Thousands of raised jobs are put back over some cycles: first those that could start
// next, which are those that wait for slots alone, by their place in the queue.
func TestManyClaimsAreResetOverCycles(t *testing.T) {
	s := lsfScene(t)
	var held, mild, steep []backends.ID
	s.policy.Cycle = 2 * time.Second // as many as are put back first
	for range s.policy.maxLowered() {
		held = append(held, s.job("bob", "", "", time.Hour, claiming(backends.At(backends.LevelHandOver, 999)), func(j *backends.Job) { j.State = backends.Held }))
		mild = append(mild, s.job("bob", "", "", time.Hour, claiming(25)))
		steep = append(steep, s.job("bob", "", "", time.Hour, claiming(30)))
	}
	for n, want := range [][]backends.ID{steep, mild, held, nil} {
		p := s.cycle()
		s.rank(p)
		var got []backends.ID
		for _, a := range p.Actions {
			got = append(got, a.Job)
		}
		if !slices.Equal(got, want) {
			t.Errorf("cycle %d puts back %d jobs (%v…), want %d (%v…)", n+1, len(got), got[:min(len(got), 3)], len(want), want[:min(len(want), 3)])
		}
		if warned := len(p.Warnings) > 0; warned != (n < 2) {
			t.Errorf("cycle %d warns: %q", n+1, p.Warnings)
		}
	}
}

// On a queue that ages jobs by itself what it added stays, and nothing beyond.
func TestAgeIsNoClaim(t *testing.T) {
	for _, c := range []struct {
		waited time.Duration
		value  int
		want   backends.Priority
	}{
		{0, 21, 21},                                      // a tick that the engine has not counted yet
		{0, 22, 20},                                      //
		{time.Minute, 24, 24},                            //
		{time.Minute, 25, 23},                            //
		{24 * time.Hour, 89, 89},                         // where age stops
		{24 * time.Hour, 90, 89},                         //
		{-time.Hour, 60, 60},                             // the clock was set back: the job keeps its value
		{24 * time.Hour, 15, 15},                         // lowered
		{-10 * 365 * 24 * time.Hour, 500, 20},            //
		{time.Hour, int(backends.DefaultValue) + 69, 89}, //
	} {
		s := newScene(t, 1, 1)
		id := s.job("bob", "", "", c.waited, claiming(backends.At(backends.LevelNormal, c.value)))
		s.rank(s.cycle())
		if got := s.at(id).Priority; got != c.want {
			t.Errorf("%d after %v: its priority is %d, want %d", c.value, c.waited, got, c.want)
		}
	}
}

// Slots are preempted before the many are put back, but after the first of them: these
// could start in what comes free.
func TestManyClaimsDelayNoReclaim(t *testing.T) {
	s := lsfScene(t).pool("chipA", 1)
	s.job("bob", "", "n1*2", time.Hour)
	s.job("bob", "", "n2", time.Hour)
	s.job("bob", "", "n2", time.Hour)
	s.job("ann", "chipA", "", time.Hour)
	s.ripen()
	var raised []backends.ID
	for range 2 * s.policy.maxLowered() {
		raised = append(raised, s.job("bob", "", "", time.Minute, claiming(30)))
	}
	p := s.cycle()
	requeue := slices.IndexFunc(p.Actions, func(a Action) bool { return a.Verb == Requeue })
	first := slices.IndexFunc(p.Actions, func(a Action) bool { return a.Job == raised[0] })
	last := slices.IndexFunc(p.Actions, func(a Action) bool { return a.Job == raised[s.policy.maxLowered()-1] })
	if first < 0 || requeue < first || last < requeue {
		t.Errorf("of %d actions the first put back is %d, the reclaim %d, the last put back %d", len(p.Actions), first, requeue, last)
	}
}

// R27: explain reports why the owner's priority was reset.
func TestExplainReportsClaimReset(t *testing.T) {
	s := lsfScene(t)
	id := s.job("bob", "", "", time.Hour, claiming(backends.At(backends.LevelVictim, 25)))
	s.rank(s.cycle())
	e, ok := Explain(s.state, s.policy, s.now, id)
	if want := "it was raised outside pba to 25 (victim): a job's owner may only lower it"; !ok || len(e.History) != 1 || e.History[0].Why != want {
		t.Errorf("explained by %+v, want %q", e.History, want)
	}
}

// R10, R11: a victim keeps its bonus, also where an earlier version did not remember that it
// wrote it, and is given it where the write was lost; a claim adds nothing.
func TestVictimsBonusIsEarned(t *testing.T) {
	bonus := backends.At(backends.LevelVictim, 30)
	written := JobMemory{Requeues: 1, Written: bonus, WrittenAt: noon.Add(-time.Minute)}
	for _, c := range []struct {
		what     string
		mem      JobMemory
		priority backends.Priority
		want     backends.Priority
	}{
		{"written", written, bonus, bonus},
		{"by an earlier version", JobMemory{Requeues: 1, WrittenAt: noon.Add(-time.Minute)}, bonus, bonus},
		{"lost", written, 20, bonus},
		{"raised", written, backends.At(backends.LevelHandOver, 999), bonus},
		{"raised, without a loss", JobMemory{Requeues: 1, GaveWay: true, Written: bonus + backends.GaveWay, WrittenAt: noon.Add(-time.Minute)}, backends.At(backends.LevelHandOver, 999), bonus + backends.GaveWay},
		{"by another's number", JobMemory{Written: 20, WrittenAt: noon.Add(-time.Minute)}, bonus, 20},
	} {
		s := lsfScene(t)
		id := s.job("bob", "", "", time.Hour, claiming(c.priority))
		s.state.Memory.Jobs = map[backends.ID]JobMemory{id: c.mem}
		s.rank(s.cycle())
		if got := s.at(id).Priority; got != c.want {
			t.Errorf("%s: its priority is %d, want %d", c.what, got, c.want)
		}
	}
}
