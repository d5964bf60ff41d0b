package limit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/agent/supervise"
)

// Works returns the kinds of limits that take effect in a group. Those are left out that its control groups do not
// have: a queue gives its jobs some controllers only. So are those that are void on this host: weights of disks,
// where the kernel does not model a disk's cost. It needs no privileges.
func (g *Group) Works() supervise.Works {
	works := supervise.Works{}
	v2 := g.Dirs[""] != ""
	add := func(r supervise.Resource, rung supervise.Rung, two, one string) bool {
		file := one
		if v2 {
			file = two
		}
		dir := g.Dirs[kinds[file].controller]
		if file == "" || dir == "" {
			return false
		}
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			return false
		}
		works[r] = append(works[r], rung)
		return true
	}
	add(supervise.CPU, supervise.Weight, cpuWeight, cpuShares)
	add(supervise.CPU, supervise.Rate, cpuMax, cpuQuota)
	if devices, err := disks(); err == nil && len(devices) > 0 {
		if modeled(devices) {
			add(supervise.Disk, supervise.Weight, ioWeight, "")
		}
		add(supervise.Disk, supervise.Rate, ioMax, blkRead)
	}
	if add(supervise.Memory, supervise.Freeze, freezing, freezer) {
		for _, r := range supervise.Resources() { // what is frozen uses nothing
			works[r] = append(works[r], supervise.Duty)
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
