package metrics_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/metrics"
)

// responses returns responses of the hosts a, b, c…: each is one item that took so many
// seconds.
func responses(seconds ...float64) []metrics.Response {
	var round []metrics.Response
	for n, s := range seconds {
		round = append(round, metrics.Response{Host: name(n), Items: 1, Took: time.Duration(s * float64(time.Second))})
	}
	return round
}

// cpus returns hosts a, b, c… of such speeds.
func cpus(o metrics.Options, speeds ...float64) *metrics.Balance {
	if o.Factors == (metrics.Factors{}) {
		o.Factors = metrics.Factors{metrics.CPU: 100}
	}
	b := metrics.New(o)
	for n, v := range speeds {
		b.Join(name(n), metrics.Measures{metrics.CPU: v}, 1)
	}
	return b
}

func shares(b *metrics.Balance) []float64 {
	var all []float64
	for _, s := range b.Shares() {
		all = append(all, s.Percent)
	}
	return all
}

func name(n int) string { return string(rune('a' + n)) }

func almostEqual(got, want []float64) bool {
	return slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
}

// The published example, to the last digit: those that finished after 0, 2 and 3 s get
// 5 points of the one that took 10.
func TestStepAsPublished(t *testing.T) {
	b := cpus(metrics.Options{Rule: metrics.Step, RoundItems: 100}, 30, 10, 10, 50)
	if got := shares(b); !slices.Equal(got, []float64{30, 10, 10, 50}) {
		t.Fatal(got)
	}
	v := b.Done(responses(0, 2, 3, 10))
	if v.First != "a" || v.Last != "d" || v.Under || math.Abs(v.Gap-1) > 1e-3 {
		t.Errorf("%+v", v)
	}
	if got := shares(b); !slices.Equal(got, []float64{33, 11, 11, 45}) {
		t.Error(got)
	}
}

