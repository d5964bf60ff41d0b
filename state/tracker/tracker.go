package tracker

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/state"
)

// Bounds of a tracker. What is beyond them is not known, until there is room.
const (
	MaxJobs       = 1_000_000
	MaxJobsOfHost = 200_000
	MaxHosts      = 20_000
	maxPlaces     = 2 * MaxJobs // in sum
)

// Compare is the order of jobs in pages: by queue, number and index.
func Compare(a, b state.Job) int {
	return cmp.Or(strings.Compare(a.Queue, b.Queue), cmp.Compare(a.ID.Job, b.ID.Job), cmp.Compare(a.ID.Index, b.ID.Index))
}

// Place is a host that holds a job's object.
type Place struct {
	Host string
	state.Sequence
	Live bool // the run is there, and has not ended
}

// Tracker is not safe for concurrent use.
type Tracker struct {
	hosts map[string]*host
	list  []*host          // by number
	free  []uint32         // numbers of hosts that were withdrawn
	held  int              // places in sum
	jobs  map[key]uint32   // the number of the holder
	more  map[key][]uint32 // those of other hosts that hold the job's object, too
	dirty map[key]bool     // changed since Changes were taken last; nil: nothing takes them
}

// host is one that announced something.
type host struct {
	name                 string
	number               uint32
	epoch, last          uint64 // of the announcement that was heard last
	heard                time.Time
	address, fingerprint string
	held                 map[key]entryOf
}

// key is a job, and entryOf what a host announced of it, in few bytes: there may be a million.
type key struct {
	job   int64
	index int32
	queue uint8
}

type entryOf struct {
	n       uint64
	run     int32
	live    bool
	claimed bool
}

func (e entryOf) sequence() state.Sequence { return state.Sequence{Run: int(e.run), N: e.n} }

var queues = []string{"slurm", "lsf", "miniq"}

func keyOf(j state.Job) key {
	return key{j.ID.Job, int32(j.ID.Index), uint8(slices.Index(queues, j.Queue))}
}

func (k key) name() state.Job {
	return state.Job{Queue: queues[k.queue], ID: backends.ID{Job: k.job, Index: int(k.index)}}
}

// New returns a tracker that knows nothing.
func New() *Tracker {
	return &Tracker{hosts: map[string]*host{}, jobs: map[key]uint32{}, more: map[key][]uint32{}}
}

// Len returns how many jobs have a place.
func (t *Tracker) Len() int { return len(t.jobs) }

// hostOf returns a host by its name; nil: there are too many.
func (t *Tracker) hostOf(name string) *host {
	h := t.hosts[name]
	if h == nil && len(t.hosts) < MaxHosts {
		h = &host{name: name, number: uint32(len(t.list)), held: map[key]entryOf{}}
		if n := len(t.free) - 1; n >= 0 {
			h.number, t.free = t.free[n], t.free[:n]
			t.list[h.number] = h
		} else {
			t.list = append(t.list, h)
		}
		t.hosts[name] = h
	}
	return h
}

// oldEpoch is for how long announcements of an epoch before the last are dropped: after that a
// host's clock was set back.
const oldEpoch = time.Minute

// Hear takes an announcement of a host that the bus has authenticated, and returns the orders
// for hosts that follow from it, by host (R43). One that is older than the last from this host is
// dropped: the host's next round has what it said.
func (t *Tracker) Hear(name string, a *Announcement, now time.Time) map[string][]Order {
	h := t.hostOf(name)
	if h == nil {
		return nil
	}
	switch {
	case a.Epoch == h.epoch && a.Number <= h.last, a.Epoch < h.epoch && now.Sub(h.heard) < oldEpoch:
		return nil
	}
	h.epoch, h.last, h.heard = a.Epoch, a.Number, now
	h.address, h.fingerprint = a.Address, a.Fingerprint
	if a.Page {
		t.forgetBetween(h, a)
	}
	all := map[string][]Order{}
	for i := range a.Entries {
		e := &a.Entries[i]
		k := keyOf(e.Job)
		if e.Gone {
			t.remove(k, h)
		} else if t.set(k, h, entryOf{n: e.N, run: int32(e.Run), live: e.Live, claimed: e.Claimed}) {
			t.order(k, h, all)
		}
	}
	return all
}

// forgetBetween forgets what a host held between the ends of a page and does not list.
func (t *Tracker) forgetBetween(h *host, a *Announcement) {
	listed := make(map[key]bool, len(a.Entries))
	for i := range a.Entries {
		listed[keyOf(a.Entries[i].Job)] = true
	}
	after, _ := state.ParseJob(a.After)
	through, _ := state.ParseJob(a.Through)
	for k := range h.held {
		j := k.name()
		if !listed[k] && (a.After == "" || Compare(j, after) > 0) && (a.Through == "" || Compare(j, through) <= 0) {
			t.remove(k, h)
		}
	}
}

// set notes what a host announced of a job, and chooses the holder anew. It reports false where
// there is no room.
func (t *Tracker) set(k key, h *host, e entryOf) bool {
	_, known := h.held[k]
	holder, there := t.jobs[k]
	switch {
	case known:
	case !there && len(t.jobs) >= MaxJobs, len(h.held) >= MaxJobsOfHost, t.held >= maxPlaces:
		return false
	}
	if old := h.held[k]; !known || old != e {
		t.changed(k)
	}
	h.held[k] = e
	if !known {
		t.held++
		if !there {
			t.jobs[k] = h.number
		} else {
			t.more[k] = append(t.more[k], h.number)
		}
	}
	if there {
		t.choose(k, holder)
	}
	return true
}

