package metrics_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/metrics"
)

// sizes returns the task sizes of the next round, of hosts a, b, c…
func sizes(b *metrics.Balance, waiting int, more bool) []int {
	var all []int
	for _, task := range b.Next(waiting, more) {
		n := int(task.Host[0] - 'a')
		for len(all) <= n {
			all = append(all, 0)
		}
		all[n] = task.Items
	}
	return all
}

func TestNext(t *testing.T) {
	items := func(n int) metrics.Options { return metrics.Options{RoundItems: n} }
	for name, c := range map[string]struct {
		options metrics.Options
		waiting int
		more    bool
		want    []int
	}{
		"by load":                       {items(150), 1000, false, []int{10, 20, 40, 80}},
		"what is there, others come":    {items(150), 75, true, []int{5, 10, 20, 40}},
		"the strongest first":           {items(150), 3, true, []int{0, 0, 1, 2}},
		"nothing is there":              {items(150), 0, true, nil},
		"nothing is left":               {items(150), 0, false, nil},
		"two rounds are left":           {items(150), 300, false, []int{10, 20, 40, 80}},
		"less than two are left":        {items(150), 299, false, []int{10, 20, 40, 80}},
		"one is left":                   {items(150), 150, false, []int{5, 10, 20, 40}},
		"others come":                   {items(150), 299, true, []int{10, 20, 40, 80}},
		"a quarter is left":             {items(120), 30, false, []int{2, 4, 8, 16}},
		"more than a quarter":           {items(116), 30, false, []int{1, 2, 4, 8}},
		"two for each slot are not cut": {items(15), 8, false, []int{1, 1, 2, 4}},
		"a probe":                       {metrics.Options{}, 1000, false, []int{1, 1, 1, 1}},
		"a probe, others come":          {metrics.Options{}, 5, true, []int{1, 1, 1, 1}},
		"too few for a probe":           {metrics.Options{}, 3, true, []int{0, 0, 1, 2}},
		"no more than a probe":          {metrics.Options{}, 8, false, []int{1, 1, 2, 4}},
	} {
		if got := sizes(cpus(c.options, 1, 2, 4, 8), c.waiting, c.more); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := metrics.New(metrics.Options{}).Next(5, true); got != nil {
		t.Error("no hosts:", got)
	}
}

// With RoundTime, rounds grow until they show how fast the hosts are.
func TestRoundsGrow(t *testing.T) {
	for name, c := range map[string]struct {
		item float64   // s, on the slower of two, 1:3
		want []float64 // s, of the first rounds
	}{
		"of 4 ms":  {0.004, []float64{0.004, 0.3, 3, 30, 30}},
		"of 0.1 s": {0.1, []float64{0.1, 1, 3, 30, 30}},
		"of 1 s":   {1, []float64{1, 3, 30, 30}},
		"of 10 s":  {10, []float64{10, 30, 30}},
		"of 1 h":   {3600, []float64{3600, 3600, 3600}},
	} {
		b := cpus(metrics.Options{RoundTime: 30 * time.Second}, 1, 3)
		for n, want := range c.want {
			var back []metrics.Response
			most := 0.0
			for _, task := range b.Next(1e9, false) {
				seconds := float64(task.Items) * c.item
				if task.Host == "b" {
					seconds /= 3
				}
				most = max(most, seconds)
				back = append(back, metrics.Response{Host: task.Host, Items: task.Items, Took: time.Duration(seconds * 1e9)})
			}
			b.Done(back)
			if most < want*0.9 || most > want*1.1+c.item/3 {
				t.Errorf("%s: round %d takes %v s, want %v", name, n+1, most, want)
			}
		}
	}
}

// A probe has one item on each slot, so its gap is no reason for a step.
func TestNoStepAfterProbe(t *testing.T) {
	b := cpus(metrics.Options{Rule: metrics.Step}, 1, 3)
	if v := b.Done(responses(3, 1)); v.Under {
		t.Error(v)
	}
	if got := shares(b); !almostEqual(got, []float64{25, 75}) {
		t.Error(got)
	}
	b.Done(responses(3, 1))
	if got := shares(b); !almostEqual(got, []float64{20, 80}) {
		t.Error("and the round after it:", got)
	}
}

// Items that take long are done in as few passes over the slots as they can be.
func TestRoundsFillSlots(t *testing.T) {
	for name, c := range map[string]struct {
		slots []int
		items int
		want  int // passes
	}{
		"one host":                 {[]int{6}, 60, 10},
		"one host, a part of them": {[]int{10}, 64, 7},
		"two hosts":                {[]int{6, 6}, 70, 6},
		"of different sizes":       {[]int{2, 8}, 87, 9},
	} {
		b := metrics.New(metrics.Options{})
		for n, slots := range c.slots {
			b.Join(string(rune('a'+n)), metrics.Measures{1, 1, 1, 1, 1, 1}, slots)
		}
		passes := 0
		for left := c.items; left > 0; {
			var back []metrics.Response
			most := 0
			for _, task := range b.Next(left, false) {
				slots := c.slots[task.Host[0]-'a']
				mine := (task.Items + slots - 1) / slots
				most = max(most, mine)
				back = append(back, metrics.Response{Host: task.Host, Items: task.Items, Took: time.Duration(mine) * time.Second / 2})
				left -= task.Items
			}
			b.Done(back)
			passes += most
		}
		if passes != c.want {
			t.Errorf("%s: %d passes, want %d", name, passes, c.want)
		}
	}
	b := metrics.New(metrics.Options{RoundItems: 27})
	b.Join("a", metrics.Measures{1}, 6)
	if got := sizes(b, 100, false); !slices.Equal(got, []int{27}) {
		t.Errorf("a round of the size that the user chose has %v", got)
	}
}

// A host that is alone makes up for no other's errors at the end.
func TestLastRoundsOfOneHost(t *testing.T) {
	b := metrics.New(metrics.Options{})
	b.Join("a", metrics.Measures{1}, 6)
	b.Done([]metrics.Response{{Host: "a", Items: 6, Took: time.Second / 2}})
	if got := sizes(b, 54, false); !slices.Equal(got, []int{54}) {
		t.Error(got)
	}
	if got := sizes(b, 1e6, false); got[0] > 100 {
		t.Error("long before the end:", got)
	}
}

// A host that is expected to do next to nothing still leaves rounds with a size.
func TestNextBesideTinyShare(t *testing.T) {
	b := metrics.New(metrics.Options{RoundTime: 1, Factors: metrics.Factors{metrics.CPU: 100}})
	b.Join("a", metrics.Measures{metrics.CPU: 1}, 1)
	b.Join("b", metrics.Measures{metrics.CPU: 1}, 1)
	b.Done([]metrics.Response{{Host: "a", Items: 1, Took: 1}, {Host: "b", Items: 1, Took: time.Second}})
	b.Join("c", metrics.Measures{metrics.CPU: 1e-321}, 1)
	if got := b.Next(100, false); len(got) == 0 {
		t.Error("nothing is given out, and 100 wait")
	}
}

func TestSlots(t *testing.T) {
	b := metrics.New(metrics.Options{})
	b.Join("a", metrics.Measures{metrics.CPU: 1}, 4)
	b.Join("b", metrics.Measures{metrics.CPU: 1}, 0)
	if got := sizes(b, 100, false); !slices.Equal(got, []int{4, 1}) {
		t.Error(got)
	}
}

func TestHostsComeAndGo(t *testing.T) {
	b := cpus(metrics.Options{RoundItems: 300}, 1, 2)
	b.Leave("unknown")
	step := func(name string, want ...int) {
		t.Helper()
		if got := sizes(b, 1e6, false); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	step("first", 100, 200)
	b.Done([]metrics.Response{{Host: "a", Items: 100, Took: 10 * time.Second}, {Host: "b", Items: 200, Took: 10 * time.Second}})
	// a does 10 items/s for its load of 1, b 5 for each of 4: c counts as slow as b.
	b.Join("b", metrics.Measures{metrics.CPU: 4}, 1)
	b.Join("c", metrics.Measures{metrics.CPU: 4}, 1)
	step("c is sized by its load and the lowest rate for a point of load", 60, 120, 120)
	b.Leave("b")
	step("without b", 60, 0, 240)
	b.Leave("a")
	step("only a host that was never measured", 0, 0, 300)
	b.Join("b", metrics.Measures{metrics.CPU: 9}, 1)
	b.Leave("c")
	b.Join("a", metrics.Measures{metrics.CPU: 1}, 1)
	step("known rates are kept", 100, 200)
	if got := b.Shares(); len(got) != 2 || got[0] != (metrics.Share{Host: "a", Percent: got[0].Percent, Rate: 10}) || got[1].Rate != 20 {
		t.Error(got)
	}
}

// With a step, a host that joins gets its part of the other hosts' current shares.
func TestJoinAfterAStep(t *testing.T) {
	b := cpus(metrics.Options{Rule: metrics.Step, RoundItems: 100}, 3, 7)
	b.Done(responses(1, 10))
	b.Join("c", metrics.Measures{metrics.CPU: 10}, 1)
	if got := shares(b); !almostEqual(got, []float64{17.5, 32.5, 50}) {
		t.Error(got)
	}
}

// A host with half the slots is expected to do half the work.
func TestResize(t *testing.T) {
	b := metrics.New(metrics.Options{RoundItems: 30})
	for _, host := range []string{"a", "b"} {
		b.Join(host, metrics.Measures{metrics.CPU: 10}, 4)
	}
	b.Done([]metrics.Response{{Host: "a", Items: 15, Took: 1e9}, {Host: "b", Items: 15, Took: 1e9}})
	b.Resize("a", 2)
	b.Resize("nobody", 2)
	if got := b.Next(1000, true); got[0].Items != 10 || got[1].Items != 20 {
		t.Errorf("%+v", got)
	}
}

// JL is the sum of I × CU; I cancels out of CU, which is X in points.
func TestLoads(t *testing.T) {
	for _, cpu := range []float64{80, 40} {
		b := metrics.New(metrics.Options{Factors: metrics.Factors{metrics.CPU: cpu, metrics.Memory: 20, metrics.GPU: 100}}) // no host has a GPU
		b.Join("a", metrics.Measures{metrics.CPU: 30, metrics.Memory: 1}, 1)
		b.Join("b", metrics.Measures{metrics.CPU: 10, metrics.Memory: 1}, 1)
		a := b.Loads()[0]
		influence := 100 * cpu / (cpu + 20)
		want := map[string][2]float64{
			"I": {a.Influence[metrics.CPU], influence}, "X": {a.X[metrics.CPU], 75}, "CM": {a.CM[metrics.CPU], 0.75 * influence}, "CU": {a.CU[metrics.CPU], 75},
			"JL": {a.JL, 0.75*influence + 0.5*(100-influence)}, "GPU": {a.Influence[metrics.GPU], 0},
		}
		for what, pair := range want {
			if math.Abs(pair[0]-pair[1]) > 1e-9 {
				t.Errorf("%s is %v, want %v", what, pair[0], pair[1])
			}
		}
	}
}
