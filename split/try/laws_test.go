package try

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// farm is hosts on which items take times with lognormal noise, by their variants.
type farm struct {
	rng      *rand.Rand
	hosts    []float64 // logarithm of a host's slowness
	variants []float64 // seconds
	sigma    float64   // of the noise's logarithm
	drift    float64   // of the logarithm, from the first item to the thousandth
	fails    []float64 // probability that an item fails, by variant; nil: none does
	items    int64
	tried    int64
}

// trial runs a trial of a farm to its end, as a split does. At restarts it is stored and read.
func (f *farm) trial(t *testing.T, seed uint64) *Trial {
	x := New(len(f.variants), seed)
	x.Slots = 1
	for {
		cells, unit := x.Next(f.items, false, len(f.hosts))
		if cells == 0 {
			break
		}
		for host := f.rng.IntN(len(f.hosts)); cells > 0; host = (host + 1) % len(f.hosts) {
			dealt := x.Deal(min(unit, cells))
			if len(dealt) == 0 {
				t.Fatalf("%d cells are left, and none is dealt: %+v", cells, x)
			}
			cells -= len(dealt)
			for _, c := range dealt {
				f.tried++
				if f.fails != nil && f.rng.Float64() < f.fails[c.Variant] {
					x.Record(c, 0, true)
					continue
				}
				log := math.Log(f.variants[c.Variant]) + f.hosts[host] + f.drift*float64(f.tried)/1000 + f.sigma*f.rng.NormFloat64()
				x.Record(c, time.Duration(math.Exp(log)*float64(time.Second)), false)
			}
		}
		text, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		x = new(Trial)
		if err := json.Unmarshal(text, x); err != nil {
			t.Fatal(err)
		}
	}
	if !x.Over || x.Used != f.tried {
		t.Fatalf("over: %v; %d items were tried, %d are said", x.Over, f.tried, x.Used)
	}
	return x
}

func newFarm(rng *rand.Rand, variants ...float64) *farm {
	f := &farm{rng: rng, variants: variants, sigma: 0.2, items: 1000}
	for range 3 {
		f.hosts = append(f.hosts, rng.NormFloat64())
	}
	return f
}

// Of four settings the best one is found by a tenth of 1,000 items at most, where it is better by a fifth.
// Hosts are of any speed, and get slower by time.
func TestLawTheBestIsFound(t *testing.T) {
	const runs = 400
	rng := rand.New(rand.NewPCG(1, 1))
	right, sure, early := 0, 0, 0
	for seed := range uint64(runs) {
		best := rng.IntN(4)
		variants := []float64{1.25, 1.25, 1.25, 1.25}
		variants[best] = 1
		f := newFarm(rng, variants...)
		f.drift = rng.NormFloat64()
		x := f.trial(t, seed)
		if x.Used > 100 {
			t.Fatalf("%d items of %d were tried", x.Used, f.items)
		}
		if x.Leader == best {
			right++
		}
		if x.Sure >= 1-Level {
			sure++
		}
		if x.Used < 90 {
			early++
		}
	}
	t.Logf("of %d trials %d are right, %d are sure, and %d ended early", runs, right, sure, early)
	if right < runs*98/100 || sure < runs/2 {
		t.Errorf("of %d trials %d are right, and %d are sure", runs, right, sure)
	}
}

// A trial that says that it is sure to some percent errs no more often than that leaves: whatever the
// differences are, and though it is looked at several times.
func TestLawSurenessIsTrue(t *testing.T) {
	const runs = 500
	for _, c := range []struct {
		name     string
		variants []float64
	}{
		{"all alike", []float64{1.0001, 1, 1.0001, 1.0001}},
		{"one is slightly better", []float64{1.03, 1.03, 1, 1.03}},
		{"two are", []float64{1, 1.01, 1.3, 1.3}},
		{"of two one", []float64{1, 1.02}},
		{"of eight one", []float64{1.02, 1.02, 1.02, 1.02, 1.02, 1.02, 1, 1.02}},
		{"one is much better", []float64{1.3, 1.3, 1, 1.2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(2, uint64(len(c.name))))
			said, wrong := map[int]int{}, map[int]int{}
			levels := []int{50, 80, 90, 95, 99}
			for seed := range uint64(runs) {
				f := newFarm(rng, c.variants...)
				f.drift = rng.NormFloat64()
				x := f.trial(t, seed)
				for _, level := range levels {
					if x.Sure*100 < float64(level) {
						continue
					}
					said[level]++
					if c.variants[x.Leader] > 1 {
						wrong[level]++
					}
				}
			}
			for _, level := range levels {
				// Of all trials so many may be sure and wrong, and three deviations more by chance.
				p := 1 - float64(level)/100
				if most := runs*p + 3*math.Sqrt(runs*p*(1-p)); float64(wrong[level]) > most {
					t.Errorf("of %d trials %d say %d %% or more and are wrong: %.0f at most may", runs, wrong[level], level, most)
				}
			}
			t.Logf("said: %v, wrong of these: %v", said, wrong)
		})
	}
}

