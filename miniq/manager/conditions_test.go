package manager

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// newRackBench has n1 with 4 slots and n2 with 2 in rack r1, n3 with 4 and n4 with 3 in r2, and
// n5 with 8 in none.
func newRackBench(t *testing.T, cfg Config) *bench {
	b := newBench(t, cfg)
	for _, h := range []NodeUp{
		{Name: "n1", Slots: 4, Features: []string{"rack=r1", "big"}},
		{Name: "n2", Slots: 2, Features: []string{"rack=r1"}},
		{Name: "n3", Slots: 4, Features: []string{"rack=r2", "big"}},
		{Name: "n4", Slots: 3, Features: []string{"rack=r2"}},
		{Name: "n5", Slots: 8, Has: gpus(1)}, // and no rack
	} {
		b.must(h)
	}
	return b
}

// runsOn fails the test unless the job runs so.
func (b *bench) runsOn(id backends.ID, want string) {
	b.Helper()
	j := b.job(id)
	var got []string
	for _, p := range j.Hosts {
		got = append(got, fmt.Sprintf("%s:%d", p.Host, p.Slots))
	}
	if text := strings.Join(got, " "); text != want {
		b.Fatalf("job %s is %v on %q (%s), want %q", id, j.State, text, j.Reason, want)
	}
}

// TestPerHost: so many slots on each host, the last one may have fewer; hosts with few free slots
// first.
func TestPerHost(t *testing.T) {
	b := newBench(t, Config{}, 4, 2, 3)
	first := b.submit(backends.Spec{Slots: 5, PerHost: 2})
	b.runsOn(first, "n2:2 n3:2 n1:1")
	j := b.job(first)
	if j.PerHost != 2 || j.OneHost || j.Unserved != "" {
		t.Errorf("%+v", j)
	}
	whole := b.submit(backends.Spec{Slots: 2, PerHost: 2})
	if j := b.job(whole); j.PerHost != 0 || !j.OneHost {
		t.Errorf("as many as it has: %+v", j)
	}
	b.runsOn(whole, "n1:2")
	b.ends(whole, 0)
	even := b.submit(backends.Spec{Slots: 2, PerHost: 1})
	b.runsOn(even, "n3:1 n1:1")
	b.ends(even, 0)
	wide := b.submit(backends.Spec{Slots: 4, PerHost: 2})
	b.waits(wide, backends.WaitResources)
	b.ends(first, 0)
	b.runsOn(wide, "n2:2 n3:2")

	for text, s := range map[string]backends.Spec{
		"9 slots, 3 on each host: 3 hosts are needed, and 2 could have 3 slots for it": {Slots: 9, PerHost: 3},
		"-1 slots on each host: ask for 1 or more":                                     {Slots: 2, PerHost: -1},
	} {
		b.do(Submit{By: user, Specs: []backends.Spec{s}})
		if err := b.last.Submitted[0].Err; err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q: %v", text, err)
		}
	}
	if j := b.job(b.submit(backends.Spec{Slots: 8, PerHost: 3, Hold: true})); j.PerHost != 3 { // 3 and 3 and 2
		t.Errorf("%+v", j)
	}
	pinned := b.submit(backends.Spec{Slots: 4, PerHost: 2, BeginTime: b.now.Add(time.Minute)})
	b.must(Pin{admin, []backends.Pin{{ID: pinned, Hosts: []string{"n1", "n3"}, Slots: []int{3, 1}}}})
	b.ends(wide, 0)
	b.after(2 * time.Minute)
	b.runsOn(pinned, "n3:2 n1:2") // not as the pin says
	per := 1
	b.must(Modify{By: user, IDs: []backends.ID{pinned}, Change: backends.Change{RunLimit: new(time.Duration)}})
	last := b.submit(backends.Spec{Slots: 3, PerHost: 2, Hold: true})
	b.must(Modify{By: user, IDs: []backends.ID{last}, Change: backends.Change{PerHost: &per}})
	if j := b.job(last); j.PerHost != 1 {
		t.Errorf("%+v", j)
	}
}

// TestPerHostIsKept: slots that are kept for a job which has waited are so many on each host.
func TestPerHostIsKept(t *testing.T) {
	b := newBench(t, Config{ReserveAfter: time.Minute}, 4, 4)
	b.submit(spec(3))
	long := b.submit(spec(3))
	wide := b.submit(backends.Spec{Slots: 4, PerHost: 2})
	b.after(2 * time.Minute)
	if j := b.job(wide); strings.Join(j.Keeps, " ") != "n1 n2" {
		t.Errorf("keeps %v", j.Keeps)
	}
	b.waits(b.submit(spec(1)), backends.WaitResources)
	b.ends(long, 0)
	b.waits(wide, backends.WaitResources)
}

