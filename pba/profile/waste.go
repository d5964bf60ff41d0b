package profile

import (
	"cmp"
	"maps"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// Waste is what the jobs of a kind asked for and did not use.
type Waste struct {
	Kind
	User       string  `json:"user"`
	Jobs       int     `json:"jobs"`                           // that were done
	SlotHours  float64 `json:"slot_hours"`                     // that they held
	IdleHours  float64 `json:"idle_slot_hours"`                // of those, without a busy processor; where processor time is known
	Asked      int64   `json:"asked_bytes"`                    // of memory: the most of a job; 0: nothing, or not known
	Used       int64   `json:"used_bytes"`                     // the most of a job; 0: not known
	EmptyHours float64 `json:"unused_gib_hours"`               // of memory that they asked for, where both are known
	Memory     int64   `json:"advised_bytes,omitempty"`        // what they should ask for; 0: too little is known
	Slots      int     `json:"advised_slots,omitempty"`        // likewise
	Limit      float64 `json:"advised_limit_seconds,omitzero"` // likewise
}

// Wasted returns what jobs of the past wasted, by kind and user: those with the most idle slot-hours first, then with
// the most memory. At most so many rows; rest is the sum of the others.
func Wasted(past []backends.Past, most int) (rows []Waste, rest Waste) {
	type owner struct {
		Kind
		user string
	}
	runs := map[owner][]Run{}
	for i := range past {
		p := &past[i]
		r, done := RunOf(p)
		if !done {
			continue
		}
		key := owner{KindOf(&p.Job, p.Record.Spec.Command), p.Job.User}
		runs[key] = append(runs[key], r)
	}
	for key, all := range runs {
		rows = append(rows, wasteOf(key.Kind, key.user, all))
	}
	slices.SortFunc(rows, func(a, b Waste) int {
		return cmp.Or(cmp.Compare(b.IdleHours, a.IdleHours), cmp.Compare(b.EmptyHours, a.EmptyHours),
			cmp.Compare(a.Project, b.Project), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Command, b.Command), cmp.Compare(a.User, b.User))
	})
	for _, w := range rows[min(most, len(rows)):] {
		rest.Jobs += w.Jobs
		rest.SlotHours += w.SlotHours
		rest.IdleHours += w.IdleHours
		rest.EmptyHours += w.EmptyHours
	}
	return rows[:min(most, len(rows))], rest
}

func wasteOf(kind Kind, user string, runs []Run) Waste {
	w := Waste{Kind: kind, User: user, Jobs: len(runs)}
	slots := map[int]bool{}
	for _, r := range runs {
		hours := r.Took.Hours()
		w.SlotHours += hours * float64(r.Slots)
		if r.CPU > 0 {
			w.IdleHours += max(0, hours*float64(r.Slots)-r.CPU.Hours())
		}
		if r.Asked > 0 && r.Memory > 0 {
			w.EmptyHours += hours * float64(max(0, r.Asked-r.Memory)) / (1 << 30)
		}
		w.Asked, w.Used = max(w.Asked, r.Asked), max(w.Used, r.Memory)
		slots[r.Slots] = true
	}
	a := Advise(runs, slices.Max(slices.Collect(maps.Keys(slots))))
	if w.Limit = a.Limit.Seconds(); len(slots) == 1 {
		w.Slots = a.Slots
	}
	if a.Memory < w.Asked {
		w.Memory = a.Memory
	}
	return w
}
