package lsfstandin

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// listed returns the hosts of a list as HOSTS of a queue and -m have them. wrong is a word
// that names no host.
func (q *queue) hostsListed(words []string) (hosts []string, wrong string) {
	in, out := map[string]bool{}, map[string]bool{}
	for _, word := range words {
		name, _, _ := strings.Cut(word, "+")
		into := in
		if rest, not := strings.CutPrefix(name, "~"); not {
			name, into = rest, out
		}
		members, group := q.cfg.Groups[strings.TrimSuffix(name, "/")]
		_, host := q.host(name)
		switch {
		case name == "all" || name == "others":
			for _, h := range q.cfg.Hosts {
				into[h.Name] = true
			}
		case group:
			for _, member := range members {
				into[member] = true
			}
		case host:
			into[name] = true
		default:
			return nil, name
		}
	}
	for _, h := range q.cfg.Hosts {
		if (in[h.Name] || len(words) == 0) && !out[h.Name] {
			hosts = append(hosts, h.Name)
		}
	}
	return hosts, ""
}

func (c *ClusterInfo) queue(name string) QueueConfig {
	i := slices.IndexFunc(c.Queues, func(q QueueConfig) bool { return q.Name == name })
	if i < 0 {
		return QueueConfig{}
	}
	return c.Queues[i]
}

// whyNever returns why a host never suits a job; "": it does.
func (q *queue) whyNever(j *Job, h HostConfig) string {
	info := q.cfg.cluster()
	own := info.queue(j.Queue)
	usable, _ := q.hostsListed(strings.Fields(own.Hosts))
	asked, _ := q.hostsListed(j.Asked)
	switch {
	case !slices.Contains(usable, h.Name):
		return "Not usable to the queue"
	case !slices.Contains(asked, h.Name):
		return "Not specified in job submission"
	case !satisfies(selection(own.ResReq), h):
		return "Queue's resource requirements not satisfied"
	case !satisfies(selection(j.ResReq), h):
		return "Job's resource requirements not satisfied"
	}
	return ""
}

// suits returns the hosts that a job may run on, as far as it does not depend on load.
func (q *queue) suits(j *Job) []string {
	var hosts []string
	for _, h := range q.cfg.Hosts {
		if q.whyNever(j, h) == "" {
			hosts = append(hosts, h.Name)
		}
	}
	return hosts
}

// selection returns the select section of a resource requirement, or what stands before
// any section.
func selection(req string) string {
	for _, found := range section.FindAllStringSubmatch(req, -1) {
		if found[1] == "select" {
			return found[2]
		}
	}
	if at := sectionStart.FindStringIndex(req); at != nil {
		return strings.TrimSpace(req[:at[0]])
	}
	return strings.TrimSpace(req)
}

var (
	sectionStart = regexp.MustCompile(`(select|rusage|span|order|same|cu|affinity)\[`)
	comparison   = regexp.MustCompile(`^(\w+)\s*(>=|>|==)\s*(\w+)$`)
)

// satisfies reports whether a host satisfies a selection: booleans by their names, type,
// maxmem in MB and ncpus, joined by && or by ||. What depends on load holds.
func satisfies(selection string, h HostConfig) bool {
	selection = strings.NewReplacer("(", "", ")", "").Replace(selection)
	if alternatives := strings.Split(selection, "||"); len(alternatives) > 1 {
		return slices.ContainsFunc(alternatives, func(s string) bool { return satisfies(s, h) })
	}
	for part := range strings.SplitSeq(selection, "&&") {
		part = strings.TrimSpace(part)
		m := comparison.FindStringSubmatch(part)
		switch {
		case part == "":
		case m == nil:
			if !slices.Contains(h.Resources, part) {
				return false
			}
		case m[1] == "type":
			if m[3] != "any" && m[3] != "local" && m[3] != h.kind() {
				return false
			}
		case m[1] == "maxmem" || m[1] == "ncpus":
			n, _ := strconv.Atoi(m[3])
			has := h.Slots
			if m[1] == "maxmem" {
				has = int(h.Memory >> 20)
			}
			if has < n || m[2] == ">" && has == n {
				return false
			}
		}
	}
	return true
}

