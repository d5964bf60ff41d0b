package slurm_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/slurm"
)

func TestSiteFactor(t *testing.T) {
	s := slurm.Scale{Unit: 10}
	for p, want := range map[backends.Priority]int64{
		backends.At(backends.LevelNormal, 20):      0,
		backends.At(backends.LevelNormal, 43):      230,
		backends.At(backends.LevelNormal, 0):       0,
		backends.At(backends.LevelLow, 20):         0,
		backends.At(backends.LevelVictim, 32):      1600,
		backends.At(backends.LevelVictim, 119):     2470,
		backends.At(backends.LevelVictim, 232):     2490, // it lost nothing
		backends.At(backends.LevelPlaceholder, 0):  2560,
		backends.At(backends.LevelNext, 20):        4040,
		backends.At(backends.LevelPBA, 120):        5320,
		backends.At(backends.LevelPBA, 999):        6390,
		backends.At(backends.LevelHandOver, 220):   6600,
		backends.At(backends.LevelHandOver, 399):   7510,
		backends.At(backends.LevelHandOver, 420):   7520, // it waits for slots on several hosts
		backends.At(backends.LevelHandOver, 450):   7550,
		backends.At(backends.LevelHandOver, 620):   7600,
		backends.At(backends.LevelHandOver, 999):   7670,
		backends.At(backends.LevelHandOver+1, 220): 7670,
	} {
		if got := s.SiteFactor(p); got != want {
			t.Errorf("%v %d: site factor %d, want %d", p.Level(), p.Value(), got, want)
		}
	}
}

// R11: (band, rank, value) orders first, whatever the site's own factors add.
func TestLawSiteFactorsKeepTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := slurm.Scale{Unit: rapid.Int64Range(1, 2796202).Draw(t, "unit")}
		draw := func(name string) (backends.Priority, int64) {
			level := backends.Level(rapid.IntRange(int(backends.LevelNormal), int(backends.LevelHandOver)).Draw(t, name+"'s level"))
			base := map[backends.Level]int{backends.LevelNormal: 20, backends.LevelPBA: 100, backends.LevelHandOver: 200}[level]
			value := rapid.IntRange(0, 127).Draw(t, name+"'s value")
			if level == backends.LevelVictim && value >= 120 { // those that lost nothing, with their bonuses
				value = backends.GaveWay + 20 + 10*(value-120)
			}
			if level == backends.LevelHandOver && value >= 112 { // those that wait for several hosts, with their bonuses
				value = (1+(value-112)/8)*backends.Spread + 20 + (value-112)%8*10
			}
			p := backends.At(level, base+value)
			return p, s.SiteFactor(p) + rapid.Int64Range(0, s.Unit-1).Draw(t, name+"'s own factors")
		}
		a, inQueueA := draw("a")
		b, inQueueB := draw("b")
		if a > b && inQueueA <= inQueueB {
			t.Errorf("%d goes before %d, but the queue orders them by %d and %d", a, b, inQueueA, inQueueB)
		}
		if got := s.Priority(inQueueA); got != a {
			t.Errorf("%d with other factors reads %d, want %d", inQueueA, got, a)
		}
		if inQueueA > 1<<32-3 {
			t.Errorf("%d is no priority of Slurm's", inQueueA)
		}
	})
}

func TestNewScale(t *testing.T) {
	for config, want := range map[string]int64{
		"PriorityType            = priority/multifactor\nPriorityWeightTRES      = (null)\n":                                      2,
		"PriorityType = priority/multifactor\nPriorityWeightAge = 1000\nPriorityWeightTRES = CPU=1000,Mem=2000,GRES/gpu=3000.5\n": 7005,
	} {
		if s, err := slurm.NewScale([]byte(config)); err != nil || s.Unit < want || s.Unit > want+5 {
			t.Errorf("unit %d, %v, want about %d of %q", s.Unit, err, want, config)
		}
	}
	for _, config := range []string{
		"", "PriorityType = priority/basic\n",
		"PriorityType = priority/multifactor\nPriorityWeightAge = 3000000\n",
	} {
		if _, err := slurm.NewScale([]byte(config)); !errors.Is(err, backends.ErrUnable) {
			t.Errorf("%q: %v, want %v", config, err, backends.ErrUnable)
		}
	}
	if _, err := slurm.NewScale([]byte("PriorityType = priority/multifactor\nPriorityWeightAge = many\n")); err == nil {
		t.Error("a weight that is no number was taken")
	}
}
