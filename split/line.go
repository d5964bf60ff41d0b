package split

// line puts tasks that have ended into the order of their items.
type line struct {
	next int64           // the first item whose result is still to come
	held map[int64]*Task // that have ended, by their first item
	any  bool            // in the order in which they end instead
}

func newLine(unordered bool) *line { return &line{held: map[int64]*Task{}, any: unordered} }

// ended takes a task that is Done or Killer, and returns the tasks that are next.
func (l *line) ended(t *Task) []*Task {
	if l.any {
		l.next += t.Count
		return []*Task{t}
	}
	l.held[t.First] = t
	var turn []*Task
	for t := l.held[l.next]; t != nil; t = l.held[l.next] {
		delete(l.held, l.next)
		l.next += t.Count
		turn = append(turn, t)
	}
	return turn
}