// namesBoolean reports whether a selection has more than comparisons.
func namesBoolean(selection string) bool {
	parts := strings.FieldsFunc(selection, func(c rune) bool { return strings.ContainsRune("&|()", c) })
	return slices.ContainsFunc(parts, func(part string) bool {
		part = strings.TrimSpace(part)
		return part != "" && !comparison.MatchString(part)
	})
}

// hasRoom reports whether a host has the memory that a selection wants to be left, mem > N
// in MB: of each slot that is free, its share.
func hasRoom(selection string, h *Host) bool {
	for part := range strings.SplitSeq(strings.NewReplacer("(", "", ")", "").Replace(selection), "&&") {
		m := comparison.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil || m[1] != "mem" {
			continue
		}
		if n, err := strconv.ParseInt(m[3], 10, 64); err == nil && h.MaxMem>>20*int64(h.Max-h.NJobs)/int64(max(h.Max, 1)) <= n {
			return false
		}
	}
	return true
}

func (h *HostConfig) kind() string {
	if h.Type == "" {
		return "linux"
	}
	return h.Type
}

// needs are the numeric resources but for mem that a job takes of each host.
func (q *queue) needs(j *Job) map[string]int {
	needs := map[string]int{}
	for _, found := range section.FindAllStringSubmatch(j.ResReq, -1) {
		if found[1] != "rusage" {
			continue
		}
		for item := range strings.FieldsFuncSeq(found[2], func(r rune) bool { return strings.ContainsRune(",: ", r) }) {
			name, value, _ := strings.Cut(item, "=")
			if n, err := strconv.Atoi(value); err == nil && name != "mem" {
				needs[name] = n
			}
		}
	}
	return needs
}

// has are the numeric resources of a host.
func (h *HostConfig) has() map[string]int {
	all := maps.Clone(h.Has)
	if all == nil {
		all = map[string]int{}
	}
	if h.GPUs > 0 {
		all["ngpus_physical"] = h.GPUs
	}
	return all
}

// taken returns how much of its resources jobs take of a host.
func (q *queue) taken(host string) map[string]int {
	taken := map[string]int{}
	for _, j := range q.order {
		if j.live() && slices.Contains(j.ExecHosts, host) {
			for name, n := range q.needs(&j.Job) {
				taken[name] += n
			}
		}
	}
	return taken
}

// lacks reports whether a host has not left what a job needs of it.
func (q *queue) lacks(j *Job, h HostConfig) bool {
	needs := q.needs(j)
	if len(needs) == 0 {
		return false
	}
	has, taken := h.has(), q.taken(h.Name)
	for name, n := range needs {
		if has[name]-taken[name] < n {
			return true
		}
	}
	return false
}

// fitResources lets pending jobs that need numeric resources start only where these are,
// and holds jobs that suit no host: the manager knows of neither.
func (q *queue) fitResources() {
	for _, j := range q.order {
		if j.Stat != PEND || j.gap != noGap || len(q.needs(&j.Job)) == 0 && len(q.suits(&j.Job)) > 0 && !j.kept {
			continue
		}
		var room []string
		for _, h := range q.cfg.Hosts {
			if q.whyNever(&j.Job, h) == "" && !q.lacks(&j.Job, h) {
				room = append(room, h.Name)
			}
		}
		b := by(j.User)
		if len(room) > 0 {
			q.feed(manager.Modify{By: b, IDs: []backends.ID{j.id}, Change: backends.Change{Hosts: &room}})
		}
		if kept := len(room) == 0; kept != j.kept && j.Stat == PEND {
			j.kept = kept
			hold := backends.HoldUntil{ID: j.id}
			if kept {
				hold.Until = q.now.Add(never)
			}
			q.feed(manager.HoldUntil{By: b, Holds: []backends.HoldUntil{hold}})
		}
	}
}

