package measure

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/proc"
)

// hierarchy is a mounted tree of control groups.
type hierarchy struct {
	point string
	v2    bool
	// of version 1: those that are read here, and those that limit
	controllers, limiters []string
}

const maxNames = 20000 // of a directory

// hierarchies finds where control groups are mounted.
func hierarchies(mountinfo []byte) (all []hierarchy) {
	for _, m := range proc.Mounts(string(mountinfo)) {
		if !filepath.IsAbs(m.Point) || strings.Contains(m.Point, `\`) || len(all) == 32 {
			continue
		}
		switch m.Type {
		case "cgroup2":
			all = append(all, hierarchy{point: m.Point, v2: true})
		case "cgroup":
			has := func(c string) bool { return slices.Contains(m.Options, c) }
			h := hierarchy{point: m.Point}
			h.controllers = slices.DeleteFunc([]string{"cpuacct", "memory", "blkio"}, func(c string) bool { return !has(c) })
			h.limiters = slices.DeleteFunc([]string{"cpu", "blkio", "freezer"}, func(c string) bool { return !has(c) })
			if len(h.controllers)+len(h.limiters) > 0 {
				all = append(all, h)
			}
		}
	}
	return all
}

// eachJob calls do for the control group of each job in the tree, by its path.
func (h hierarchy) eachJob(do func(path string)) {
	tops := []string{"lsf", "system.slice"}
	if !h.v2 {
		tops = slices.DeleteFunc(names(h.point, maxNames), func(name string) bool {
			return name != "lsf" && name != "slurm" && !strings.HasPrefix(name, "slurm_")
		})
	}
	for _, top := range tops {
		for _, middle := range names(filepath.Join(h.point, top), maxNames) {
			if top == "system.slice" && !strings.HasSuffix(middle, slurmScope) || strings.HasPrefix(top, "slurm") && !strings.HasPrefix(middle, "uid_") {
				continue
			}
			for _, leaf := range names(filepath.Join(h.point, top, middle), maxNames) {
				path := top + "/" + middle + "/" + leaf
				if queue, _, _, own := parseGroupName(path); queue != "" && own == path {
					do(path)
				}
			}
		}
	}
}

// group is the control group of a job: of version 2 one directory, of version 1 one in each
// controller's tree.
type group struct {
	queue Queue
	id    backends.ID
	user  int
	v2    bool
	seen  uint64 // the last sample that found it
	inode uint64 // of version 2; 0: not known
	job   *job

	dirs  map[string]string // its directories by controller; of version 2 one, by ""
	files map[string]*file
	used  groupUse
}

// groupUse is what a group counts.
type groupUse struct {
	cpu, memory, cache, peak, swap Value
	disks                          []Disk // nil: not counted
	pressure                       Pressure
}

// read reads the group's files.
func (g *group) read(f *files, devices map[string]string) {
	if g.v2 {
		g.used = g.readV2(f)
	} else {
		g.used = g.readV1(f)
	}
	for i := range g.used.disks {
		if name, ok := devices[g.used.disks[i].Device]; ok {
			g.used.disks[i].Device = name
		}
	}
}

// text reads a file of a controller's directory; nil: it is not there.
func (g *group) text(f *files, controller, name string) []byte {
	r := g.files[name]
	if r == nil {
		dir, ok := g.dirs[controller]
		if !ok {
			return nil
		}
		r = &file{path: filepath.Join(dir, name)}
		g.files[name] = r
	}
	text, err := f.readAgain(r)
	if err != nil {
		return nil
	}
	return text
}

func (g *group) readV2(f *files) (u groupUse) {
	text := func(name string) []byte { return g.text(f, "", name) }
	u.cpu = scaled(keyed(text("cpu.stat"), "usage_usec"), 1000)
	u.memory = number(text("memory.current"))
	u.peak = number(text("memory.peak"))
	u.swap = number(text("memory.swap.current"))
	stat := text("memory.stat")
	u.cache = less(keyed(stat, "file"), keyed(stat, "shmem"))
	if stat := text("io.stat"); stat != nil {
		u.disks = parseIOStat(stat)
	}
	u.pressure.CPUSome, _ = parsePressure(text("cpu.pressure"))
	u.pressure.MemorySome, u.pressure.MemoryFull = parsePressure(text("memory.pressure"))
	u.pressure.IOSome, u.pressure.IOFull = parsePressure(text("io.pressure"))
	return u
}

func (g *group) readV1(f *files) (u groupUse) {
	u.cpu = number(g.text(f, "cpuacct", "cpuacct.usage"))
	u.memory = number(g.text(f, "memory", "memory.usage_in_bytes"))
	u.peak = number(g.text(f, "memory", "memory.max_usage_in_bytes"))
	stat := g.text(f, "memory", "memory.stat")
	u.swap = keyed(stat, "total_swap") // where swap is accounted
	u.cache = less(keyed(stat, "total_cache"), keyed(stat, "total_shmem"))
	// Without _recursive the groups of the job's steps are not in it. Since Linux 6.10 the
	// files name a device only after it has had a limit: without one nothing is counted.
	bytes := slices.Clone(g.text(f, "blkio", "blkio.throttle.io_service_bytes_recursive"))
	if disks := parseBlkio(bytes, g.text(f, "blkio", "blkio.throttle.io_serviced_recursive")); len(disks) > 0 {
		u.disks = disks
	}
	return u
}

func (g *group) close(f *files) {
	for _, r := range g.files {
		f.close(r)
	}
}
