package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Two beneficiaries need a slot of n1 each, for which jobs 1 and 2 are preempted in this order; job 3
// runs beside them. A third one needs a slot of n2. It is judged whether job 1, or once it is left out job 2, is needed.
func TestNeedless(t *testing.T) { // R18
	started := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	id := func(n int64) backends.ID { return backends.ID{Job: n} }
	at := func(host string, slots int) []backends.Placement {
		return []backends.Placement{{Host: host, Slots: slots}}
	}
	gpus := func(n int) []backends.Amount { return []backends.Amount{{Name: "gpu", Count: n}} }
	wait := func(n int64) backends.Job {
		return backends.Job{ID: id(n), State: backends.Pending, Slots: 1}
	}
	run := func(n int64, host string) backends.Job {
		return backends.Job{ID: id(n), State: backends.Running, Started: started, Slots: 1, Hosts: at(host, 1)}
	}
	for name, c := range map[string]struct {
		plan    func(farm *backends.Snapshot, p *Plan) // changes what the plan saw, and did
		change  func(now map[backends.ID]*backends.Job)
		waiting bool // job 1 was left out: job 2 is judged
		want    bool
	}{
		"as planned":       {change: func(map[backends.ID]*backends.Job) {}},
		"a slot came free": {change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }, want: true},
		"it is about to":   {change: func(now map[backends.ID]*backends.Job) { now[id(3)].Ending = true }, want: true},
		"it runs anew":     {change: func(now map[backends.ID]*backends.Job) { now[id(3)].Started = started.Add(time.Minute) }, want: true},
		"a slot came free, and one victim is spared": {change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }, waiting: true},
		"the first one started in what came free": {change: func(now map[backends.ID]*backends.Job) {
			now[id(3)].State = backends.Done
			now[id(11)].State, now[id(11)].Hosts = backends.Running, at("n1", 1)
		}, want: true},
		"the first one started in what the second one's victim left": {change: func(now map[backends.ID]*backends.Job) {
			now[id(2)].State, now[id(2)].Hosts = backends.Pending, nil
			now[id(11)].State, now[id(11)].Hosts = backends.Running, at("n1", 1)
		}},
		"the first one started elsewhere": {change: func(now map[backends.ID]*backends.Job) {
			now[id(11)].State, now[id(11)].Hosts = backends.Running, at("n2", 1)
		}, want: true},
		"one of other slots started in what came free": {change: func(now map[backends.ID]*backends.Job) {
			now[id(3)].State = backends.Done
			now[id(13)].State, now[id(13)].Hosts = backends.Running, at("n1", 1)
		}},
		"one of other slots started there": {change: func(now map[backends.ID]*backends.Job) {
			now[id(3)].State = backends.Done
			now[id(13)].State, now[id(13)].Hosts = backends.Running, at("n2", 1)
		}, want: true},
		"the first one is gone": {change: func(now map[backends.ID]*backends.Job) { delete(now, id(11)) }, want: true},
		"a slot came free that another job without a victim is to have": {plan: func(farm *backends.Snapshot, p *Plan) {
			farm.Jobs[0].Slots, farm.Jobs[0].Hosts = 2, at("n1", 2) // leaves more than job 11 needs
			p.Nominated = []Nominee{{Job: id(14), Hosts: at("n1", 1)}}
		}, change: func(now map[backends.ID]*backends.Job) { now[id(1)].Ending = true }, waiting: true},
		"it is to have a slot elsewhere": {plan: func(farm *backends.Snapshot, p *Plan) {
			farm.Jobs[0].Slots, farm.Jobs[0].Hosts = 2, at("n1", 2)
			p.Nominated = []Nominee{{Job: id(14), Hosts: at("n2", 1)}}
		}, change: func(now map[backends.ID]*backends.Job) { now[id(1)].Ending = true }, waiting: true, want: true},
		"a slot came free without the GPU": {plan: func(farm *backends.Snapshot, _ *Plan) {
			farm.Jobs[0].Needs, farm.Jobs[4].Needs = gpus(1), gpus(1)
		}, change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }},
		"a slot came free with the GPU": {plan: func(farm *backends.Snapshot, _ *Plan) {
			farm.Jobs[0].Needs, farm.Jobs[2].Needs, farm.Jobs[4].Needs = gpus(1), gpus(1), gpus(1)
		}, change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }, want: true},
		"a slot came free, a GPU is free": {plan: func(farm *backends.Snapshot, _ *Plan) {
			farm.Hosts[0].Has, farm.Jobs[0].Needs, farm.Jobs[4].Needs = gpus(2), gpus(1), gpus(1)
		}, change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }, want: true},
		"a GPU is free, but a suspended job has it": {plan: func(farm *backends.Snapshot, _ *Plan) {
			farm.Hosts[0].Has, farm.Jobs[0].Needs, farm.Jobs[4].Needs = gpus(2), gpus(1), gpus(1)
			farm.Jobs = append(farm.Jobs, backends.Job{ID: id(5), State: backends.Suspended, Slots: 1, Hosts: at("n1", 1), Needs: gpus(1)})
		}, change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }},
		"a slot came free, and the victim has no GPU": {plan: func(farm *backends.Snapshot, _ *Plan) {
			farm.Jobs[4].Needs = gpus(1)
		}, change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }, want: true},
		"a slot came free with too little memory": {plan: func(farm *backends.Snapshot, _ *Plan) {
			farm.Jobs[0].Memory, farm.Jobs[1].Memory, farm.Jobs[2].Memory, farm.Jobs[4].Memory = 4, 1, 1, 4
		}, change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }},
		"a slot came free with enough memory": {plan: func(farm *backends.Snapshot, _ *Plan) {
			farm.Jobs[0].Memory, farm.Jobs[1].Memory, farm.Jobs[2].Memory, farm.Jobs[4].Memory = 4, 1, 4, 4
		}, change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }, want: true},
		"a beneficiary that is suspended has its memory": {plan: func(farm *backends.Snapshot, _ *Plan) {
			farm.Jobs[0].Memory, farm.Jobs[4].Memory = 2, 4
			farm.Jobs[4].State, farm.Jobs[4].Hosts = backends.Suspended, at("n1", 1)
		}, change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }, want: true},
		"it was resumed in what came free": {plan: func(farm *backends.Snapshot, _ *Plan) {
			farm.Jobs[0].Memory, farm.Jobs[4].Memory = 2, 4
			farm.Jobs[4].State, farm.Jobs[4].Hosts = backends.Suspended, at("n1", 1)
		}, change: func(now map[backends.ID]*backends.Job) {
			now[id(3)].State, now[id(11)].State = backends.Done, backends.Running
		}, want: true},
		"memory stays with a victim that is suspended": {plan: func(farm *backends.Snapshot, _ *Plan) {
			farm.Jobs[0].Memory, farm.Jobs[1].Memory, farm.Jobs[2].Memory, farm.Jobs[4].Memory, farm.Jobs[5].Memory = 2, 2, 2, 2, 2
		}, change: func(now map[backends.ID]*backends.Job) {
			now[id(3)].State, now[id(3)].Hosts = backends.Suspended, at("n1", 1)
		}},
		"memory will stay with the next victim": {plan: func(farm *backends.Snapshot, p *Plan) {
			farm.Jobs[0].Memory, farm.Jobs[1].Memory, farm.Jobs[4].Memory = 3, 3, 3
			p.Memory.Reclaims[1].Victims[0].Mode = backends.PreemptSuspend
		}, change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }},
		"a slot came free, and a victim of an earlier plan runs anew": {plan: func(_ *backends.Snapshot, p *Plan) {
			p.Memory.Reclaims[1].Phase, p.Memory.Reclaims[1].Victims[0].Started = Acted, started.Add(-time.Hour)
		}, change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }, want: true},
		"a slot came free, but a beneficiary needs the whole host": {plan: func(farm *backends.Snapshot, _ *Plan) {
			farm.Jobs[4].Exclusive = true
		}, change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }},
		"the plan counts on the slot that came free": {plan: func(farm *backends.Snapshot, p *Plan) {
			p.Memory.Reclaims[0].Hosts = at("n1", 2)
			p.Actions = []Action{{Verb: Drop, Dummies: []backends.ID{id(3)}}}
		}, change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }},
		"the only reclaim there":             {plan: func(_ *backends.Snapshot, p *Plan) { p.Memory.Reclaims[1].Phase = Cancelled }, change: func(now map[backends.ID]*backends.Job) { now[id(3)].State = backends.Done }, want: true},
		"the only reclaim there, as planned": {plan: func(_ *backends.Snapshot, p *Plan) { p.Memory.Reclaims[1].Phase = Cancelled }, change: func(map[backends.ID]*backends.Job) {}},
		"it started where a job without a victim was to start": {plan: func(_ *backends.Snapshot, p *Plan) {
			p.Nominated = []Nominee{{Job: id(14), Hosts: at("n1", 1)}}
		}, change: func(now map[backends.ID]*backends.Job) {
			now[id(11)].State, now[id(11)].Hosts = backends.Running, at("n1", 1)
		}, want: true},
		"it started in what another one's victim, which ended, left": {change: func(now map[backends.ID]*backends.Job) {
			now[id(2)].State = backends.Done
			now[id(11)].State, now[id(11)].Hosts = backends.Running, at("n1", 1)
		}},
		"a slot came free elsewhere": {change: func(now map[backends.ID]*backends.Job) { now[id(4)].State = backends.Done }},
	} {
		t.Run(name, func(t *testing.T) {
			farm := &backends.Snapshot{
				Hosts: []backends.Host{{Name: "n1", Slots: 3, Memory: 6, Has: gpus(1)}, {Name: "n2", Slots: 1}},
				Jobs:  []backends.Job{run(1, "n1"), run(2, "n1"), run(3, "n1"), run(4, "n2"), wait(11), wait(12), wait(13), wait(14)},
			}
			p := &Plan{Memory: Memory{Reclaims: []Reclaim{
				{ID: 1, Phase: Planned, Beneficiary: id(11), Need: 1, Hosts: at("n1", 1), Victims: []Victim{{ID: id(1), Started: started, Slots: 1}}},
				{ID: 2, Phase: Planned, Beneficiary: id(12), Need: 1, Hosts: at("n1", 1), Victims: []Victim{{ID: id(2), Started: started, Slots: 1}}},
				{ID: 4, Phase: Planned, Beneficiary: id(13), Need: 1, Hosts: at("n2", 1), Victims: []Victim{{ID: id(4), Started: started, Slots: 1}}},
				{ID: 3, Phase: Cancelled, Beneficiary: id(11), Hosts: at("n1", 8)},
			}}}
			if c.plan != nil {
				c.plan(farm, p)
			}
			victim := id(1)
			later := func(x backends.ID) bool { return x == id(2) && p.Memory.Reclaims[1].Phase == Planned }
			if c.waiting {
				victim, later = id(2), func(backends.ID) bool { return false }
			}
			k := slices.IndexFunc(farm.Jobs, func(j backends.Job) bool { return j.ID == victim })
			around := Around(&farm.Jobs[k], Requeue, p, farm, backends.ForEngine{ManagesMemory: true})
			for _, n := range []int64{1, 11, 13} {
				if !slices.Contains(around.IDs, id(n)) {
					t.Errorf("job %d is not read again: %v are", n, around.IDs)
				}
			}
			now := map[backends.ID]*backends.Job{}
			for _, j := range farm.Jobs {
				now[j.ID] = &j
			}
			c.change(now)
			own := id(11)
			if victim == id(2) {
				own = id(12)
			}
			if got := around.Needless(own, now, later); got != c.want {
				t.Errorf("needless: %v, want %v", got, c.want)
			}
		})
	}
}

