package manager

import (
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

func gpus(n int) []backends.Amount { return []backends.Amount{{Name: "gpu", Count: n}} }

// newGPUBench has n1 with 4 slots, and n2 with 4 slots, two GPUs and the feature big.
func newGPUBench(t *testing.T) *bench {
	b := newBench(t, Config{}, 4)
	b.must(NodeUp{Name: "n2", Slots: 4, Memory: 4 << 32, Has: gpus(2), Features: []string{"big"}})
	return b
}

// TestNeeds: resources are taken from the start of a run to its end, stopped or not.
func TestNeeds(t *testing.T) {
	b := newGPUBench(t)
	job := backends.Spec{Needs: gpus(1)}
	first, second, third := b.submit(job), b.submit(job), b.submit(job)
	b.state(second, backends.Running)
	b.waits(third, backends.WaitResources)
	j := b.job(third)
	if len(j.Suits.Hosts) != 1 || j.Suits.Hosts[0] != "n2" || j.Suits != b.job(first).Suits || j.Needs[0].Count != 1 || !strings.Contains(j.Reason, "gpu=1") {
		t.Errorf("%+v suits %+v", j, j.Suits)
	}
	if one := b.job(b.submit(spec(1))); one.Hosts[0].Host != "n1" {
		t.Errorf("a job without needs runs on %v, where GPUs are", one.Hosts)
	}
	if plain := b.job(b.submit(spec(3))); plain.State != backends.Running || plain.Suits != nil || plain.Needs != nil {
		t.Errorf("%+v", plain)
	}
	b.must(Suspend{admin, []backends.Act{{ID: first}}})
	b.state(third, backends.Pending)
	b.must(Requeue{admin, []backends.Act{{ID: second, Until: b.now.Add(time.Minute)}}})
	b.state(third, backends.Pending)
	b.ends(second, 143)
	b.starts(third)
	b.must(Resume{admin, []backends.ID{first}})
	b.state(first, backends.Running)
	b.ends(third, 0)
	b.after(time.Minute)
	b.state(second, backends.Running)
	if h := b.m.Hosts()[1]; h.Has[0].Count != 2 || h.Features[0] != "big" {
		t.Errorf("%+v", h)
	}
}

// TestFeatures: a job starts where they are; what is counted is a feature, too; a host may
// lose one.
func TestFeatures(t *testing.T) {
	b := newGPUBench(t)
	big, both := b.submit(backends.Spec{Slots: 4, Features: []string{"big"}}), b.submit(backends.Spec{Features: []string{"big", "gpu"}})
	if j := b.job(big); j.Hosts[0].Host != "n2" {
		t.Errorf("%+v", j)
	}
	b.state(both, backends.Pending)
	b.must(NodeUp{Name: "n1", Slots: 4, Memory: 4 << 32, Has: gpus(1), Features: []string{"big", "fast"}})
	b.starts(both)
	if j := b.job(both); j.Hosts[0].Host != "n1" || j.Suits != nil {
		t.Errorf("all hosts suit: %+v, %+v", j, j.Suits)
	}
	b.must(Requeue{admin, []backends.Act{{ID: both, Until: b.now.Add(time.Minute)}}})
	b.ends(both, 143)
	b.must(NodeUp{Name: "n1", Slots: 4, Memory: 4 << 32})
	b.after(time.Minute)
	b.state(both, backends.Pending)
	b.must(Modify{By: user, IDs: []backends.ID{both}, Change: backends.Change{Features: &[]string{}}})
	b.state(both, backends.Running)
}

// TestUnservable: what no host has is refused at submission.
func TestUnservable(t *testing.T) {
	b := newGPUBench(t)
	for text, s := range map[string]backends.Spec{
		"no host has the resource tpu: choose from: big gpu": {Needs: []backends.Amount{{Name: "tpu", Count: 1}}},
		"gpu=3: the host with most has 2: ask for less":      {Needs: gpus(3)},
		"no host has the feature fast":                       {Features: []string{"fast"}},
		"no host has the resource gpu: they have none":       {Needs: gpus(1), Hosts: []string{"n1"}},
		"these hosts have 4 slots":                           {Needs: gpus(1), Slots: 5},
		"no host can have one of that name":                  {Features: []string{"a b"}},
		"named twice":                                        {Needs: append(gpus(1), gpus(1)...)},
		"ask for 1 or more":                                  {Needs: gpus(0)},
	} {
		b.do(Submit{By: user, Specs: []backends.Spec{s}})
		if err := b.last.Submitted[0].Err; err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q: %v", text, err)
		}
	}
}
