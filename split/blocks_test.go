package split

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/metrics"
)

// residence runs the core of a resident job with hosts that fail, and checks what each period has.
type residence struct {
	*rapid.T
	core      *Core
	sequencer *sequencer
	rule      metrics.Rule
	tasks     map[int64]Task // as they would be stored
	results   map[int64]int  // blocks of the current period that have a result, or are abandoned
	abandoned int
}

func (g *residence) join(host string) {
	g.core.Join(host, metrics.Measures{1, 1, 1, 1, 1, 1}, rapid.IntRange(1, 2).Draw(g.T, "slots"))
}

// begin begins a period, or another round of one.
func (g *residence) begin() {
	b := g.core.Blocks
	if g.core.Finished(b.items(b.Period)) {
		if int64(len(g.results)) != b.count() && b.Period > 0 {
			g.Fatalf("period %d ended with %d of %d blocks: %v", b.Period, len(g.results), b.count(), g.results)
		}
		before := *b
		g.results = map[int64]int{}
		for n, t := range g.tasks { // written: the rows are removed
			if t.First+t.Count <= b.items(b.Period) {
				delete(g.tasks, n)
			}
		}
		b.Written = b.Period
		round, _ := g.core.BeginPeriod()
		g.check(before.Held, b)
		g.store(round)
		return
	}
	g.store(g.core.Begin(b.items(b.Period), true))
}

// check checks a new period's assignment: each block once, and none moves without a reason.
func (g *residence) check(before []metrics.Held, b *Blocks) {
	order := b.order()
	slices.Sort(order)
	for i := range b.count() {
		if int64(len(order)) != b.count() || order[i] != b.First+i {
			g.Fatalf("blocks %v", order)
		}
	}
	same := slices.EqualFunc(before, b.Held, func(a, b metrics.Held) bool { return a.Host == b.Host })
	if !same || g.rule != metrics.Half {
		return
	}
	moved := 0
	for i, h := range b.Held {
		moved += max(len(h.Blocks)-len(before[i].Blocks), 0)
	}
	longest, shortest := time.Duration(0), time.Hour
	for _, h := range before {
		if len(h.Blocks) > 0 && h.Took > 0 {
			longest, shortest = max(longest, h.Took), min(shortest, h.Took)
		}
	}
	if moved > 0 && longest < 2*shortest {
		g.Fatalf("%d blocks moved between hosts that took %v to %v", moved, shortest, longest)
	}
}

func (g *residence) store(round []*Task) {
	hosts := map[string]bool{}
	for _, t := range round {
		if hosts[t.Host] {
			g.Fatalf("two tasks of a round on %s", t.Host)
		}
		hosts[t.Host] = true
		g.tasks[t.N] = *t
	}
}

func (g *residence) end(t *Task) {
	how := rapid.SampledFrom([]Outcome{Whole, Whole, Whole, Whole, Died, Failed, Withdrawn}).Draw(g.T, "how")
	if how == Whole && t.Count > 1 && rapid.IntRange(0, 9).Draw(g.T, "preempted") == 0 {
		g.core.Shorten(t.N, rapid.Int64Range(1, t.Count-1).Draw(g.T, "done"))
	}
	took := time.Duration(rapid.Int64Range(1, 100).Draw(g.T, "took")) * time.Millisecond
	ended, _, _ := g.core.End(t.N, how, took)
	g.tasks[t.N] = *ended
	if ended.State != Done && ended.State != Killer {
		return
	}
	if ended.State == Killer {
		g.abandoned++
	}
	g.deliver(ended)
}

// deliver counts the blocks whose results are next.
func (g *residence) deliver(t *Task) {
	b := g.core.Blocks
	order := b.order()
	for _, ready := range g.sequencer.add(t) {
		for i := range ready.Count {
			at := ready.First + i - b.items(b.Period-1)
			if at < 0 || at >= b.count() {
				g.Fatalf("item %d in period %d", ready.First+i, b.Period)
			}
			if g.results[order[at]]++; g.results[order[at]] > 1 {
				g.Fatalf("block %d twice in period %d", order[at], b.Period)
			}
		}
	}
}

// restart drops all that is not stored, as a kill does.
func (g *residence) restart() {
	written, err := json.Marshal(g.core)
	if err != nil {
		g.Fatal(err)
	}
	balance, err := json.Marshal(g.core.Balance)
	if err != nil {
		g.Fatal(err)
	}
	fresh := NewCore(metrics.Options{Rule: g.rule, RoundItems: int(g.core.Blocks.count())})
	if err := json.Unmarshal(written, fresh); err != nil {
		g.Fatal(err)
	}
	if err := json.Unmarshal(balance, fresh.Balance); err != nil {
		g.Fatal(err)
	}
	g.core, g.sequencer, g.results = fresh, newSequencer(false), map[int64]int{}
	g.sequencer.next = fresh.Blocks.items(fresh.Blocks.Written)
	var numbers []int64
	for n := range g.tasks {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		t := g.tasks[n]
		fresh.restore(&t)
		if t.State == Done || t.State == Killer {
			g.deliver(&t)
		}
	}
}

