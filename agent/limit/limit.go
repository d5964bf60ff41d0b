// Package limit brings about limits of jobs in their control groups, and lifts them (R47). It decides
// nothing: agent/supervise does.
//
// A limit is a lease: it is lifted when it is not renewed for LeaseTime, when the keeper closes, and
// when the next one opens, however the last one ended. What the queue had set before is put back exactly,
// unless the queue has set something else meanwhile. That is recorded before anything is written, in an
// extended attribute of the control group itself: the record lives as long as what it is of, and only root
// writes it.
package limit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/supervise"
)

// LeaseTime is how long a limit lasts that is not renewed.
const LeaseTime = 20 * time.Second

// Group is the control group of a job.
type Group struct {
	Name string            // unique on this host
	Dirs map[string]string // of version 2 one, by ""; of version 1 one by each controller
}

// GroupOf returns the control group of a job as it was found.
func GroupOf(g *measure.JobGroup) *Group { return &Group{Name: g.Path, Dirs: g.Dirs} }

// GroupsOf returns all groups of a job that may be limited.
func GroupsOf(g *measure.JobGroup) []*Group { return append(tasksOf(g), GroupOf(g)) }

// GroupsBy returns the groups of a job in which a kind of limit is set: what freezes a job leaves its queue's own
// processes alone.
func GroupsBy(g *measure.JobGroup, rung supervise.Rung) []*Group {
	if rung == supervise.Duty || rung == supervise.Freeze {
		if tasks := tasksOf(g); len(tasks) > 0 {
			return tasks
		}
	}
	return []*Group{GroupOf(g)}
}

func tasksOf(g *measure.JobGroup) (all []*Group) {
	for _, t := range g.Tasks() {
		all = append(all, GroupOf(t))
	}
	return all
}

// Setting is a limit to bring about. Values are those of supervise.Limit; of disks, what is read and what
// is written has the value each, on each of the host's disks.
type Setting struct {
	Group    *Group
	Resource supervise.Resource
	Rung     supervise.Rung
	Value    int64
}

// Keeper keeps limits. It may be used by several goroutines.
type Keeper struct {
	mu     sync.Mutex
	held   map[string]*held // by the group's name
	lease  *time.Timer
	duties []duty // what is frozen for a part of each period
	beats  bool   // a goroutine does that
	closed bool
	step   func() // of tests: called between two steps of a change
}

// held is what a group's knobs are, and were.
type held struct {
	group *Group
	knobs map[knob]change
}

// change is what has been done to a knob.
type change struct {
	Before string    // what the queue had set
	Ours   [2]string // what was written last, and before that
}

// record is what a group's attribute says.
type record struct {
	Knob   knob
	Change change
}

const (
	attribute  = "user.allotment.limits"
	maxRecord  = 16 << 10
	maxRecords = 2*maxDevices + 8
)

// Open returns a keeper. What another one left in these groups is lifted; what can't be is an error, and
// is tried again when a limit is set.
func Open(groups []*Group) (*Keeper, error) {
	k := &Keeper{held: map[string]*held{}, step: func() {}}
	var errs []error
	for _, g := range groups {
		h, err := load(g)
		if err != nil {
			errs = append(errs, err)
		}
		if h != nil {
			k.held[g.Name] = h
		}
	}
	return k, errors.Join(append(errs, k.liftAll())...)
}

