package split

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split/task"
)

// coreOf returns a core of hosts with rates, items a second, of one slot each.
func coreOf(copies int, rates ...float64) *Core {
	c := NewCore(metrics.Options{RoundItems: 100})
	c.Copies = copies
	var replies []metrics.Response
	for i, rate := range rates {
		host := fmt.Sprintf("n%d", i+1)
		c.Join(host, metrics.Measures{1, 1, 1, 1, 1, 1}, 1)
		replies = append(replies, metrics.Response{Host: host, Items: int(rate * 10), Took: 10 * time.Second})
	}
	c.Balance.Done(replies)
	return c
}

// Which hosts execute which items (R53).
func TestTeams(t *testing.T) {
	for name, x := range map[string]struct {
		copies int
		rates  []float64
		want   string // first item+items: hosts; …
	}{
		"one copy is none":          {1, []float64{1, 1}, "0+50: n1; 50+50: n2"},
		"equal hosts":               {2, []float64{1, 1, 1, 1}, "0+50: n1 n2; 50+50: n3 n4"},
		"as fast as each other":     {2, []float64{1, 4, 1, 4}, "0+20: n1 n3; 20+80: n2 n4"},
		"one is left over":          {2, []float64{1, 1, 1, 1, 1}, "0+50: n1 n2; 50+50: n3 n4 n5"},
		"two are left over":         {3, []float64{1, 1, 1, 1, 1}, "0+100: n1 n2 n3 n4 n5"},
		"three hosts, two copies":   {2, []float64{1, 1, 1}, "0+100: n1 n2 n3"},
		"fewer hosts than copies":   {3, []float64{1, 2}, "0+100: n2 n1"},
		"no other host":             {2, []float64{1}, "0+100: n1"},
		"sized by the fastest host": {2, []float64{3, 1, 1, 1}, "0+75: n1 n2; 75+25: n3 n4"},
	} {
		c := coreOf(x.copies, x.rates...)
		hosts, first := map[string][]string{}, []string{}
		for _, t := range c.Begin(100, true) {
			key := fmt.Sprintf("%d+%d", t.First, t.Count)
			if len(hosts[key]) == 0 {
				first = append(first, key)
			}
			hosts[key] = append(hosts[key], t.Host)
		}
		var got []string
		for _, key := range first {
			got = append(got, key+": "+strings.Join(hosts[key], " "))
		}
		if text := strings.Join(got, "; "); text != x.want {
			t.Errorf("%s: %s, want %s", name, text, x.want)
		}
	}
}

// The example of the source (fig. 5): a task in three parts, each with a copy on another node. The node
// of the first part dies, and the result is made of the first part's copy, the second and the third.
func TestNodeOfFirstPartDies(t *testing.T) {
	c := coreOf(2, 1, 1, 1, 1, 1, 1)
	round := c.Begin(100, true)
	parts := map[string]*Task{} // "1", "1'", ...
	for _, t := range round {
		name := fmt.Sprint(c.original(t))
		if t.CopyOf != 0 {
			name += "'"
		}
		parts[name] = t
	}
	if got := slices.Sorted(maps.Keys(parts)); !slices.Equal(got, []string{"1", "1'", "2", "2'", "3", "3'"}) {
		t.Fatalf("parts %v", got)
	}
	var result []string
	for _, x := range []struct {
		part string
		how  Outcome
	}{{"1", Died}, {"2", Whole}, {"3", Whole}, {"1'", Whole}} {
		ended, _, _ := c.End(parts[x.part].N, x.how, time.Second)
		if ended.State == Done {
			result = append(result, x.part)
		}
	}
	slices.Sort(result)
	if !slices.Equal(result, []string{"1'", "2", "3"}) || !c.Finished(100) {
		t.Errorf("the result is made of %v; %+v", result, c)
	}
}

// original returns the place in the round of the task that a task is, or is a copy of, from 1.
func (c *Core) original(t *Task) int {
	n := 0
	for _, o := range c.Apart() {
		if n++; o.group() == t.group() {
			return n
		}
	}
	return 0
}

// With copies, a host that is lost at any moment has no item executed again: each has one result, in order.
func TestCopies(t *testing.T) {
	const rounds = 50
	for n := range rounds {
		q := newQueue("n1", "n2", "n3")
		lost := fmt.Sprintf("n%d", 1+rand.IntN(3))
		after := rand.Int32N(12)
		var begun atomic.Int32
		down := make(chan struct{})
		q.run = func(ctx context.Context, host, dir string, n int64) int {
			if begun.Add(1) == after+1 {
				close(down)
			}
			select {
			case <-down:
				if host == lost {
					<-ctx.Done()
					return killTask(dir, n)
				}
			default:
			}
			return runTask(ctx, host, dir, n)
		}
		x := newTrial(t, q)
		d := echo(1, 60, 15)
		d.Argv, d.Mode, d.Copies = []string{"cat"}, task.Feed, 2
		if err := Start(t.Context(), d, x.options("")); err != nil {
			t.Fatal(err)
		}
		if got := x.out.String(); got != lines(1, 60) {
			t.Fatalf("round %d, %s lost after %d tasks: got %q", n, lost, after, got)
		}
		items := int64(0)
		for _, r := range x.report.Rounds {
			done := map[int64]int64{}
			for _, t := range r.Tasks {
				if t.State == "done" {
					done[t.First] += t.Items
				}
			}
			for _, n := range done {
				items += n
			}
			if len(r.Tasks) != 3 {
				t.Errorf("round %d has %d tasks, want the same one on three hosts", r.Round, len(r.Tasks))
			}
		}
		if items != 60 {
			t.Errorf("round %d, %s lost after %d tasks: %d items were done, or done again", n, lost, after, items)
		}
		q.awaitEnded(t)
	}
}
