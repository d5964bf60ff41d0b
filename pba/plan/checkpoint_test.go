package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// saving gives a job a checkpoint.
func saving(text string) func(*backends.Job) {
	return func(j *backends.Job) {
		c, err := backends.ParseCheckpoint(text)
		if err != nil {
			panic(err)
		}
		j.Tag = backends.Tag{Checkpoint: c}.String()
	}
}

// newSavingScene is a farm of one slot, whose job of bob saves itself, and a job of a pool
// that waits.
func newSavingScene(t *testing.T, checkpoint string, change ...func(*backends.Job)) (s *scene, victim, waits backends.ID) {
	t.Helper()
	s = newScene(t, 1, 1).pool("chipA", 1)
	s.policy.CheckpointMax, s.policy.GracePeriod = 2*time.Minute, 7*time.Second
	s.state.Abilities.SavesBySignal, s.state.Abilities.SavesByCommand = true, true
	victim = s.job("bob", "", "n1", time.Hour, append([]func(*backends.Job){saving(checkpoint)}, change...)...)
	return s, victim, s.job("ann", "chipA", "", 0)
}

func requeueOf(t *testing.T, p Plan) Action {
	t.Helper()
	for _, a := range p.Actions {
		if a.Verb == Requeue {
			return a
		}
	}
	t.Fatalf("nothing is requeued: %v", p.Skipped)
	return Action{}
}

func TestVictimIsAskedToSaveItself(t *testing.T) { // R33
	for name, c := range map[string]struct {
		checkpoint string
		change     func(*scene)
		asked      bool
	}{
		"by a signal":                {checkpoint: "SIGUSR1:90s", asked: true},
		"by a command":               {checkpoint: "command:90s:/save", asked: true},
		"not: only by itself":        {checkpoint: "every:10m"},
		"not: the queue can't":       {checkpoint: "SIGUSR1:90s", change: func(s *scene) { s.state.Abilities.SavesBySignal = false }},
		"not: no commands":           {checkpoint: "command:90s:/save", change: func(s *scene) { s.state.Abilities.SavesByCommand = false }},
		"not: beyond the site's max": {checkpoint: "SIGUSR1:121s"},
		"once more after a failure":  {checkpoint: "SIGUSR1:90s", change: func(s *scene) { s.state.Farm.Jobs[0].FailedSaves = 1 }, asked: true},
		"not: others wait for it":    {checkpoint: "SIGUSR1:90s", change: func(s *scene) { s.state.Farm.Jobs[0].Awaited = true }},
		"not: it failed twice":       {checkpoint: "SIGUSR1:90s", change: func(s *scene) { s.state.Farm.Jobs[0].FailedSaves = 2 }},
	} {
		s, _, _ := newSavingScene(t, c.checkpoint)
		if c.change != nil {
			c.change(s)
		}
		p := s.ripen()
		a := requeueOf(t, p)
		victim := p.Memory.Reclaims[0].Victims[0]
		if !c.asked {
			if a.Save != (backends.Checkpoint{}) || a.Grace != s.policy.GracePeriod || victim.Save != 0 {
				t.Errorf("%s: %+v, %+v", name, a, victim)
			}
			continue
		}
		if want, _ := backends.ParseCheckpoint(c.checkpoint); a.Save != want || a.Grace != 0 || victim.Save != want.Wait || !strings.Contains(a.Notice, "asked to save itself within 1m30s") {
			t.Errorf("%s: %+v, %+v", name, a, victim)
		}
	}
}

// A job that would end before it has saved itself is left to end.
func TestNoCheckpointShortOfTheRunLimit(t *testing.T) { // R16, R33
	limit := func(j *backends.Job) { j.RunLimit = time.Hour + 170*time.Second } // 110 s are left when slots are preempted
	s, _, _ := newSavingScene(t, "SIGUSR1:80s", limit)
	requeueOf(t, s.ripen())
	s, _, waits := newSavingScene(t, "SIGUSR1:100s", limit)
	if p := s.ripen(); preempted(p) != "" || !strings.Contains(skipped(p, waits), "its run limit ends it") {
		t.Errorf("preempted %q, skipped %q", preempted(p), skipped(p, waits))
	}
}

