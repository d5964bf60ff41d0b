package metrics

import (
	"cmp"
	"math"
	"slices"
)

// X returns each host's part of each element, 0…1: X(n,e) = measured(n,e) ÷ Σ over hosts.
// An element that no host has is 0 on all.
func X(hosts []Measures) [][elements]float64 {
	x := make([][elements]float64, len(hosts))
	for e, sum := range sums(hosts) {
		for n := range hosts {
			if sum > 0 {
				x[n][e] = hosts[n][e] / sum
			}
		}
	}
	return x
}

// Over returns the influence factors that count among such hosts: an element that none
// has drops out, and the others are rescaled to sum to 1. All are 0 if none is left.
func (f Factors) Over(hosts []Measures) Factors {
	all := 0.0
	for e, sum := range sums(hosts) {
		if sum == 0 {
			f[e] = 0
		}
		all += f[e]
	}
	for e := range f {
		if all > 0 {
			f[e] /= all
		}
	}
	return f
}

// CM returns CM(n,e) = X(n,e) × I(e), of factors that sum to 1.
func CM(hosts []Measures, f Factors) [][elements]float64 {
	cm := X(hosts)
	for e, factor := range f.Over(hosts) {
		for n := range cm {
			cm[n][e] *= factor
		}
	}
	return cm
}

// CU returns CU(n,e) = CM(n,e) ÷ Σ over hosts of CM, in percent: each element that counts
// sums to 100.
func CU(hosts []Measures, f Factors) [][elements]float64 {
	cu := CM(hosts, f)
	for e, sum := range sums(cu) {
		for n := range cu {
			if sum > 0 {
				cu[n][e] = 100 * cu[n][e] / sum
			}
		}
	}
	return cu
}

// JL returns each host's job load metric in percent: Σ over elements of I(e) × CU(n,e).
// It sums to 100. If no host has an element that counts, all are equal.
func JL(hosts []Measures, f Factors) []float64 {
	jl := make([]float64, len(hosts))
	f = f.Over(hosts)
	for n, cu := range CU(hosts, f) {
		for e := range cu {
			jl[n] += f[e] * cu[e]
		}
		if f == (Factors{}) {
			jl[n] = 1
		}
	}
	return percent(jl)
}

// Sizes shares items out by weight, by largest remainder: they sum to items exactly; of
// equal remainders the lower index is first. A weight of 0 gets nothing; if all are 0,
// they count as equal.
func Sizes(weights []float64, items int) []int {
	sizes := make([]int, len(weights))
	if len(sizes) == 0 || items <= 0 {
		return sizes
	}
	shares, remainders := percent(weights), make([]float64, len(weights))
	var order []int
	for n, share := range shares {
		if share > 0 {
			order = append(order, n)
		}
	}
	// The smallest first, so that a float rounded up is at the cost of the largest.
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(shares[a], shares[b]) })
	rest := items
	for _, n := range order {
		quota := shares[n] / 100 * float64(items)
		whole := math.Floor(quota)
		remainders[n] = quota - whole
		sizes[n] = rest
		if whole < float64(rest) { // else rounding went up
			sizes[n] = int(whole)
		}
		rest -= sizes[n]
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(remainders[b], remainders[a]), a-b) })
	for i := 0; rest > 0; i, rest = i+1, rest-1 {
		sizes[order[i%len(order)]]++
	}
	return sizes
}

// percent scales weights to sum to 100. Negative and infinite ones and NaN count as 0; if
// all are 0 they are equal.
func percent(weights []float64) []float64 {
	shares := make([]float64, len(weights))
	sum := 0.0
	for n, w := range weights {
		if w > 0 && w <= math.MaxFloat64 {
			shares[n] = min(w, math.MaxFloat64/100/float64(len(weights)))
		}
		sum += shares[n]
	}
	for n := range shares {
		if sum == 0 {
			shares[n] = 100 / float64(len(shares))
		} else {
			shares[n] = 100 * shares[n] / sum
		}
	}
	return shares
}

// sums adds up each element over all hosts.
func sums[V ~[elements]float64](hosts []V) (all [elements]float64) {
	for _, h := range hosts {
		for e, v := range [elements]float64(h) {
			all[e] += v
		}
	}
	return all
}

// Load holds what a host's job load metric is made of, by Element. All are in percent: X of
// what all hosts have, CM of the work, CU in points that sum to 100 over the hosts, JL of
// a round.
type Load struct {
	Host      string
	Influence Factors // I: of the work; the same for each host
	X, CM, CU [elements]float64
	JL        float64
}

// Loads returns the loads of the hosts that are there, in the order in which they first
// joined.
func (b *Balance) Loads() []Load {
	hosts := b.present()
	all := measures(hosts)
	factors := b.options.Factors.Over(all)
	x, cm, cu, jl := X(all), CM(all, factors), CU(all, factors), JL(all, factors)
	loads := make([]Load, len(hosts))
	for n, h := range hosts {
		l := Load{Host: h.Name, CU: cu[n], JL: jl[n]}
		for e := range elements {
			l.Influence[e], l.X[e], l.CM[e] = 100*factors[e], 100*x[n][e], 100*cm[n][e]
		}
		loads[n] = l
	}
	return loads
}