// choose makes the best of a job's hosts its holder.
func (t *Tracker) choose(k key, holder uint32) {
	best := holder
	for _, n := range t.more[k] {
		if t.before(k, n, best) {
			best = n
		}
	}
	if best == holder {
		return
	}
	t.jobs[k] = best
	t.more[k][slices.Index(t.more[k], best)] = holder
}

// before reports whether a host is to hold a job's object rather than another. One where the
// job is proven by a control group goes before those where any user may have named it.
func (t *Tracker) before(k key, a, b uint32) bool {
	x, y := t.list[a], t.list[b]
	if p, q := x.held[k].claimed, y.held[k].claimed; p != q {
		return q
	}
	return cmp.Or(cmp.Compare(y.held[k].run, x.held[k].run), strings.Compare(x.name, y.name)) < 0
}

// remove forgets that a host holds a job's object.
func (t *Tracker) remove(k key, h *host) {
	if _, known := h.held[k]; !known {
		return
	}
	t.changed(k)
	delete(h.held, k)
	t.held--
	others := t.more[k]
	switch {
	case t.jobs[k] != h.number:
		others = slices.Delete(others, slices.Index(others, h.number), slices.Index(others, h.number)+1)
	case len(others) == 0:
		delete(t.jobs, k)
	default:
		t.jobs[k], others = others[0], others[1:]
		defer func() { t.choose(k, t.jobs[k]) }()
	}
	if len(others) == 0 {
		delete(t.more, k)
	} else {
		t.more[k] = others
	}
}

// order adds the orders by which what hosts hold beside the holder comes to it: of the host
// that has just announced the job, and of all others if that is the holder.
func (t *Tracker) order(k key, from *host, all map[string][]Order) {
	holder := t.list[t.jobs[k]]
	if holder.address == "" {
		return
	}
	for _, n := range t.more[k] {
		h := t.list[n]
		if h.fingerprint == "" || from != holder && from != h {
			continue
		}
		j := k.name()
		all[holder.name] = append(all[holder.name], Order{Job: j, Expect: true, Host: h.name, Fingerprint: h.fingerprint})
		all[h.name] = append(all[h.name], Order{Job: j, Send: true, Host: holder.name, Address: holder.address, Fingerprint: holder.fingerprint})
	}
}

// Withdraw forgets a host, and what it held.
func (t *Tracker) Withdraw(name string) {
	h := t.hosts[name]
	if h == nil {
		return
	}
	for k := range h.held {
		t.remove(k, h)
	}
	delete(t.hosts, name)
	t.list[h.number], t.free = nil, append(t.free, h.number)
}

// Find returns the hosts that hold a job's object, the holder first, the others by their names.
func (t *Tracker) Find(j state.Job) []Place {
	k := keyOf(j)
	n, ok := t.jobs[k]
	if !ok {
		return nil
	}
	place := func(n uint32) Place {
		h := t.list[n]
		return Place{h.name, h.held[k].sequence(), h.held[k].live}
	}
	var others []Place
	for _, n := range t.more[k] {
		others = append(others, place(n))
	}
	slices.SortFunc(others, func(a, b Place) int { return strings.Compare(a.Host, b.Host) })
	return append([]Place{place(n)}, others...)
}

// Jobs returns the first jobs that have a place after one, in the order of Compare; those of the
// zero Job are the first of all.
func (t *Tracker) Jobs(after state.Job, most int) []state.Job {
	var all []state.Job
	for k := range t.jobs {
		if j := k.name(); Compare(j, after) > 0 {
			all = append(all, j)
		}
		if len(all) >= 2*most+1000 { // of a million few are wanted
			slices.SortFunc(all, Compare)
			all = all[:most]
		}
	}
	slices.SortFunc(all, Compare)
	return all[:min(len(all), most)]
}

// Moving reports whether what a run left behind is still on its way to the job's holder, the
// first of the places.
func Moving(places []Place) bool {
	return len(places) > 1 && slices.ContainsFunc(places[1:], func(p Place) bool { return !p.Live })
}

// Address returns where a host gives objects, and the fingerprint of its certificate there;
// empty: it gives none.
func (t *Tracker) Address(name string) (address, fingerprint string) {
	if h := t.hosts[name]; h != nil {
		return h.address, h.fingerprint
	}
	return "", ""
}

func (t *Tracker) changed(k key) {
	if t.dirty != nil {
		t.dirty[k] = true
	}
}

// Changes returns the jobs whose places have changed since they were taken last. The first call
// returns none.
func (t *Tracker) Changes() []state.Job {
	var all []state.Job
	for k := range t.dirty {
		all = append(all, k.name())
	}
	t.dirty = map[key]bool{}
	return all
}

// Again has Changes return jobs once more.
func (t *Tracker) Again(jobs []state.Job) {
	for _, j := range jobs {
		t.changed(keyOf(j))
	}
}

// Restore notes a place that was stored, if nothing was heard of its host yet.
func (t *Tracker) Restore(j state.Job, p Place) {
	if h := t.hostOf(p.Host); h != nil && h.epoch == 0 {
		t.set(keyOf(j), h, entryOf{n: p.N, run: int32(p.Run), live: p.Live})
	}
}
