package lsf

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
)

func TestNumber(t *testing.T) {
	hundred := newScale(params{maxPriority: 100, defaultPriority: 50})
	for p, want := range map[backends.Priority]int64{
		backends.At(backends.LevelNormal, 20):       50,
		backends.At(backends.LevelLow, 20):          50,
		backends.At(backends.LevelNormal, 21):       51,
		backends.At(backends.LevelNormal, 999):      57,
		backends.At(backends.LevelNormal, 10):       25,
		backends.At(backends.LevelNormal, 0):        1,
		backends.At(backends.LevelVictim, 20):       58,
		backends.At(backends.LevelVictim, 25):       63,
		backends.At(backends.LevelVictim, 90):       65,
		backends.At(backends.LevelPlaceholder, 0):   66,
		backends.At(backends.LevelNext, 20):         74,
		backends.At(backends.LevelPBA, 120):         82,
		backends.At(backends.LevelPBA, 999):         89,
		backends.At(backends.LevelHandOver, 220):    90,
		backends.At(backends.LevelHandOver, 999):    97,
		backends.At(backends.LevelHandOver+1, 0):    97,
		backends.At(backends.LevelLow-1, 20):        50,
		backends.At(backends.LevelHandOver+1, 1000): 97,
	} {
		if got := hundred.number(p); got != want {
			t.Errorf("%v %d: -sp %d, want %d", p.Level(), p.Value(), got, want)
		}
	}
}

// What an owner gives himself: up to the default it is his; beyond, what it claims.
func TestPriorityOfAnOwner(t *testing.T) {
	s := newScale(params{maxPriority: 100})
	for number, want := range map[int64]backends.Priority{
		0:   backends.At(backends.LevelNormal, 20),
		1:   backends.At(backends.LevelNormal, 0),
		25:  backends.At(backends.LevelNormal, 10),
		50:  backends.At(backends.LevelNormal, 20),
		52:  backends.At(backends.LevelNormal, 22),
		60:  backends.At(backends.LevelVictim, 22),
		82:  backends.At(backends.LevelPBA, 120),
		100: backends.At(backends.LevelHandOver, 227),
	} {
		if got := s.priority(number); got != want {
			t.Errorf("%d reads %v %d, want %v %d", number, got.Level(), got.Value(), want.Level(), want.Value())
		}
	}
}

func TestScaleWithoutRoom(t *testing.T) {
	for _, p := range []params{{}, {maxPriority: 8, defaultPriority: 4}} {
		s := newScale(p)
		if err := s.unable(); !errors.Is(err, backends.ErrUnable) {
			t.Errorf("%+v: %v, want %v", p, err, backends.ErrUnable)
		}
		if got := s.priority(7); got != backends.At(backends.LevelNormal, backends.DefaultValue) {
			t.Errorf("%+v: 7 reads %d", p, got)
		}
	}
	if err := newScale(params{maxPriority: 12}).unable(); err != nil {
		t.Errorf("12: %v", err)
	}
}

// R11: whoever is at a higher level has the higher number, within a level nobody of a
// higher value has a lower one, and LSF takes them all.
func TestLawNumbersKeepTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScale(params{maxPriority: rapid.Int64Range(12, 1<<31-1).Draw(t, "most")})
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
		if again := s.priority(na); again.Level() != a.Level() || s.width() > 1000 && s.normal > 1000 && a.Value() >= steps[max(0, int(a.Level()))].base && again != a {
			t.Errorf("%d reads %d", a, again)
		}
	})
}
