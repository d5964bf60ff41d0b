package desk

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// size is a number of slots on hosts that are up, and of those on hosts that are not.
type size struct{ slots, down int }

// farm returns the size of the managed farm now, by host set; "" is the hosts in none.
func (d *Desk) farm(ctx context.Context) (map[string]size, error) {
	farm, err := d.queue.Snapshot(ctx, d.Now())
	if err != nil {
		return nil, err
	}
	return d.sizes(farm), nil
}

func (d *Desk) sizes(farm *backends.Snapshot) map[string]size {
	parts := map[string]*backends.Snapshot{"": {}}
	for name := range d.PBA.HostSets {
		parts[name] = &backends.Snapshot{}
	}
	sets := d.PBA.HostSets.ByHost()
	for _, h := range farm.Hosts {
		part := parts[sets[h.Name]]
		part.Hosts = append(part.Hosts, h)
	}
	all := map[string]size{}
	for name, part := range parts {
		_, slots, down := part.Managed(d.Hosts)
		all[name] = size{slots, down}
	}
	return all
}

// describeSize returns in words which hosts have so many slots.
func (d *Desk) describeSize(set string, slots int) string {
	switch {
	case set != "":
		return fmt.Sprintf("the %d slots of host set %s", slots, set)
	case len(d.PBA.HostSets) > 0:
		return fmt.Sprintf("the %d slots of hosts in no host set", slots)
	}
	return fmt.Sprintf("the farm's %d slots", slots)
}

// checkHostSet is an error for a host set that the config does not have.
func (d *Desk) checkHostSet(name string) error {
	if _, known := d.PBA.HostSets[name]; known || name == "" {
		return nil
	}
	return fmt.Errorf("there is no host set %q (pba.host_sets has %s)", name, few(slices.Sorted(maps.Keys(d.PBA.HostSets))))
}

// checkHostSets finds hosts of sets that are not managed, or not known to the queue.
func (d *Desk) checkHostSets(known []string, all *findings) {
	for _, name := range slices.Sorted(maps.Keys(d.PBA.HostSets)) {
		for _, host := range d.PBA.HostSets[name] {
			switch {
			case !slices.Contains(known, host):
				all.add("config", "correct `pba.host_sets` in "+d.Paths.Config, "host set %s: the queue has no host %q (it has %s)", name, host, few(known))
			case len(d.Hosts) > 0 && !slices.Contains(d.Hosts, host):
				all.add("config", "add it to `hosts`, or take it out of `pba.host_sets`, in "+d.Paths.Config, "host set %s: host %s is not managed", name, host)
			}
		}
	}
}

// checkPlannedSets finds allocations on a host set that the config does not have.
func (d *Desk) checkPlannedSets(ctx context.Context, all *findings) error {
	planned, err := d.ledger.Allocations(ctx, d.thisWeek(), forever)
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, a := range planned {
		if err := d.checkHostSet(a.Hosts); err != nil && !named[a.Pool.String()] {
			named[a.Pool.String()] = true
			all.add("plan", fmt.Sprintf("give the set back its hosts in `pba.host_sets` in %s, or withdraw the allocation: pba alloc unset %s --hosts %s", d.Paths.Config, a.Project, a.Hosts),
				"%s: %v: it has no hosts, and serves no job", a.Pool, err)
		}
	}
	return nil
}
