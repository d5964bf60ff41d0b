package lsf

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
)

// order returns what R10 and R11 distinguish on a queue that does not age jobs, with the
// default of three bonuses, lowest first. Dummy jobs have the highest value of a level.
func order() []backends.Priority {
	all := []backends.Priority{backends.At(backends.LevelNormal, 10), backends.At(backends.LevelNormal, 20)}
	for _, l := range []struct {
		level  backends.Level
		values []int
	}{
		{backends.LevelVictim, []int{20, 30, 40, 50}},
		{backends.LevelPlaceholder, []int{20, 999}},
		{backends.LevelNext, []int{20, 30, 40, 50}},
		{backends.LevelPBA, []int{120, 130, 140, 150, 999}},
		{backends.LevelHandOver, []int{220, 230, 240, 250, 999}},
	} {
		for _, value := range l.values {
			all = append(all, backends.At(l.level, value))
		}
	}
	return all
}

// R10–R12: from MAX_USER_PRIORITY=40 on nothing of the order is lost, and no owner's job
// can stand before a hand-over.
func TestScaleKeepsTheOrder(t *testing.T) {
	for _, most := range []int64{40, 50, 100, 255, 1000} {
		s := newScale(params{maxPriority: most})
		if lost := s.lost(); lost != "" || s.unable() != nil {
			t.Errorf("MAX_USER_PRIORITY=%d: %s; %v", most, lost, s.unable())
		}
		last := int64(0)
		for _, p := range order() {
			n := s.number(p)
			if n <= last || n > most {
				t.Errorf("MAX_USER_PRIORITY=%d: %v %d is -sp %d, what ranks below it has %d", most, p.Level(), p.Value(), n, last)
			}
			if again := s.priority(n); again.Level() != p.Level() || s.number(again) != n {
				t.Errorf("MAX_USER_PRIORITY=%d: -sp %d reads %v %d, want %v %d", most, n, again.Level(), again.Value(), p.Level(), p.Value())
			}
			last = n
		}
		if last != most {
			t.Errorf("MAX_USER_PRIORITY=%d: the highest rank is -sp %d: an owner can stand before it", most, last)
		}
		if n := s.number(backends.At(backends.LevelNormal, 20)); n != most/2 {
			t.Errorf("MAX_USER_PRIORITY=%d: a normal job has -sp %d, want the default %d", most, n, most/2)
		}
	}
}

// A range that is too small keeps the levels, then the victims' bonuses, then the rest.
func TestScaleOfASmallRange(t *testing.T) {
	victim := func(s scale) (kept int) {
		seen := map[int64]bool{}
		for _, value := range []int{20, 30, 40, 50} {
			seen[s.number(backends.At(backends.LevelVictim, value))] = true
		}
		return len(seen)
	}
	for _, c := range []struct {
		params  params
		victims int
		lost    string
		unable  bool
	}{
		{params{}, 1, "", true},
		{params{maxPriority: 8}, 1, "", true},
		{params{maxPriority: 10}, 1, "how often jobs were taken back makes no difference", false},
		{params{maxPriority: 12}, 2, "taken back 1 times or more", false},
		{params{maxPriority: 14}, 3, "taken back 2 times or more", false},
		{params{maxPriority: 16}, 4, "jobs of pools", false},
		{params{maxPriority: 38}, 4, "dummy jobs", false},
		{params{maxPriority: 40}, 4, "", false},
		{params{maxPriority: 100, defaultPriority: 97}, 1, "", true},
	} {
		s := newScale(c.params)
		if err := s.unable(); (err != nil) != c.unable || err != nil && !errors.Is(err, backends.ErrUnable) {
			t.Errorf("%+v: %v", c.params, err)
		}
		if c.unable {
			if got := s.priority(7); got != backends.At(backends.LevelNormal, backends.DefaultValue) {
				t.Errorf("%+v: 7 reads %d", c.params, got)
			}
			continue
		}
		if got := victim(s); got != c.victims {
			t.Errorf("%+v: %d of the victims' four places are distinct, want %d", c.params, got, c.victims)
		}
		if lost := s.lost(); (lost == "") != (c.lost == "") || !strings.Contains(lost, c.lost) {
			t.Errorf("%+v: lost: %q, want %q", c.params, lost, c.lost)
		}
	}
}

