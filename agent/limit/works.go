package limit

import (
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/allotment-hpc/allotment/agent/supervise"
)

// Works returns the kinds of limits that take effect in a group. Those are left out that its control groups do not
// have: a queue gives its jobs some controllers only. So are those that are void on this host: weights of disks,
// where the kernel does not model a disk's cost. It needs no privileges.
func (g *Group) Works() supervise.Works {
	works := supervise.Works{}
	disks := sync.OnceValues(disks)
	for _, r := range append(supervise.Resources(), supervise.Memory) {
		for _, rung := range []supervise.Rung{supervise.Weight, supervise.Rate, supervise.Duty, supervise.Freeze} {
			turns, err := (&Setting{Group: g, Resource: r, Rung: rung, Value: 1}).turns(disks)
			if err != nil {
				continue
			}
			if _, err := g.read(turns[0].knob); err != nil {
				continue
			}
			if devices, err := disks(); r == supervise.Disk && rung == supervise.Weight && (err != nil || !modeled(devices)) {
				continue
			}
			works[r] = append(works[r], rung)
		}
	}
	return works
}

// costs says which disks' cost is modeled: io.weight is of those alone (Documentation/admin-guide/cgroup-v2.rst).
const costs = "/sys/fs/cgroup/io.cost.qos"

// modeled reports whether the cost of all these disks is modeled.
func modeled(devices []string) bool {
	text, err := os.ReadFile(costs)
	if err != nil {
		return false
	}
	on := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[1] == "enable=1" {
			on[words[0]] = true
		}
	}
	return !slices.ContainsFunc(devices, func(d string) bool { return !on[d] })
}
