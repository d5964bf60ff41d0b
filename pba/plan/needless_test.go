package plan

import (
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
	run := func(n int64, host string) backends.Job {
		return backends.Job{ID: id(n), State: backends.Running, Started: started, Slots: 1, Hosts: at(host, 1)}
	}
	for name, c := range map[string]struct {
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
		"a beneficiary needs GPUs": {change: func(now map[backends.ID]*backends.Job) {
			now[id(3)].State = backends.Done
			now[id(12)].Needs = []backends.Amount{{}}
		}},
		"a slot came free elsewhere": {change: func(now map[backends.ID]*backends.Job) { now[id(4)].State = backends.Done }},
	} {
		t.Run(name, func(t *testing.T) {
			farm := &backends.Snapshot{Jobs: []backends.Job{run(1, "n1"), run(2, "n1"), run(3, "n1"), run(4, "n2"), {ID: id(11), State: backends.Pending, Slots: 1}, {ID: id(12), State: backends.Pending, Slots: 1}, {ID: id(13), State: backends.Pending, Slots: 1}}}
			reclaims := []Reclaim{
				{ID: 1, Phase: Planned, Beneficiary: id(11), Need: 1, Hosts: at("n1", 1), Victims: []Victim{{ID: id(1), Started: started, Slots: 1}}},
				{ID: 2, Phase: Planned, Beneficiary: id(12), Need: 1, Hosts: at("n1", 1), Victims: []Victim{{ID: id(2), Started: started, Slots: 1}}},
				{ID: 4, Phase: Planned, Beneficiary: id(13), Need: 1, Hosts: at("n2", 1), Victims: []Victim{{ID: id(4), Started: started, Slots: 1}}},
				{ID: 3, Phase: Cancelled, Beneficiary: id(11), Hosts: at("n1", 8)},
			}
			victim, own := id(1), int64(1)
			later := func(x backends.ID) bool { return x == id(2) }
			if c.waiting {
				victim, own, later = id(2), 2, func(backends.ID) bool { return false }
			}
			k := slices.IndexFunc(farm.Jobs, func(j backends.Job) bool { return j.ID == victim })
			around := Around(&farm.Jobs[k], own, reclaims, farm)
			if want := []backends.ID{id(1), id(2), id(3), id(11), id(12), id(13)}; !slices.Equal(around.IDs, want) {
				t.Errorf("beside it are %v, want %v", around.IDs, want)
			}
			now := map[backends.ID]*backends.Job{}
			for _, j := range farm.Jobs {
				now[j.ID] = &j
			}
			c.change(now)
			if got := around.Needless(now, later); got != c.want {
				t.Errorf("needless: %v, want %v", got, c.want)
			}
			if alone := Around(&farm.Jobs[k], own, reclaims[own-1:own], farm); alone.IDs != nil || alone.Needless(now, later) {
				t.Errorf("%v are read though no other reclaim is open there", alone.IDs)
			}
		})
	}
}

// A beneficiary started in what another one's victim left, or is leaving: its own victim is needed for
// that one.
func TestUnserved(t *testing.T) { // R18
	started := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	id := func(n int64) backends.ID { return backends.ID{Job: n} }
	at := []backends.Placement{{Host: "n1", Slots: 1}}
	for name, c := range map[string]struct {
		victim, other backends.Job // job 1, preempted for job 11; and job 11
		want          bool
	}{
		"its victim is gone":       {backends.Job{State: backends.Pending}, backends.Job{State: backends.Pending}, true},
		"its victim is leaving":    {backends.Job{State: backends.Running, Ending: true, Started: started}, backends.Job{State: backends.Pending}, true},
		"its victim still runs":    {backends.Job{State: backends.Running, Started: started}, backends.Job{State: backends.Pending}, false},
		"its victim runs anew":     {backends.Job{State: backends.Running, Started: started.Add(time.Hour)}, backends.Job{State: backends.Pending}, true},
		"it was served, and waits": {backends.Job{State: backends.Pending}, backends.Job{State: backends.Running}, false},
	} {
		farm := &backends.Snapshot{Jobs: []backends.Job{{ID: id(2), State: backends.Running, Started: started, Hosts: at}}}
		around := Around(&farm.Jobs[0], 2, []Reclaim{
			{ID: 1, Phase: Planned, Beneficiary: id(11), Need: 1, Hosts: at, Victims: []Victim{{ID: id(1), Started: started, Slots: 1}}},
			{ID: 2, Phase: Planned, Beneficiary: id(12), Need: 1, Hosts: at, Victims: []Victim{{ID: id(2), Started: started, Slots: 1}}},
		}, farm)
		now := map[backends.ID]*backends.Job{id(1): &c.victim, id(2): &farm.Jobs[0], id(11): &c.other, id(12): {State: backends.Running, Hosts: at}}
		if got := around.Unserved(2, now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