// A job that saves itself is asked once, and free_timeout begins when its time is up.
func TestReclaimWaitsForCheckpoint(t *testing.T) { // R19, R33
	s, victim, _ := newSavingScene(t, "SIGUSR1:90s")
	s.ripen()
	s.at(victim).Mark = "r1" // it runs on, and saves itself
	for waited := time.Duration(0); waited < 140*time.Second; waited += s.policy.Cycle {
		p := s.cycle()
		if preempted(p) != "" || len(p.Memory.Reclaims) != 1 || p.Memory.Reclaims[0].Phase != Acted {
			t.Fatalf("after %v: preempted %q, %+v", waited, preempted(p), p.Memory.Reclaims)
		}
	}
	s.cycle()
	if r := s.cycle().Memory.Reclaims[0]; r.Phase != Expired || !strings.Contains(r.Why, "1m30s") {
		t.Errorf("%+v", r)
	}
}

func TestFateOfCheckpoint(t *testing.T) { // R33
	for name, c := range map[string]struct {
		end   func(*scene, *backends.Job)
		fate  Fate
		saved SaveResult
	}{
		"it saves itself still":   {end: func(*scene, *backends.Job) {}, fate: Taken},
		"saved":                   {end: func(_ *scene, j *backends.Job) { j.State = backends.Pending }, fate: Taken, saved: Saved},
		"failed":                  {end: func(_ *scene, j *backends.Job) { j.State, j.FailedSaves = backends.Pending, 1 }, fate: Taken, saved: SaveFailed},
		"saved, and runs again":   {end: func(s *scene, j *backends.Job) { j.Started = s.now }, fate: Taken, saved: Saved},
		"it had only to end":      {end: func(s *scene, j *backends.Job) { s.endWith(j.ID, 0) }, fate: Finished},
		"it was killed meanwhile": {end: func(s *scene, j *backends.Job) { s.endWith(j.ID, 137) }, fate: Taken},
		"the queue forgot it":     {end: func(s *scene, _ *backends.Job) { s.state.Farm.Jobs = s.state.Farm.Jobs[1:] }, fate: Lost},
	} {
		s, victim, _ := newSavingScene(t, "SIGUSR1:90s")
		s.ripen()
		s.at(victim).Mark = "r1"
		s.cycle()
		c.end(s, s.at(victim))
		p := s.cycle()
		if v := p.Memory.Reclaims[0].Victims[0]; v.Fate != c.fate || v.Saved != c.saved {
			t.Errorf("%s: %+v", name, v)
		}
		if c.fate == Finished && p.Memory.Reclaims[0].Phase != Freed {
			t.Errorf("%s: its slot is not free: %+v", name, p.Memory.Reclaims[0])
		}
		s.state.Farm.Ended = nil // those since the last cycle
		if v := s.cycle().Memory.Reclaims[0].Victims[0]; v.Fate != c.fate || v.Saved != c.saved {
			t.Errorf("%s: a cycle later: %+v", name, v)
		}
	}
}

// endWith ends a job as the queue would: its snapshots have it among those that ended.
func (s *scene) endWith(id backends.ID, exitCode int) {
	ended := *s.at(id)
	ended.State, ended.Ended, ended.ExitCode = backends.Done, s.now, exitCode
	if exitCode != 0 {
		ended.State = backends.Exited
	}
	s.state.Farm.Ended = append(s.state.Farm.Ended, ended)
	s.state.Farm.Jobs = slices.DeleteFunc(s.state.Farm.Jobs, func(j backends.Job) bool { return j.ID == id })
}

