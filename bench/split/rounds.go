package main

import (
	"slices"
	"time"
)

// round is one of asplit's rounds, by the clock of the bench.
type round struct {
	began, ended time.Time
	items        int
	gap          float64
	under        bool // the threshold
}

// fromRound returns the makespan ÷ the ideal one of the work of rounds n, n+1, …: from the
// start of round n to the end of the last. false: there were fewer rounds.
func fromRound(n int, rounds []round) (float64, bool) {
	if len(rounds) < n {
		return 0, false
	}
	rest := rounds[n-1:]
	items := 0
	end := rest[0].ended
	for _, r := range rest {
		items += r.items
		if r.ended.After(end) {
			end = r.ended
		}
	}
	return end.Sub(rest[0].began).Seconds() / ideal(items).Seconds(), true
}

// recovery returns the number of rounds after a change until the gap was under the
// threshold, that round included, or 0 if it never was; and the number of rounds after it.
func recovery(rounds []round, change time.Time) (took, of int) {
	after := slices.DeleteFunc(slices.Clone(rounds), func(r round) bool { return r.began.Before(change) })
	return 1 + slices.IndexFunc(after, func(r round) bool { return r.under }), len(after)
}
