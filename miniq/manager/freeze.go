package manager

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// Frozen is the queue as it was when Freeze was called. Its jobs are copied a few
// at a time, between steps; a step copies those that it changes before (see
// Manager.changes). So no step waits for the whole copy.
type Frozen struct {
	m      *Manager
	number uint64 // of this Freeze; 0: State's, whose jobs are copied at once
	last   int64  // seq of the last job
	open   *job   // the next ones to be copied
	ended  *job

	state  savedState // without works, arrays, jobs and names
	jobs   []frozenJob
	slab   []savedJob // the jobs copied last: many at a time are cheaper to make
	arrays map[*array]savedArray
	leaves map[*condition][]*leaf
	names  map[nameKey]int64 // those that have changed, as they were
}

// frozenJob is a job as it was.
type frozenJob struct {
	*savedJob
	work   *work
	array  *array
	needs  *condition // nil: none, or the job had ended: changed elements share their dependency with others
	named  bool       // it was the last one of its name
	endSeq int64
}

// perSlab is how many jobs are made at a time.
const perSlab = 1024

// Freeze begins a copy of the queue as it is now. An earlier copy that is not whole yet
// can't be completed any more.
func (m *Manager) Freeze() *Frozen {
	f := m.frozen()
	m.frozenNumber++
	f.number = m.frozenNumber
	m.freezing = f
	return f
}

func (m *Manager) frozen() *Frozen {
	f := &Frozen{
		m: m, last: m.seq, open: m.first, ended: m.ended.first,
		state:  savedState{Version: stateVersion, Config: m.cfg, Now: m.now, Clock: m.clock, Ahead: m.ahead, NextID: m.nextID, Seq: m.seq, Wake: m.wake, Keys: m.saveKeys()},
		arrays: map[*array]savedArray{}, leaves: map[*condition][]*leaf{}, names: map[nameKey]int64{},
	}
	for _, h := range m.hosts {
		f.state.Hosts = append(f.state.Hosts, savedHost{h.name, h.slots, h.memory, h.closed, h.down, h.has, h.features, h.shut})
	}
	f.state.Guaranteed = m.Guaranteed(m.now)
	if m.overdueJob != nil {
		f.state.Kept = &savedKept{m.overdueJob.job.id, m.overdueJob.placed, m.overdueJob.at, m.overdueJob.searched}
	}
	return f
}

// More copies limit jobs at most; false: none is left. It must not run concurrently with
// the manager's methods.
func (f *Frozen) More(limit int) bool {
	for ; limit > 0; limit-- {
		switch {
		case f.open != nil && f.open.seq <= f.last:
			j := f.open
			f.open = j.next
			f.add(j)
		case f.ended != nil:
			j := f.ended
			f.ended = j.next
			f.add(j)
		default:
			f.Drop()
			return false
		}
	}
	return true
}

// Drop gives a copy up, if it is not whole.
func (f *Frozen) Drop() {
	if f.m.freezing == f {
		f.m.freezing = nil
	}
}

// beforeChange must be called before a change to what State writes of a job, or of its array.
func (m *Manager) beforeChange(j *job) {
	if m.freezing != nil {
		m.freezing.add(j)
	}
}

// beforeUnlink must be called before a job that was copied is removed from its list.
func (m *Manager) beforeUnlink(j *job) {
	f := m.freezing
	if f == nil {
		return
	}
	if f.open == j {
		f.open = j.next
	}
	if f.ended == j {
		f.ended = j.next
	}
}

// beforeRename must be called before the last job of a name becomes another one.
func (m *Manager) beforeRename(key nameKey) {
	if f := m.freezing; f != nil {
		if _, known := f.names[key]; !known {
			f.names[key] = m.names[key]
		}
	}
}

// add copies a job, unless it was copied before or is new.
func (f *Frozen) add(j *job) {
	if j.seq > f.last || f.number > 0 && j.frozen == f.number {
		return
	}
	if f.number > 0 {
		j.frozen = f.number
	}
	if len(f.slab) == cap(f.slab) {
		f.slab = make([]savedJob, 0, perSlab)
	}
	f.slab = append(f.slab, saveJob(j))
	one := frozenJob{savedJob: &f.slab[len(f.slab)-1], work: j.work, array: j.array, endSeq: j.endSeq}
	if a := j.array; a != nil {
		if _, known := f.arrays[a]; !known {
			f.arrays[a] = savedArray{j.id.Job, a.limit, a.size, a.left, a.begun, a.failed, a.firstCode}
		}
	}
	if name := j.work.spec.Name; name != "" {
		key := nameKey{j.user, name}
		last, changed := f.names[key]
		if !changed {
			last = f.m.names[key]
		}
		one.named = last == j.id.Job
	}
	if c := j.work.needs; c != nil && !j.state.Ended() {
		one.needs = c
		f.addLeaves(c)
	}
	f.jobs = append(f.jobs, one)
}