// Set brings about these limits, and lifts all others. Each has its own error; err is of what could not be
// lifted.
func (k *Keeper) Set(all []Setting) (each []error, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	each = make([]error, len(all))
	if k.closed {
		for i := range each {
			each[i] = errors.New("all limits are lifted for good")
		}
		return each, nil
	}
	if k.lease != nil {
		k.lease.Stop()
	}
	k.forget()
	disks := sync.OnceValues(disks)
	wanted := map[string]map[knob]bool{}
	k.duties = nil
	for i := range all {
		g := all[i].Group
		if wanted[g.Name] == nil {
			wanted[g.Name] = map[knob]bool{}
		}
		var turns []turn
		if turns, each[i] = all[i].turns(disks); each[i] != nil {
			continue
		}
		for _, t := range turns {
			wanted[g.Name][t.knob] = true
			each[i] = errors.Join(each[i], k.turn(g, t))
		}
		if all[i].Rung == supervise.Duty && each[i] == nil {
			k.duties = append(k.duties, duty{g, turns[0].knob, all[i].Value})
		}
	}
	for i := range all {
		if s := &all[i]; s.Rung == supervise.Freeze { // it is frozen all the time
			k.duties = slices.DeleteFunc(k.duties, func(d duty) bool { return d.group.Name == s.Group.Name })
		}
	}
	if len(k.duties) > 0 && !k.beats {
		k.beats = true
		go k.beat()
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(k.held)) {
		errs = append(errs, k.lift(k.held[name], wanted[name]))
	}
	if len(k.held) > 0 {
		k.lease = time.AfterFunc(LeaseTime, k.expire)
	}
	return each, errors.Join(errs...)
}

// expire lifts everything, since nothing renewed it. What can't be lifted is tried again each second.
func (k *Keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed && k.liftAll() != nil {
		k.lease = time.AfterFunc(time.Second, k.expire)
	}
}

// Close lifts everything, for good.
func (k *Keeper) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.lease != nil {
		k.lease.Stop()
	}
	return k.liftAll()
}

// duty is a group that is frozen for a part of each period.
type duty struct {
	group *Group
	knob  knob
	runs  int64 // thousandths of the period in which it runs
}

// period is that of duties: short, so that what talks to a job does not take it for dead.
const period = 200 * time.Millisecond

// beat thaws the groups of duties at the beginning of each period, and freezes each when it has run for its part of
// it, until there are none.
func (k *Keeper) beat() {
	for {
		began := time.Now()
		k.mu.Lock()
		all := slices.SortedFunc(slices.Values(k.duties), func(a, b duty) int { return cmp.Compare(a.runs, b.runs) })
		if len(all) == 0 {
			k.beats = false
			k.mu.Unlock()
			return
		}
		for _, d := range all {
			d.freeze(false)
		}
		k.mu.Unlock()
		for _, d := range all {
			time.Sleep(time.Until(began.Add(period * time.Duration(d.runs) / 1000)))
			k.mu.Lock()
			if slices.ContainsFunc(k.duties, func(o duty) bool { return o.group.Name == d.group.Name }) { // else it was lifted meanwhile
				d.freeze(true)
			}
			k.mu.Unlock()
		}
		time.Sleep(time.Until(began.Add(period)))
	}
}

// freeze freezes the group, or thaws it. It may be gone, or made anew by the job's next run: then it has no record,
// and what would be done to it could not be found and lifted by another keeper.
func (d duty) freeze(frozen bool) {
	if !d.group.recorded() {
		return
	}
	values := freezes(d.knob)
	value := values[0]
	if frozen {
		value = values[1]
	}
	_ = d.group.put(d.knob, value)
}

// turn brings a knob to its limit.
func (k *Keeper) turn(g *Group, t turn) error {
	is, err := g.read(t.knob)
	if err != nil {
		return err
	}
	h := k.held[g.Name]
	if h == nil {
		h = &held{group: g, knobs: map[knob]change{}}
	}
	c, known := h.knobs[t.knob]
	if !known || is != c.Before && !slices.Contains(c.Ours[:], is) { // else the queue has set it meanwhile
		c = change{Before: is}
	}
	value, err := t.value(c.Before)
	if err != nil {
		return err
	}
	if value == is && known && c.Ours[0] == is || value == c.Before && !known { // it is so already
		return nil
	}
	if c.Ours[0] != value {
		c.Ours = [2]string{value, c.Ours[0]}
	}
	h.group, h.knobs[t.knob] = g, c
	if err := h.save(); err != nil {
		if !known {
			delete(h.knobs, t.knob)
		}
		return err
	}
	k.held[g.Name] = h
	k.step()
	return g.write(t.knob, value)
}

