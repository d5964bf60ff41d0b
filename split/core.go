package split

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split/task"
)

// A range that so many tasks died of is halved, and an item is given up.
const mostKills = 3

// A host where so many tasks in a row failed before they did anything is left out.
const mostStrikes = 3

// Piece is a range of items that came back from a task, to be given out again.
type Piece struct {
	First, Count int64
	Kills        int    // how many tasks died at work on it
	Avoid        string // the host that it came back from
}

// Task is a range of items on its way to a host, there, or back. It has one job;
// what comes back of it is given out under another number.
type Task struct {
	N            int64 // from 1
	Round        int   // from 1
	First, Count int64 // items, from 0
	Kills        int   // of tasks that it is what is left of
	Host         string
	State        TaskState
	Took         time.Duration // of one that is done
}

// TaskState is where a task is in its life.
type TaskState int

// The states.
const (
	Open   TaskState = iota // no end of it is known
	Done                    // its result is there
	Back                    // it ended without; its items were given back
	Killer                  // it ended without, and so will its only item always
)

// Outcome is how a task ended.
type Outcome int

// The outcomes.
const (
	Whole     Outcome = iota // with a whole result
	Died                     // at work on its items
	Failed                   // before, or for a reason that has nothing to do with them
	Withdrawn                // by us
)

// Core decides which items go to which host next: state in, tasks out. Items are
// given out in their order, in rounds: each host gets one task, and when all have
// ended the next round begins. What comes back goes first, to another host if there
// is one.
type Core struct {
	Next    int64            // the first item that was never given out
	Tasks   int64            // numbers that were given to tasks
	Round   int              // the last one that began
	Closed  int              // the last one that was closed
	Hosts   []string         // that take part, as they joined
	Front   []Piece          // what came back, in the order of its items
	Strikes map[string]int   // tasks in a row that failed on a host
	Balance *metrics.Balance `json:"-"`

	open    map[int64]*Task    // of this round
	replies []metrics.Response // of this round
}

// NewCore is a core without hosts that has given nothing out.
func NewCore(o metrics.Options) *Core {
	return &Core{Strikes: map[string]int{}, Balance: metrics.New(o), open: map[int64]*Task{}}
}

// Idle tells whether no task is on its way.
func (c *Core) Idle() bool { return len(c.open) == 0 }

// Open are the tasks that are on their way, by their numbers.
func (c *Core) Open() []*Task {
	return slices.SortedFunc(maps.Values(c.open), func(a, b *Task) int { return cmp.Compare(a.N, b.N) })
}

// Join adds a host, between rounds; one that is there has new measures.
func (c *Core) Join(host string, m metrics.Measures, slots int) {
	if !slices.Contains(c.Hosts, host) {
		c.Hosts = append(c.Hosts, host)
	}
	c.Balance.Join(host, m, slots)
}

// Leave takes a host out, between rounds.
func (c *Core) Leave(host string) {
	c.Hosts = slices.DeleteFunc(c.Hosts, func(h string) bool { return h == host })
	c.Balance.Leave(host)
}

// Waiting is how many of the first have items are in no task.
func (c *Core) Waiting(have int64) int64 {
	n := max(have-c.Next, 0)
	for _, p := range c.Front {
		if p.known(have) {
			n += p.Count
		}
	}
	return n
}

// known tells whether all of its items are among the first have: those that were
// given out before a kill are read again after it.
func (p *Piece) known(have int64) bool { return p.First+p.Count <= have }

// Finished tells whether all of so many items have ended.
func (c *Core) Finished(all int64) bool {
	return c.Idle() && c.Next >= all && len(c.Front) == 0
}

