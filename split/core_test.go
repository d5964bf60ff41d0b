package split

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split/try"
)

// game runs a core with hosts that fail, and checks what it does.
type game struct {
	*rapid.T
	core       *Core
	sequencer  *sequencer
	all, have  int64
	killers    map[int64]bool
	unlucky    bool // tasks die for no fault of their items
	done       map[int64]int
	delivered  []int64 // items in the order in which their results were delivered
	abandoned  map[int64]bool
	returnedBy map[int64]string
	tasks      map[int64]Task // as they would be stored
	copies     int
	teams      int // Core.Copies
	settings   int // of Core.Trial; 1: there is none
}

func newGame(t *rapid.T) *game {
	rule := rapid.SampledFrom([]metrics.Rule{metrics.Rate, metrics.Step, metrics.Equal}).Draw(t, "rule")
	g := &game{
		T: t, core: NewCore(metrics.Options{Rule: rule, RoundItems: rapid.IntRange(1, 40).Draw(t, "round")}), sequencer: newSequencer(false),
		teams: rapid.IntRange(1, 3).Draw(t, "copies"),
		all:   rapid.Int64Range(0, 120).Draw(t, "items"), killers: map[int64]bool{}, unlucky: rapid.Bool().Draw(t, "unlucky"),
		done: map[int64]int{}, abandoned: map[int64]bool{}, returnedBy: map[int64]string{}, tasks: map[int64]Task{},
	}
	g.core.Copies = g.teams
	if g.settings = rapid.IntRange(1, 4).Draw(t, "settings"); g.settings > 1 {
		g.core.Trial = try.New(g.settings, rapid.Uint64().Draw(t, "seed"))
		g.core.Trial.Slots = rapid.IntRange(1, 3).Draw(t, "slots")
	}
	if g.all > 0 {
		for _, k := range rapid.SliceOfN(rapid.Int64Range(0, g.all-1), 0, 3).Draw(t, "killers") {
			g.killers[k] = true
		}
	}
	return g
}

func (g *game) host() string { return fmt.Sprintf("n%d", rapid.IntRange(1, 4).Draw(g.T, "host")) }

// begin begins a round and checks its tasks.
func (g *game) begin() {
	hosts := map[string]bool{}
	round := g.core.Begin(g.have, g.have < g.all)
	for _, t := range round {
		if t.Count < 1 || t.Count > g.core.Next || t.First < 0 || t.First+t.Count > g.have {
			g.Fatalf("task %+v of %d items", t, g.have)
		}
		if hosts[t.Host] || !slices.Contains(g.core.Hosts, t.Host) {
			g.Fatalf("two tasks in a round for %s, or it is not there", t.Host)
		}
		hosts[t.Host] = true
		for _, other := range g.core.Open() {
			if other.group() != t.group() && other.First < t.First+t.Count && t.First < other.First+other.Count {
				g.Fatalf("side by side: %+v and %+v", other, t)
			}
		}
		if n := int64(len(g.core.others(t))) + 1; n < int64(min(g.teams, len(g.core.Hosts))) || n >= 2*int64(g.teams) {
			g.Fatalf("%+v is executed by %d hosts of %v, want %d", t, n, g.core.Hosts, g.teams)
		}
		if n := int64(len(t.Cells)); (n > 0) != (g.settings > 1) || n > 1 && n != t.Count {
			g.Fatalf("%+v has %d cells of %d settings", t, n, g.settings)
		}
		for _, o := range g.core.others(t) {
			if !slices.Equal(o.Cells, t.Cells) {
				g.Fatalf("the copies %+v and %+v have other settings", o, t)
			}
		}
		if from := g.returnedBy[t.First]; from == t.Host && len(g.core.Hosts) > 1 && len(g.core.Open()) == 1 {
			g.Fatalf("%+v was returned by this host, and there are others: %v", t, g.core.Hosts)
		}
		g.tasks[t.N] = *t
	}
}

// copy has another host execute an open task's items, too.
func (g *game) copy(t *Task) {
	host := g.host()
	group := append(g.core.others(t), t)
	twin := g.core.Copy(t.N, host)
	good := slices.Contains(g.core.Hosts, host) && !slices.ContainsFunc(group, func(o *Task) bool { return o.Host == host })
	if (twin != nil) != good {
		g.Fatalf("a copy of %+v on %s: %+v", t, host, twin)
	}
	if twin != nil {
		g.tasks[twin.N] = *twin
		g.copies++
	}
}

