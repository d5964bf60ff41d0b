package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Loss is what one account lost to one project: of all its users if losses are not by user.
type Loss struct {
	Week      string  `json:"week,omitempty"`
	Project   string  `json:"project"` // "": the user's jobs count under no project
	User      string  `json:"user"`
	To        string  `json:"to"` // project
	Requeued  int     `json:"requeued"`
	Suspended int     `json:"suspended"`
	Ended     int     `json:"ended"` // of Requeued: not put back by the queue
	Saved     int     `json:"saved"` // of Requeued: saved themselves before, and lost nothing
	Slots     int     `json:"slots"`
	Lost      float64 `json:"lost_slot_hours"` // of work; a suspended job loses none
}

// End sums up the reclaims that ended in one way.
type End struct {
	End       plan.Phase `json:"end"` // open: not yet
	Reclaims  int        `json:"reclaims"`
	Requested int        `json:"requested_slots"`
	Evicted   int        `json:"evicted_slots"`
	Ratio     float64    `json:"evicted_per_requested"`
	Useless   int        `json:"useless_evictions"` // victims, where the beneficiary did not start
}

const open plan.Phase = "open"

// Victims sums up what each project's users lost to each project, most work lost first,
// and how the reclaims ended. Project, unless "", limits both to what was taken from it
// or for it. Losses are by user where no groups are named; a reclaim's week is that of its plan.
func Victims(reclaims []ledger.PastReclaim, project string, by []By, zone *time.Location) ([]Loss, []End) {
	if len(by) == 0 {
		by = []By{ByUser}
	}
	type key struct{ week, project, user, to string }
	losses, ends := map[key]*Loss{}, map[plan.Phase]*End{}
	for i := range reclaims {
		r := &reclaims[i]
		concerned := project == "" || r.Project == project
		evicted, victims := 0, 0
		for _, v := range r.Victims {
			if v.Fate != plan.Taken && v.Fate != plan.Lost {
				continue
			}
			evicted += v.Slots
			victims++
			if project != "" && r.Project != project && v.Project != project {
				continue
			}
			concerned = true
			of := Key{User: v.User}.at(r.Planned, zone).only(by)
			k := key{of.Week, v.Project, of.User, r.Project}
			if losses[k] == nil {
				losses[k] = &Loss{Week: k.week, Project: k.project, User: k.user, To: k.to}
			}
			losses[k].add(v)
		}
		if concerned {
			countEnd(ends, r, evicted, victims)
		}
	}
	return sortedLosses(losses), sortedEnds(ends)
}

func (l *Loss) add(v plan.Victim) {
	l.Slots += v.Slots
	if v.Mode == backends.PreemptSuspend {
		l.Suspended++
		return
	}
	l.Requeued++
	if v.Saved == plan.Saved {
		l.Saved++
		return
	}
	if v.Fate == plan.Lost {
		l.Ended++
	}
	l.Lost += float64(v.Slots) * v.RanFor.Hours()
}

func countEnd(ends map[plan.Phase]*End, r *ledger.PastReclaim, evicted, victims int) {
	phase := r.Phase
	if phase.Open() {
		phase = open
	}
	e := ends[phase]
	if e == nil {
		e = &End{End: phase}
		ends[phase] = e
	}
	e.Reclaims++
	e.Requested += r.Need
	e.Evicted += evicted
	if phase == plan.Expired || phase == plan.Cancelled {
		e.Useless += victims
	}
}

func sortedLosses[K comparable](losses map[K]*Loss) []Loss {
	all := make([]Loss, 0, len(losses))
	for _, l := range losses {
		l.Lost = round(l.Lost)
		all = append(all, *l)
	}
	slices.SortFunc(all, func(a, b Loss) int {
		return cmp.Or(cmp.Compare(a.Week, b.Week), cmp.Compare(b.Lost, a.Lost), cmp.Compare(b.Slots, a.Slots),
			cmp.Compare(a.Project, b.Project), cmp.Compare(a.User, b.User), cmp.Compare(a.To, b.To))
	})
	return all
}

func sortedEnds(ends map[plan.Phase]*End) []End {
	all := make([]End, 0, len(ends))
	for _, phase := range []plan.Phase{plan.HandedOver, plan.Expired, plan.Cancelled, open} {
		e := ends[phase]
		if e == nil {
			continue
		}
		if e.Requested > 0 {
			e.Ratio = round(float64(e.Evicted) / float64(e.Requested))
		}
		all = append(all, *e)
	}
	return all
}
