package lsf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// Where jobs may run (R32) follows from the HOSTS of their queues, their own lists of hosts
// (-m), and their resource requirements. Conditions on hosts are judged here, by what
// lshosts shows: bhosts -R and lsload -R judge hosts as they are loaded now, and leave out
// the very host that is to be emptied.

// farmFacts are what else was asked about hosts, queues and arrays. nil: not asked.
type farmFacts struct {
	at     time.Time
	queues map[string][]string // the words of HOSTS of each queue
	groups map[string][]string // host groups
	counts counts              // numeric resources that each host has for itself
	gpus   map[string]int      // by host
	arrays map[int64]int       // how many elements may run at a time; 0: no limit
}

// factsAge is how long a process uses these facts before it asks again.
const factsAge = time.Minute

// Limits on what users' texts can make a cycle do: that many distinct sets of conditions
// on hosts are judged in a cycle, of all users and of one of them.
const (
	mostConditions  = 1000
	mostConditionsU = 100
)

// gpuName is the name of GPUs in Amount. LSF calls them ngpus_physical in rusage[], where
// bsub -gpu puts them too.
const gpuName = "gpu"

var gpuResources = []string{"ngpus_physical", "ngpus"}

// where finds out where the jobs of one snapshot may run.
type where struct {
	*snapshot
	lists    *hostLists
	byName   map[string]*listedHost
	sets     hostSets
	requests map[string]*request
	suits    map[string]suitable // by queue, conditions and the type of the submission host
	judged   map[string]int      // distinct ones so far, by user; "": of all
}

// suitable is what the queue and the conditions of a job leave to it.
type suitable struct {
	hosts    *backends.HostSet // nil: all
	unserved string
}

func newWhere(p *snapshot) *where {
	w := &where{
		snapshot: p, byName: map[string]*listedHost{}, lists: newHostLists(p.hosts), sets: hostSets{}, requests: map[string]*request{}, suits: map[string]suitable{}, judged: map[string]int{},
	}
	for i := range p.hosts {
		w.byName[p.hosts[i].Name] = &p.hosts[i]
	}
	return w
}

