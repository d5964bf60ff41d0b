package split

import (
	"cmp"
	"maps"
	"slices"
)

// sequencer puts tasks that have ended into the order of their items.
type sequencer struct {
	next      int64           // the first item whose result is still to come
	held      map[int64]*Task // that have ended, by their first item
	unordered bool            // in the order in which they end
}

func newSequencer(unordered bool) *sequencer {
	return &sequencer{held: map[int64]*Task{}, unordered: unordered}
}

// add adds a task that is Done or Killer, and returns the tasks that are next in order.
func (l *sequencer) add(t *Task) []*Task {
	if l.unordered {
		l.next += t.Count
		return []*Task{t}
	}
	l.held[t.First] = t
	var ready []*Task
	for t := l.held[l.next]; t != nil; t = l.held[l.next] {
		delete(l.held, l.next)
		l.next += t.Count
		ready = append(ready, t)
	}
	return ready
}

// flush returns what is held, in the order of the items, though some before it are missing.
func (l *sequencer) flush() []*Task {
	ready := slices.SortedFunc(maps.Values(l.held), func(a, b *Task) int { return cmp.Compare(a.First, b.First) })
	clear(l.held)
	return ready
}