// Whichever tasks fail, hosts join or leave, and however often asplit is killed: each block stands exactly
// once in each period, and moves by the rule alone (R55).
func TestEachBlockOnceInAPeriod(t *testing.T) {
	periods, abandoned, restarts := int64(0), 0, 0
	rapid.Check(t, func(t *rapid.T) {
		g := &residence{T: t, sequencer: newSequencer(false), tasks: map[int64]Task{}, results: map[int64]int{}}
		g.rule = rapid.SampledFrom([]metrics.Rule{metrics.Half, metrics.Rate}).Draw(t, "rule")
		first, count := rapid.Int64Range(-2, 2).Draw(t, "first"), rapid.Int64Range(1, 14).Draw(t, "blocks")
		g.core = NewCore(metrics.Options{Rule: g.rule, RoundItems: int(count)})
		g.core.Blocks = &Blocks{First: first, Last: first + count - 1}
		const all = 101
		for moves := 0; g.core.Blocks.Period < all || !g.core.Finished(g.core.Blocks.items(all)); moves++ {
			if moves > 50_000 {
				t.Fatalf("no end: %+v, %+v", g.core, g.core.Blocks)
			}
			if open := g.core.Open(); len(open) > 0 && rapid.IntRange(0, 30).Draw(t, "killed") > 0 {
				g.end(rapid.SampledFrom(open).Draw(t, "task"))
				continue
			}
			if !g.core.Idle() {
				restarts++
				g.restart()
				continue
			}
			if g.core.Closed < g.core.Round {
				g.core.Close()
			}
			host := fmt.Sprintf("n%d", rapid.IntRange(1, 4).Draw(t, "host"))
			switch rapid.IntRange(0, 19).Draw(t, "what happens") {
			case 0:
				g.core.Leave(host)
			case 1:
				g.restart()
			case 2:
				g.join(host)
			default:
				if len(g.core.Hosts) == 0 {
					g.join(host)
				}
				g.begin()
			}
		}
		periods += g.core.Blocks.Period
		abandoned += g.abandoned
	})
	t.Logf("%d periods, %d blocks killed their tasks, %d restarts", periods, abandoned, restarts)
	if !testing.Short() && (periods < 10_000 || abandoned == 0 || restarts == 0) {
		t.Error("too few")
	}
}

// The source's fig. 3, by the core: the third task takes twice as long as the first.
func TestSourcesPeriods(t *testing.T) {
	c := NewCore(metrics.Options{Rule: metrics.Half, RoundItems: 12})
	c.Blocks = &Blocks{First: 1, Last: 12}
	for _, host := range []string{"n1", "n2", "n3"} {
		c.Join(host, metrics.Measures{1, 1, 1, 1, 1, 1}, 1)
	}
	round, moved := c.BeginPeriod()
	if len(round) != 3 || len(moved) != 0 || fmt.Sprint(c.Blocks.order()) != "[1 2 3 4 5 6 7 8 9 10 11 12]" {
		t.Fatalf("%d tasks, %v, %v", len(round), moved, c.Blocks.order())
	}
	for i, task := range round {
		if again, _ := c.BeginPeriod(); again != nil {
			t.Fatal("a period begins within another")
		}
		c.End(task.N, Whole, time.Duration(2+i)*time.Second)
	}
	c.Close()
	round, moved = c.BeginPeriod()
	if len(round) != 3 || round[0].Count != 6 || round[2].Count != 2 || fmt.Sprint(moved) != "[{[9 10] n3 n1}]" {
		t.Errorf("%+v, %v", round, moved)
	}
	if got := fmt.Sprint(c.Blocks.order()); got != "[1 2 3 4 9 10 5 6 7 8 11 12]" {
		t.Error(got)
	}
}

// What a host returned is executed elsewhere before the next period, and by how long that took no block moves.
func TestPeriodIsRepaired(t *testing.T) {
	c := NewCore(metrics.Options{Rule: metrics.Half, RoundItems: 12})
	c.Blocks = &Blocks{First: 1, Last: 12}
	for _, host := range []string{"n1", "n2", "n3"} {
		c.Join(host, metrics.Measures{1, 1, 1, 1, 1, 1}, 1)
	}
	round, _ := c.BeginPeriod()
	c.End(round[0].N, Whole, 4*time.Second)
	c.End(round[1].N, Whole, time.Second)
	c.End(round[2].N, Failed, 0)
	c.Close()
	if again, _ := c.BeginPeriod(); again != nil {
		t.Fatal("a period begins before all of the last one has ended")
	}
	executed := ""
	for c.Begin(12, true); !c.Idle() || !c.Finished(12); c.Begin(12, true) {
		for _, task := range c.Open() {
			if task.Host == "n3" {
				t.Errorf("%+v is executed where it failed", task)
			}
			executed += fmt.Sprint(c.Blocks.order()[task.First : task.First+task.Count])
			c.End(task.N, Whole, time.Millisecond)
		}
		c.Close()
	}
	if executed != "[9][10 11 12]" {
		t.Errorf("executed elsewhere: %s", executed)
	}
	if _, moved := c.BeginPeriod(); fmt.Sprint(moved) != "[{[1 2] n1 n2}]" {
		t.Errorf("moved: %v", moved)
	}
}
