package split

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/metrics"
)

// Measure returns what a host's elements are worth with an item on each of its slots.
// dir is a directory that all hosts share. It may take long. When ctx ends, it ends
// all that it has begun before it returns.
type Measure func(ctx context.Context, dir, host string, slots int) (metrics.Measures, error)

// hosts knows which hosts may take part.
type hosts struct {
	only         []string      // from the command line; none: all
	slots        int           // of each; 0: all that it has; FreeSlots
	measure      Measure       // nil: all are the same
	dir          string        // for measure
	firstRest    time.Duration // the first rest of a host
	log          func(string)
	began        time.Time // of the first measurement
	measurements sync.WaitGroup

	up        map[string]backends.Host // of the last snapshot
	free      map[string]int           // slots that no job of others had then
	measured  map[string]metrics.Measures
	requested map[string]bool
	answers   chan answer
	excluded  map[string]bool // for good
	down      map[string]bool // of the last snapshot
	resting   map[string]rest
}

// rest is the pause of a host that had no free slots for its task.
type rest struct {
	until time.Time     // and until there is room
	next  time.Duration // duration of the next pause
}

// longestRest bounds a host's pause.
const longestRest = 30 * time.Minute

// rest excludes a host for a while, each time twice as long.
func (h *hosts) rest(name string, now time.Time) {
	r := h.resting[name]
	r.next = min(max(r.next, h.firstRest), longestRest)
	r.until = now.Add(r.next)
	r.next *= 2
	h.resting[name] = r
}

type answer struct {
	host     string
	measures metrics.Measures
	err      error
}

func newHosts(only []string, slots int, measure Measure, dir string, firstRest time.Duration, log func(string)) *hosts {
	return &hosts{
		only: only, slots: slots, measure: measure, dir: dir, firstRest: firstRest, log: log, measured: map[string]metrics.Measures{},
		requested: map[string]bool{}, answers: make(chan answer), excluded: map[string]bool{}, resting: map[string]rest{},
	}
}

// update applies a snapshot of the farm, and begins to measure hosts that are new in it.
func (h *hosts) update(ctx context.Context, farm *farm) {
	h.up, h.free, h.down = map[string]backends.Host{}, map[string]int{}, map[string]bool{}
	for _, host := range farm.hosts {
		if host.State == backends.HostDown {
			h.down[host.Name] = true
		}
		if host.State == backends.HostUp && host.Slots > 0 && (len(h.only) == 0 || slices.Contains(h.only, host.Name)) {
			h.up[host.Name] = host
			h.free[host.Name] = host.Slots - farm.taken[host.Name]
		}
	}
	for name := range h.up {
		if h.requested[name] || h.excluded[name] {
			continue
		}
		h.requested[name] = true
		if h.measure == nil {
			h.measured[name] = metrics.Measures{1, 1, 1, 1, 1, 1}
			continue
		}
		if h.began.IsZero() {
			h.began = time.Now()
		}
		slots := h.slotsOf(name)
		h.measurements.Go(func() {
			m, err := h.measure(ctx, h.dir, name, slots)
			select {
			case h.answers <- answer{name, m, err}:
			case <-ctx.Done():
			}
		})
	}
}

// addMeasures records the measures of a host. One that can't be measured gets 1 for each
// element, until its rate is known.
func (h *hosts) addMeasures(a answer) {
	if a.err != nil {
		h.log(fmt.Sprintf("%s could not be measured; its share will follow its rate: %v", printable.Text(a.host), a.err))
		a.measures = metrics.Measures{1, 1, 1, 1, 1, 1}
	}
	h.measured[a.host] = a.measures
}

// slotsOf returns the number of a task's slots on a host.
func (h *hosts) slotsOf(name string) int {
	have := max(h.up[name].Slots, 1)
	switch h.slots {
	case 0:
		return have
	case FreeSlots:
		return max(min(h.free[name], have), 1)
	}
	return min(h.slots, have)
}

// measuring reports whether a host is still being measured.
func (h *hosts) measuring() bool {
	for name := range h.up {
		if _, known := h.measured[name]; !known && !h.excluded[name] {
			return true
		}
	}
	return false
}

// membership returns which of the hosts that take part must leave, and which others may
// join, sorted by name.
func (h *hosts) membership(part []string, now time.Time) (leave, join []string) {
	eligible := func(name string) bool {
		_, up := h.up[name]
		_, known := h.measured[name]
		rests := now.Before(h.resting[name].until)
		if !rests && !slices.Contains(part, name) && h.resting[name].next > 0 {
			rests = h.free[name] < h.slotsOf(name) // of FreeSlots: none is free
		}
		return up && known && !h.excluded[name] && !rests
	}
	for _, name := range part {
		if !eligible(name) {
			leave = append(leave, name)
		}
	}
	for name := range h.up {
		if eligible(name) && !slices.Contains(part, name) {
			join = append(join, name)
		}
	}
	slices.Sort(join)
	return leave, join
}

// missing returns the hosts that the user named and that are not up, or not in the farm.
func (h *hosts) missing() []string {
	return slices.DeleteFunc(slices.Clone(h.only), func(name string) bool { _, up := h.up[name]; return up })
}

// snapshots returns a channel of snapshots of the farm: one at once, one when the queue
// has changed, at most one in every, and one soon after a nudge.
// prefix begins the names of the split's jobs.
func snapshots(ctx context.Context, queue Queue, prefix string, every time.Duration, nudge <-chan struct{}) <-chan snapshot {
	to := make(chan snapshot)
	changed := WatchQueue(ctx, queue)
	go func() {
		for ctx.Err() == nil {
			s, err := queryFarm(ctx, queue, prefix, time.Now())
			select {
			case to <- snapshot{s, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				_ = clock.Sleep(ctx, time.Second)
				continue
			}
			select {
			case <-time.After(every):
				select {
				case <-changed:
				case <-nudge:
				case <-ctx.Done():
				}
			case <-nudge:
				_ = clock.Sleep(ctx, min(every, time.Second))
			case <-ctx.Done():
			}
		}
	}()
	return to
}

type snapshot struct {
	farm *farm
	err  error
}

// farm is what a split keeps of a snapshot: no job of others.
type farm struct {
	hosts []backends.Host
	taken map[string]int          // slots of each host that jobs of others have
	own   map[string]backends.Job // the split's jobs by name; one that has not ended replaces one that has
}

func queryFarm(ctx context.Context, queue Queue, prefix string, endedSince time.Time) (*farm, error) {
	s, err := queue.Snapshot(ctx, endedSince)
	if err != nil {
		return nil, err
	}
	return farmOf(s, prefix), nil
}

// measuringJob is the name of a job that measures a host (metrics/qualify).
const measuringJob = "asplit/qualify"

// farmOf returns the hosts of a snapshot, the slots that jobs of others have, and the jobs
// whose names begin with prefix. Jobs that measure hosts are over when a task begins.
func farmOf(s *backends.Snapshot, prefix string) *farm {
	f := &farm{hosts: s.Hosts, taken: map[string]int{}, own: map[string]backends.Job{}}
	for _, jobs := range [][]backends.Job{s.Ended, s.Jobs} {
		for i := range jobs {
			j := &jobs[i]
			switch {
			case strings.HasPrefix(j.Name, prefix):
				f.own[j.Name] = *j
			case j.State == backends.Running && j.Name != measuringJob:
				for _, p := range j.Hosts {
					f.taken[p.Host] += p.Slots
				}
			}
		}
	}
	return f
}
