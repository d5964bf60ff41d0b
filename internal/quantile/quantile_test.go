package quantile

import (
	"slices"
	"testing"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		values []int
		want   [4]int // the least, the median, 95 %, the greatest
	}{
		{[]int{7}, [4]int{7, 7, 7, 7}},
		{[]int{2, 1}, [4]int{1, 1, 2, 2}},
		{[]int{3, 1, 2}, [4]int{1, 2, 3, 3}},
		{[]int{20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, [4]int{1, 10, 19, 20}},
	} {
		before := slices.Clone(c.values)
		if got := [4]int{Of(c.values, 0), Median(c.values), Of(c.values, 95), Of(c.values, 100)}; got != c.want || !slices.Equal(c.values, before) {
			t.Errorf("%v: %v, want %v", before, got, c.want)
		}
	}
}