func (g *game) hasKiller(t *Task) bool {
	for k := range g.killers {
		if k >= t.First && k < t.First+t.Count {
			return true
		}
	}
	return false
}

func (g *game) end(t *Task) {
	how := rapid.SampledFrom([]Outcome{Whole, Whole, Whole, Failed, Withdrawn}).Draw(g.T, "how")
	if g.hasKiller(t) && how == Whole || g.unlucky && rapid.IntRange(0, 9).Draw(g.T, "luck") == 0 {
		how = Died
	}
	others := g.core.others(t)
	if how == Whole && g.settings > 1 {
		for i := range t.Count {
			took := time.Duration(rapid.IntRange(1, 9).Draw(g.T, "took")) * time.Millisecond
			g.core.Trial.Record(t.variant(i), took, rapid.IntRange(0, 9).Draw(g.T, "fails") == 0)
		}
	}
	ended, lost, excluded := g.core.End(t.N, how, time.Duration(t.Count)*time.Millisecond)
	g.tasks[t.N] = *ended
	if (len(lost) > 0) != (how == Whole && len(others) > 0) || (ended.State == Superseded) != (how != Whole && len(others) > 0) {
		g.Fatalf("%+v ends with outcome %v beside %v, and %v are lost", ended, how, others, lost)
	}
	for _, l := range lost {
		if l.State != Superseded || l.First != t.First || l.Count != t.Count {
			g.Fatalf("%+v is lost against %+v", l, t)
		}
		if rapid.Bool().Draw(g.T, "stored") { // else a kill comes before
			g.tasks[l.N] = *l
		}
	}
	if excluded && how != Failed {
		g.Fatalf("%s is excluded though its task ended with outcome %v", t.Host, how)
	}
	switch ended.State {
	case Done:
		for i := range t.Count {
			g.done[t.First+i]++
		}
	case Killer:
		if t.Count != 1 || !g.unlucky && !g.killers[t.First] {
			g.Fatalf("%+v is abandoned", ended)
		}
		g.abandoned[t.First] = true
	case Returned:
		for i := range t.Count {
			g.returnedBy[t.First+i] = t.Host
		}
		return
	case Superseded:
		return
	case Open:
		g.Fatalf("%+v is open", ended)
	}
	for _, ready := range g.sequencer.add(ended) {
		for i := range ready.Count {
			g.delivered = append(g.delivered, ready.First+i)
		}
	}
}

// restart drops all that is not stored, as a kill does.
func (g *game) restart() {
	written, err := json.Marshal(g.core)
	if err != nil {
		g.Fatal(err)
	}
	balance, err := json.Marshal(g.core.Balance)
	if err != nil {
		g.Fatal(err)
	}
	fresh := NewCore(metrics.Options{})
	if err := json.Unmarshal(written, fresh); err != nil {
		g.Fatal(err)
	}
	if err := json.Unmarshal(balance, fresh.Balance); err != nil {
		g.Fatal(err)
	}
	fresh.Copies = g.teams
	g.core, g.sequencer, g.delivered = fresh, newSequencer(false), nil
	g.have = rapid.Int64Range(0, g.have).Draw(g.T, "read again")
	for n := range int64(len(g.tasks)) {
		t := g.tasks[n+1]
		for _, l := range fresh.restore(&t) {
			g.tasks[l.N] = *l
		}
		if t.State == Done || t.State == Killer {
			for _, ready := range g.sequencer.add(&t) {
				for i := range ready.Count {
					g.delivered = append(g.delivered, ready.First+i)
				}
			}
		}
	}
}

