package state

// A job's history is bounded: endless changes, stops and continues grow neither its
// object nor what waits to be written. The line of its submission and the last ones
// are kept.
const maxHistory = 1000 // lines

// historyOnly reports whether a change is a line of history and nothing else.
func (c *Change) historyOnly() bool {
	return c.Submit == nil && c.Begin == nil && c.End == nil && c.Final == nil && !c.Doubt && c.Set == nil && c.Attach == nil && c.Merge == nil
}

// dropOldLines drops the first lines of a job's changes that would not stay in its object.
// It acts only when the number of changes is a multiple of maxHistory.
func dropOldLines(changes []Change) []Change {
	if len(changes)%maxHistory != 0 {
		return changes
	}
	lines := 0
	for i := range changes {
		if changes[i].historyOnly() {
			lines++
		}
	}
	kept := changes[:0]
	for i := range changes {
		if changes[i].historyOnly() {
			if lines--; lines >= maxHistory {
				continue
			}
		}
		kept = append(kept, changes[i])
	}
	clear(changes[len(kept):])
	return kept
}

// shorten drops the oldest lines of the history in the database. It skips small
// objects: a thousand lines take more than longObject.
func (m *memory) shorten(object []byte, changes []Change) error {
	const longObject = 32 << 10
	if len(object) < longObject && len(changes) <= maxHistory {
		return nil
	}
	err := m.exec("DELETE FROM history WHERE host = '' AND event <> 'submitted' AND (seq, n) <= (SELECT seq, n FROM history WHERE host = '' ORDER BY seq DESC, n DESC LIMIT 1 OFFSET ?)", int64(maxHistory))
	if err == nil {
		err = m.exec("DELETE FROM history WHERE host <> '' AND event <> 'submitted' AND (run, seq, n, host) <= (SELECT run, seq, n, host FROM history WHERE host <> '' AND event <> 'submitted' ORDER BY run DESC, seq DESC, n DESC, host DESC LIMIT 1 OFFSET ?)", int64(maxHistory))
	}
	return err
}