// readWhere sets where the jobs of a snapshot may run and what they need there. It asks
// what is needed for that and was not asked within factsAge.
func (c *Client) readWhere(ctx context.Context, p *snapshot) error {
	w := newWhere(p)
	spareChunks(p.jobs)
	var waiting []*job
	for _, j := range p.jobs {
		switch {
		case j.State.Ended() || j.listed.vague:
		case j.waits():
			waiting = append(waiting, j)
		default:
			j.Needs = w.needs(&j.Job, w.request(j))
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	facts, err := c.askFacts(ctx, w, waiting)
	if err != nil {
		return err
	}
	w.lists.groups = facts.groups
	for _, j := range waiting {
		w.place(j, facts)
	}
	w.addCounts(facts)
	w.throttle(facts)
	return nil
}

// spareChunks makes running jobs unfit for preemption whose slots others are waiting for in
// a chunk: LSF starts the next job of the chunk there. Those of a chunk have a user and a
// queue in common.
func spareChunks(jobs []*job) {
	type chunk struct{ user, queue string }
	chunks := map[chunk]bool{}
	for _, j := range jobs {
		if j.listed.stat == "WAIT" {
			chunks[chunk{j.User, j.Queue}] = true
		}
	}
	for _, j := range jobs {
		j.NoRequeue = j.NoRequeue || j.State == backends.Running && chunks[chunk{j.User, j.Queue}]
	}
}

// request reads a job's requirement.
func (w *where) request(j *job) *request {
	text := j.listed.request
	r := w.requests[text]
	if r == nil {
		read := parseRequest(text)
		r = &read
		w.requests[text] = r
	}
	return r
}

// place sets where a waiting job may run.
func (w *where) place(j *job, facts *farmFacts) {
	r := w.request(j)
	suits := w.suitable(j, r, facts)
	j.Suits = suits.hosts
	if r.oneHost || r.perHost >= j.Slots {
		j.OneHost = true
	} else {
		j.PerHost = r.perHost
	}
	if j.OneHost {
		j.MaxHosts = 1
	}
	j.Needs = w.needs(&j.Job, r)
	refuse := func(what string) {
		if j.Unserved == "" {
			j.Unserved = what
		}
	}
	if j.listed.stat == "WAIT" {
		refuse("it waits in a chunk of jobs, behind another one")
	}
	if r.room && j.State == backends.Pending && j.Wait == backends.WaitOther && waitsForRoom(j.Reason) {
		j.Wait = backends.WaitResources
	}
	refuse(r.unserved)
	refuse(suits.unserved)
	if len(j.asked) > 0 {
		hosts, all, wrong := w.lists.resolve(j.asked)
		switch {
		case wrong != "":
			refuse("its list of hosts (-m): " + wrong)
		case all:
			j.Asked = nil
		default:
			j.Asked = hosts
		}
		if len(hosts) == 0 {
			refuse("its list of hosts (-m) has no host with slots")
		}
	}
	for _, n := range r.needs {
		name := n.resource()
		switch {
		case name == gpuName && len(facts.gpus) > 0, facts.counts[name] != nil:
		default:
			refuse("rusage[" + n.name + "=], of which this LSF shows no number for each host")
		}
		if w.each(n, &j.Job) == 0 {
			refuse("rusage[" + n.name + "=] for each task or job on several hosts")
		}
	}
	if _, known := facts.arrays[j.ID.Job]; !known && w.limitMatters(j) {
		refuse("how many elements of its array may run at a time")
	}
}

// resource is a need's name in Amount.
func (n need) resource() string {
	if slices.Contains(gpuResources, n.name) {
		return gpuName
	}
	return n.name
}

// each is how much of a resource a job needs on each of its hosts; 0: this differs from
// host to host. A plain amount is of each host, or of each task where the cluster counts
// so (RESOURCE_RESERVE_PER_TASK).
func (w *where) each(n need, j *backends.Job) int {
	per := n.per
	if per == "" && w.params.perTask {
		per = "task"
	}
	switch {
	case per == "" || per == "host":
		return n.count
	case !j.OneHost:
		return 0
	case per == "job":
		return n.count
	}
	return n.count * max(j.Slots, 1)
}

func (w *where) needs(j *backends.Job, r *request) []backends.Amount {
	var all []backends.Amount
	for _, n := range r.needs {
		count := w.each(n, j)
		if i := slices.IndexFunc(all, func(a backends.Amount) bool { return a.Name == n.resource() }); i >= 0 {
			all[i].Count = max(all[i].Count, count)
		} else if count > 0 {
			all = append(all, backends.Amount{Name: n.resource(), Count: count})
		}
	}
	return all
}

// suitable returns the hosts that a job's queue and conditions leave to it.
func (w *where) suitable(j *job, r *request, facts *farmFacts) suitable {
	local := ""
	var key strings.Builder
	fmt.Fprintf(&key, "%s\x00", j.Queue)
	for _, c := range r.conditions {
		if c.name == "type" && c.value == "local" {
			local = w.typeOf(j.listed.fromHost)
		}
		fmt.Fprintf(&key, "%s\x00%s\x00%s\x00", c.name, c.operator, c.value)
	}
	key.WriteString(local)
	found, ok := w.suits[key.String()]
	if ok {
		return found
	}
	if w.judged[""] >= mostConditions || w.judged[j.User] >= mostConditionsU {
		return suitable{unserved: fmt.Sprintf("too many distinct resource requirements: of each user's, %d are read", mostConditionsU)}
	}
	w.judged[""]++
	w.judged[j.User]++
	found = w.judge(j.Queue, r.conditions, local, facts)
	w.suits[key.String()] = found
	return found
}

// typeOf returns a host's type; "": not known.
func (w *where) typeOf(host string) string {
	return w.static[host].kind
}

// judge finds the hosts that a queue has and for which conditions hold.
func (w *where) judge(queue string, conditions []condition, local string, facts *farmFacts) suitable {
	list, known := facts.queues[queue]
	if !known {
		return suitable{unserved: "the hosts of queue " + queue}
	}
	hosts, _, wrong := w.lists.resolve(list)
	if wrong != "" {
		return suitable{unserved: "HOSTS of queue " + queue + ": " + wrong}
	}
	for _, c := range conditions {
		holds, ok := w.test(c, local, facts)
		if !ok {
			return suitable{unserved: strings.TrimSpace("in select[]: " + c.name + " " + strings.TrimSpace(c.operator+" "+c.value))}
		}
		hosts = slices.DeleteFunc(hosts, func(name string) bool { return !holds(w.byName[name]) })
	}
	hosts = slices.DeleteFunc(hosts, func(name string) bool {
		return slices.ContainsFunc(w.byName[name].exclusive, func(r string) bool { return !slices.Contains(conditions, condition{name: r}) })
	})
	if len(hosts) == len(w.lists.hosts) {
		return suitable{}
	}
	slices.Sort(hosts)
	return suitable{hosts: w.sets.of(hosts)}
}

// test returns the test of a condition; false: it is not understood.
func (w *where) test(c condition, local string, facts *farmFacts) (holds func(*listedHost) bool, ok bool) {
	equal := func(value func(*listedHost) string) (func(*listedHost) bool, bool) {
		return func(h *listedHost) bool { return (value(h) == c.value) == (c.operator == "==") }, c.operator == "==" || c.operator == "!="
	}
	named := func() bool {
		return slices.ContainsFunc(w.hosts, func(h listedHost) bool { _, has := h.resources[c.name]; return has })
	}
	switch {
	case c.operator == "":
		return func(h *listedHost) bool { _, has := h.resources[c.name]; return has }, named()
	case c.name == "type" && c.operator == "==" && c.value == "any":
		return func(*listedHost) bool { return true }, true
	case c.name == "type" && c.value == "local":
		if local == "" { // of a submission host that is not listed
			return func(*listedHost) bool { return true }, c.operator == "==" && w.oneType()
		}
		c.value = local
		return equal(func(h *listedHost) string { return h.kind })
	case c.name == "type":
		return equal(func(h *listedHost) string { return h.kind })
	case c.name == "model":
		return equal(func(h *listedHost) string { return h.model })
	case c.name == "hname":
		return equal(func(h *listedHost) string { return h.Name })
	case slices.Contains(gpuResources, c.name) && facts.gpus != nil:
		value, err := strconv.ParseFloat(c.value, 64)
		return func(h *listedHost) bool {
			n := float64(facts.gpus[h.Name])
			return interval{n, n}.holds(c.operator, value)
		}, err == nil
	case slices.Contains([]string{"cpuf", "ncpus", "maxmem", "maxswp"}, c.name):
		value, err := strconv.ParseFloat(c.value, 64)
		if strings.HasPrefix(c.name, "max") {
			var size int64
			size, err = parseSize(strings.ToUpper(c.value), w.usageUnit)
			value = float64(size)
		}
		return func(h *listedHost) bool {
			n, known := h.numbers[c.name]
			return known && n.holds(c.operator, value)
		}, err == nil
	case named():
		return equal(func(h *listedHost) string { return h.resources[c.name] })
	}
	return nil, false
}

// oneType reports whether all hosts are of one type.
func (w *where) oneType() bool {
	kinds := map[string]bool{}
	for _, h := range w.hosts {
		kinds[h.kind] = true
	}
	return len(kinds) <= 1
}

// addCounts gives the hosts what they have of the resources that jobs need.
func (w *where) addCounts(facts *farmFacts) {
	for i := range w.hosts {
		h := &w.hosts[i]
		if n := facts.gpus[h.Name]; n > 0 {
			h.Has = append(h.Has, backends.Amount{Name: gpuName, Count: n})
		}
		for name, hosts := range facts.counts {
			if n := hosts[h.Name]; n > 0 && name != gpuName || n > 0 && facts.gpus == nil {
				h.Has = append(h.Has, backends.Amount{Name: name, Count: n})
			}
		}
		slices.SortFunc(h.Has, func(a, b backends.Amount) int { return strings.Compare(a.Name, b.Name) })
	}
}

// limitMatters reports whether a job is an element that would start but for the limit of
// its array.
func (w *where) limitMatters(j *job) bool {
	return j.ID.Index > 0 && j.State == backends.Pending && (j.Wait == backends.WaitResources || j.Wait == backends.WaitThrottle)
}

// throttle sets which elements of arrays wait for others.
func (w *where) throttle(facts *farmFacts) {
	var limited []*job
	var elements []backends.Job
	for _, j := range w.jobs {
		if limit := facts.arrays[j.ID.Job]; limit > 0 && j.ID.Index > 0 && !j.State.Ended() {
			j.ArrayLimit = limit
			limited, elements = append(limited, j), append(elements, j.Job)
		}
	}
	backends.Throttle(elements)
	for i, j := range limited {
		j.Wait = elements[i].Wait
	}
}

// askFacts asks what is needed to place jobs and was not asked lately.
func (c *Client) askFacts(ctx context.Context, w *where, waiting []*job) (*farmFacts, error) {
	c.mu.Lock()
	facts := farmFacts{at: time.Now()}
	if c.farmFacts != nil && facts.at.Sub(c.farmFacts.at).Abs() < factsAge {
		facts = *c.farmFacts
	}
	c.mu.Unlock()
	var err error
	if facts.queues == nil || slices.ContainsFunc(waiting, func(j *job) bool { return facts.queues[j.Queue] == nil }) {
		var printed string
		if printed, err = c.ask(ctx, "bqueues", "-l"); err != nil {
			return nil, err
		}
		facts.queues = parseQueueHosts([]byte(printed))
	}
	if facts.groups == nil && w.namesGroup(waiting, facts.queues) {
		if facts.groups, err = askTable(ctx, c, parseGroups, "bmgroup", "-w"); err != nil {
			return nil, err
		}
	}
	plain, gpus := w.countedResources(waiting)
	if facts.counts == nil && plain {
		if facts.counts, err = askTable(ctx, c, parseShared, "bhosts", "-s"); err != nil {
			return nil, err
		}
	}
	if facts.gpus == nil && gpus && w.flavour == lsf10 {
		if facts.gpus, err = askTable(ctx, c, parseGPUs, "lshosts", "-gpu"); err != nil {
			return nil, err
		}
	}
	if facts.arrays, err = c.askArrays(ctx, w, waiting, facts.arrays); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.farmFacts = &facts
	c.mu.Unlock()
	return &facts, nil
}

// ask runs a listing command. One that fails for another reason than that the queue is
// away, as where there is nothing to list, prints nothing.
func (c *Client) ask(ctx context.Context, argv ...string) (string, error) {
	printed, err := c.query(ctx, argv...)
	if errors.Is(err, backends.ErrUnreachable) || neverRan(err) {
		return "", err
	}
	if err != nil {
		return "", nil //nolint:nilerr // what is not listed is not known: jobs that need it are not served
	}
	return printed.stdout, nil
}

// askTable reads a table that may be missing. One that is not understood is as good as
// missing.
func askTable[T ~map[string]V, V any](ctx context.Context, c *Client, parse func([]byte) (T, error), argv ...string) (T, error) {
	printed, err := c.ask(ctx, argv...)
	if err != nil {
		return nil, err
	}
	found, err := parse([]byte(printed))
	if err != nil {
		return T{}, nil //nolint:nilerr // see ask
	}
	return found, nil
}

// askArrays asks for the limits of arrays that are not known yet. Those whose lines stand
// more than once among others' are asked for alone, some of them.
func (c *Client) askArrays(ctx context.Context, w *where, waiting []*job, known map[int64]int) (map[int64]int, error) {
	limits := map[int64]int{}
	var unknown []backends.ID
	for _, j := range waiting {
		if !w.limitMatters(j) {
			continue
		}
		if limit, ok := known[j.ID.Job]; ok {
			limits[j.ID.Job] = limit
		} else if id := (backends.ID{Job: j.ID.Job}); len(unknown) == 0 || unknown[len(unknown)-1] != id {
			unknown = append(unknown, id)
		}
	}
	read := func(ids []backends.ID) error {
		printed, err := c.query(ctx, append([]string{"bjobs", "-u", "all", "-A", "-w"}, names(ids)...)...)
		if _, failed := reconcile.ExitFailure(err); err != nil && !failed {
			return err
		}
		for id, limit := range parseArrays([]byte(printed.stdout)) {
			limits[id] = limit
		}
		return nil
	}
	for some := range slices.Chunk(unknown, atOnce) {
		if err := read(some); err != nil {
			return nil, err
		}
	}
	alone := 0
	for _, id := range unknown {
		if _, ok := limits[id.Job]; !ok && len(unknown) > 1 && alone < mostAlone {
			alone++
			if err := read([]backends.ID{id}); err != nil {
				return nil, err
			}
		}
	}
	return limits, nil
}

// namesGroup reports whether a job's list of hosts, or that of its queue, may name a group.
func (w *where) namesGroup(waiting []*job, queues map[string][]string) bool {
	seen := map[string]bool{}
	return slices.ContainsFunc(waiting, func(j *job) bool {
		if w.lists.namesGroup(j.asked) {
			return true
		}
		if seen[j.Queue] {
			return false
		}
		seen[j.Queue] = true
		return w.lists.namesGroup(queues[j.Queue])
	})
}

// countedResources reports whether a job needs a numeric resource, and whether one needs
// GPUs or has a condition on them.
func (w *where) countedResources(waiting []*job) (plain, gpus bool) {
	for _, j := range waiting {
		r := w.request(j)
		for _, n := range r.needs {
			gpu := n.resource() == gpuName && n.name != gpuName
			gpus, plain = gpus || gpu, plain || !gpu
		}
		gpus = gpus || slices.ContainsFunc(r.conditions, func(c condition) bool { return slices.Contains(gpuResources, c.name) })
	}
	return plain, gpus
}
