package measure

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// NetworkClass is where the other end of a connection is, as seen from a host.
type NetworkClass int

// The classes.
const (
	Loopback NetworkClass = iota // on the host itself
	Rack                         // in the host's own rack
	Site                         // in other racks, and elsewhere in the site
	Outside
)

// NetworkClasses is how many there are; MaxNetworks bounds the networks that have one.
const (
	NetworkClasses = 4
	MaxNetworks    = 1024
)

func (c NetworkClass) String() string {
	return [NetworkClasses]string{"loopback", "rack", "site", "outside"}[c]
}

// Network is what a job has sent and received on this host, by class: bytes of payload.
type Network struct {
	Known          bool
	Sent, Received [NetworkClasses]uint64
}

// Sum returns what was sent and received, but not to the host itself.
func (n Network) Sum() Value { return n.sum(n.Sent, n.Received) }

// SumSent returns what was sent likewise.
func (n Network) SumSent() Value { return n.sum(n.Sent) }

func (n Network) sum(counts ...[NetworkClasses]uint64) Value {
	v := Value{Known: n.Known}
	for _, by := range counts {
		for _, c := range []NetworkClass{Rack, Site, Outside} {
			v.N += by[c]
		}
	}
	return v
}

// maxJobGroups is the most jobs' control groups of a host that JobGroups and LimitGroups return.
const maxJobGroups = 2000

// JobGroups returns the directories of the jobs' control groups of version 2, by a process's
// mountinfo.
func JobGroups(mountinfo []byte) (dirs []string) {
	for _, h := range hierarchies(mountinfo) {
		if !h.v2 {
			continue
		}
		h.eachJob(func(path string) {
			if len(dirs) < maxJobGroups {
				dirs = append(dirs, filepath.Join(h.point, path))
			}
		})
	}
	return dirs
}

// JobGroup is the control group of a job, as limits are set in it.
type JobGroup struct {
	Queue Queue
	ID    backends.ID
	Path  string            // below where control groups are mounted
	Dirs  map[string]string // of version 2 one directory, by ""; of version 1 one by each of cpu, blkio and freezer
}

// Tasks returns the control groups of a job's own processes, where its queue keeps its own beside them: were
// slurmstepd frozen with the job, Slurm could not end it. None: they are not apart.
func (g *JobGroup) Tasks() (all []*JobGroup) {
	dir := g.Dirs[""]
	if g.Queue != Slurm || dir == "" {
		return nil
	}
	for _, step := range names(dir, maxNames) {
		name := step + "/user"
		if info, err := os.Lstat(filepath.Join(dir, name)); strings.HasPrefix(step, "step_") && err == nil && info.IsDir() {
			all = append(all, &JobGroup{Queue: g.Queue, ID: g.ID, Path: g.Path + "/" + name, Dirs: map[string]string{"": filepath.Join(dir, name)}})
		}
	}
	slices.SortFunc(all, func(a, b *JobGroup) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// LimitGroups returns the jobs' control groups by a process's mountinfo. Of a job that has
// groups of both versions only those of version 1 count: the controllers are there.
func LimitGroups(mountinfo []byte) (all []*JobGroup) {
	found := map[string]*JobGroup{}
	for _, h := range hierarchies(mountinfo) {
		if !h.v2 && len(h.limiters) == 0 {
			continue
		}
		h.eachJob(func(path string) {
			g := found[path]
			if g == nil {
				if len(all) == maxJobGroups {
					return
				}
				queue, id, _, _ := parseGroupName(path)
				g = &JobGroup{Queue: queue, ID: id, Path: path, Dirs: map[string]string{}}
				found[path], all = g, append(all, g)
			}
			dir := filepath.Join(h.point, path)
			if h.v2 {
				g.Dirs[""] = dir
			}
			for _, c := range h.limiters {
				g.Dirs[c] = dir
			}
		})
	}
	for _, g := range all {
		if len(g.Dirs) > 1 {
			delete(g.Dirs, "")
		}
	}
	return all
}

// askNetwork asks what the jobs' groups have sent and received.
func (s *Sampler) askNetwork() {
	s.network, s.networkWhy = nil, "only the root helper of ahostd's service counts it"
	if s.options.Root == nil {
		return
	}
	all, why, err := s.options.Root.Network()
	if err != nil {
		why = err.Error()
	}
	if s.network = all; why == "" {
		why = "only control groups of version 2 have it, from the sample on that finds them"
	}
	s.networkWhy = why
}
