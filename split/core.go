package split

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split/task"
	"github.com/allotment-hpc/allotment/split/try"
)

// maxKills is the number of tasks that die at work on a range before it is halved, or
// abandoned if it is a single item.
const maxKills = 3

// maxStrikes is the number of tasks that fail in a row on a host before it is excluded.
const maxStrikes = 3

// Piece is a range of items that a task returned without results, to be assigned again.
type Piece struct {
	First, Count int64
	Kills        int    // number of tasks that died at work on it
	Avoid        string // the host that returned it
}

// Task is a range of items for a host. It is one job. Items that it returns without
// results are assigned again in a task of another number.
type Task struct {
	N            int64 // from 1
	Round        int   // from 1
	First, Count int64 // items, from 0
	Kills        int   // of the Piece that it was made from
	Host         string
	State        TaskState
	Took         time.Duration // if it is Done
	CopyOf       int64         // the task whose items it executes, too; 0: it is no copy
	Cells        []try.Cell    // which setting each item has; one: all have that; none: nothing is tried
}

// group names what a task and its copies have in common.
func (t *Task) group() int64 { return cmp.Or(t.CopyOf, t.N) }

// TaskState is the state of a task.
type TaskState int

// The states.
const (
	Open       TaskState = iota // no end of it is known
	Done                        // its result exists
	Returned                    // it ended without a result; its items are assigned again
	Killer                      // it ended without a result; its only item is abandoned
	Superseded                  // a task of the same items has the result, or is at work on them
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
// assigned in their order, in rounds: each host gets one task, and when all have
// ended the next round begins. Returned pieces go first, to another host if there
// is one.
type Core struct {
	Next    int64            // the first item that was never assigned
	Tasks   int64            // tasks so far: the number of the last one
	Round   int              // the last one that began
	Closed  int              // the last one that was closed
	Hosts   []string         // that take part, in the order in which they joined
	Front   []Piece          // returned pieces, in the order of their items
	Strikes map[string]int   // tasks in a row that failed on a host
	Blocks  *Blocks          `json:",omitempty"` // of a resident job; nil: it is none
	Balance *metrics.Balance `json:"-"`
	Trial   *try.Trial       `json:",omitempty"` // of settings of the command; nil: none is tried
	Added   int64            // bytes of items that were added by tasks that ended
	Copies  int              `json:"-"` // hosts that execute each task; 0 and 1: one

	open    map[int64]*Task    // of this round
	replies []metrics.Response // of this round
	done    map[int64]bool     // groups of restored tasks that have a result
}

// NewCore returns a core without hosts that has assigned nothing.
func NewCore(o metrics.Options) *Core {
	return &Core{Strikes: map[string]int{}, Balance: metrics.New(o), open: map[int64]*Task{}, done: map[int64]bool{}}
}

// Idle reports whether no task is open.
func (c *Core) Idle() bool { return len(c.open) == 0 }

// Open returns the open tasks, in the order of their numbers.
func (c *Core) Open() []*Task {
	return slices.SortedFunc(maps.Values(c.open), byNumber)
}

func byNumber(a, b *Task) int { return cmp.Compare(a.N, b.N) }

// Apart returns the open tasks, but one alone of each that executes the same items.
func (c *Core) Apart() []*Task {
	seen := map[int64]bool{}
	return slices.DeleteFunc(c.Open(), func(t *Task) bool {
		again := seen[t.group()]
		seen[t.group()] = true
		return again
	})
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

// Waiting returns the number of items, of the first have, that wait for a task.
func (c *Core) Waiting(have int64) int64 {
	n := max(have-c.Next, 0)
	for _, p := range c.Front {
		if p.available(have) {
			n += p.Count
		}
	}
	return n
}

// available reports whether all of its items are among the first have. After a kill, items
// that were assigned before are read again.
func (p *Piece) available(have int64) bool { return p.First+p.Count <= have }

// Finished reports whether all items have ended.
func (c *Core) Finished(all int64) bool {
	return c.Idle() && c.Next >= all && len(c.Front) == 0
}

// Begin assigns a round. have is the number of items so far; more reports whether others
// may follow. It returns no tasks while a round is open, nothing waits, or there is no host.
func (c *Core) Begin(have int64, more bool) []*Task {
	if !c.Idle() || c.Closed < c.Round {
		return nil
	}
	const most = 1 << 40 // an int on every platform that we build for
	teams, followers := c.teams()
	sizes := c.Balance.Next(int(min(c.Waiting(have), most)), more, followers...)
	if len(sizes) == 0 {
		return nil
	}
	if tried := c.tried(have, more, followers); len(tried) > 0 {
		sizes = tried
	}
	return c.assign(sizes, have, teams, followers)
}

// assign begins a round with tasks of these sizes.
func (c *Core) assign(sizes []metrics.Task, have int64, teams map[string][]string, followers []string) []*Task {
	c.Round++
	c.replies = nil
	idle := slices.DeleteFunc(slices.Clone(c.Hosts), func(h string) bool {
		return slices.Contains(followers, h) || slices.ContainsFunc(sizes, func(s metrics.Task) bool { return s.Host == h })
	})
	var round []*Task
	for i, size := range sizes {
		host := size.Host
		p, ok := c.nextPiece(host, int64(size.Items), have, len(sizes)-i-1+len(idle) == 0)
		if !ok && len(idle) > 0 { // what is left was returned by this host
			host, idle = idle[0], idle[1:]
			p, ok = c.nextPiece(host, int64(size.Items), have, true)
		}
		if !ok {
			continue
		}
		c.Tasks++
		t := &Task{N: c.Tasks, Round: c.Round, First: p.First, Count: p.Count, Kills: p.Kills, Host: host, Cells: c.cells(&p)}
		c.open[t.N] = t
		round = append(round, t)
		for _, follower := range teams[host] {
			round = append(round, c.Copy(t.N, follower))
		}
	}
	return round
}

// teams divides the hosts into teams of Copies, each of which executes the same items, as another may be
// lost at any moment (R53). Hosts that are as fast as each other are together, and what is left over
// joins the last team. It returns each first host's followers, and all followers.
func (c *Core) teams() (of map[string][]string, followers []string) {
	if c.Copies <= 1 {
		return nil, nil
	}
	shares := c.Balance.Shares()
	slices.SortStableFunc(shares, func(a, b metrics.Share) int { return cmp.Compare(b.Percent, a.Percent) })
	of = map[string][]string{}
	first := ""
	for i, s := range shares {
		if i%c.Copies == 0 && (i == 0 || len(shares)-i >= c.Copies) {
			first = s.Host
			continue
		}
		of[first], followers = append(of[first], s.Host), append(followers, s.Host)
	}
	return of, followers
}

// measured reports whether a task that ended says how fast its host is: of speculative copies the first
// one does, of a team's the one that was first to end.
func (c *Core) measured(t *Task) bool { return t.CopyOf == 0 || c.Copies > 1 }

// Copy has another host execute the items of an open task, too. It returns nil if the task is not
// open, or that host has an open task of the same items, or had one that ended.
func (c *Core) Copy(n int64, host string) *Task {
	t := c.open[n]
	if t == nil || !slices.Contains(c.Hosts, host) || slices.ContainsFunc(c.others(t), func(o *Task) bool { return o.Host == host }) || t.Host == host {
		return nil
	}
	c.Tasks++
	twin := &Task{N: c.Tasks, Round: t.Round, First: t.First, Count: t.Count, Kills: t.Kills, Host: host, CopyOf: t.group(), Cells: t.Cells}
	c.open[twin.N] = twin
	return twin
}

// others returns the other open tasks of a task's items.
func (c *Core) others(t *Task) (all []*Task) {
	for _, o := range c.open {
		if o.N != t.N && o.group() == t.group() {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, byNumber)
	return all
}

// nextPiece returns up to count items for a host, in one piece: returned ones first, then
// new ones. Unless last is set, it returns nothing that this host returned.
func (c *Core) nextPiece(host string, count, have int64, last bool) (Piece, bool) {
	count = min(count, task.MaxItems)
	i := slices.IndexFunc(c.Front, func(p Piece) bool { return p.Avoid != host && p.available(have) })
	if i < 0 && c.Next >= have && last {
		i = slices.IndexFunc(c.Front, func(p Piece) bool { return p.available(have) })
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

// End ends an open task; t is nil if there is none of this number. The first whole result of a task
// and its copies counts: the others end with it, and are lost. excluded reports whether its host is
// excluded, from the next round on.
func (c *Core) End(n int64, how Outcome, took time.Duration) (t *Task, lost []*Task, excluded bool) {
	t = c.open[n]
	if t == nil {
		return nil, nil, false
	}
	delete(c.open, n)
	others := c.others(t)
	back := Piece{First: t.First, Count: t.Count, Kills: t.Kills, Avoid: t.Host}
	t.State = Returned
	switch how {
	case Whole:
		t.State, t.Took = Done, took
		if c.measured(t) {
			c.replies = append(c.replies, metrics.Response{Host: t.Host, Items: int(t.Count), Took: took})
		}
		delete(c.Strikes, t.Host)
		for _, o := range others {
			o.State = Superseded
			delete(c.open, o.N)
		}
		return t, others, false
	case Died:
		delete(c.Strikes, t.Host)
		c.blame(t)
		back.Kills++
		for _, o := range others {
			o.Kills++
		}
		if len(others) > 0 {
			break
		}
		if back.Kills >= maxKills && back.Count == 1 {
			t.State = Killer
			return t, nil, false
		}
		if back.Kills >= maxKills {
			// One more death halves a half again.
			half := back
			half.Count = back.Count / 2
			half.Kills = maxKills - 1
			back.First, back.Count, back.Kills = back.First+half.Count, back.Count-half.Count, maxKills-1
			c.returnPiece(half)
		}
	case Failed:
		c.Strikes[t.Host]++
		excluded = c.Strikes[t.Host] >= maxStrikes
	case Withdrawn:
	}
	if len(others) > 0 { // at work on them
		t.State = Superseded
		return t, nil, excluded
	}
	c.returnPiece(back)
	return t, nil, excluded
}

// Slow says how long a task of this round had taken that lost against a copy of it: its host is no
// faster than that.
func (c *Core) Slow(t *Task, took time.Duration) {
	if t.CopyOf == 0 && t.Round == c.Round && c.Closed < c.Round {
		c.replies = append(c.replies, metrics.Response{Host: t.Host, Items: int(t.Count), Took: took})
	}
}

// Shorten returns all but the first count items of an open task, which was halted, to be
// assigned again.
func (c *Core) Shorten(n, count int64) {
	t := c.open[n]
	if t == nil || count >= t.Count {
		return
	}
	c.returnPiece(Piece{First: t.First + count, Count: t.Count - count})
	t.Count = count
	t.Cells = t.Cells[:min(int64(len(t.Cells)), count)]
}

func (c *Core) returnPiece(p Piece) {
	at, _ := slices.BinarySearchFunc(c.Front, p, func(a, b Piece) int { return cmp.Compare(a.First, b.First) })
	c.Front = slices.Insert(c.Front, at, p)
}

// Close adjusts sizes by the last round, once all of its tasks have ended.
func (c *Core) Close() metrics.Verdict {
	if c.Blocks != nil {
		c.Blocks.measure(c.Round, c.replies)
		for i, r := range c.replies {
			c.replies[i].Items = c.Balance.Full(r.Host, r.Items)
		}
	}
	v := c.Balance.Done(c.replies)
	c.replies, c.Closed = nil, c.Round
	return v
}

// restore adds a stored task. Tasks come in the order of their numbers. Those that lost against it, or
// which lost against one before, are superseded; they are returned.
func (c *Core) restore(t *Task) (lost []*Task) {
	switch t.State {
	case Open:
		if c.done[t.group()] {
			t.State = Superseded
			return []*Task{t}
		}
		c.open[t.N] = t
	case Done:
		c.done[t.group()] = true
		for _, o := range c.others(t) {
			o.State = Superseded
			delete(c.open, o.N)
			lost = append(lost, o)
		}
		if t.Round == c.Round && c.measured(t) {
			c.replies = append(c.replies, metrics.Response{Host: t.Host, Items: int(t.Count), Took: t.Took})
		}
	case Returned, Killer, Superseded:
	}
	return lost
}
