package manager

import (
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Ended jobs are kept in memory for queries about them, within
// bounds: Config.MaxEnded and MaxEndedBytes of each user, and endedShares times as
// much of all users together. Beyond a bound the jobs that ended first are
// dropped; beyond that of all users, those of the user who has the most. A
// dropped job is still known to its state object, until Forget.

// endedShares is how many users can have as many ended jobs in memory as each may.
const endedShares = 2

// endedJobs are the ended jobs that are kept, in the order of their ends. They are
// linked by prev and next; those of one user by older and younger as well.
type endedJobs struct {
	first, last *job
	endedSum
	of map[string]*endedOf // by user
}

// endedOf are those of one user.
type endedOf struct {
	first, last *job
	endedSum
	toTrim bool // in Manager.toTrim
}

// endedSum is how many they are, and the memory that they take.
type endedSum struct {
	count int
	bytes int64
}

func (s *endedSum) add(more endedSum) { s.count += more.count; s.bytes += more.bytes }
func (s *endedSum) sub(less endedSum) { s.count -= less.count; s.bytes -= less.bytes }

// above reports whether a sum is beyond a bound; a zero in the bound is no bound.
func (s *endedSum) above(most endedSum) bool {
	return most.count > 0 && s.count > most.count || most.bytes > 0 && s.bytes > most.bytes
}

// addEnded puts a job that has ended behind all others.
func (m *Manager) addEnded(j *job) {
	m.endSeq++
	j.endSeq = m.endSeq
	all := &m.ended
	own := all.of[j.user]
	if own == nil {
		own = &endedOf{}
		all.of[j.user] = own
	}
	if j.prev, all.last = all.last, j; j.prev == nil {
		all.first = j
	} else {
		j.prev.next = j
	}
	if j.older, own.last = own.last, j; j.older == nil {
		own.first = j
	} else {
		j.older.younger = j
	}
	j.weight = j.weigh()
	more := endedSum{1, j.weight}
	if j.work.kept++; j.work.kept == 1 {
		more.bytes += j.work.weigh()
	}
	all.add(more)
	own.add(more)
	m.markForTrim(j.user, own)
}

// markForTrim makes trim compare a user's ended jobs with their bounds at the end of the step.
func (m *Manager) markForTrim(user string, own *endedOf) {
	if !own.toTrim {
		own.toTrim = true
		m.toTrim = append(m.toTrim, user)
	}
}

// dropEnded takes a job out of what the manager knows. Its array is thinned by
// the caller.
func (m *Manager) dropEnded(j *job) {
	m.removeEnded(j)
	if j.array == nil {
		m.forgetName(j)
	}
	delete(m.jobs, j.id)
}

// removeEnded takes a job out of those that have ended.
func (m *Manager) removeEnded(j *job) {
	m.beforeChange(j)
	m.beforeUnlink(j)
	all := &m.ended
	own := all.of[j.user]
	if j.prev == nil {
		all.first = j.next
	} else {
		j.prev.next = j.next
	}
	if j.next == nil {
		all.last = j.prev
	} else {
		j.next.prev = j.prev
	}
	if j.older == nil {
		own.first = j.younger
	} else {
		j.older.younger = j.younger
	}
	if j.younger == nil {
		own.last = j.older
	} else {
		j.younger.older = j.older
	}
	j.prev, j.next, j.older, j.younger = nil, nil, nil, nil
	less := endedSum{1, j.weight}
	if j.work.kept--; j.work.kept == 0 {
		less.bytes += j.work.weigh()
	}
	all.sub(less)
	if own.sub(less); own.count == 0 {
		delete(all.of, j.user)
	}
}

// Memory that jobs take, roughly. What one has in common with others is counted once,
// for as long as one of those that have ended is kept.
const (
	jobBytes  = 512
	workBytes = 640
	itemBytes = 32 // of a list
)

func (j *job) weigh() int64 {
	return int64(jobBytes + len(j.reason) + len(j.mark) + itemBytes*(len(j.hosts)+len(j.pinned)+len(j.shares)) + j.notes.weigh())
}

func (w *work) weigh() int64 {
	s := w.spec
	n := workBytes + len(s.Name) + len(s.Project) + len(s.Description) + len(s.After) + len(s.Queue) + len(s.Group)
	for _, host := range s.Hosts {
		n += itemBytes + len(host)
	}
	n += itemBytes*(len(s.Needs)+len(s.Features)+len(s.Same)) + conditionBytes(s.Select)
	if s.Array != nil {
		n += 16 * len(s.Array.Indices) // the index, and the element's place in its array
	}
	return int64(n)
}

// trim drops what is beyond the bounds.
func (m *Manager) trim() {
	most := endedSum{m.cfg.MaxEnded, m.cfg.MaxEndedBytes}
	for _, user := range m.toTrim {
		if own := m.ended.of[user]; own != nil {
			own.toTrim = false
			m.trimTo(own, &own.endedSum, most)
		}
	}
	m.toTrim = m.toTrim[:0]
	most.count, most.bytes = endedShares*most.count, endedShares*most.bytes
	for m.ended.above(most) {
		m.trimTo(m.largest(m.ended.above(endedSum{count: most.count})), &m.ended.endedSum, most)
	}
}

// trimTo drops jobs of a user if a sum is above a bound, the one that ended first first,
// until the sum is a sixteenth below it: each call searches the elements of arrays.
func (m *Manager) trimTo(own *endedOf, sum *endedSum, most endedSum) {
	if !sum.above(most) {
		return
	}
	most.count, most.bytes = most.count-most.count/16, most.bytes-most.bytes/16
	var dropped []*job
	for own.first != nil && sum.above(most) {
		j := own.first
		m.dropEnded(j)
		dropped = append(dropped, j)
	}
	m.thinArrays(dropped)
}

// largest returns the jobs of the user with the most ended jobs, or with those that take
// the most memory.
func (m *Manager) largest(byCount bool) *endedOf {
	size := func(own *endedOf) int64 {
		if byCount {
			return int64(own.count)
		}
		return own.bytes
	}
	var name string
	for user, own := range m.ended.of { // in any order: of equals the first name is taken
		most := m.ended.of[name]
		if most == nil || size(own) > size(most) || size(own) == size(most) && user < name {
			name = user
		}
	}
	return m.ended.of[name]
}

// forget drops jobs that ended before a time, wherever in the order they are.
func (m *Manager) forget(before time.Time) {
	var ids []backends.ID
	var dropped []*job
	for j := m.ended.first; j != nil; {
		next := j.next
		if j.ended.Before(before) {
			m.dropEnded(j)
			ids, dropped = append(ids, j.id), append(dropped, j)
		}
		j = next
	}
	m.thinArrays(dropped)
	if len(ids) > 0 {
		m.emit(Forgotten{ids})
	}
}

// thinArrays drops jobs from the arrays that they are elements of.
func (m *Manager) thinArrays(dropped []*job) {
	thinned := map[*array]bool{} // is only looked up in
	for _, j := range dropped {
		if j.array != nil && !thinned[j.array] {
			thinned[j.array] = true
			m.thinArray(j)
		}
	}
}

// thinArray drops the forgotten elements of a job's array.
func (m *Manager) thinArray(j *job) {
	a := j.array
	a.elements = slices.DeleteFunc(a.elements, func(e *job) bool { return m.jobs[e.id] == nil })
	if len(a.elements) == 0 {
		delete(m.arrays, j.id.Job)
		m.forgetName(j)
	}
}

func (m *Manager) forgetName(j *job) {
	key := nameKey{j.user, j.work.spec.Name}
	if m.names[key] == j.id.Job {
		m.beforeRename(key)
		delete(m.names, key)
	}
}

// Ended is how many ended jobs are in memory.
func (m *Manager) Ended() int { return m.ended.count }

// EndedBefore is how many of the ended jobs in memory ended before a time.
func (m *Manager) EndedBefore(t time.Time) int {
	n := 0
	for j := m.ended.first; j != nil; j = j.next {
		if j.ended.Before(t) {
			n++
		}
	}
	return n
}

// endedSince lists those that ended at a time or later, the first one first.
func (m *Manager) endedSince(t time.Time) []*job {
	var list []*job
	for j := m.ended.last; j != nil && !j.ended.Before(t); j = j.prev {
		list = append(list, j)
	}
	slices.Reverse(list)
	return list
}

// Issued reports whether a job has had this number, be it in memory or not.
func (m *Manager) Issued(id backends.ID) bool { return id.Job > 0 && id.Job < m.nextID }

// unknownJob is the error for a job that is not in memory.
func (m *Manager) unknownJob(id backends.ID) error {
	if m.Issued(id) {
		return fmt.Errorf("job %s: it ended earlier than the jobs that the queue keeps in memory: %w", id, backends.ErrUnknownJob)
	}
	return fmt.Errorf("job %s: %w", id, backends.ErrUnknownJob)
}