func (k *Keeper) liftAll() error {
	k.duties = nil
	k.forget()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(k.held)) {
		errs = append(errs, k.lift(k.held[name], nil))
	}
	return errors.Join(errs...)
}

// forget drops what is known of groups that are gone, or were made anew by their jobs' next runs: they have no
// record, and nothing of theirs was changed.
func (k *Keeper) forget() {
	maps.DeleteFunc(k.held, func(_ string, h *held) bool { return !h.group.recorded() })
}

// lift puts back a group's knobs, but for those that are wanted.
func (k *Keeper) lift(h *held, wanted map[knob]bool) error {
	var errs []error
	changed := false
	for _, n := range slices.SortedFunc(maps.Keys(h.knobs), knob.compare) {
		if wanted[n] {
			continue
		}
		if err := h.putBack(n); err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("lift %s of %s: %w", n.File, h.group.Name, err))
			continue
		}
		k.step()
		delete(h.knobs, n)
		changed = true
	}
	if changed {
		if err := h.save(); err != nil && !gone(err) {
			errs = append(errs, err)
		}
	}
	if len(h.knobs) == 0 {
		delete(k.held, h.group.Name)
	}
	return errors.Join(errs...)
}

// gone reports whether an error says that a group is no longer there.
func gone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// putBack gives a knob the value that the queue had set, unless it has another one that is not ours.
func (h *held) putBack(n knob) error {
	is, err := h.group.read(n)
	if err != nil {
		return err
	}
	if c := h.knobs[n]; is != c.Before && slices.Contains(c.Ours[:], is) {
		return h.group.write(n, c.Before)
	}
	return nil
}

// recordDir is the directory whose attribute has the record: of version 1 the first by the controller's name.
func (g *Group) recordDir() string { return g.Dirs[slices.Min(slices.Collect(maps.Keys(g.Dirs)))] }

// recorded reports whether the group has a record, or may have one.
func (g *Group) recorded() bool {
	_, err := unix.Lgetxattr(g.recordDir(), attribute, nil)
	return !unrecorded(err)
}

// unrecorded reports whether an error says that a group has no record.
func unrecorded(err error) bool {
	return errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) || gone(err)
}

// save writes the group's record.
func (h *held) save() error {
	dir := h.group.recordDir()
	if len(h.knobs) == 0 {
		if err := unix.Lremovexattr(dir, attribute); err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("drop the record of %s's limits: %w", h.group.Name, err)
		}
		return nil
	}
	all := make([]record, 0, len(h.knobs))
	for _, n := range slices.SortedFunc(maps.Keys(h.knobs), knob.compare) {
		all = append(all, record{n, h.knobs[n]})
	}
	if len(all) > maxRecords {
		return fmt.Errorf("%s has more than %d limits", h.group.Name, maxRecords)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := unix.Lsetxattr(dir, attribute, text, 0); err != nil {
		return fmt.Errorf("record the limits of %s: %w", h.group.Name, err)
	}
	return nil
}

// load reads a group's record; nil: it has none.
func load(g *Group) (*held, error) {
	text := make([]byte, maxRecord)
	n, err := unix.Lgetxattr(g.recordDir(), attribute, text)
	if unrecorded(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of %s's limits: %w", g.Name, err)
	}
	var all []record
	if err := json.Unmarshal(text[:n], &all); err != nil {
		return nil, fmt.Errorf("the record of %s's limits: %w", g.Name, err)
	}
	h := &held{group: g, knobs: map[knob]change{}}
	for _, r := range all {
		kind, known := kinds[r.Knob.File]
		if !known || r.Knob.Line != "" && r.Knob.Line != "default" && !device.MatchString(r.Knob.Line) || !kind.value.MatchString(r.Change.Before) {
			return h, fmt.Errorf("the record of %s's limits has %q", g.Name, text[:min(n, 200)])
		}
		h.knobs[r.Knob] = r.Change
	}
	return h, nil
}
