package manager

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// stateVersion is written into every state; another one is not read.
const stateVersion = 1

// The saved types are the whole queue. All that is not here follows from it.
type savedState struct {
	Version int
	Config  Config
	Now     time.Time
	Clock   clock.Reading `json:",omitzero"`
	Ahead   Ahead         `json:",omitzero"`
	NextID  int64
	Seq     int64
	Hosts   []savedHost
	Works   []savedWork `json:",omitempty"`
	Arrays  []savedArray
	Jobs    []savedJob `json:",omitempty"` // those that have not ended, by Seq; then the ended ones, by their end
	Names   []savedName
	Kept    *savedKept `json:",omitempty"`
	Wake    time.Time

	Guaranteed []backends.Guaranteed `json:",omitempty"`

	Keys []savedKey `json:",omitempty"` // oldest first
}

type savedHost struct {
	Name         string
	Slots        int
	Memory       int64
	Closed, Down bool
	Has          []backends.Amount `json:",omitempty"`
	Features     []string          `json:",omitempty"`
	Shut         *shutHost         `json:",omitempty"`
}

type savedWork struct {
	Spec   backends.Spec
	Leaves []*leaf `json:",omitempty"`
}

type savedArray struct {
	Job                      int64
	Limit, Size, Left        int
	Begun, Failed, FirstCode int
}

type savedName struct {
	User, Name string
	Job        int64
}

type savedKept struct {
	Job    backends.ID
	Placed []backends.Placement

	At       time.Time `json:",omitzero"`
	Searched time.Time `json:",omitzero"`
}

type savedJob struct {
	ID        backends.ID
	Seq       int64
	Turn      int64 `json:",omitempty"` // 0: Seq
	User      string
	Work      int
	Queue     string
	DummyFor  backends.ID `json:",omitzero"`
	State     backends.State
	Submitted time.Time
	Bytes     int64 `json:",omitempty"`
	Base      backends.Priority
	Aged      int                  `json:",omitempty"`
	Ageing    bool                 `json:",omitempty"`
	AgeFrom   int64                `json:",omitempty"`
	OwnerHold bool                 `json:",omitempty"`
	HeldUntil time.Time            `json:",omitzero"`
	RetryAt   time.Time            `json:",omitzero"`
	Failures  int                  `json:",omitempty"`
	Pinned    []string             `json:",omitempty"`
	Shares    []int                `json:",omitempty"`
	PinEnds   time.Time            `json:",omitzero"`
	Reserve   []string             `json:",omitempty"`
	Until     time.Time            `json:",omitzero"`
	Mark      string               `json:",omitempty"`
	Requeues  int                  `json:",omitempty"`
	Run       int                  `json:",omitempty"`
	Hosts     []backends.Placement `json:",omitempty"`
	Started   time.Time            `json:",omitzero"`
	RanBefore time.Duration        `json:",omitempty"`
	Confirmed bool                 `json:",omitempty"`
	Parked    bool                 `json:",omitempty"`
	StopBy    time.Time            `json:",omitzero"`
	Ending    ending               `json:",omitempty"`
	Grace     time.Duration        `json:",omitempty"`
	Save      backends.Checkpoint  `json:",omitzero"`
	KilledAt  time.Time            `json:",omitzero"`
	Ended     time.Time            `json:",omitzero"`
	ExitCode  int                  `json:",omitempty"`
	Reason    string               `json:",omitempty"`
	Admitted  bool                 `json:",omitempty"`
	WaitSince time.Time            `json:",omitzero"`

	Notes *notes `json:",omitempty"`

	FailedSaves int  `json:",omitempty"`
	PreFailures int  `json:",omitempty"`
	Restarted   bool `json:",omitempty"`
}

// Restore returns the queue that State wrote. Its Config is part of the state.
func Restore(state []byte) (*Manager, error) {
	var s savedState
	if err := json.Unmarshal(state, &s); err != nil {
		return nil, fmt.Errorf("state of the queue: %w", err)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("state of the queue: version %d, this program reads version %d", s.Version, stateVersion)
	}
	m := New(s.Config)
	m.now, m.clock, m.ahead, m.nextID, m.seq, m.wake = s.Now, s.Clock, s.Ahead, s.NextID, s.Seq, s.Wake
	for i, h := range s.Hosts {
		m.hosts = append(m.hosts, &host{name: h.Name, index: i, slots: h.Slots, memory: h.Memory, closed: h.Closed, shut: h.Shut, down: h.Down})
		m.hosts[i].units.set(h.Has, h.Features)
		m.byName[h.Name] = m.hosts[i]
	}
	m.setGuaranteed(s.Guaranteed)
	if err := m.restoreJobs(&s); err != nil {
		return nil, fmt.Errorf("state of the queue: %w", err)
	}
	m.setNextTimes()
	return m, nil
}

