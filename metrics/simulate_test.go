package metrics_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/metrics"
)

// farm is hosts in virtual time, with the items/s that each does over time.
type farm struct {
	speeds []func(at float64) float64
	noise  float64 // ±, of a task's time
	rng    *rand.Rand
}

// speeds are in the ratio 1:2:4:8: 150 items/s.
var speeds = []float64{10, 20, 40, 80}

// task returns the seconds that a host takes for so many items from a time on.
func (f *farm) task(n, items int, at float64) float64 {
	const tick = 0.05
	left, t := float64(items), at
	for done := f.speeds[n](t) * tick; done < left; done = f.speeds[n](t) * tick {
		left, t = left-done, t+tick
	}
	t += left / f.speeds[n](t)
	return (t - at) * (1 + f.noise*(2*f.rng.Float64()-1))
}

// run has all items done. It returns the makespan in seconds, and of each round when it
// began and whether it was under the threshold.
func (f *farm) run(b *metrics.Balance, items int) (makespan float64, began []float64, under []bool) {
	for items > 0 {
		var back []metrics.Response
		most := 0.0
		for _, task := range b.Next(items, false) {
			seconds := f.task(int(task.Host[0]-'a'), task.Items, makespan)
			most = max(most, seconds)
			back = append(back, metrics.Response{Host: task.Host, Items: task.Items, Took: time.Duration(seconds * 1e9)})
			items -= task.Items
		}
		began, under = append(began, makespan), append(under, b.Done(back).Under)
		makespan += most
	}
	return makespan, began, under
}

// until returns the number of rounds from a time on before one was under the threshold.
func until(began []float64, under []bool, from float64) int {
	rounds := 0
	for n, ok := range under {
		switch {
		case began[n] < from:
		case ok:
			return rounds
		default:
			rounds++
		}
	}
	return rounds
}

// On hosts whose load metric is only half right, rates are under the threshold in fewer
// rounds than steps are, and never take longer. 1 % is chance: noise, or a load metric
// that happens to be right.
func TestRateBeatsStep(t *testing.T) {
	for farms, c := range map[string]struct {
		speed     func(rng *rand.Rand, v float64) func(at float64) float64
		noise     float64
		threshold float64 // above what noise and drift make alone
	}{
		"steady": {func(_ *rand.Rand, v float64) func(float64) float64 {
			return func(float64) float64 { return v }
		}, 0, 0.05},
		"noisy": {func(_ *rand.Rand, v float64) func(float64) float64 {
			return func(float64) float64 { return v }
		}, 0.1, 0.25},
		"drifting": {func(rng *rand.Rand, v float64) func(float64) float64 {
			period, phase := 400+400*rng.Float64(), 2*math.Pi*rng.Float64()
			return func(at float64) float64 { return v * (1 + 0.3*math.Sin(2*math.Pi*at/period+phase)) }
		}, 0, 0.15},
		"halved midway": {func(rng *rand.Rand, v float64) func(float64) float64 {
			when := math.Inf(1)
			if rng.IntN(3) == 0 {
				when = 80 + 40*rng.Float64()
			}
			return func(at float64) float64 {
				if at > when {
					return v / 2
				}
				return v
			}
		}, 0.02, 0.05},
	} {
		var rounds, again [2]int // in all
		var spans [2]float64
		for seed := range uint64(100) {
			var first, second [2]int
			var span [2]float64
			for i, rule := range []metrics.Rule{metrics.Rate, metrics.Step} {
				rng := rand.New(rand.NewPCG(seed, 0))
				f := &farm{noise: c.noise, rng: rng}
				b := metrics.New(metrics.Options{Rule: rule, RoundItems: 1500, Threshold: c.threshold, Factors: metrics.Factors{metrics.CPU: 1}})
				for n, v := range speeds {
					f.speeds = append(f.speeds, c.speed(rng, v))
					b.Join(name(n), metrics.Measures{metrics.CPU: v * math.Exp(0.5*rng.NormFloat64())}, 1)
				}
				makespan, began, under := f.run(b, 30000)
				first[i], second[i], span[i] = until(began, under, 0), until(began, under, 120), makespan
				rounds[i], again[i], spans[i] = rounds[i]+first[i], again[i]+second[i], spans[i]+makespan
			}
			if first[0] > first[1] || second[0] > second[1] || span[0] > 1.01*span[1] {
				t.Errorf("%s, seed %d: rate is under the threshold after %d rounds and %d in the second half, and done after %.1f s; step after %d, %d and %.1f s",
					farms, seed, first[0], second[0], span[0], first[1], second[1], span[1])
			}
		}
		t.Logf("%s: rounds until under the threshold: rate %.2f, step %.2f; in the second half: %.2f, %.2f; makespan: %.1f s, %.1f s", farms,
			float64(rounds[0])/100, float64(rounds[1])/100, float64(again[0])/100, float64(again[1])/100, spans[0]/100, spans[1]/100)
		if rounds[0]*2 > rounds[1] {
			t.Errorf("%s: under the threshold after %d rounds, with steps after %d", farms, rounds[0], rounds[1])
		}
	}
}
