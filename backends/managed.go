package backends

import (
	"slices"
	"strings"
)

// Managed are the hosts of a farm with these names that are up, each once and by name,
// the sum of their slots, and the slots of those with these names that are not up. No
// names: every host is managed.
func (f *Snapshot) Managed(names []string) (hosts []Host, slots, down int) {
	managed, seen := map[string]bool{}, make(map[string]bool, len(f.Hosts))
	for _, name := range names {
		managed[name] = true
	}
	for _, h := range f.Hosts {
		switch {
		case len(managed) > 0 && !managed[h.Name]:
		case h.State != HostUp:
			down += h.Slots
		case !seen[h.Name]:
			seen[h.Name] = true
			slots += h.Slots
			hosts = append(hosts, h)
		}
	}
	slices.SortFunc(hosts, func(a, b Host) int { return strings.Compare(a.Name, b.Name) })
	return hosts, slots, down
}