func TestNumber(t *testing.T) {
	hundred := newScale(params{maxPriority: 100, defaultPriority: 50})
	for p, want := range map[backends.Priority]int64{
		backends.At(backends.LevelNormal, 20):       50,
		backends.At(backends.LevelLow, 20):          50,
		backends.At(backends.LevelLow-1, 20):        50,
		backends.At(backends.LevelNormal, 999):      50, // nothing ages there: no rule gives a normal job more
		backends.At(backends.LevelNormal, 10):       25,
		backends.At(backends.LevelNormal, 0):        1,
		backends.At(backends.LevelHandOver, 999):    100,
		backends.At(backends.LevelHandOver+1, 0):    100,
		backends.At(backends.LevelHandOver+1, 1000): 100,
		backends.At(backends.LevelPBA, 110):         hundred.number(backends.At(backends.LevelPBA, 120)), // lowered by its owner before
	} {
		if got := hundred.number(p); got != want {
			t.Errorf("%v %d: -sp %d, want %d", p.Level(), p.Value(), got, want)
		}
	}
}

// An owner's number reads as its value up to the default, and as what it claims beyond.
func TestPriorityOfAnOwner(t *testing.T) {
	s := newScale(params{maxPriority: 1000})
	for number, want := range map[int64]backends.Priority{
		0:    backends.At(backends.LevelNormal, 20),
		1:    backends.At(backends.LevelNormal, 0),
		250:  backends.At(backends.LevelNormal, 10),
		500:  backends.At(backends.LevelNormal, 20),
		501:  backends.At(backends.LevelNormal, 21), // unused
		600:  backends.At(backends.LevelNormal, 100),
		679:  backends.At(backends.LevelVictim, 20),
		1000: backends.At(backends.LevelHandOver, 299),
		5000: backends.At(backends.LevelHandOver, 299), // MAX_USER_PRIORITY was lowered
	} {
		if got := s.priority(number); got != want {
			t.Errorf("%d reads %v %d, want %v %d", number, got.Level(), got.Value(), want.Level(), want.Value())
		}
	}
}

// The bonuses of victims that lost nothing, and of those that did, are kept.
func TestVictimsThatLostNothingHaveNumbersOfTheirOwn(t *testing.T) { // R33
	s := newScale(params{maxPriority: 100})
	for _, value := range []int{30, 40, 50, backends.GaveWay + 30, backends.GaveWay + 40, backends.GaveWay + 50} {
		p := backends.At(backends.LevelVictim, value)
		if got := s.priority(s.number(p)); got != p {
			t.Errorf("%d reads %d", p, got)
		}
	}
}

// R11: a higher level has a higher number; within a level a higher value has no lower
// number; LSF accepts them all. Every number above the default reads as more than a
// normal job may have.
func TestLawNumbersKeepTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScale(params{maxPriority: rapid.Int64Range(10, 1<<31-1).Draw(t, "most")})
		draw := func(name string) backends.Priority {
			level := backends.Level(rapid.IntRange(int(backends.LevelNormal), int(backends.LevelHandOver)).Draw(t, name+"'s level"))
			return backends.At(level, rapid.IntRange(0, 999).Draw(t, name+"'s value"))
		}
		a, b := draw("a"), draw("b")
		na, nb := s.number(a), s.number(b)
		if a.Level() > b.Level() && na <= nb || a > b && na < nb {
			t.Errorf("%d goes before %d, but LSF orders them by %d and %d", a, b, na, nb)
		}
		if na < 1 || na > s.most {
			t.Errorf("%d of %d is refused", na, s.most)
		}
		if again := s.priority(na); again.Level() != a.Level() || s.number(again) != na && a.Value() >= backends.DefaultValue {
			t.Errorf("%d reads %d", a, again)
		}
		if number := s.normal + rapid.Int64Range(1, s.most).Draw(t, "above"); s.priority(number) <= backends.At(backends.LevelNormal, backends.DefaultValue) {
			t.Errorf("%d, more than the default of %d, reads as no more than a normal job's", number, s.normal)
		}
	})
}