// What becomes of a victim after the run in which it was asked says nothing of its save, whether a
// cycle saw it between the two or not.
func TestVictimThatRanAgainEnds(t *testing.T) { // R33
	for saved, failed := range map[SaveResult]int{Saved: 0, SaveFailed: 1} {
		for how, end := range map[string]struct {
			waits    bool
			exitCode int
		}{
			"done in its next run":   {exitCode: 0},
			"failed in its next run": {exitCode: 3},
			"killed while it waited": {waits: true, exitCode: 137},
		} {
			for name, seen := range map[string]struct{ asked, after bool }{
				"seen twice":    {asked: true, after: true},
				"seen as asked": {asked: true},
				"seen after it": {after: true},
				"not seen":      {},
			} {
				s, victim, _ := newSavingScene(t, "SIGUSR1:90s")
				s.ripen()
				s.at(victim).Mark = "r1"
				if seen.asked {
					s.cycle()
				}
				s.now = s.now.Add(10 * time.Minute)
				j := s.at(victim)
				if j.Started, j.FailedSaves = s.now, failed; end.waits {
					j.State, j.Started, j.Hosts = backends.Pending, time.Time{}, nil
				}
				if seen.after {
					s.cycle()
				}
				s.endWith(victim, end.exitCode)
				for range 2 {
					if v := s.cycle().Memory.Reclaims[0].Victims[0]; v.Fate != Taken || v.Saved != saved {
						t.Errorf("%s, %s, %s: %+v", saved, how, name, v)
					}
					s.state.Farm.Ended = nil // those since the last cycle
				}
			}
		}
	}
}

// A queue may show the run in which a victim had only to end with another start: a resumed one's
// is that of its resumption, or that of all.
func TestVictimThatEndsInTheRunThatIsMeant(t *testing.T) { // R33
	for name, started := range map[string]func(was time.Time) time.Time{
		"its start":  func(was time.Time) time.Time { return was },
		"an earlier": func(was time.Time) time.Time { return was.Add(-time.Hour) },
		"a later":    func(was time.Time) time.Time { return was.Add(time.Minute) },
		"none":       func(time.Time) time.Time { return time.Time{} },
	} {
		for _, seen := range []bool{false, true} {
			s, victim, _ := newSavingScene(t, "SIGUSR1:90s")
			s.ripen()
			s.at(victim).Mark = "r1"
			if seen {
				s.cycle()
			}
			j := s.at(victim)
			j.Started = started(j.Started)
			s.endWith(victim, 0)
			if v := s.cycle().Memory.Reclaims[0].Victims[0]; v.Fate != Finished || v.Saved != NotSaved {
				t.Errorf("%s, seen %v: %+v", name, seen, v)
			}
		}
	}
}

// requeueVictim has the queue requeue a victim of the first reclaim, after failed checkpoints.
func (s *scene) requeueVictim(id backends.ID, failed int) {
	j := s.at(id)
	j.Mark, j.State, j.Hosts, j.FailedSaves, j.HeldUntil = "r1", backends.Pending, nil, failed, s.now.Add(time.Hour)
	for _, a := range s.state.Memory.Reclaims[0].Victims {
		if a.ID == id {
			j.Priority = backends.At(backends.LevelVictim, 30)
		}
	}
}

func TestVictimsThatLostNothingComeBackFirst(t *testing.T) { // R11, R33
	for name, c := range map[string]struct {
		checkpoint string
		failed     int
		value      int
		lost       float64
	}{
		"it saved itself":              {"SIGUSR1:90s", 0, backends.GaveWay + 30, 0},
		"its checkpoint failed":        {"SIGUSR1:90s", 1, 30, 3660},
		"it failed, with a checkpoint": {"SIGUSR1:90s,every:7m", 1, 30, 300},
		"it starts again":              {"", 0, 30, 3660},
		"it starts at its last":        {"every:7m", 0, 30, 300},
	} {
		s, victim, _ := newSavingScene(t, c.checkpoint)
		s.ripen()
		s.requeueVictim(victim, c.failed)
		for range 3 { // and so it stays
			p := s.cycle()
			s.rank(p)
			if m := p.Memory.Jobs[victim]; s.at(victim).Priority != backends.At(backends.LevelVictim, c.value) || m.Lost != c.lost {
				t.Errorf("%s: priority %d, want %d; lost %v, want %v", name, s.at(victim).Priority, c.value, m.Lost, c.lost)
			}
		}
		e, _ := Explain(s.state, s.policy, s.now, victim)
		if e.Lost != c.lost || e.Stake == "" {
			t.Errorf("%s: explained as %v, %q", name, e.Lost, e.Stake)
		}
	}
}