// TestSame: all hosts of a job have the same; hosts without a value are left out where others
// have one.
func TestSame(t *testing.T) {
	b := newRackBench(t, Config{})
	six := b.submit(backends.Spec{Slots: 6, Same: []string{"rack"}})
	b.runsOn(six, "n5:6") // one host is always enough
	two := b.submit(backends.Spec{Slots: 6, Same: []string{"rack"}})
	b.runsOn(two, "n1:4 n2:2")
	seven := b.submit(backends.Spec{Slots: 7, Same: []string{"rack"}})
	b.runsOn(seven, "n3:4 n4:3")
	for _, id := range []backends.ID{six, two, seven} {
		b.ends(id, 0)
	}
	both := b.submit(backends.Spec{Slots: 6, PerHost: 3, Same: []string{"rack"}})
	b.runsOn(both, "n4:3 n3:3")
	b.ends(both, 0)
	flags := b.submit(backends.Spec{Slots: 8, PerHost: 4, Same: []string{"big"}})
	b.runsOn(flags, "n1:4 n3:4")
	b.ends(flags, 0)
	typed := b.submit(backends.Spec{Slots: 12, Same: []string{"type", "model"}}) // of which no host says anything
	b.runsOn(typed, "n5:8 n1:4")
	b.ends(typed, 0)

	// The engine can't tell where a job will be that several groups of hosts could hold.
	for text, s := range map[string]backends.Spec{
		"same[rack]": {Slots: 6, Same: []string{"rack"}, Hold: true, PerHost: 3},
		"":           {Slots: 6, Same: []string{"rack"}, Hold: true, Hosts: []string{"n1", "n2"}},
	} {
		s.Hold = false
		s.BeginTime = b.now.Add(time.Hour)
		if j := b.job(b.submit(s)); (text == "") != (j.Unserved == "") || !strings.HasPrefix(j.Unserved, text) {
			t.Errorf("%+v: not understood is %q", s, j.Unserved)
		}
	}
	if j := b.job(b.submit(backends.Spec{Slots: 2, OneHost: true, Same: []string{"rack"}, BeginTime: b.now.Add(time.Hour)})); j.Unserved != "" {
		t.Errorf("on one host: %q", j.Unserved)
	}
	pinned := b.submit(backends.Spec{Slots: 5, Same: []string{"rack"}, BeginTime: b.now.Add(time.Minute)})
	b.must(Pin{admin, []backends.Pin{{ID: pinned, Hosts: []string{"n1", "n3"}, Slots: []int{3, 2}}}})
	b.after(2 * time.Minute)
	b.state(pinned, backends.Pending) // they are not in one rack
	b.must(Pin{admin, []backends.Pin{{ID: pinned, Hosts: []string{"n3", "n4"}, Slots: []int{3, 2}}}})
	b.runsOn(pinned, "n3:3 n4:2")
	for text, s := range map[string]backends.Spec{
		"9 slots, on hosts with the same rack: of such hosts 7 slots at most": {Slots: 9, Same: []string{"rack"}},
		"1 on each host, on hosts with the same gpu and rack":                 {Slots: 2, PerHost: 1, Same: []string{"rack", "gpu"}},
		"same[shelf]: no host has shelf: choose from: big gpu":                {Slots: 2, Same: []string{"shelf"}},
		"no host can have a feature of that name":                             {Slots: 2, Same: []string{"a b"}},
		"more than 8 names": {Slots: 2, Same: strings.Split("a b c d e f g h i", " ")},
	} {
		b.do(Submit{By: user, Specs: []backends.Spec{s}})
		if err := b.last.Submitted[0].Err; err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q: %v", text, err)
		}
	}
}

// TestSelect: a job runs where its condition holds.
func TestSelect(t *testing.T) {
	b := newRackBench(t, Config{})
	for condition, want := range map[string]string{
		"ncpus >= 8": "n5:1", "big && rack == r2": "n3:1", "!big && rack == r1": "n2:1", "hname == n4 || hname == n9": "n4:1",
		"!defined(rack)": "n5:1", "type == any && rack != r1 && !big": "n4:1",
	} {
		id := b.submit(backends.Spec{Select: condition})
		b.runsOn(id, want)
		if j := b.job(id); j.Suits == nil || !j.Suits.Contains(j.Hosts[0].Host) || len(j.Suits.Hosts) > 1 {
			t.Errorf("%s suits %+v", condition, j.Suits)
		}
		b.ends(id, 0)
	}
	for text, s := range map[string]backends.Spec{
		"select[fast]: no host has fast: choose from: big gpu rack": {Select: "fast"},
		"select[big && fats == 1]: no host has fats":                {Select: "big && fats == 1"},
		"select[ncpus > 8] holds on no host":                        {Select: "ncpus > 8"},
		"no host has all of big where select[ncpus > 4] holds":      {Features: []string{"big"}, Select: "ncpus > 4"},
		"select[(]: it ends too early":                              {Select: "("},
	} {
		b.do(Submit{By: user, Specs: []backends.Spec{s}})
		if err := b.last.Submitted[0].Err; err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q: %v", text, err)
		}
	}
	// A host that changes is judged anew.
	id := b.submit(backends.Spec{Slots: 8, Select: "ncpus >= 8"})
	b.state(id, backends.Running)
	next := b.submit(backends.Spec{Slots: 8, Select: "ncpus >= 8"})
	b.waits(next, backends.WaitResources)
	b.must(NodeUp{Name: "n1", Slots: 9, Features: []string{"rack=r1", "big"}})
	b.runsOn(next, "n1:8")
}
