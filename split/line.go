package split

// line gives results out in the order of their items, each once, however their tasks
// end.
type line struct {
	next int64           // the first item whose result was not given out
	held map[int64]*Task // that have ended, by their first item
	any  bool            // as they end instead
}

func newLine(unordered bool) *line { return &line{held: map[int64]*Task{}, any: unordered} }

// ended takes a task that is done, or an item that is given up, and gives those whose
// turn it is now.
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
