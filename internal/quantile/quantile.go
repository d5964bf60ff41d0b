// Package quantile finds quantiles of values by their nearest rank.
package quantile

import (
	"cmp"
	"slices"
)

// Of returns the smallest of the values that so many percent of them do not exceed.
// There must be a value; they stay as they are.
func Of[T cmp.Ordered](values []T, percent int) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max((len(sorted)*percent+99)/100-1, 0)]
}

// Median is the 50 % quantile: of an even number of values the lower one of the middle.
func Median[T cmp.Ordered](values []T) T { return Of(values, 50) }