func (m *Manager) restoreJobs(s *savedState) error {
	works, err := m.restoreWorks(s.Works)
	if err != nil {
		return err
	}
	for _, a := range s.Arrays {
		m.arrays[a.Job] = newArray(a.Limit, a.Size)
		r := m.arrays[a.Job]
		r.left, r.begun, r.failed, r.firstCode = a.Left, a.Begun, a.Failed, a.FirstCode
	}
	for _, n := range s.Names {
		m.names[nameKey{n.User, n.Name}] = n.Job
	}
	for _, k := range s.Keys {
		m.remember(&keyedSubmission{submissionKey{k.User, k.Key}, k.Jobs})
	}
	for i := range s.Jobs {
		if err := m.restoreJob(&s.Jobs[i], works); err != nil {
			return err
		}
	}
	for _, a := range s.Arrays {
		slices.SortFunc(m.arrays[a.Job].elements, func(a, b *job) int { return a.id.Compare(b.id) })
	}
	m.arrangeAll()
	if s.Kept != nil {
		if j := m.jobs[s.Kept.Job]; j != nil && j.waitList == inShape {
			m.overdueJob = &overdueReservation{job: j, placed: s.Kept.Placed, at: s.Kept.At, searched: s.Kept.Searched}
			m.countEarly()
		}
	}
	m.retry, m.touched = false, nil
	for _, sh := range m.shapes {
		sh.touched = false
	}
	return nil
}

func (m *Manager) restoreWorks(saved []savedWork) ([]*work, error) {
	var works []*work
	for i := range saved {
		spec := saved[i].Spec
		if spec.Slots < 1 {
			return nil, fmt.Errorf("a job of %d slots", spec.Slots)
		}
		w := newWork(&spec)
		if len(saved[i].Leaves) > 0 {
			c, err := parseAgain(spec.After, saved[i].Leaves)
			if err != nil {
				return nil, err
			}
			w.needs = c
		}
		works = append(works, w)
	}
	return works, nil
}

func (m *Manager) restoreJob(s *savedJob, works []*work) error {
	if s.Work < 0 || s.Work >= len(works) {
		return fmt.Errorf("job %s is incomplete", s.ID)
	}
	if err := new(backends.State).UnmarshalText([]byte(s.State.String())); err != nil { // it has none
		return fmt.Errorf("job %s: %w", s.ID, err)
	}
	j := &job{
		id: s.ID, seq: s.Seq, turn: cmp.Or(s.Turn, s.Seq), user: s.User, work: works[s.Work], queue: s.Queue, dummyFor: s.DummyFor, state: s.State, submitted: s.Submitted, bytes: s.Bytes,
		base: s.Base, aged: s.Aged, ageing: s.Ageing, ageFrom: s.AgeFrom,
		ownerHold: s.OwnerHold, heldUntil: s.HeldUntil, retryAt: s.RetryAt, failures: s.Failures, pinned: s.Pinned, shares: s.Shares, pinEnds: s.PinEnds,
		mark: s.Mark, requeues: s.Requeues, failedSaves: s.FailedSaves, preFailures: s.PreFailures, restarted: s.Restarted, run: s.Run, hosts: s.Hosts, started: s.Started, ranBefore: s.RanBefore,
		confirmed: s.Confirmed, parked: s.Parked, stopBy: s.StopBy, ending: s.Ending, grace: s.Grace, save: s.Save, killedAt: s.KilledAt,
		ended: s.Ended, exitCode: s.ExitCode, reason: s.Reason, admitted: s.Admitted, waitSince: s.WaitSince, notes: s.Notes,
	}
	m.jobs[j.id] = j
	if j.id.Index > 0 {
		if j.array = m.arrays[j.id.Job]; j.array == nil {
			return fmt.Errorf("job %s has no array", j.id)
		}
		j.array.elements = append(j.array.elements, j)
	}
	if j.state.Ended() {
		m.addEnded(j)
		return nil
	}
	m.link(j)
	if len(s.Reserve) > 0 {
		j.reserve = &reservation{s.Reserve, s.Until}
		m.reservers = append(m.reservers, j)
	}
	for _, p := range j.hosts {
		if m.byName[p.Host] == nil {
			return fmt.Errorf("job %s runs on %s, which is no host", j.id, p.Host)
		}
	}
	if j.live() {
		m.bookRun(j, 1)
	}
	if j.live() && j.holdsSlots() {
		m.occupy(j)
	}
	if j.state == backends.Running && j.work.spec.RunLimit > 0 {
		m.limited.Push(j)
	}
	return nil
}

// arrangeAll puts every job where it waits, as it was.
func (m *Manager) arrangeAll() {
	var waiting []*job
	for j := m.first; j != nil; j = j.next {
		if j.admitted {
			j.array.admitted++
		}
		m.awaitDependencies(j)
		m.reviewResuming(j)
		m.setDue(j)
		switch {
		case !m.startable(j):
		case throttled(j) && !j.admitted:
			j.waitList = inThrottle
			j.array.waiting.Push(j)
		default:
			waiting = append(waiting, j)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *job) int { return a.waitSince.Compare(b.waitSince) })
	for _, j := range waiting {
		s := m.shapeOf(j)
		j.waitList, j.shape = inShape, s
		s.append(j)
		m.arrange(j)
	}
}
