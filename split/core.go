package split

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split/task"
)

// mostKills is how many tasks die at work on a range before it is halved, or given up
// if it is a single item.
const mostKills = 3

// mostStrikes is how many tasks in a row fail on a host before it is left out.
const mostStrikes = 3

// Piece is a range of items that a task gave back, to be given out again.
type Piece struct {
	First, Count int64
	Kills        int    // how many tasks died at work on it
	Avoid        string // the host that it came back from
}

// Task is a range of items for a host. It is one job. Items that it gives back are
// given out again in a task of another number.
type Task struct {
	N            int64 // from 1
	Round        int   // from 1
	First, Count int64 // items, from 0
	Kills        int   // of the Piece that it was taken from
	Host         string
	State        TaskState
	Took         time.Duration // if it is Done
}

// TaskState is the state of a task.
type TaskState int

// The states.
const (
	Open   TaskState = iota // no end of it is known
	Done                    // its result is there
	Back                    // it ended without a result; its items were given back
	Killer                  // it ended without a result; its only item is given up
)

// Outcome is how a task ended.
type Outcome int

// The outcomes.
const (
	Whole     Outcome = iota // with a whole result
	Died                     // at work on its items
	Failed                   // before, or for a reason that has nothing to do with them
	Withdrawn                // asplit killed its job
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
	Hosts   []string         // that take part, in the order in which they joined
	Front   []Piece          // what came back, in the order of its items
	Strikes map[string]int   // tasks in a row that failed on a host
	Balance *metrics.Balance `json:"-"`

	open    map[int64]*Task    // of this round
	replies []metrics.Response // of this round
}

// NewCore returns a core without hosts that has given nothing out.
func NewCore(o metrics.Options) *Core {
	return &Core{Strikes: map[string]int{}, Balance: metrics.New(o), open: map[int64]*Task{}}
}

// Idle reports whether no task is open.
func (c *Core) Idle() bool { return len(c.open) == 0 }

// Open returns the open tasks, in the order of their numbers.
func (c *Core) Open() []*Task {
	return slices.SortedFunc(maps.Values(c.open), func(a, b *Task) int { return cmp.Compare(a.N, b.N) })
}

// Join adds a host, between rounds. A host that takes part already gets new measures.
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

// Waiting returns how many of the first have items wait for a task.
func (c *Core) Waiting(have int64) int64 {
	n := max(have-c.Next, 0)
	for _, p := range c.Front {
		if p.known(have) {
			n += p.Count
		}
	}
	return n
}

// known reports whether all of its items are among the first have. After a kill, items
// that were given out before are read again.
func (p *Piece) known(have int64) bool { return p.First+p.Count <= have }

// Finished reports whether all items have ended.
func (c *Core) Finished(all int64) bool {
	return c.Idle() && c.Next >= all && len(c.Front) == 0
}

// Begin gives out a round. have is how many items are known, more whether others may
// come. It returns no tasks while a round is open, nothing waits, or there is no host.
func (c *Core) Begin(have int64, more bool) []*Task {
	if !c.Idle() || c.Closed < c.Round {
		return nil
	}
	const most = 1 << 40 // an int on every platform that we build for
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

// take returns up to count items for a host, in one piece: what came back first, then
// new ones. Without last it returns nothing that came back from this host.
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

// End ends an open task; t is nil if there is none of this number. left reports whether
// its host is to be left out, from the next round on.
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
			// One more death halves a half again.
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

// restore takes in a task as it was stored.
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