// bmgroup lists host groups.
func (p *page) bmgroup(args []string) int {
	for _, word := range args {
		if word != "-w" {
			return p.fail("bmgroup: the stand-in knows no %s", word)
		}
	}
	if len(p.Cluster.Groups) == 0 {
		return p.fail("No user/host group defined in the system")
	}
	p.printf("%-14s %s\n", "GROUP_NAME", "HOSTS")
	for _, name := range slices.Sorted(maps.Keys(p.Cluster.Groups)) {
		p.printf("%-14s %s \n", name, strings.Join(p.Cluster.Groups[name], " "))
	}
	return exitOK
}

// shares is bhosts -s (volclava's sources, lsbatch/cmd/bhosts.c: prtOneInstance). TOTAL is
// what is left.
func (p *page) shares() int {
	names := map[string]bool{}
	for _, h := range p.Hosts {
		for name := range h.Has {
			names[name] = true
		}
	}
	if len(names) == 0 {
		return p.fail("No resource defined")
	}
	p.printf("%-20s%10s%15s%15s\n", "RESOURCE", "TOTAL", "RESERVED", "LOCATION")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		for _, h := range p.Hosts {
			if n, has := h.Has[name]; has {
				p.printf("%-20s%10.1f%15.1f       %s \n", name, float64(n-h.Taken[name]), float64(h.Taken[name]), h.Name)
			}
		}
	}
	return exitOK
}

// gpus is lshosts -gpu, which lava does not know (IBM: lsf_gpu_lshosts).
func (p *page) gpus() int {
	p.printf("%-9s  %6s %-16s %-11s %-10s %-7s %s\n", "HOST_NAME", "gpu_id", "gpu_model", "gpu_driver", "gpu_factor", "numa_id", "vendor")
	for _, h := range p.Hosts {
		name := h.Name
		for i := range h.GPUs {
			p.printf("%-9s  %6d %-16s %-11s %-10s %-7d %s\n", name, i, "TeslaK20c", "384.10", "70", 0, "Nvidia")
			name = ""
		}
	}
	return exitOK
}

// arrays is bjobs -A (lava's and IBM's pages of bjobs name the columns; no output of it was
// captured).
func (p *page) arrays(ids []string) int {
	p.printf("%-10s %-12s %-8s %6s %5s %5s %5s %5s %5s %5s %5s\n", "JOBID", "ARRAY_SPEC", "OWNER", "NJOBS", "PEND", "DONE", "RUN", "EXIT", "SSUSP", "USUSP", "PSUSP")
	type array struct {
		spec, owner string
		n           map[Stat]int
	}
	all, order := map[int64]*array{}, []int64(nil)
	for i := range p.Jobs {
		j := &p.Jobs[i]
		id := strconv.FormatInt(j.ID, 10)
		if j.Index == 0 || len(ids) > 0 && !slices.Contains(ids, id) {
			continue
		}
		if all[j.ID] == nil {
			base, _, _ := cutLastOf(j.Name, "[")
			spec := fmt.Sprintf("%s[1-%d]", base, j.Elements)
			if j.Limit > 0 {
				spec += "%" + strconv.Itoa(j.Limit)
			}
			all[j.ID], order = &array{spec: spec, owner: j.User, n: map[Stat]int{}}, append(order, j.ID)
		}
		all[j.ID].n[j.Stat]++
		all[j.ID].n[""]++
	}
	for _, id := range order {
		a := all[id]
		p.printf("%-10d %-12s %-8s %6d %5d %5d %5d %5d %5d %5d %5d\n", id, a.spec, a.owner, a.n[""], a.n[PEND], a.n[DONE], a.n[RUN], a.n[EXIT], a.n[SSUSP], a.n[USUSP], a.n[PSUSP])
	}
	return exitOK
}

func cutLastOf(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}
