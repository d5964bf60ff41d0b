package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// newWideScene is a farm of 128 slots and a pool of 32, which runs a job. A job of bob waits for 100
// slots; preemptions took just more of its work than it may lose.
func newWideScene(t *testing.T) (s *scene, wide backends.ID) {
	s = newScene(t, 4, 32).pool("chipA", 32)
	s.policy.HoldTooWide = true
	s.state.Abilities.SavesBySignal, s.policy.CheckpointMax = true, 2*time.Minute
	s.job("ann", "chipA", "n1*8", time.Hour)
	wide = s.job("bob", "", "", 8*time.Hour, spanning(100))
	s.state.Memory.Jobs = map[backends.ID]JobMemory{wide: {Requeues: 12, Lost: 100*4*3600 + 1}}
	return s, wide
}

func heldNow(s *scene) func(*backends.Job) {
	return func(j *backends.Job) { j.HeldUntil, j.Wait = s.now.Add(s.policy.HoldLimit), backends.WaitTime }
}

func TestJobsThatAreTooWideWait(t *testing.T) { // R35
	day := 24 * time.Hour
	noJobs := func(sent time.Duration) func(*scene, *backends.Job) {
		return func(s *scene, j *backends.Job) {
			heldNow(s)(j)
			s.state.Farm.Jobs[0].State, s.state.Memory.PoolsSent = backends.Done, s.now.Add(-sent)
		}
	}
	lost := func(slotHours float64) func(*scene, *backends.Job) {
		return func(s *scene, j *backends.Job) {
			s.state.Memory.Jobs[j.ID] = JobMemory{Lost: slotHours * 3600}
		}
	}
	for name, c := range map[string]struct {
		change func(*scene, *backends.Job)
		want   string
	}{
		"it lost more than 4 h":                  {func(*scene, *backends.Job) {}, "hold 2"},
		"4 h, and no more":                       {lost(400), ""},
		"more than its run limit":                {func(_ *scene, j *backends.Job) { j.RunLimit = 3 * time.Hour }, "hold 2"},
		"less than its run limit":                {func(_ *scene, j *backends.Job) { j.RunLimit = 5 * time.Hour }, ""},
		"less than max_lost":                     {func(s *scene, _ *backends.Job) { s.policy.MaxLost = 5 * time.Hour }, ""},
		"on_too_wide: run":                       {func(s *scene, _ *backends.Job) { s.policy.HoldTooWide = false }, ""},
		"the queue can't hold it":                {func(s *scene, _ *backends.Job) { s.state.Abilities.HoldUntil = nil }, ""},
		"it fits beside the guarantee":           {func(_ *scene, j *backends.Job) { j.Slots = 96 }, ""},
		"it just does not":                       {func(_ *scene, j *backends.Job) { j.Slots = 97 }, "hold 2"},
		"its queue is not managed":               {func(s *scene, j *backends.Job) { s.policy.Queues, j.Queue = []string{"normal"}, "other" }, ""},
		"it saves itself":                        {func(_ *scene, j *backends.Job) { saving("SIGUSR1:90s")(j) }, ""},
		"it saves itself by itself":              {func(_ *scene, j *backends.Job) { saving("every:10m")(j) }, ""},
		"it would, but the queue can't ask it":   {func(s *scene, j *backends.Job) { saving("SIGUSR1:90s")(j); s.state.Abilities.SavesBySignal = false }, "hold 2"},
		"it would, and failed twice":             {func(_ *scene, j *backends.Job) { saving("SIGUSR1:90s")(j); j.FailedSaves = 2 }, "hold 2"},
		"it may be suspended":                    {func(_ *scene, j *backends.Job) { suspendable(j) }, ""},
		"a pool is for it":                       {func(s *scene, j *backends.Job) { s.pool("chipB", 100); j.Project = "chipB" }, ""},
		"held, and nothing has changed":          {func(s *scene, j *backends.Job) { heldNow(s)(j) }, ""},
		"half of the hold is over":               {func(s *scene, j *backends.Job) { heldNow(s)(j); j.HeldUntil = s.now.Add(s.policy.HoldLimit/2 - 1) }, "hold 2"},
		"held, and pools sent jobs within a day": {noJobs(day - time.Minute), ""},
		"held, and a day without":                {noJobs(day), "release 2"},
		"held, and the guarantee was lowered":    {func(s *scene, j *backends.Job) { heldNow(s)(j); s.policy.Allocations[0].Guarantee = 28 }, "release 2"},
		"held, and now on_too_wide: run":         {func(s *scene, j *backends.Job) { heldNow(s)(j); s.policy.HoldTooWide = false }, "release 2"},
		"held, let run, chosen for a reclaim that came to nothing": {func(s *scene, j *backends.Job) {
			heldNow(s)(j)
			s.policy.HoldTooWide = false
			s.state.Memory.Reclaims = []Reclaim{{ID: 1, Phase: Cancelled, Planned: s.now.Add(-10 * time.Minute), Victims: []Victim{{ID: j.ID, User: "bob", Slots: 100, Fate: Spared}}}}
		}, "release 2"},
		"held, and by its owner, too": {func(s *scene, j *backends.Job) { heldNow(s)(j); j.State = backends.Held }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, id := newWideScene(t)
			c.change(s, s.at(id))
			p := s.cycle()
			if got := holds(p); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			s.hold(p)
			if again := holds(s.cycle()); again != "" {
				t.Errorf("the next cycle: %q", again)
			}
		})
	}
}