func TestStep(t *testing.T) {
	for what, c := range map[string]struct {
		options  metrics.Options
		measures []metrics.Measures
		took     []float64
		want     []float64
	}{
		"below the threshold nothing changes": {
			metrics.Options{Factors: metrics.Factors{metrics.CPU: 1}},
			[]metrics.Measures{{metrics.CPU: 1}, {metrics.CPU: 1}},
			[]float64{9.5, 10},
			[]float64{50, 50},
		},
		"above it does": {
			metrics.Options{Factors: metrics.Factors{metrics.CPU: 1}},
			[]metrics.Measures{{metrics.CPU: 1}, {metrics.CPU: 1}},
			[]float64{9.49, 10},
			[]float64{55, 45},
		},
		"threshold and step are options": {
			metrics.Options{Factors: metrics.Factors{metrics.CPU: 1}, Threshold: 0.5, Step: 20},
			[]metrics.Measures{{metrics.CPU: 1}, {metrics.CPU: 1}},
			[]float64{4, 10},
			[]float64{70, 30},
		},
		"one element only, that with the highest factor": {
			metrics.Options{Factors: metrics.Factors{metrics.CPU: 40, metrics.Memory: 60}},
			[]metrics.Measures{{metrics.CPU: 1, metrics.Memory: 1}, {metrics.CPU: 1, metrics.Memory: 1}},
			[]float64{1, 10},
			[]float64{53, 47}, // 60 % of 5 points
		},
		"of equal factors the first": {
			metrics.Options{Factors: metrics.Factors{metrics.CPU: 50, metrics.Memory: 50}},
			[]metrics.Measures{{metrics.CPU: 2, metrics.Memory: 98}, {metrics.CPU: 98, metrics.Memory: 2}},
			[]float64{1, 10},
			[]float64{52.5, 47.5}, // memory has only 2 points to give
		},
		"CU stops at 0, the rest is the next factor's": {
			metrics.Options{Factors: metrics.Factors{metrics.CPU: 60, metrics.Memory: 40}},
			[]metrics.Measures{{metrics.CPU: 97, metrics.Memory: 50}, {metrics.CPU: 3, metrics.Memory: 50}},
			[]float64{1, 10},
			[]float64{60 + 0.4*52, 0.4 * 48},
		},
		"CU stops at 0": {
			metrics.Options{Factors: metrics.Factors{metrics.CPU: 1}},
			[]metrics.Measures{{metrics.CPU: 97}, {metrics.CPU: 3}},
			[]float64{1, 10},
			[]float64{100, 0},
		},
		"no other host has it: the next factor's": {
			metrics.Options{Factors: metrics.Factors{metrics.GPU: 60, metrics.CPU: 40}},
			[]metrics.Measures{{metrics.CPU: 50}, {metrics.CPU: 50, metrics.GPU: 1}},
			[]float64{1, 10},
			[]float64{22, 78},
		},
		"an element that no host has is not stepped": {
			metrics.Options{Factors: metrics.Factors{metrics.GPU: 60, metrics.CPU: 40}},
			[]metrics.Measures{{metrics.CPU: 50}, {metrics.CPU: 50}},
			[]float64{1, 10},
			[]float64{55, 45},
		},
	} {
		c.options.Rule, c.options.RoundItems = metrics.Step, 100
		b := metrics.New(c.options)
		for n, m := range c.measures {
			b.Join(name(n), m, 1)
		}
		b.Done(responses(c.took...))
		if got := shares(b); !almostEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	for what, c := range map[string]struct {
		round []metrics.Response
		want  metrics.Verdict
	}{
		"none":             {nil, metrics.Verdict{Under: true}},
		"one":              {responses(7), metrics.Verdict{First: "a", Last: "a", Under: true}},
		"two":              {responses(10, 8), metrics.Verdict{Gap: 0.2, First: "b", Last: "a"}},
		"the threshold":    {responses(19, 20), metrics.Verdict{Gap: 0.05, First: "a", Last: "b", Under: true}},
		"equals":           {responses(5, 5, 5), metrics.Verdict{First: "a", Last: "a", Under: true}},
		"no time at all":   {responses(0, 0), metrics.Verdict{First: "a", Last: "a", Under: true}},
		"less than none":   {responses(-5, 10), metrics.Verdict{Gap: 0.9999, First: "a", Last: "b"}},
		"unknown hosts":    {append(responses(10, 8), metrics.Response{Host: "x", Items: 1, Took: time.Hour}), metrics.Verdict{Gap: 0.2, First: "b", Last: "a"}},
		"nothing done":     {append(responses(10, 8), metrics.Response{Host: "c", Took: time.Hour}), metrics.Verdict{Gap: 0.2, First: "b", Last: "a"}},
		"in another order": {[]metrics.Response{{Host: "b", Items: 1, Took: 5}, {Host: "a", Items: 1, Took: 5}}, metrics.Verdict{First: "a", Last: "a", Under: true}},
	} {
		if got := cpus(metrics.Options{}, 1, 1, 1).Done(c.round); got != c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

func TestEqualIsNeverAdjusted(t *testing.T) {
	b := cpus(metrics.Options{Rule: metrics.Equal, RoundItems: 7}, 1, 8)
	for range 3 {
		if got, want := b.Next(100, true), (metrics.Task{Host: "a", Items: 4}); got[0] != want || got[1].Items != 3 {
			t.Fatal(got)
		}
		b.Done(responses(1, 10))
	}
}

func TestRate(t *testing.T) {
	b := cpus(metrics.Options{RoundItems: 100}, 1, 1)
	rates := func(want ...float64) {
		t.Helper()
		for n, s := range b.Shares() {
			if math.Abs(s.Rate-want[n]) > 1e-9 {
				t.Fatalf("%s does %v items/s, want %v", s.Host, s.Rate, want[n])
			}
		}
	}
	done := func(items int, a, b2 float64) {
		round := responses(a, b2)
		round[0].Items, round[1].Items = items, items
		b.Done(round)
	}
	rates(0, 0)
	done(100, 10, 20)
	rates(10, 5)
	if got := shares(b); !almostEqual(got, []float64{200. / 3, 100. / 3}) {
		t.Error(got)
	}
	// A little off: the average of what it was, which counts two fifths, and is now.
	done(110, 10, 22)
	rates(10+10./14, 5)
	// Far off: what it is now. Its weight is the 9.33 s that the task was meant to take.
	done(100, 20, 20)
	rates(5, 5)
	// A short task that is far off is too small a sample.
	done(10, 1, 2)
	rates(5+5*1/(0.4*28/3+1), 5)
}

// A host that was stopped for an hour in the middle of a task soon has its old share.
func TestStoppedHostIsMeasuredAgain(t *testing.T) {
	b := cpus(metrics.Options{RoundItems: 100}, 1, 1)
	rounds := 0
	for ; rounds < 100; rounds++ {
		var back []metrics.Response
		for _, task := range b.Next(1e6, true) {
			seconds := float64(task.Items)
			if rounds == 2 && task.Host == "a" {
				seconds += 3600
			}
			back = append(back, metrics.Response{Host: task.Host, Items: task.Items, Took: time.Duration(seconds * 1e9)})
		}
		b.Done(back)
		if rounds > 2 && almostEqual(shares(b), []float64{50, 50}) {
			break
		}
	}
	// Its 72 s for an item are 20 items in 24 minutes, which are 15 rounds.
	if rounds > 20 {
		t.Errorf("after %d rounds: %v", rounds, b.Shares())
	}
}

// A host that takes 1000 times as long for an item as the other one is tried again now
// and then, at a twentieth of the time at most.
func TestSlowHostIsRarelyTried(t *testing.T) {
	b := cpus(metrics.Options{RoundItems: 100}, 1, 1)
	all, slow, tried := 0.0, 0.0, 0
	for n := range 1000 {
		var back []metrics.Response
		most := 0.0
		for _, task := range b.Next(1e6, true) {
			seconds := 0.01 * float64(task.Items)
			if task.Host == "b" {
				seconds *= 1000
				if n > 0 {
					slow, tried = slow+seconds, tried+1
				}
			}
			most = max(most, seconds)
			back = append(back, metrics.Response{Host: task.Host, Items: task.Items, Took: time.Duration(seconds * 1e9)})
		}
		b.Done(back)
		if n > 0 {
			all += most
		}
		if one := b.Next(1, true); n > 0 && (len(one) != 1 || one[0].Host != "a") {
			t.Fatalf("a single item is %v's", one)
		}
	}
	if tried == 0 || slow > all/20 {
		t.Errorf("tried %d times, for %v s of %v", tried, slow, all)
	}
}
