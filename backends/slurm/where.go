package slurm

import (
	"maps"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// places finds the hosts where the jobs of a snapshot may run (R32).
type places struct {
	*snapshot
	sets     map[string]*choice // by what decides them
	excluded map[int64][]string // by the number of a job or an array
	pins     pins
}

// pins are the pending jobs that must have a host, by host.
type pins map[string]map[backends.ID]bool

func (p *snapshot) pins() pins {
	all := pins{}
	for _, j := range p.jobs {
		for _, h := range j.required() {
			if j.State != backends.Pending {
				continue
			}
			if all[h] == nil {
				all[h] = map[backends.ID]bool{}
			}
			all[h][j.ID] = true
		}
	}
	return all
}

// required returns the hosts that a job must have: those of its pin, else of its owner's list.
func (j *listedJob) required() []string {
	if len(j.Pinned) > 0 {
		return j.Pinned
	}
	return j.Asked
}

// contended reports whether another pending job must have one of the hosts that this one
// must have. slurmctld keeps these for the job that is ahead, and says of the other one that
// they are reserved or not available, though it would start it where there is room for both
// (22.05).
func (all pins) contended(j *listedJob) bool {
	return slices.ContainsFunc(j.required(), func(h string) bool {
		return len(all[h]) > 1 || len(all[h]) == 1 && !all[h][j.ID]
	})
}

// choice is a set of hosts where jobs may run.
type choice struct {
	hosts    *backends.HostSet // nil: all
	sizes    []int             // their slots, ascending
	least    int               // threads of a core
	most     int
	partMost int  // hosts of a job; 0: no limit
	mostCPUs bool // a partition limits the CPUs that its jobs have on a node
}

// maxSets bounds how many different sets of hosts a snapshot has. The jobs beyond have
// sets of their own.
const maxSets = 10000

// placeJobs adds to the jobs of a snapshot where they may run and what they need there. Their
// details must be known: a pin stands in the place of an owner's list.
func placeJobs(p *snapshot, excluded map[int64][]string, limits map[int64]int, pinned pins) {
	at := places{snapshot: p, sets: map[string]*choice{}, excluded: excluded, pins: pinned}
	used := map[string]map[string]int{}
	for _, j := range p.jobs {
		switch {
		case j.State.Ended() || j.request == nil:
		case j.State == backends.Pending || j.State == backends.Held:
			at.place(j)
		default:
			j.Needs = at.holds(j)
			for _, h := range j.Hosts {
				if j.Exclusive { // all that the host has counts as used (24.11)
					add(used, h.Host, at.has(h.Host))
				} else {
					add(used, h.Host, j.Needs)
				}
			}
		}
	}
	at.hide(used)
	limitArrays(p.jobs, limits)
	throttle(p.jobs)
}

// throttle applies the limits of arrays to all jobs of a snapshot.
func throttle(jobs []*listedJob) {
	all := make([]backends.Job, 0, len(jobs))
	for _, j := range jobs {
		if j.ArrayLimit > 0 {
			all = append(all, j.Job)
		}
	}
	backends.Throttle(all)
	next := 0
	for _, j := range jobs {
		if j.ArrayLimit > 0 {
			j.Wait = all[next].Wait
			next++
		}
	}
}

func add(used map[string]map[string]int, host string, needs []backends.Amount) {
	for _, n := range needs {
		if used[host] == nil {
			used[host] = map[string]int{}
		}
		used[host][n.Name] += n.Count
	}
}

// place sets where a pending job may run, and its shape.
func (at *places) place(j *listedJob) {
	r := j.request
	why := r.unserved
	note := func(what string) {
		if why == "" {
			why = what
		}
	}
	on := at.suits(j)
	j.Suits = on.hosts
	if on.mostCPUs {
		note("its partition has MaxCPUsPerNode")
	}
	if j.Component {
		note("it is a heterogeneous job")
	}
	if j.share != "OK" && j.share != "YES" && j.share != "NO" {
		note("--exclusive=" + strings.ToLower(j.share))
	}
	at.fitShape(j, on, note)
	at.fitAsked(j, note)
	on.fitThreads(j, note)
	j.Needs = r.needs(j.OneHost)
	if !j.OneHost && r.scattered != "" {
		note(r.scattered)
	}
	j.Unserved = why
	if notAvailable := strings.HasPrefix(j.Reason, "ReqNodeNotAvail"); notAvailable && len(j.required()) > 0 {
		if j.Reason == reserved && len(j.Pinned) > 0 {
			j.Wait = backends.WaitOther
		}
		if at.areUp(j.required()) && (at.pins.contended(j) || at.pinnedElsewhere(j)) {
			j.Wait = backends.WaitResources
		}
	}
}

// suits returns the hosts that partitions, features and exclusions leave to a job.
func (at *places) suits(j *listedJob) *choice {
	var in []string
	for queue := range strings.SplitSeq(j.Queue, ",") {
		p := at.parts[queue]
		if p == nil || !p.up || at.limits[queue] > 0 && j.RunLimit > at.limits[queue] || p.most > 0 && j.least > p.most {
			continue
		}
		in = append(in, queue)
	}
	out := at.excluded[j.ID.Job]
	if j.detailed {
		out = j.excluded
	}
	key := strings.Join(in, ",") + "|" + strings.Join(j.request.features, ",") + "|" + strings.Join(out, ",")
	if found := at.sets[key]; found != nil {
		return found
	}
	found := at.find(in, j.request.features, out)
	if len(at.sets) < maxSets {
		at.sets[key] = found
	}
	return found
}

func (at *places) find(queues, features, out []string) *choice {
	var found choice
	var hosts []string
	for _, queue := range queues {
		p := at.parts[queue]
		found.mostCPUs = found.mostCPUs || p.mostCPUs
		if p.most > 0 && (found.partMost == 0 || p.most < found.partMost) {
			found.partMost = p.most
		}
		for _, h := range p.hosts {
			if n := at.nodes[h]; !slices.Contains(out, h) && !slices.ContainsFunc(features, func(f string) bool { return !n.features[f] }) {
				hosts = append(hosts, h)
			}
		}
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	for _, h := range hosts {
		n := at.nodes[h].threads
		if found.least == 0 || n < found.least {
			found.least = n
		}
		found.most = max(found.most, n)
		found.sizes = append(found.sizes, at.slots[h])
	}
	slices.Sort(found.sizes)
	if len(hosts) < len(at.hosts) {
		found.hosts = &backends.HostSet{Hosts: hosts}
	}
	return &found
}

// fitShape sets how many hosts a pending job has, and how its slots lie on them. squeue
// shows the number of hosts that it reckons where there is no limit: the job may have no
// more than that, where it fits.
func (at *places) fitShape(j *listedJob, on *choice, note func(string)) {
	r := j.request
	j.MinHosts, j.MaxHosts, j.PerHost, j.Unit = max(j.least, 1), max(j.most, j.least, 1), 0, 0
	if !on.fits(j.Slots, j.MaxHosts) {
		j.MaxHosts = 0
	}
	if on.partMost > 0 && (j.MaxHosts == 0 || j.MaxHosts > on.partMost) {
		j.MaxHosts = on.partMost
	}
	if r.perTask > 1 && j.Slots%r.perTask == 0 {
		j.Unit = r.perTask
	}
	if per := r.perTask * r.tasksPerNode; per > 0 {
		hosts := j.Slots / per
		if j.Slots%per != 0 || hosts < j.MinHosts || j.MaxHosts > 0 && hosts > j.MaxHosts {
			note("--ntasks-per-node with another number of tasks or nodes")
		} else {
			j.PerHost, j.MinHosts, j.MaxHosts = per, hosts, hosts
		}
	}
	if j.OneHost = j.MaxHosts == 1; !j.OneHost && r.perTask > 1 && j.Unit == 0 {
		note("--cpus-per-task with another number of CPUs")
	}
}

// fits reports whether the largest hosts, so many, have these slots.
func (on *choice) fits(slots, hosts int) bool {
	for i := len(on.sizes) - 1; i >= max(len(on.sizes)-hosts, 0) && slots > 0; i-- {
		slots -= on.sizes[i]
	}
	return slots <= 0
}

// fitAsked judges its owner's list of hosts, all of which a job must have.
func (at *places) fitAsked(j *listedJob, note func(string)) {
	switch n := len(j.Asked); {
	case n == 0:
	case n == 1 && j.MinHosts <= 1 && j.Slots <= at.slots[j.Asked[0]]:
		j.OneHost, j.MaxHosts = true, 1
	case n == j.MinHosts && n == j.MaxHosts:
	default:
		note("--nodelist of some of its nodes")
	}
}

// fitThreads rounds the slots of a pending job up to whole cores, which it will have.
func (on *choice) fitThreads(j *listedJob, note func(string)) {
	threads := on.most
	if on.least != on.most {
		note("nodes with different numbers of threads on a core")
	}
	switch {
	case threads <= 1:
		return
	case j.request.topology:
		note("--threads-per-core, --hint, or another way to place tasks on cores")
	case !j.OneHost && (j.Unit > 1 && j.Unit%threads != 0 || j.PerHost%threads != 0):
		note("tasks that have no whole cores, on several nodes")
	}
	whole := func(n int) int { return (n + threads - 1) / threads * threads }
	j.Slots = max(whole(j.Slots), j.MinHosts*threads)
	j.PerHost, j.Unit = whole(j.PerHost), whole(max(j.Unit, 1))
}

// pinnedElsewhere reports whether a job of several partitions is pinned to hosts that only
// some of the partitions have. Slurm says ReqNodeNotAvail of the others, and starts the job in
// these nevertheless (22.05; 24.11 says that they may be reserved).
func (at *places) pinnedElsewhere(j *listedJob) bool {
	return len(j.Pinned) > 0 && strings.Contains(j.Queue, ",") && !slices.ContainsFunc(j.Pinned, func(name string) bool { return !j.Suits.Contains(name) })
}

func (at *places) areUp(hosts []string) bool {
	return !slices.ContainsFunc(hosts, func(name string) bool {
		i := slices.IndexFunc(at.hosts, func(h backends.Host) bool { return h.Name == name })
		return i < 0 || at.hosts[i].State != backends.HostUp
	})
}

// needs returns what a job takes of each of its hosts.
func (r *request) needs(oneHost bool) []backends.Amount {
	if !oneHost || len(r.inAll)+len(r.ofTask) == 0 {
		return r.onHost
	}
	total := map[string]int{}
	for _, a := range r.onHost {
		total[a.Name] += a.Count
	}
	for _, a := range r.inAll {
		total[a.Name] = max(total[a.Name], a.Count)
	}
	for _, a := range r.ofTask {
		total[a.Name] = max(total[a.Name], a.Count*max(r.tasks, 1))
	}
	all := make([]backends.Amount, 0, len(total))
	for name, n := range total {
		all = append(all, backends.Amount{Name: name, Count: n})
	}
	slices.SortFunc(all, func(a, b backends.Amount) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// holds returns what a job that runs has of each of its hosts, as far as its request says
// it. If it asked for no type and its host has only one, it has that.
func (at *places) holds(j *listedJob) []backends.Amount {
	if j.Exclusive && len(j.Hosts) == 1 {
		return slices.Clone(at.has(j.Hosts[0].Host))
	}
	needs := j.request.needs(len(j.Hosts) == 1)
	if len(needs) == 0 || len(j.Hosts) != 1 {
		return needs
	}
	has := at.has(j.Hosts[0].Host)
	all := needs
	for _, n := range needs {
		if strings.Contains(n.Name, ":") || slices.ContainsFunc(needs, func(x backends.Amount) bool { return strings.HasPrefix(x.Name, n.Name+":") }) {
			continue
		}
		var types []string
		for _, x := range has {
			if strings.HasPrefix(x.Name, n.Name+":") {
				types = append(types, x.Name)
			}
		}
		if len(types) == 1 {
			all = append(slices.Clip(all), backends.Amount{Name: types[0], Count: n.Count})
		}
	}
	return all
}

// has returns the resources of a host.
func (at *places) has(host string) []backends.Amount {
	i := slices.IndexFunc(at.hosts, func(h backends.Host) bool { return h.Name == host })
	if i < 0 {
		return nil
	}
	return at.hosts[i].Has
}

// hide takes from what hosts have what is used there by jobs that don't say so: no job can
// be preempted for that.
func (at *places) hide(known map[string]map[string]int) {
	for i := range at.hosts {
		h := &at.hosts[i]
		for k := range h.Has {
			if n := at.nodes[h.Name]; n != nil {
				a := &h.Has[k]
				a.Count = max(a.Count-max(n.used[a.Name]-known[h.Name][a.Name], 0), 0)
			}
		}
	}
}

// limitArrays gives the elements of each array the limit that squeue shows with some of
// them, or that is known. Where there is none, and the queue names the limit as a reason,
// at most as many run as now, and one may always run.
func limitArrays(jobs []*listedJob, known map[int64]int) {
	limits, runs, reasons := map[int64]int{}, map[int64]int{}, map[int64]bool{}
	for _, j := range jobs {
		if j.ID.Index == 0 {
			continue
		}
		limits[j.ID.Job] = max(limits[j.ID.Job], j.ArrayLimit, known[j.ID.Job])
		switch {
		case j.State == backends.Running || j.State == backends.Suspended:
			runs[j.ID.Job]++
		case j.Wait == backends.WaitThrottle:
			reasons[j.ID.Job] = true
		}
	}
	for _, j := range jobs {
		if j.ID.Index == 0 {
			continue
		}
		j.ArrayLimit = limits[j.ID.Job]
		if j.ArrayLimit == 0 && reasons[j.ID.Job] {
			j.ArrayLimit = max(runs[j.ID.Job], 1)
		}
	}
}

// unlimited returns an element of each array for which slots may be freed, and of which
// squeue shows no limit: it shows none as soon as an element has been changed by itself
// (22.05). An array without a limit is asked for once: a limit that it gets later shows as
// a reason.
func (c *Client) unlimited(p *snapshot) []backends.ID {
	shown, ask := map[int64]bool{}, map[int64]backends.ID{}
	for _, j := range p.jobs {
		if j.ID.Index == 0 || j.State.Ended() {
			continue
		}
		shown[j.ID.Job] = shown[j.ID.Job] || j.ArrayLimit > 0
		if _, ok := ask[j.ID.Job]; !ok && j.State == backends.Pending && j.Priority.Level() >= backends.LevelNext {
			ask[j.ID.Job] = j.ID
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var elements []backends.ID
	for _, array := range slices.Sorted(maps.Keys(ask)) {
		limit, known := c.limits[array]
		if !shown[array] && (!known || limit > 0) {
			elements = append(elements, ask[array])
		}
	}
	return elements
}

// recordLimit notes how many elements of a job's array may run at a time.
func (c *Client) recordLimit(j *listedJob, limit int) {
	if j.ID.Index == 0 || j.State.Ended() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits[j.ID.Job] = limit
}

// wholeArrays returns what to ask for instead of jobs where an element seems to wait for
// others of its array: squeue shows neither these nor the limit with one element. Empty:
// there is none.
func wholeArrays(jobs []*listedJob, ids []backends.ID) []backends.ID {
	waiting := map[int64]bool{}
	for _, j := range jobs {
		if j.Reason == throttled {
			waiting[j.ID.Job] = true
		}
	}
	var whole []backends.ID
	elements := false
	for _, id := range ids {
		if waiting[id.Job] && id.Index != 0 {
			id.Index, elements = 0, true
		}
		whole = append(whole, id)
	}
	if !elements {
		return nil
	}
	slices.SortFunc(whole, backends.ID.Compare)
	return slices.Compact(whole)
}
