package main

import (
	"fmt"
	"math"
	"strings"
)

// ratios returns the shares as multiples of a tenth of a core: 1:2:4:8 is right.
func ratios(found []float64) string {
	all := make([]string, len(found))
	for i := range found {
		all[i] = fmt.Sprintf("%.2f", share(found, i)*total()/cores[0])
	}
	return strings.Join(all, ":")
}

// share returns host i's part of the sum.
func share(found []float64, i int) float64 {
	sum := 0.0
	for _, f := range found {
		sum += f
	}
	return found[i] / sum
}

// maxShareError returns the largest error of a host's share, 0.15 for 15 %. NaN: there are none.
func maxShareError(found []float64) (off float64) {
	if found == nil {
		return math.NaN()
	}
	for i := range found {
		off = max(off, math.Abs(share(found, i)*total()/cores[i]-1))
	}
	return off
}

// printRounds prints the rounds.
func (b *bench) printRounds() {
	for _, name := range []string{rate, step, halvedRate, halvedStep} {
		r := b.find(name)
		if r == nil {
			continue
		}
		printf("\n%s: rounds", name)
		for i, round := range r.rounds {
			mark := ""
			if !r.halved.IsZero() && !r.halved.Before(round.began) && !r.halved.After(round.ended) {
				mark = "  halved in it"
			}
			printf("  %2d  %6.2f s  %5d items  %6.2f s  gap %4.1f %%%s", i+1, round.began.Sub(r.began).Seconds(), round.items,
				round.ended.Sub(round.began).Seconds(), 100*round.gap, mark)
		}
		if !r.halved.IsZero() {
			if took, of := recovery(r.rounds, r.halved); took > 0 {
				printf("  the gap is under the threshold again in round %d after it", took)
			} else {
				printf("  the gap was not under the threshold again in the %d rounds after it", of)
			}
		}
	}
}

// budget is a figure of the rule rate, and its bound.
type budget struct {
	what         string
	value, limit float64
}

// The bounds of budgets. steady is in docs/design.md, "Budgets"; the others are of this
// bench alone.
const (
	steady     = 1.05
	vsParallel = 1.03
	shareError = 0.15
)

func (b *bench) budgets() []budget {
	own := b.find(rate)
	over := func(r *run) float64 {
		if r == nil {
			return math.NaN()
		}
		return r.overIdeal()
	}
	value, later := over(own), math.NaN()
	if own != nil {
		if ratio, ok := fromRound(3, own.rounds); ok {
			later = ratio
		}
	}
	best := math.NaN()
	for _, r := range b.runs {
		if strings.HasPrefix(r.name, parallelName) && !(r.overIdeal() >= best) {
			best = r.overIdeal()
		}
	}
	return []budget{
		{what: "rate, from the third round on: makespan ÷ ideal", value: later, limit: steady},
		{what: "rate: makespan ÷ ideal, against that of equal shares", value: value, limit: over(b.find(equal))},
		{what: "rate: makespan ÷ ideal, against that of step", value: value, limit: over(b.find(step))},
		{what: fmt.Sprintf("rate: makespan ÷ ideal, against %g × GNU parallel's best", vsParallel), value: value, limit: vsParallel * best},
		{what: "asplit qualify: C is off by, of medians", value: maxShareError(b.found), limit: shareError},
	}
}

// verdict returns met, missed or not judged.
func (l budget) verdict() string {
	switch {
	case math.IsNaN(l.value) || math.IsNaN(l.limit):
		return "not judged"
	case l.value <= l.limit:
		return "met"
	}
	return "missed"
}

// judge prints each budget with its verdict; false: one is missed.
func (b *bench) judge() bool {
	met := true
	printf("\nbudgets")
	for _, l := range b.budgets() {
		verdict, text := l.verdict(), fmt.Sprintf("%.3f of %.3f", l.value, l.limit)
		if verdict == "not judged" {
			text = "not measured"
		}
		met = met && verdict != "missed"
		printf("  %-10s  %s: %s", verdict, l.what, text)
	}
	return met
}
