package plan

import (
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// addNeeds adds what a job needs on a host, or subtracts it, to amounts in the order of
// the host's resources.
func (h *host) addNeeds(amounts []int, j *job, sign int) {
	for _, need := range j.Needs {
		if i := h.resource(need.Name); i >= 0 {
			amounts[i] += sign * need.Count
		}
	}
}

// resource returns the index of a resource among those of a host, or −1.
func (h *host) resource(name string) int {
	return slices.IndexFunc(h.Has, func(a backends.Amount) bool { return a.Name == name })
}

// offers reports whether amounts, in the order of a host's resources, are enough for a job.
func (h *host) offers(amounts []int, j *job) bool {
	for _, need := range j.Needs {
		if i := h.resource(need.Name); need.Count > 0 && (i < 0 || amounts[i] < need.Count) {
			return false
		}
	}
	return true
}

// freeableHas returns the host's resources but for those that suspended jobs hold.
func (h *host) freeableHas() []int {
	all := make([]int, len(h.Has))
	for i, a := range h.Has {
		all[i] = a.Count - h.stuckHas[i]
	}
	return all
}

// missing returns how much of each resource that a job needs is not free on a host; nil:
// nothing is missing.
func (h *host) missing(j *job) []int {
	var all []int
	for i, need := range j.Needs {
		free := 0
		if at := h.resource(need.Name); at >= 0 {
			free = h.freeHas[at]
		}
		if lacks := need.Count - free; lacks > 0 {
			if all == nil {
				all = make([]int, len(j.Needs))
			}
			all[i] = lacks
		}
	}
	return all
}

// has returns how much a victim holds on each of its hosts of what another job needs.
func (j *job) has(needs []backends.Amount) []int {
	all := make([]int, len(needs))
	for i, need := range needs {
		for _, a := range j.Needs {
			if a.Name == need.Name {
				all[i] += a.Count
			}
		}
	}
	return all
}

func plus(a, b []int) []int {
	sum := slices.Clone(a)
	for i, n := range b {
		sum[i] += n
	}
	return sum
}
