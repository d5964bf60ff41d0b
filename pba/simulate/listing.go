package simulate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/pba"
)

// listing chooses the jobs that the engine's snapshots list, so that a cycle's cost does not
// grow with the length of the queue. It leaves out, and counts, pending jobs that no cycle
// would do anything about:
//
//   - jobs of projects without a guarantee that the engine never acted on
//   - of each class of equal jobs of a project with one, those behind so many that all room
//     and all places next in line are gone before their turn
//
// What was listed once stays so until it ends. Where the engine acts on nothing, jobs of projects
// without a guarantee are not listed at all: no clock depends on them.
type listing struct {
	acts    bool
	ids     []backends.ID // ascending, which is the queue's order of submission
	classes []*class      // with jobs behind their front
	byKey   map[classKey]*class
	counts  map[unlistedKey]int
}

type unlistedKey struct{ project, step, user string }

// classKey is all of a job of a project with a guarantee that its place in a pool depends on.
type classKey struct {
	unlistedKey
	queue   string
	slots   int
	memory  int64
	feature string
	needs   string
	oneHost bool
}

// class is equal pending jobs.
type class struct {
	key    classKey
	front  int // slots of those that are listed, and that the engine did not act on
	behind []backends.ID
}

func newListing(acts bool) *listing {
	return &listing{acts: acts, byKey: map[classKey]*class{}, counts: map[unlistedKey]int{}}
}

// list adds a job to those that are listed.
func (l *listing) list(id backends.ID, j *metered) {
	if j.listed {
		return
	}
	j.listed = true
	l.insert(id)
	if j.counted {
		l.discount(j)
	}
}

// start lists a job that starts.
func (l *listing) start(id backends.ID, j *metered, hasPool bool) {
	j.leave()
	switch {
	case l.acts || hasPool:
		l.list(id, j)
	case j.counted:
		l.discount(j)
	}
}

func (l *listing) insert(id backends.ID) {
	at, found := slices.BinarySearchFunc(l.ids, id, backends.ID.Compare)
	if !found {
		l.ids = slices.Insert(l.ids, at, id)
	}
}

func (l *listing) discount(j *metered) {
	j.counted = false
	key := j.unlistedKey()
	if l.counts[key]--; l.counts[key] == 0 {
		delete(l.counts, key)
	}
}

func (a *arrival) unlistedKey() unlistedKey { return unlistedKey{a.project, a.step, a.user} }

// wait counts a job that waits and is not listed; one of a class is listed in its turn.
func (l *listing) wait(id backends.ID, j *metered, hasPool bool, queue string) {
	j.counted = true
	l.counts[j.unlistedKey()]++
	if !hasPool {
		return
	}
	key := classKey{j.unlistedKey(), queue, j.slots, j.memory, j.feature, fmt.Sprint(j.needs), j.oneHost}
	c := l.byKey[key]
	if c == nil {
		c = &class{key: key}
		l.byKey[key] = c
	}
	if len(c.behind) == 0 {
		l.classes = append(l.classes, c)
	}
	c.behind = append(c.behind, id)
	j.class = c
}

// leave notes that a job is in its class's front no more: it starts, or the engine acts on it.
func (j *metered) leave() {
	if j.inFront {
		j.inFront = false
		j.class.front -= j.slots
	}
}

// end drops a job that has ended.
func (l *listing) end(id backends.ID, j *metered) {
	if j.counted { // it ended without having been listed
		l.discount(j)
	}
	l.drop(id)
}

func (l *listing) drop(id backends.ID) {
	if at, found := slices.BinarySearchFunc(l.ids, id, backends.ID.Compare); found {
		l.ids = slices.Delete(l.ids, at, at+1)
	}
}

// fill lists jobs of each class until their front has the slots that its project's pools may
// have a use for.
func (l *listing) fill(jobs map[backends.ID]*metered, use func(project string, slots int) int) {
	l.classes = slices.DeleteFunc(l.classes, func(c *class) bool {
		want := use(c.key.project, c.key.slots)
		for c.front < want && len(c.behind) > 0 {
			id := c.behind[0]
			c.behind = c.behind[1:]
			j := jobs[id]
			if j == nil || j.listed {
				continue
			}
			l.list(id, j)
			j.inFront = true
			c.front += j.slots
		}
		return len(c.behind) == 0
	})
}

// unlisted counts the jobs that wait and are not listed.
func (l *listing) unlisted() []backends.Unlisted {
	all := make([]backends.Unlisted, 0, len(l.counts))
	for key, n := range l.counts { // in any order: they are counted
		all = append(all, backends.Unlisted{Project: key.project, Step: key.step, User: key.user, Jobs: n})
	}
	return all
}

// Snapshot implements backends.Backend. It lists what the engine could do something about.
func (e *engineView) Snapshot(ctx context.Context, endedSince time.Time) (*backends.Snapshot, error) {
	d := e.d
	if d.listing == nil {
		return e.World.Snapshot(ctx, endedSince)
	}
	uses := map[string]int{}
	d.listing.fill(d.meter.jobs, func(project string, slots int) int {
		use, known := uses[project]
		if !known {
			use = d.useOf(project)
			uses[project] = use
		}
		return use + 2*slots*len(d.calendar.entries)
	})
	s, err := e.World.snapshotOf(ctx, d.snapshot[:0], d.listing.ids, d.listing.unlisted(), endedSince)
	if err == nil {
		d.snapshot = s.Jobs // no cycle keeps its snapshot
	}
	return s, err
}

// useOf returns the slots of a project's pending jobs that its pools have room and places next
// in line for, at most. Beside these, each pool may keep its room for one wider job, and one
// job may exceed what is left of its places.
func (d *driver) useOf(project string) int {
	use := 0
	allocations, _ := d.calendar.inForce(d.world.Now())
	for i := range allocations {
		if a := &allocations[i]; a.Project == project {
			use += a.Guarantee + d.Policy.InLine(&d.ledger.Memory, a, d.slots)
		}
	}
	return use
}

// listsAll reports whether each snapshot must list all jobs: rules about dummy jobs concern any.
func (s *Setup) listsAll() bool { return s.EveryJob || s.Policy.Dummies.Mode != dummy.Off }

// noteActs notes the jobs that the engine acted on.
func (d *driver) noteActs(r *pba.Result) {
	if d.listing == nil || r.Rules.Observe {
		return
	}
	for i := range r.Plan.Actions {
		if j := d.meter.jobs[r.Plan.Actions[i].Job]; j != nil {
			j.leave()
		}
	}
}