// Whichever tasks fail or are killed and whichever hosts join or leave: each item's result
// is delivered once, in order; no item is in two tasks at a time, but for copies; exactly the items
// that kill their tasks are abandoned.
func TestEachItemOnceInOrder(t *testing.T) {
	copies := 0
	rapid.Check(t, func(t *rapid.T) {
		g := newGame(t)
		for range rapid.IntRange(0, 3).Draw(t, "first hosts") {
			g.core.Join(g.host(), metrics.Measures{1, 1, 1, 1, 1, 1}, 1)
		}
		for moves := 0; g.have < g.all || !g.core.Finished(g.all) || g.core.Closed < g.core.Round; moves++ {
			if moves > 20_000 {
				t.Fatalf("no end: %+v", g.core)
			}
			switch rapid.IntRange(0, 9).Draw(t, "what happens") {
			case 0:
				g.have = min(g.have+rapid.Int64Range(1, 50).Draw(t, "more"), g.all)
			case 1:
				g.restart()
			case 2:
				if g.core.Idle() && len(g.core.Hosts) > 1 {
					g.core.Leave(g.core.Hosts[0])
				}
			case 3:
				if g.core.Idle() {
					g.core.Join(g.host(), metrics.Measures{1, 1, 1, 1, 1, 1}, 1)
				}
			case 4:
				if open := g.core.Open(); len(open) > 0 {
					g.copy(rapid.SampledFrom(open).Draw(t, "original"))
				}
			default:
				if open := g.core.Open(); len(open) > 0 {
					g.end(rapid.SampledFrom(open).Draw(t, "task"))
				} else {
					if g.core.Closed < g.core.Round {
						g.core.Close()
					}
					g.begin()
				}
			}
		}
		copies += g.copies
		if x := g.core.Trial; x != nil {
			if most := max(g.all/try.Share, int64(3*g.settings)); x.Used > most {
				t.Fatalf("%d items of %d were tried: %d at most may be", x.Used, g.all, most)
			}
			if x.End(); !x.Over || len(x.Sums) > 0 {
				t.Fatalf("the trial goes on: %+v", x)
			}
		}
		for i := range g.all {
			if g.done[i] > 1 || (g.done[i] == 1) == g.abandoned[i] || int64(len(g.delivered)) <= i || g.delivered[i] != i {
				t.Fatalf("item %d: done %d times, abandoned: %v; delivered: %v", i, g.done[i], g.abandoned[i], g.delivered)
			}
			if !g.unlucky && g.killers[i] != g.abandoned[i] {
				t.Fatalf("item %d kills: %v, is abandoned: %v", i, g.killers[i], g.abandoned[i])
			}
		}
	})
	if copies == 0 {
		t.Error("no copy was made")
	}
}

func (c *Core) pieces() string {
	text := ""
	for _, p := range c.Front {
		text += fmt.Sprintf("[%d+%d k%d !%s]", p.First, p.Count, p.Kills, p.Avoid)
	}
	return text
}

// A range of which three tasks died is halved until the item is alone.
func TestKillerIsIsolated(t *testing.T) {
	const killer = 5
	c := NewCore(metrics.Options{RoundItems: 8})
	c.Join("n1", metrics.Measures{1, 1, 1, 1, 1, 1}, 1)
	var steps []string
	for !c.Finished(8) {
		round := c.Begin(8, true) // the last rounds would be smaller
		for _, task := range round {
			how := Whole
			if task.First <= killer && killer < task.First+task.Count {
				how = Died
			}
			ended, _, _ := c.End(task.N, how, time.Second)
			steps = append(steps, fmt.Sprintf("%d+%d %d %s", task.First, task.Count, ended.State, c.pieces()))
		}
		c.Close()
	}
	want := []string{
		"0+8 2 [0+8 k1 !n1]", "0+8 2 [0+8 k2 !n1]", "0+8 2 [0+4 k2 !n1][4+4 k2 !n1]",
		"0+4 1 [4+4 k2 !n1]", "4+4 2 [4+2 k2 !n1][6+2 k2 !n1]", "4+2 2 [4+1 k2 !n1][5+1 k2 !n1][6+2 k2 !n1]",
		"4+1 1 [5+1 k2 !n1][6+2 k2 !n1]", "5+1 3 [6+2 k2 !n1]", "6+2 1 ",
	}
	if !slices.Equal(steps, want) {
		t.Errorf("got\n%q\nwant\n%q", steps, want)
	}
}

func TestFailingHostIsExcluded(t *testing.T) {
	c := NewCore(metrics.Options{RoundItems: 8})
	c.Join("n1", metrics.Measures{1, 1, 1, 1, 1, 1}, 1)
	for strike := 1; strike <= maxStrikes; strike++ {
		round := c.Begin(8, false)
		_, _, excluded := c.End(round[0].N, Failed, 0)
		c.Close()
		if excluded != (strike == maxStrikes) || c.Front[0].Kills != 0 {
			t.Errorf("after %d strikes excluded: %v; %s", strike, excluded, c.pieces())
		}
	}
}

func TestUnordered(t *testing.T) {
	l := newSequencer(true)
	if got := l.add(&Task{First: 5, Count: 2}); len(got) != 1 || l.next != 2 {
		t.Errorf("%+v", got)
	}
}
