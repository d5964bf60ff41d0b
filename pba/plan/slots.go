package plan

import (
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// Slots counts the slots of the managed hosts that are up, each host once, and of those
// that are not. No names: every host is managed.
func Slots(farm *backends.Farm, managed []string) (up, down int) {
	seen := map[string]bool{}
	for i := range farm.Hosts {
		switch h := &farm.Hosts[i]; {
		case len(managed) > 0 && !slices.Contains(managed, h.Name):
		case h.State != backends.HostUp:
			down += h.Slots
		case !seen[h.Name]:
			seen[h.Name] = true
			up += h.Slots
		}
	}
	return up, down
}