// Begin gives out a round. have is how many items are known, more that others may
// come. No tasks: nothing waits, or there is no host; ask again when that has changed.
func (c *Core) Begin(have int64, more bool) []*Task {
	if !c.Idle() || c.Closed < c.Round {
		return nil
	}
	const most = 1 << 40 // an int anywhere we run
	sizes := c.Balance.Next(int(min(c.Waiting(have), most)), more)
	if len(sizes) == 0 {
		return nil
	}
	c.Round++
	c.replies = nil
	idle := slices.DeleteFunc(slices.Clone(c.Hosts), func(h string) bool {
		return slices.ContainsFunc(sizes, func(s metrics.Task) bool { return s.Host == h })
	})
	var round []*Task
	for i, size := range sizes {
		host := size.Host
		p, ok := c.take(host, int64(size.Items), have, len(sizes)-i-1+len(idle) == 0)
		if !ok && len(idle) > 0 { // what is left came back from this very host
			host, idle = idle[0], idle[1:]
			p, ok = c.take(host, int64(size.Items), have, true)
		}
		if !ok {
			continue
		}
		c.Tasks++
		t := &Task{N: c.Tasks, Round: c.Round, First: p.First, Count: p.Count, Kills: p.Kills, Host: host}
		c.open[t.N] = t
		round = append(round, t)
	}
	return round
}

// take gives a host up to so many items, in one piece: what came back first, then
// new ones. What came back from the host itself it gets only if it is the last one.
func (c *Core) take(host string, count, have int64, last bool) (Piece, bool) {
	count = min(count, task.MaxItems)
	i := slices.IndexFunc(c.Front, func(p Piece) bool { return p.Avoid != host && p.known(have) })
	if i < 0 && c.Next >= have && last {
		i = slices.IndexFunc(c.Front, func(p Piece) bool { return p.known(have) })
	}
	switch {
	case i >= 0:
		p := c.Front[i]
		if p.Count <= count {
			c.Front = slices.Delete(c.Front, i, i+1)
			return p, true
		}
		c.Front[i].First, c.Front[i].Count = p.First+count, p.Count-count
		p.Count = count
		return p, true
	case c.Next < have:
		p := Piece{First: c.Next, Count: min(count, have-c.Next)}
		c.Next += p.Count
		return p, true
	}
	return Piece{}, false
}

// End takes how an open task ended. left is true if its host is to be left out for
// it, from the next round on.
func (c *Core) End(n int64, how Outcome, took time.Duration) (t *Task, left bool) {
	t = c.open[n]
	if t == nil {
		return nil, false
	}
	delete(c.open, n)
	back := Piece{First: t.First, Count: t.Count, Kills: t.Kills, Avoid: t.Host}
	t.State = Back
	switch how {
	case Whole:
		t.State, t.Took = Done, took
		c.replies = append(c.replies, metrics.Response{Host: t.Host, Items: int(t.Count), Took: took})
		delete(c.Strikes, t.Host)
		return t, false
	case Died:
		delete(c.Strikes, t.Host)
		back.Kills++
		if back.Kills >= mostKills && back.Count == 1 {
			t.State = Killer
			return t, false
		}
		if back.Kills >= mostKills {
			// Each half is on trial: one more death and it is halved again.
			half := back
			half.Count = back.Count / 2
			half.Kills = mostKills - 1
			back.First, back.Count, back.Kills = back.First+half.Count, back.Count-half.Count, mostKills-1
			c.giveBack(half)
		}
	case Failed:
		c.Strikes[t.Host]++
		left = c.Strikes[t.Host] >= mostStrikes
	case Withdrawn:
	}
	c.giveBack(back)
	return t, left
}

func (c *Core) giveBack(p Piece) {
	at, _ := slices.BinarySearchFunc(c.Front, p, func(a, b Piece) int { return cmp.Compare(a.First, b.First) })
	c.Front = slices.Insert(c.Front, at, p)
}

// Close adjusts sizes by the last round, once all of its tasks have ended.
func (c *Core) Close() metrics.Verdict {
	v := c.Balance.Done(c.replies)
	c.replies, c.Closed = nil, c.Round
	return v
}

// restore puts back a task of the last round, as it was written down.
func (c *Core) restore(t *Task) {
	switch t.State {
	case Open:
		c.open[t.N] = t
	case Done:
		if t.Round == c.Round {
			c.replies = append(c.replies, metrics.Response{Host: t.Host, Items: int(t.Count), Took: t.Took})
		}
	case Back, Killer:
	}
}
