package metrics

import (
	"math"
	"slices"
)

// Next sizes the next round, in the order in which the hosts first joined; hosts that get
// nothing are left out. waiting is the number of items on hand; more reports whether
// others may follow. It returns nil if nothing waits, or there is no host.
// It changes nothing: if a round could not be started, call it again. Hosts that are named are left out.
func (b *Balance) Next(waiting int, more bool, without ...string) []Task {
	hosts := slices.DeleteFunc(b.present(), func(h *host) bool { return slices.Contains(without, h.Name) })
	if waiting <= 0 || len(hosts) == 0 {
		return nil
	}
	weights, slots := b.weights(hosts), allSlots(hosts)
	full, few := b.roundSize(hosts, weights)
	items := nextSize(full, few, waiting, more)
	if b.probes(hosts) && items == slots {
		for n, h := range hosts {
			weights[n] = float64(h.Slots)
		}
	}
	sizes := Sizes(weights, items)
	if b.options.Rule == Rate {
		revisitIdle(hosts, sizes)
		if b.options.RoundItems == 0 {
			fillSlots(hosts, sizes, waiting-items)
		}
	}
	var tasks []Task
	for n, items := range sizes {
		if items > 0 {
			tasks = append(tasks, Task{Host: hosts[n].Name, Items: items})
		}
	}
	return tasks
}

// probes reports whether the next round is a probe: an item's time is not known, and so
// not the number of items that take RoundTime. Each slot gets one item.
func (b *Balance) probes(hosts []*host) bool {
	return b.options.RoundItems == 0 && !b.anyRate(hosts)
}

// roundSize returns the number of items of a round when there are plenty, and the number
// up to which one round is enough. By RoundTime, the host that takes longest is to end in that time;
// until a host has worked for a fair part of it, rounds grow tenfold, from a hundredth of
// it on, since an item may take ten times as long as expected. Items that take long make
// rounds long: the host with the smallest share gets one for each slot, up to a bound.
// A host that is alone waits for no other: its last two rounds are one.
func (b *Balance) roundSize(hosts []*host, weights []float64) (items, few float64) {
	slots := float64(allSlots(hosts))
	switch {
	case b.options.RoundItems > 0:
		return float64(b.options.RoundItems), 2 * slots
	case b.probes(hosts):
		return slots, 2 * slots
	}
	busiest := 0.0
	for _, h := range hosts {
		busiest = max(busiest, h.Busy)
	}
	whole, least := math.Inf(1), 0.0 // items; whole: in RoundTime
	rates := b.rates(hosts)
	for n, share := range percent(weights) {
		// The share of a host that is next to nothing is 0 in hundredths: 0 / 0 is no number.
		if part := share / 100; part > 0 && rates[n] > 0 {
			whole = min(whole, b.options.RoundTime.Seconds()*rates[n]/part)
			least = max(least, float64(hosts[n].Slots)/part)
		}
	}
	if math.IsInf(whole, 1) { // no host that gets items was measured
		whole = 0
	}
	items = whole
	if busiest < b.fairSample() {
		items *= max(0.01, min(0.1, 10*busiest/b.options.RoundTime.Seconds()))
	}
	items, few = max(items, min(least, 16*slots), slots), max(whole/40, 2*slots)
	if len(hosts) == 1 {
		few = max(few, 2*items)
	}
	return items, few
}

// nextSize returns the number of items of the next round. At the end rounds shrink, so that shorter
// ones make up for the errors of the last full one: while less than two rounds are left,
// half of the rest, down to a quarter of a round. The last two rounds so become four.
func nextSize(full, few float64, waiting int, more bool) int {
	rest := float64(waiting)
	switch {
	case more && rest <= full, !more && rest <= max(few, full/4):
		return waiting
	case !more && rest < 2*full:
		return waiting - waiting/2
	}
	return int(math.Ceil(full))
}

// revisitIdle moves an item from the largest task to a host that gets none because it is, or
// was, slow: without it the host would never be measured again. It does so once the host
// would have done 20 items in its idle time: this costs a twentieth of the time at most.
func revisitIdle(hosts []*host, sizes []int) {
	for n, h := range hosts {
		if sizes[n] > 0 || h.Idle*h.Rate < 20 {
			continue
		}
		if most := slices.Max(sizes); most > 1 {
			sizes[slices.Index(sizes, most)]--
			sizes[n]++
		}
	}
}

// fillSlots adds up to so many items to tasks whose last items would leave slots of their
// hosts idle: the round takes no longer with them, and of items that take long each
// partly filled pass over the slots would cost a whole one.
func fillSlots(hosts []*host, sizes []int, more int) {
	for n, h := range hosts {
		if over := sizes[n] % h.Slots; over > 0 {
			add := min(h.Slots-over, more)
			sizes[n] += add
			more -= add
		}
	}
}

func allSlots(hosts []*host) int {
	all := 0
	for _, h := range hosts {
		all += h.Slots
	}
	return all
}