// Of the trials that say 95 % or more, at most a twentieth is wrong, where settings differ as they happen to, by a
// tenth or so. The closer they are, the fewer trials say so, and the more of these are wrong.
func TestLawTheSureAreRight(t *testing.T) {
	const runs = 500
	rng := rand.New(rand.NewPCG(3, 3))
	said, wrong := 0, 0
	for seed := range uint64(runs) {
		variants := make([]float64, 2+rng.IntN(5))
		best := 0
		for v := range variants {
			variants[v] = math.Exp(0.1 * rng.NormFloat64())
			if variants[v] < variants[best] {
				best = v
			}
		}
		x := newFarm(rng, variants...).trial(t, seed)
		if x.Sure >= 1-Level {
			said++
			if x.Leader != best {
				wrong++
			}
		}
	}
	t.Logf("of %d trials %d say it, and %d of these are wrong", runs, said, wrong)
	if said < runs/5 || float64(wrong) > 0.05*float64(said)+3*math.Sqrt(0.05*float64(said)) {
		t.Errorf("of %d trials %d say it, and %d of these are wrong", runs, said, wrong)
	}
}

// Where items are of very different sizes, hardly a trial claims to be sure of a difference of a fifth; and the
// few items of a small input prove nothing.
func TestLawNothingIsClaimed(t *testing.T) {
	for name, change := range map[string]func(*farm){
		"sizes from 1 to 10,000": func(f *farm) { f.sigma = 3 },
		"12 items":               func(f *farm) { f.items = 12 },
		"5 items":                func(f *farm) { f.items = 5 },
	} {
		t.Run(name, func(t *testing.T) {
			const runs = 400
			rng := rand.New(rand.NewPCG(4, 4))
			sure := 0
			for seed := range uint64(runs) {
				f := newFarm(rng, 1.25, 1, 1.25, 1.25)
				change(f)
				if x := f.trial(t, seed); x.Sure >= 1-Level {
					sure++
				}
			}
			if sure > runs*Share/100 {
				t.Errorf("of %d trials %d are sure", runs, sure)
			}
		})
	}
}

// A setting with which items fail is eliminated, though those that do not fail are fast; it hardly ever leads.
func TestLawFailuresCount(t *testing.T) {
	const runs = 400
	rng := rand.New(rand.NewPCG(5, 5))
	out, led := 0, 0
	for seed := range uint64(runs) {
		f := newFarm(rng, 1, 0.5, 1, 1)
		f.fails = []float64{0.02, 0.9, 0.02, 0.02}
		x := f.trial(t, seed)
		if x.Out[1] > 0 {
			out++
		}
		if x.Leader == 1 {
			led++
		}
	}
	if out < runs*95/100 || led > runs/100 {
		t.Errorf("of %d trials %d eliminate it, and in %d it leads", runs, out, led)
	}
}

// Blocks have each variant that is left, and are whole on a host as long as its share is whole blocks; none of
// two variants always comes first.
func TestBlocks(t *testing.T) {
	x := New(4, 7)
	x.Slots = 3
	cells, unit := x.Next(10_000, true, 2)
	if unit != 12 || cells%unit != 0 || cells < 3*unit {
		t.Fatalf("%d cells, %d to a host", cells, unit)
	}
	first := map[int]bool{}
	for block := 1; cells > 0; block++ {
		count := map[int]int{}
		dealt := x.Deal(unit)
		first[dealt[0].Variant] = true
		for i, c := range dealt {
			if c.Block != block || i%3 > 0 && c.Variant != dealt[i-1].Variant {
				t.Fatalf("block %d: %v", block, dealt)
			}
			count[c.Variant]++
		}
		if len(count) != 4 || count[0] != 3 || count[1] != 3 || count[2] != 3 {
			t.Fatalf("block %d: %v", block, dealt)
		}
		cells -= len(dealt)
	}
	if len(first) < 2 || len(x.Deal(1)) > 0 {
		t.Errorf("the first ones of blocks: %v", first)
	}
}

// As long as others may follow, the trial goes on when a tenth of what there is suffices for more; until then
// items run with the leader.
func TestItemsThatArriveLater(t *testing.T) {
	x := New(2, 1)
	rng := rand.New(rand.NewPCG(1, 1))
	record := func(cells int) {
		for _, c := range x.Deal(cells) {
			x.Record(c, time.Duration((1+0.3*rng.Float64())*float64(time.Second)), false)
		}
	}
	cells, _ := x.Next(5, true, 1)
	record(cells)
	if cells != 6 {
		t.Fatalf("%d cells of 5 items, want 3 of each variant", cells)
	}
	if cells, _ := x.Next(50, true, 1); cells != 0 || x.Over || x.Judged != 3 {
		t.Fatalf("%d more cells of 50 items: %+v", cells, x)
	}
	if cells, _ = x.Next(1000, true, 1); cells == 0 || cells > 94 {
		t.Fatalf("%d more cells of 1,000 items", cells)
	}
	record(cells)
	if x.Next(50, false, 1); !x.Over || x.Spent != 1 {
		t.Errorf("at the end: %+v", x)
	}
}
