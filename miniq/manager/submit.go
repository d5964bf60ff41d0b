package manager

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// maxElements is how many elements an array may have.
const maxElements = 1_000_000

func (m *Manager) submit(e Submit) []backends.Submitted {
	results := make([]backends.Submitted, len(e.Specs))
	for i := range e.Specs {
		results[i].ID, results[i].Err = m.submitOne(e.jobAt(i))
		results[i].Queue = m.queueOf(results[i].ID)
	}
	return results
}

// queueOf returns the queue of a job or an array; "": it is not known.
func (m *Manager) queueOf(id backends.ID) string {
	if jobs := m.find(id); len(jobs) > 0 {
		return jobs[0].queue
	}
	return ""
}

func (m *Manager) submitOne(e submittedJob) (backends.ID, error) {
	by, spec := e.by, e.spec
	if spec.Slots == 0 {
		spec.Slots = 1
	}
	spec.BeginTime, spec.HeldUntil = jsonTime(spec.BeginTime), jsonTime(spec.HeldUntil)
	if e.dummy {
		if err := m.checkDummy(e); err != nil {
			return backends.ID{}, err
		}
	}
	if err := m.check(spec); err != nil {
		return backends.ID{}, err
	}
	if err := checkPriority(by, spec, e.next); err != nil {
		return backends.ID{}, err
	}
	if err := m.checkJobCount(by, spec.Array); err != nil {
		return backends.ID{}, err
	}
	if err := m.checkBytes(by, by.User, e.bytes); err != nil {
		return backends.ID{}, err
	}
	needs, err := m.parseCondition(by.User, spec.After, e.past)
	if err != nil {
		return backends.ID{}, fmt.Errorf("dependency %q: %w", spec.After, err)
	}
	id := backends.ID{Job: m.nextID}
	m.nextID++
	w := m.newWork(by.User, spec, needs)
	if spec.Array == nil {
		m.add(id, e, w, nil)
	} else {
		a := newArray(spec.Array.Limit, len(spec.Array.Indices))
		m.arrays[id.Job] = a
		for _, index := range spec.Array.Indices {
			m.add(backends.ID{Job: id.Job, Index: index}, e, w, a)
		}
	}
	if spec.Name != "" {
		key := nameKey{by.User, spec.Name}
		m.beforeRename(key)
		m.names[key] = id.Job
	}
	return id, nil
}

// comparedJobs is how many of the jobs submitted last a new one is compared with: many users
// may submit at the same time.
const comparedJobs = 64

// newWork returns the work of a new job: that of a job like it, of the same user, if one
// was submitted just before.
func (m *Manager) newWork(user string, spec *backends.Spec, needs *condition) *work {
	shares := func(s *backends.Spec) bool { return s.Name == "" && s.After == "" && s.Array == nil }
	j := m.last
	for range comparedJobs {
		if j == nil || !shares(spec) {
			break
		}
		if w := j.work; j.user == user && shares(w.spec) && w.spec.Equal(spec) {
			return w
		}
		j = j.prev
	}
	w := newWork(spec)
	w.needs = needs
	return w
}

// checkJobCount returns an error if a user would have more jobs than one may have.
func (m *Manager) checkJobCount(by By, a *backends.Array) error {
	n, most := 1, m.cfg.MaxJobs
	if a != nil {
		n = len(a.Indices)
	}
	if by.Admin || most == 0 || m.open[by.User]+n <= most {
		return nil
	}
	return fmt.Errorf("%d more jobs: %d of yours have not ended, and a user may have %d here (miniq: max_jobs): wait until some have: %w", n, m.open[by.User], most, backends.ErrDenied)
}

// add puts a job at the end of the queue.
func (m *Manager) add(id backends.ID, e submittedJob, w *work, a *array) {
	q := m.queueNamed(w.spec.Queue)
	m.seq++
	j := &job{id: id, seq: m.seq, turn: m.seq, user: e.by.User, work: w, array: a, queue: q.Name, dummyFor: e.dummyFor, state: backends.Pending, ownerHold: w.spec.Hold, heldUntil: w.spec.HeldUntil}
	j.base = firstPriority(q, w.spec.Priority)
	if e.dummy {
		j.base = w.spec.Priority
	}
	if e.standby() {
		j.dummyFor = id
	}
	j.submitted, j.bytes = m.now, e.bytes
	if a != nil {
		j.bytes = (e.bytes + int64(a.size) - 1) / int64(a.size)
	}
	m.jobs[id] = j
	if a != nil {
		a.elements = append(a.elements, j)
	}
	m.link(j)
	m.awaitDependencies(j)
	m.review(j)
}

// firstPriority returns what a job begins with: its own value at its queue's level,
// unless it asks for another level than that of normal jobs.
func firstPriority(q *Queue, p backends.Priority) backends.Priority {
	switch {
	case p == 0:
		return backends.At(q.Level, backends.DefaultValue)
	case p.Level() == backends.LevelNormal:
		return backends.At(q.Level, p.Value())
	}
	return p
}

// checkPriority returns an error for a priority that a job must not be submitted with. Users
// may make their jobs less urgent than others'. A level above that of normal jobs is a
// wish of the submit filter, which runs in the user's own process: it counts where the
// policy says so itself (next), else the job begins like any other.
func checkPriority(by By, s *backends.Spec, next bool) error {
	level := s.Priority.Level()
	switch {
	case by.Admin || s.Priority == 0:
	case level > backends.LevelNext:
		return fmt.Errorf("priority %d: only an administrator can rank a job so high: %w", s.Priority, backends.ErrDenied)
	case s.Priority.Value() > backends.DefaultValue:
		return fmt.Errorf("priority %d: only an administrator can rank a job above %d: %w", s.Priority.Value(), backends.DefaultValue, backends.ErrDenied)
	case level > backends.LevelNormal && !next:
		s.Priority = backends.At(backends.LevelNormal, s.Priority.Value())
	}
	return nil
}