// The bonus of a checkpoint is gone once the job is preempted again and loses its work.
func TestVictimThatLostNothingOnce(t *testing.T) { // R11, R33
	s, victim, waits := newSavingScene(t, "SIGUSR1:90s")
	s.ripen()
	s.requeueVictim(victim, 0)
	s.rank(s.cycle())
	v := s.at(victim)
	v.State, v.Started, v.Hosts, v.HeldUntil, v.FailedSaves = backends.Running, s.now.Add(-time.Hour), []backends.Placement{{Host: "n1", Slots: 1}}, time.Time{}, 0
	s.state.Farm.Jobs = append(s.state.Farm.Jobs[:1], s.state.Farm.Jobs[2:]...) // the first beneficiary has ended
	_ = waits
	s.cycle()
	s.job("ann", "chipA", "", 0)
	if got := preempted(s.ripen()); got != "requeue 1" {
		t.Fatalf("preempted %q", got)
	}
	s.requeueVictim(victim, 1)
	s.at(victim).Mark, s.at(victim).Priority = "r2", backends.At(backends.LevelVictim, backends.GaveWay+40) // its rank was not written
	s.rank(s.cycle())
	if got := s.at(victim).Priority; got != backends.At(backends.LevelVictim, 40) {
		t.Errorf("priority %d", got)
	}
}

func TestSuspendedVictimsComeBackFirst(t *testing.T) { // R11, R33
	s := newScene(t, 1, 1).pool("chipA", 1)
	victim := s.job("bob", "", "n1", time.Hour, suspendable)
	s.job("ann", "chipA", "", 0)
	s.ripen()
	if got := s.at(victim).Priority; got != backends.At(backends.LevelVictim, backends.GaveWay+30) {
		t.Errorf("priority %d", got)
	}
}

// newSuspendedScene is a farm whose host n1 has a job of chipA that waits to be resumed, a job
// of another on its slot, and a pending job of chipA that ranks higher.
func newSuspendedScene(t *testing.T, onHost string) (s *scene, stopped, waits backends.ID) {
	t.Helper()
	s = newScene(t, 2, 1).pool("chipA", 1).pool("chipB", 1)
	stopped = s.job("ann", "chipA", "n1", time.Hour, suspendable)
	j := s.at(stopped)
	j.State, j.Resuming, j.Priority = backends.Suspended, true, backends.At(backends.LevelVictim, 230)
	s.state.Memory.Jobs = map[backends.ID]JobMemory{stopped: {Requeues: 1, GaveWay: true, Written: j.Priority, WrittenAt: s.now}}
	waits = s.job("ann", "chipA", "", 0, func(j *backends.Job) { j.Priority = backends.At(backends.LevelNext, 20) })
	s.job("bob", onHost, "n1", time.Hour)
	s.job("bob", "", "n2", 2*time.Hour)
	return s, stopped, waits
}

// A suspended job within its guarantee is served before pending jobs of its pool, by
// preempting on its host.
func TestSuspendedJobTakesRoomFirst(t *testing.T) { // R20
	s, stopped, waits := newSuspendedScene(t, "")
	p := s.ripen()
	if preempted(p) != "requeue 3" || p.Memory.Reclaims[0].Beneficiary != stopped || p.Memory.Jobs[waits].Pool != 0 {
		t.Errorf("preempted %q; %+v", preempted(p), p.Memory.Jobs)
	}
}

// One whose host is full of PBA jobs leaves the room to a job that can use it, and takes what
// is left.
func TestSuspendedJobOnAFullHostTakesWhatIsLeft(t *testing.T) { // R20
	s, stopped, waits := newSuspendedScene(t, "chipB")
	p := s.ripen()
	if preempted(p) != "requeue 4" || p.Memory.Reclaims[0].Beneficiary != waits {
		t.Fatalf("preempted %q", preempted(p))
	}
	s.state.Farm.Jobs = append(s.state.Farm.Jobs[:1:1], s.state.Farm.Jobs[2:]...)
	for range 3 {
		p = s.cycle()
	}
	if m := p.Memory.Jobs[stopped]; m.Pool != 1 || m.Clock < 2*s.policy.Cycle {
		t.Errorf("its room is left, and its clock does not run: %+v", m)
	}
	again := s.job("ann", "chipA", "", 0)
	if p = s.cycle(); p.Memory.Jobs[again].Pool != 1 || p.Memory.Jobs[stopped].Pool != 0 {
		t.Errorf("another can use the room: %+v", p.Memory.Jobs)
	}
}
