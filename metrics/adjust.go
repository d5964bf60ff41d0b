package metrics

import (
	"cmp"
	"slices"
	"time"
)

// Done adjusts sizes by the responses of a round, one of each host at most, in any order.
// Tasks that failed have no response.
func (b *Balance) Done(round []Response) Verdict {
	hosts := b.present()
	probe := b.probes(hosts)
	responses := make(map[string]Response, len(round))
	for _, r := range round {
		responses[r.Host] = r
	}
	took := make([]time.Duration, len(hosts)) // 0: no response
	first, last := -1, -1
	for n, h := range hosts {
		r := responses[h.Name]
		if r.Items <= 0 {
			continue
		}
		took[n] = max(r.Took, minTook)
		if first < 0 || took[n] < took[first] {
			first = n
		}
		if last < 0 || took[n] > took[last] {
			last = n
		}
		h.measure(float64(r.Items), took[n].Seconds())
	}
	if last < 0 {
		return Verdict{Under: true}
	}
	for n, h := range hosts {
		h.Idle += took[last].Seconds()
		if took[n] > 0 {
			h.Idle = 0
		}
	}
	v := Verdict{First: hosts[first].Name, Last: hosts[last].Name}
	v.Gap = float64(took[last]-took[first]) / float64(took[last])
	v.Under = v.Gap <= b.options.Threshold
	if b.options.Rule == Step && !v.Under && !probe {
		b.step(hosts, last)
	}
	return v
}

// minTook is the shortest time that a task counts as: starting a process takes that,
// and a clock shows less than that as noise.
const minTook = time.Millisecond

// How rates are weighted; the simulations in the tests show it.
//
// A round counts two fifths of the one after it. The average of ±10 % of noise is then
// nearly as good as one of many rounds: makespans differ by 1 %. But a drift of 5 % a
// round is followed at a distance of half a round, and to remember more loses there.
//
// A rate that is off by 1.4 is no noise: two tasks of ±15 % don't differ as much. The host
// has changed, and its earlier tasks no longer count. A rate that halves in the middle of
// a task is off by 1.5. But a task that is short, compared with what the rate stands on,
// is too small a sample.
const (
	decay        = 0.4
	changeFactor = 1.4
	minSample    = 0.25 // of all that the rate stands on
)

// measure adjusts the host's rate by a task of so many items that took so many seconds.
func (h *host) measure(items, seconds float64) {
	rate := items / seconds
	h.Busy += seconds
	if h.Rate == 0 {
		h.Rate, h.Weight = rate, seconds
		return
	}
	// A task's weight is the time that it was meant to take: one that was stopped for an
	// hour has no more.
	seconds = min(seconds, items/h.Rate)
	h.Weight = decay*h.Weight + seconds
	part := seconds / h.Weight
	if off := max(rate, h.Rate) / min(rate, h.Rate); off > changeFactor && part >= minSample {
		h.Rate, h.Weight = rate, seconds
		return
	}
	h.Rate += part * (rate - h.Rate)
}

// step is the published rule: the last host loses points of CU of the element with the
// highest influence factor, and the others gain them. If it has too few of that element,
// it loses the rest of the next one. Of equal factors the first element is first.
func (b *Balance) step(hosts []*host, last int) {
	all := measures(hosts)
	factors := b.options.Factors.Over(all)
	cu, total := CU(all, factors), sums(all)
	order := Elements()
	slices.SortStableFunc(order, func(x, y Element) int { return cmp.Compare(factors[y], factors[x]) })
	left := b.options.Step
	for _, e := range order {
		if factors[e] == 0 || left <= 0 {
			return
		}
		column := make([]float64, len(hosts))
		for n := range hosts {
			column[n] = cu[n][e]
		}
		left -= transfer(column, last, left)
		for n, h := range hosts {
			h.Measures[e] = column[n] * total[e] / 100 // a host that joins has measures, not CU
		}
	}
}

// transfer moves points of an element's CU from the last host, as far as it has them, to the
// others in proportion to their CU. It returns their number: 0 if no other host has the
// element.
func transfer(cu []float64, last int, points float64) float64 {
	others := 0.0
	for n, v := range cu {
		if n != last {
			others += v
		}
	}
	points = min(points, cu[last])
	if others == 0 {
		return 0
	}
	for n := range cu {
		if n != last {
			cu[n] += points * cu[n] / others
		}
	}
	cu[last] -= points
	return points
}