// A job that a reclaim took is not released when that ends, if it is too wide now: else it would start
// between two cycles.
func TestVictimThatIsTooWideStaysHeld(t *testing.T) { // R35
	for _, wait := range []bool{true, false} {
		s, id := newWideScene(t)
		s.policy.HoldTooWide = wait
		heldNow(s)(s.at(id))
		s.at(id).Mark = "r1"
		s.state.Memory.Reclaims = []Reclaim{{
			ID: 1, Beneficiary: backends.ID{Job: 1}, Phase: Freed, Planned: s.now.Add(-time.Minute), Freed: s.now,
			Victims: []Victim{{ID: id, User: "bob", Slots: 100, Fate: Taken}},
		}}
		p := s.cycle()
		if r := p.Memory.Reclaims[0]; r.Phase != HandedOver || r.Victims[0].Released != wait {
			t.Fatalf("on_too_wide wait %v: %+v", wait, r)
		}
		want := "release 2"
		if wait {
			want = ""
		}
		if got := holds(p); got != want {
			t.Errorf("on_too_wide wait %v: %q, want %q", wait, got, want)
		}
	}
}

// The hold is renewed as long as it is needed, and ends a day after the pool's last job (R21).
func TestTooWideWaitsADay(t *testing.T) { // R35
	s, id := newWideScene(t)
	last := s.now.Add(time.Hour)
	for s.now.Before(last.Add(23 * time.Hour)) {
		if s.now.After(last) {
			s.state.Farm.Jobs[0].State = backends.Done
		}
		s.hold(s.cycle())
		if left := s.at(id).HeldUntil.Sub(s.now); left < s.policy.HoldLimit/2-s.policy.Cycle {
			t.Fatalf("%v after the first cycle its hold ends in %v", s.now.Sub(noon), left)
		}
	}
	for !s.at(id).HeldUntil.IsZero() {
		if s.now.After(last.Add(25 * time.Hour)) {
			t.Fatal("it is held for more than a day")
		}
		s.hold(s.cycle())
	}
}

func TestExplainSaysWhyAJobIsTooWide(t *testing.T) { // R27, R35
	s, id := newWideScene(t)
	e, _ := Explain(s.state, s.policy, s.now, id)
	want := "it waits: it needs 100 slots, more than the 96 that are guaranteed to no pool; preemptions have cost it work of 400.0 slot-hours already (max_lost), and would again; it is held until " + s.now.Add(s.policy.HoldLimit).Format(time.RFC3339) + ", and longer until pools sent no jobs for a day, or have less (on_too_wide)"
	if e.Place != want || !strings.Contains(e.Stake, "to lose nothing, submit it with ALLOTMENT_CHECKPOINT") {
		t.Errorf("%q, %q\nwant %q", e.Place, e.Stake, want)
	}
	p := Make(s.state, s.policy, s.now)
	if len(p.TooWide) != 1 || p.TooWide[0].Job != id || len(p.Warnings) != 1 || !strings.HasPrefix(p.Warnings[0], "job 2: wider than the 96 slots") {
		t.Errorf("%+v, %q", p.TooWide, p.Warnings)
	}
}