// Where too many jobs would have to be read, each victim counts as needed.
func TestNeedlessIsBounded(t *testing.T) { // R18
	at := []backends.Placement{{Host: "n1", Slots: 1}}
	farm := &backends.Snapshot{Hosts: []backends.Host{{Name: "n1", Slots: mostBeside + 1}}}
	for n := range mostBeside + 1 {
		farm.Jobs = append(farm.Jobs, backends.Job{ID: backends.ID{Job: int64(n + 1)}, State: backends.Running, Slots: 1, Hosts: at})
	}
	p := &Plan{Memory: Memory{Reclaims: []Reclaim{{ID: 1, Phase: Planned, Beneficiary: backends.ID{Job: 9999}, Hosts: at, Victims: []Victim{{ID: farm.Jobs[0].ID}}}}}}
	around := Around(&farm.Jobs[0], Requeue, p, farm, backends.ForEngine{})
	if len(around.IDs) != 2 || around.Needless(backends.ID{Job: 9999}, map[backends.ID]*backends.Job{{Job: 9999}: {State: backends.Pending}}, func(backends.ID) bool { return false }) {
		t.Errorf("%d jobs are read again", len(around.IDs))
	}
}

// A victim whose act was left out, as another reclaim's victim leaves enough on its host, is not in
// the next plan.
func TestActThatIsNotNeededIsNotRepeated(t *testing.T) { // R18
	for _, leaves := range []int{1, 3} { // slots of the other victim; its beneficiary needs one
		s := newScene(t, 1, 2+leaves).pool("chipA", 3)
		s.policy.Thresholds = map[string]time.Duration{"chipA": 0}
		s.job("bob", "", "n1", time.Hour)
		spared := s.job("bob", "", "n1", 2*time.Hour)
		other := s.job("bob", "", fmt.Sprintf("n1*%d", leaves), 3*time.Hour)
		s.job("ann", "chipA", "", 0, slots(2))
		s.rank(s.cycle())
		first := &s.state.Memory.Reclaims[0]
		if len(first.Victims) != 2 {
			t.Fatalf("%+v", first.Victims)
		}
		for k := range first.Victims {
			if v := &first.Victims[k]; v.ID != spared { // this one's act was done
				j := s.at(v.ID)
				j.State, j.Hosts, j.Mark, j.HeldUntil = backends.Held, nil, first.Mark(), s.now.Add(s.policy.HoldLimit)
			}
		}
		second := s.job("ann", "chipA", "", 0)
		s.state.Memory.Reclaims = append(s.state.Memory.Reclaims, Reclaim{
			ID: 2, Beneficiary: second, Pool: 1, Project: "chipA", User: "ann", Need: 1, Hosts: []backends.Placement{{Host: "n1", Slots: 1}},
			Victims: []Victim{{ID: other, User: "bob", Started: s.at(other).Started, Slots: leaves, Mode: backends.PreemptRequeue, Fate: Taken}},
			Phase:   Acted, Planned: s.now, Acted: s.now,
		})
		s.state.Memory.Jobs[second] = JobMemory{Pool: 1, Entered: s.now}
		s.at(other).Mark, s.at(other).Ending = "r2", true
		p := s.cycle()
		want, fate := "requeue "+spared.String(), Intended
		if leaves > 1 {
			want, fate = "", Spared
		}
		for _, v := range p.Memory.Reclaims[0].Victims {
			if v.ID == spared && v.Fate != fate {
				t.Errorf("with %d slots of the other victim the fate is %q, want %q", leaves, v.Fate, fate)
			}
		}
		if got := preempted(p); got != want {
			t.Errorf("with %d slots of the other victim preempted %q, want %q", leaves, got, want)
		}
	}
}
