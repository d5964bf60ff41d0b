package metrics_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/metrics"
)

// Two hosts: all of the storage is on one, GPUs are on none.
var (
	pair = []metrics.Measures{
		{metrics.CPU: 30, metrics.Storage: 8},
		{metrics.CPU: 10},
	}
	pairFactors = metrics.Factors{metrics.CPU: 30, metrics.GPU: 60, metrics.Storage: 10}
)

func TestFormulas(t *testing.T) {
	if got := metrics.X(pair); got[0] != [6]float64{0, 0.75, 0, 1, 0, 0} || got[1] != [6]float64{0, 0.25, 0, 0, 0, 0} {
		t.Error("X", got)
	}
	if got := pairFactors.Over(pair); got != (metrics.Factors{metrics.CPU: 0.75, metrics.Storage: 0.25}) {
		t.Error("factors", got)
	}
	if got := metrics.CM(pair, pairFactors); got[0] != [6]float64{0, 0.5625, 0, 0.25, 0, 0} || got[1] != [6]float64{0, 0.1875, 0, 0, 0, 0} {
		t.Error("CM", got)
	}
	if got := metrics.CU(pair, pairFactors); got[0] != [6]float64{0, 75, 0, 100, 0, 0} || got[1] != [6]float64{0, 25, 0, 0, 0, 0} {
		t.Error("CU", got)
	}
	if got := metrics.JL(pair, pairFactors); !slices.Equal(got, []float64{81.25, 18.75}) {
		t.Error("JL", got)
	}
}

func TestJL(t *testing.T) {
	cpu := metrics.Factors{metrics.CPU: 1}
	for name, c := range map[string]struct {
		hosts   []metrics.Measures
		factors metrics.Factors
		want    []float64
	}{
		"hosts of speed 1:2 are worth 1:2":         {[]metrics.Measures{{metrics.CPU: 1}, {metrics.CPU: 2}, {metrics.CPU: 5}}, cpu, []float64{12.5, 25, 62.5}},
		"units of an element don't matter":         {[]metrics.Measures{{metrics.CPU: 1e9, metrics.Memory: 3}, {metrics.CPU: 3e9, metrics.Memory: 1}}, metrics.Factors{metrics.CPU: 50, metrics.Memory: 50}, []float64{50, 50}},
		"all that count are there on no host":      {[]metrics.Measures{{metrics.GPU: 1}, {}}, cpu, []float64{50, 50}},
		"a host without any of it gets nothing":    {[]metrics.Measures{{metrics.CPU: 1}, {metrics.GPU: 1}}, cpu, []float64{100, 0}},
		"what no host has leaves the others' part": {[]metrics.Measures{{metrics.CPU: 3}, {metrics.CPU: 1}}, metrics.Factors{metrics.CPU: 1, metrics.GPU: 99}, []float64{75, 25}},
		"no hosts": {nil, cpu, nil},
	} {
		if got := metrics.JL(c.hosts, c.factors); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		weights []float64
		items   int
		want    []int
	}{
		{[]float64{1, 2, 4, 8}, 15, []int{1, 2, 4, 8}},
		{[]float64{1, 2, 4, 8}, 3, []int{0, 0, 1, 2}},
		{[]float64{1, 2, 4, 8}, 1, []int{0, 0, 0, 1}},
		{[]float64{1, 1, 1}, 100, []int{34, 33, 33}},
		{[]float64{1, 1, 1}, 2, []int{1, 1, 0}},
		{[]float64{47, 16, 15.8, 12, 6.1, 3.1}, 10, []int{5, 2, 1, 1, 1, 0}}, // 4.7 1.6 1.58 1.2 .61 .31
		{[]float64{0, 1}, 7, []int{0, 7}},
		{[]float64{0, 0}, 3, []int{2, 1}},
		{[]float64{math.NaN(), -1, math.Inf(1), 1}, 3, []int{0, 0, 0, 3}},
		{[]float64{5e-324, 5e-324}, 4, []int{2, 2}},
		{[]float64{math.MaxFloat64, math.MaxFloat64}, 4, []int{2, 2}},
		{[]float64{1}, math.MaxInt, []int{math.MaxInt}},
		{[]float64{0x1p-45, 1000, 0x1p-44}, 1 << 60, []int{32, 1<<60 - 97, 65}}, // 32.8 and 65.6 of so many
		{[]float64{1, 2}, 0, []int{0, 0}},
		{[]float64{1, 2}, -1, []int{0, 0}},
		{nil, 5, []int{}},
	} {
		if got := metrics.Sizes(c.weights, c.items); !slices.Equal(got, c.want) {
			t.Errorf("%v of %v: %v, want %v", c.items, c.weights, got, c.want)
		}
	}
}

func TestLawsOfSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Float64Range(0, 1000), 1, 30).Draw(t, "weights")
		items := rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, 1e9), rapid.IntRange(1<<60, math.MaxInt)).Draw(t, "items")
		sizes := metrics.Sizes(weights, items)
		all, sum, equal := 0, 0.0, slices.Max(weights) == 0
		for n := range weights {
			all += sizes[n]
			if equal {
				weights[n] = 1
			}
			sum += weights[n]
		}
		if all != items {
			t.Fatalf("%v sum to %d", sizes, all)
		}
		near := 1 + float64(items)*1e-12 // as near as floats are
		other := rapid.Permutation(slices.Clone(weights)).Draw(t, "other order")
		others := metrics.Sizes(other, items)
		for n := range weights {
			if sizes[n] < 0 || math.Abs(float64(sizes[n])-float64(items)*weights[n]/sum) > near {
				t.Fatalf("%v: host %d gets too much or too little", sizes, n)
			}
			if weights[n] == 0 && sizes[n] > 0 {
				t.Fatalf("%v: host %d is worth nothing", sizes, n)
			}
			if m := slices.Index(other, weights[n]); math.Abs(float64(others[m]-sizes[n])) > near {
				t.Fatalf("%v, and in another order %v", sizes, others)
			}
			for m := range weights {
				if weights[m] < weights[n] && sizes[m] > sizes[n] {
					t.Fatalf("%v: host %d is worth less than %d and gets more", sizes, m, n)
				}
			}
		}
	})
}

func TestLawsOfJL(t *testing.T) {
	values := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 1e12))
	rapid.Check(t, func(t *rapid.T) {
		hosts := make([]metrics.Measures, rapid.IntRange(1, 10).Draw(t, "hosts"))
		var f metrics.Factors
		for e := range f {
			f[e] = values.Draw(t, "factor")
			for n := range hosts {
				hosts[n][e] = values.Draw(t, "measure")
			}
		}
		jl, sum := metrics.JL(hosts, f), 0.0
		backwards := slices.Clone(hosts)
		slices.Reverse(backwards)
		lj := metrics.JL(backwards, f)
		for n, v := range jl {
			if sum += v; !(v >= 0) || math.Abs(v-lj[len(lj)-1-n]) > 1e-9 {
				t.Fatalf("%v, and backwards %v", jl, lj)
			}
		}
		if math.Abs(sum-100) > 1e-9 {
			t.Fatalf("%v sum to %v", jl, sum)
		}
	})
}
