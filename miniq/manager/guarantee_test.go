package manager

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// TestReserveBesideGuarantees (R37): a job of no pool that waited has only those slots kept
// that are not guaranteed; a job of a pool all that it needs.
func TestReserveBesideGuarantees(t *testing.T) {
	for _, c := range []struct {
		name  string
		spec  backends.Spec
		all   []backends.Guaranteed
		keeps string // the hosts
	}{
		{"nothing is guaranteed", backends.Spec{Slots: 8}, nil, "n1 n2"},
		{"as wide as what is left", backends.Spec{Slots: 6}, []backends.Guaranteed{{Slots: 2}}, "n1 n2"},
		{"wider than what is left", backends.Spec{Slots: 7}, []backends.Guaranteed{{Slots: 2}}, ""},
		{"not on the hosts of a set", backends.Spec{Slots: 3, OneHost: true}, []backends.Guaranteed{{Slots: 2, Hosts: []string{"n1"}}}, "n2"},
		{"nowhere", backends.Spec{Slots: 3, OneHost: true}, []backends.Guaranteed{{Slots: 2, Hosts: []string{"n1"}}, {Slots: 2, Hosts: []string{"n2"}}}, ""},
		{"alone on its hosts", backends.Spec{Slots: 1, Exclusive: true}, []backends.Guaranteed{{Slots: 5}}, ""},
		{"of a pool", backends.Spec{Slots: 8, Priority: backends.At(backends.LevelPBA, 120)}, []backends.Guaranteed{{Slots: 2}}, "n1 n2"},
		{"next in line", backends.Spec{Slots: 8, Priority: backends.At(backends.LevelNext, 20)}, []backends.Guaranteed{{Slots: 2}}, ""},
	} {
		b := newBench(t, Config{ReserveAfter: time.Minute}, 4, 4)
		for i := range c.all {
			c.all[i].Until = b.now.Add(time.Hour)
		}
		b.must(Guarantee{admin, c.all})
		b.submit(backends.Spec{Slots: 2, Hosts: []string{"n1"}})
		b.submit(backends.Spec{Slots: 3, Hosts: []string{"n2"}})
		id := b.submit(c.spec)
		b.after(time.Minute)
		got := ""
		for i, name := range b.job(id).Keeps {
			if got += name; i == 0 && len(b.job(id).Keeps) > 1 {
				got += " "
			}
		}
		if got != c.keeps {
			t.Errorf("%s: it keeps %q, want %q", c.name, got, c.keeps)
		}
	}
}

// TestGuaranteeEnds: a reservation that can't come true is withdrawn at once, and made when
// the guarantee is over.
func TestGuaranteeEnds(t *testing.T) {
	b := newBench(t, Config{ReserveAfter: time.Minute}, 4)
	b.submit(spec(2))
	wide := b.submit(spec(4))
	b.after(time.Minute)
	small := b.submit(spec(1))
	b.waits(small, backends.WaitResources)
	b.must(Guarantee{admin, []backends.Guaranteed{{Slots: 1, Until: b.now.Add(time.Hour)}}})
	b.starts(small)
	if keeps := b.job(wide).Keeps; keeps != nil {
		t.Errorf("it keeps %v", keeps)
	}
	b.after(time.Hour)
	if keeps := b.job(wide).Keeps; keeps == nil || b.m.Guaranteed(b.now) != nil {
		t.Errorf("it keeps nothing; guaranteed: %v", b.m.Guaranteed(b.now))
	}
	b.refuses(Guarantee{user, nil}, backends.ErrDenied)
}
