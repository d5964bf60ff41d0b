package simulate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestYields(t *testing.T) {
	group := func(project, user string, mean float64, preempted int, used float64) Group {
		return Group{Project: project, User: user, Jobs: 10, Wait: Spread{Mean: mean, P95: 2 * mean}, Preempted: preempted, Lost: 3600 * float64(preempted), Used: used}
	}
	series := func(allocated float64) Series {
		return Series{Bucket: 3600, Pools: []Pool{{Project: "A", Held: []float64{4, 6}, Allocated: []float64{allocated, allocated}}, {Project: "", Held: []float64{9, 9}, Allocated: []float64{0, 0}}}}
	}
	before := &Outcome{
		Projects: []Group{group("A", "", 500, 0, 0), group("", "", 1, 0, 9)},
		Others:   []Group{group("B", "", 100, 1, 36000), group("C", "", 100, 0, 3600), group("D", "", 100, 0, 3600), group("", "u", 10, 0, 3600)},
		Series:   series(2),
	}
	after := &Outcome{
		Projects: []Group{group("A", "", 60, 0, 0), group("B", "", 160, 3, 36000), group("", "", 99, 9, 9)},
		Others:   []Group{group("C", "", 100.5, 0, 3590), group("D", "", 100, 0, 1800), group("", "u", 100, 0, 3600)},
		Series:   series(6),
	}
	type row struct {
		who string
		why []string
	}
	var got []row
	for _, y := range Yields(before, after) {
		got = append(got, row{y.Project + y.User, y.Why})
	}
	want := []row{
		{"u", []string{"waits 1m40s, was 10s", "95 % wait up to 3m20s, was 20s"}},
		{"B", []string{"waits 2m40s, was 1m40s", "95 % wait up to 5m20s, was 3m20s", "victims 3, was 1", "loses 3.0 slot-hours, was 1.0 slot-hours"}},
		{"D", []string{"borrows 0.5 slot-hours, was 1.0 slot-hours"}},
		{"C", []string{}}, // half a second and 0.3 % less are no harm
		{"A", []string{}}, // what it borrowed is guaranteed now
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Error(diff)
	}
}

func TestSpare(t *testing.T) {
	start := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	hour := func(n int) time.Time { return start.Add(time.Duration(n) * time.Hour) }
	o := &Outcome{Series: Series{Start: start, Bucket: 3600, Pools: []Pool{{
		Project: "A", Allocated: []float64{8, 8, 8, 8}, Held: []float64{8, 3, 4.5, 0}, Waiting: []float64{2, 0, 1, 0},
	}}}}
	for _, c := range []struct{ from, to, want int }{{0, 4, 0}, {1, 4, 2}, {1, 2, 5}, {3, 4, 8}, {4, 9, 0}} {
		if got := o.Spare("A", hour(c.from), hour(c.to)); got != c.want {
			t.Errorf("from %d to %d: %d, want %d", c.from, c.to, got, c.want)
		}
	}
	if o.Spare("B", hour(0), hour(4)) != 0 {
		t.Error("another project's slots")
	}
}
