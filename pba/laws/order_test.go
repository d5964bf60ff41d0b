package laws

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// judgeQueue checks the queue after the plan was carried out (lawOrder): every
// pending job has the level of its class, and a value that R10 allows.
func (d *drive) judgeQueue(p *plan.Plan, farm *backends.Snapshot) {
	d.pinnedTooLong(farm)
	beneficiary := map[backends.ID][]backends.Placement{}
	for i := range p.Memory.Reclaims {
		if r := &p.Memory.Reclaims[i]; r.Phase.Open() {
			beneficiary[r.Beneficiary] = r.Hosts
		}
	}
	policy := d.policy(d.at)
	pools := charge(&plan.State{Farm: &backends.Snapshot{Hosts: farm.Hosts}, Groups: d.groups}, &policy, nil)
	d.queue = d.queue[:0]
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		if j.State != backends.Pending {
			continue
		}
		m, level := p.Memory.Jobs[j.ID], j.Priority.Level()
		requeues := min(m.Requeues, d.MaxRequeues)
		want := []backends.Level{backends.LevelLow, backends.LevelNormal}
		band := 0
		switch {
		case beneficiary[j.ID] != nil:
			want, band = []backends.Level{backends.LevelHandOver}, 200
			if len(beneficiary[j.ID]) > 1 {
				band += backends.Spread
				if j.Suits == nil || j.Priority.Value() >= 600 { // or all hosts that were up suited it
					band += backends.Spread
				}
			}
		case m.Pool != 0 && m.Kept == 0:
			want, band = []backends.Level{backends.LevelPBA}, 100
		case m.Requeues > 0:
			want = []backends.Level{backends.LevelVictim}
			if m.GaveWay && level == backends.LevelVictim {
				band = 200
			}
		}
		if band == 0 && len(pools.pools(j)) > 0 {
			want = append(want, backends.LevelNext)
		}
		if !slices.Contains(want, level) {
			d.breach(lawOrder, "job %v stands at level %v (%d), want %v; remembered: %+v", j.ID, level, j.Priority, want, m)
		}
		aged := min(69, int(farm.At.Sub(j.Submitted)/cycle)+1)
		low := backends.DefaultValue + requeueBonus*requeues
		if n := j.Priority.Value() - band; n < low-requeueBonus || n > low+aged {
			d.breach(lawOrder, "job %v shows %d: want %d…%d for %d reclaims and %d ticks at most", j.ID, j.Priority.Value(), low+band, low+band+aged, requeues, aged)
		}
		if j.Eligible() {
			d.queue = append(d.queue, *j)
		}
	}
	slices.SortStableFunc(d.queue, func(a, b backends.Job) int { return int(b.Priority - a.Priority) })
}

// requeueBonus is what R10 adds to a victim's value.
const requeueBonus = 10

// shape is all that decides where a job fits.
type shape struct {
	slots, even   int
	memory        int64
	one, alone    bool
	asked, pinned string
	suits, needs  string
}

func shapeOf(j *backends.Job) shape {
	s := shape{j.Slots, j.PerHost, j.Memory, j.OneHost, j.Exclusive, strings.Join(j.Asked, " "), strings.Join(j.Pinned, " "), "", backends.FormatAmounts(j.Needs)}
	if j.Suits != nil {
		s.suits = strings.Join(j.Suits.Hosts, " ")
	}
	return s
}

// judgeStarts checks that since the last cycle no job started before another of
// its own shape that stood before it in the queue (lawOrder, the manager's half), unless its
// run limit is the shorter one: then it may start in slots that are reserved for later (R37).
// d.queue does not show the places of jobs that were raised since: they are left out.
func (d *drive) judgeStarts(farm *backends.Snapshot) {
	now := make(map[backends.ID]*backends.Job, len(farm.Jobs)+len(farm.Ended))
	for _, jobs := range [][]backends.Job{farm.Jobs, farm.Ended} {
		for i := range jobs {
			now[jobs[i].ID] = &jobs[i]
		}
	}
	defer func() {
		clear(d.raised)
		d.shaken = false
	}()
	waits := map[shape][]*backends.Job{} // that wait still, in the queue's order
	var gains *backends.Priority
	var gainer backends.ID
	for i := range d.queue {
		was := &d.queue[i]
		is := now[was.ID]
		if is == nil {
			continue
		}
		if d.ages(farm, was, is) {
			if gain := is.Priority - was.Priority; gains == nil {
				gains, gainer = &gain, is.ID
			} else if gain != *gains && !d.shaken {
				d.breach(lawOrder, "since the last cycle job %v gained %d and job %v gained %d: what everybody gains must change no order", gainer, *gains, is.ID, gain)
			}
		}
		s := shapeOf(was)
		switch {
		case is.Eligible() && is.Started.IsZero() && is.Priority >= was.Priority && farm.At.Sub(is.Submitted) < 69*cycle: // an older one may have stopped ageing
			waits[s] = append(waits[s], is)
		case !is.Started.IsZero() && !d.raised[is.ID] && is.Started.After(was.Started):
			n := slices.IndexFunc(waits[s], func(j *backends.Job) bool {
				return !d.raised[j.ID] && j.Priority >= is.Priority && longest(j) <= longest(is)
			})
			if n < 0 {
				continue
			}
			d.breach(lawOrder, "job %v started at %v before job %v, which needs the same and stands before it in the queue", is.ID, is.Started.Sub(start()), waits[s][n].ID)
		}
	}
}

// longest returns a job's run limit, or the longest one if it has none.
func longest(j *backends.Job) time.Duration { return cmp.Or(j.RunLimit, math.MaxInt64) }

// ages reports whether a job waited for slots all the time since the last cycle,
// and is young enough to gain by it.
func (d *drive) ages(farm *backends.Snapshot, was, is *backends.Job) bool {
	return !d.raised[is.ID] && is.Eligible() && is.Requeues == was.Requeues && is.Started.Equal(was.Started) && farm.At.Sub(is.Submitted) < 69*cycle
}