// check returns an error for a job that could never run.
func (m *Manager) check(s *backends.Spec) error {
	level := s.Priority.Level()
	switch {
	case s.Slots < 0:
		return fmt.Errorf("%d slots: ask for 1 or more", s.Slots)
	case s.PerHost < 0:
		return fmt.Errorf("%d slots on each host: ask for 1 or more", s.PerHost)
	case s.Memory < 0 || s.Memory > math.MaxInt64/2:
		return fmt.Errorf("%d bytes of memory: ask for 0 or more", s.Memory)
	case s.RunLimit < 0:
		return fmt.Errorf("run limit %s: give a time above zero", s.RunLimit)
	case !encodable(s.BeginTime):
		return errors.New("begin time: give one before the year 9999")
	case !encodable(s.HeldUntil):
		return errors.New("hold: give a time before the year 9999")
	case m.queueNamed(s.Queue) == nil:
		return m.noQueue(s.Queue)
	case level < backends.LevelLow || level > backends.LevelHandOver:
		return fmt.Errorf("no such priority: %d", s.Priority)
	}
	if err := checkArray(s.Array); err != nil {
		return err
	}
	if err := checkNeeds(s); err != nil {
		return err
	}
	return m.checkSize(s)
}

// encodable reports whether JSON can carry a time.
func encodable(t time.Time) bool { return t.Year() >= 0 && t.Year() < 9999 }

func checkArray(a *backends.Array) error {
	if a == nil {
		return nil
	}
	if n := len(a.Indices); n == 0 || n > maxElements {
		return fmt.Errorf("array of %d elements: have 1 to %d", n, maxElements)
	}
	if a.Indices[0] < 1 || a.Limit < 0 || a.Indices[len(a.Indices)-1] > math.MaxInt32 {
		return errors.New("array: indices and the limit start at 1")
	}
	for i := 1; i < len(a.Indices); i++ {
		if a.Indices[i] <= a.Indices[i-1] {
			return errors.New("array: indices must ascend")
		}
	}
	return nil
}

// checkSize returns an error if all the known hosts, down ones too, could not hold a
// job. Without hosts it is no error.
func (m *Manager) checkSize(s *backends.Spec) error {
	if len(m.hosts) == 0 {
		return nil
	}
	if err := m.knownHosts(s.Hosts); err != nil {
		return err
	}
	s.Hosts = unique(s.Hosts)
	w := newWork(s)
	k := shapeKey{slots: s.Slots, perSlot: w.perSlot, oneHost: w.oneHost(), perHost: w.perHost(), exclusive: s.Exclusive}
	if m.cfg.SlotsOnly {
		k.perSlot = 0
	}
	if err := m.checkNames(w); err != nil {
		return err
	}
	allowed := m.named(s.Hosts)
	if asksForHosts(s) {
		asked := allowed
		if asked == nil {
			asked = m.hosts
		}
		if allowed = m.serving(asked, w); len(allowed) == 0 {
			return whyNone(asked, w)
		}
	}
	if m.couldHold(w, k, allowed, func(*host) bool { return true }) {
		return nil
	}
	return fmt.Errorf("%s: %s", demand(s), m.offerOf(w, k, allowed))
}

// offerOf returns text that says what is missing for a job.
func (m *Manager) offerOf(w *work, k shapeKey, allowed []*host) string {
	most, full := 0, 0
	for _, group := range m.alike(allowed, w) {
		sum := 0
		for _, h := range group {
			r := m.emptyRoom(h)
			n := k.capacity(&r)
			sum += n
			if k.perHost > 0 && n >= k.perHost {
				full++
			}
		}
		most = max(most, sum)
	}
	switch {
	case len(w.spec.Same) > 0 && !k.oneHost:
		return fmt.Sprintf("of such hosts %d slots at most could be had: ask for less", most)
	case k.perHost > 0:
		return fmt.Sprintf("%d hosts are needed, and %d could have %d slots for it: ask for less", (k.slots+k.perHost-1)/k.perHost, full, k.perHost)
	}
	return m.offer(k, allowed)
}

func demand(s *backends.Spec) string {
	text := fmt.Sprintf("%d slots", s.Slots)
	if s.Memory > 0 {
		text += fmt.Sprintf(" with %d MiB of memory", (s.Memory+1<<20-1)>>20)
	}
	if s.OneHost && s.Slots > 1 {
		text += " on one host"
	}
	if s.PerHost > 0 && s.PerHost < s.Slots && !s.OneHost {
		text += fmt.Sprintf(", %d on each host", s.PerHost)
	}
	if len(s.Same) > 0 {
		text += ", on hosts with the same " + strings.Join(s.Same, " and ")
	}
	return text
}

// offer returns text that says the most that could be had.
func (m *Manager) offer(k shapeKey, allowed []*host) string {
	if allowed == nil {
		allowed = m.hosts
	}
	most := slices.MaxFunc(allowed, func(a, b *host) int { return a.slots - b.slots })
	sum := 0
	memory := int64(0)
	for _, h := range allowed {
		sum += h.slots
		memory = max(memory, h.memory)
	}
	what := "these hosts have"
	if len(allowed) == len(m.hosts) {
		what = "the farm has"
	}
	text := fmt.Sprintf("%s %d slots, the largest host %d", what, sum, most.slots)
	if k.perSlot > 0 && memory > 0 {
		text += fmt.Sprintf(" and at most %d MiB", memory>>20)
	}
	return text + ": ask for less"
}