// addLeaves copies what is known of a condition, before more is.
func (f *Frozen) addLeaves(c *condition) {
	if _, known := f.leaves[c]; known {
		return
	}
	leaves := make([]*leaf, len(c.leaves))
	for i, l := range c.leaves {
		known := *l
		leaves[i] = &known
	}
	f.leaves[c] = leaves
}

// Encode returns what State returns, in parts, once More has copied all. It may run
// concurrently with the manager.
func (f *Frozen) Encode() ([][]byte, error) {
	slices.SortFunc(f.jobs, func(a, b frozenJob) int {
		if x, y := a.State.Ended(), b.State.Ended(); x != y {
			if x {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(a.endSeq, b.endSeq), cmp.Compare(a.Seq, b.Seq))
	})
	s := &f.state
	works, arrays := map[*work]int{}, map[*array]bool{} // are only looked up in
	var specs []*frozenJob                              // the first job of each work
	for i := range f.jobs {
		j := &f.jobs[i]
		n, known := works[j.work]
		if !known {
			n = len(specs)
			works[j.work] = n
			specs = append(specs, j)
			if j.named {
				s.Names = append(s.Names, savedName{j.User, j.work.spec.Name, j.ID.Job})
			}
		}
		j.Work = n
		if a := j.array; a != nil && !arrays[a] {
			arrays[a] = true
			s.Arrays = append(s.Arrays, f.arrays[a])
		}
	}
	head, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("state of the queue: %w", err)
	}
	e := &encoding{part: append(make([]byte, 0, partSize), head[:len(head)-1]...)}
	e.list("Works", len(specs), func(i int) any { return saveWork(specs[i].work, f.leaves[specs[i].needs]) })
	e.list("Jobs", len(f.jobs), func(i int) any { return f.jobs[i].savedJob })
	e.part = append(e.part, '}')
	if e.err != nil {
		return nil, fmt.Errorf("state of the queue: %w", e.err)
	}
	return append(e.parts, e.part), nil
}

// partSize is about how long the parts of a state are.
const partSize = 1 << 20

// encoding is a JSON object on its way, in parts.
type encoding struct {
	parts [][]byte
	part  []byte
	err   error
}

// list adds a list that is nowhere as a whole.
func (e *encoding) list(name string, n int, item func(i int) any) {
	e.part = append(append(append(e.part, `,"`...), name...), `":[`...)
	for i := range n {
		text, err := json.Marshal(item(i))
		if err != nil {
			e.err = err
		}
		if i > 0 {
			e.part = append(e.part, ',')
		}
		if len(e.part)+len(text) > partSize {
			e.parts, e.part = append(e.parts, e.part), make([]byte, 0, partSize)
		}
		e.part = append(e.part, text...)
	}
	e.part = append(e.part, ']')
}

// State returns the whole queue as bytes: the same queue gives the same bytes.
func (m *Manager) State() ([]byte, error) {
	f := m.frozen()
	for f.More(perSlab) {
	}
	parts, err := f.Encode()
	return slices.Concat(parts...), err
}

func saveWork(w *work, leaves []*leaf) savedWork {
	return savedWork{Spec: *w.spec, Leaves: leaves}
}

func saveJob(j *job) savedJob {
	s := savedJob{
		ID: j.id, Seq: j.seq, User: j.user, Queue: j.queue, DummyFor: j.dummyFor, State: j.state, Submitted: j.submitted, Bytes: j.bytes,
		Base: j.base, Aged: j.aged, Ageing: j.ageing, AgeFrom: j.ageFrom,
		OwnerHold: j.ownerHold, HeldUntil: j.heldUntil, RetryAt: j.retryAt, Failures: j.failures, Pinned: j.pinned, Shares: j.shares, PinEnds: j.pinEnds,
		Mark: j.mark, Requeues: j.requeues, FailedSaves: j.failedSaves, PreFailures: j.preFailures, Restarted: j.restarted, Run: j.run, Hosts: j.hosts, Started: j.started, RanBefore: j.ranBefore,
		Confirmed: j.confirmed, Parked: j.parked, StopBy: j.stopBy, Ending: j.ending, Grace: j.grace, Save: j.save, KilledAt: j.killedAt,
		Ended: j.ended, ExitCode: j.exitCode, Reason: j.reason, Admitted: j.admitted, WaitSince: j.waitSince, Notes: j.notes,
	}
	if j.turn != j.seq {
		s.Turn = j.turn
	}
	if j.reserve != nil {
		s.Reserve, s.Until = j.reserve.hosts, j.reserve.until
	}
	return s
}
