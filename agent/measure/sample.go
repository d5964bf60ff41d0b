package measure

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Sampler measures again and again. It is for one goroutine.
type Sampler struct {
	options Options
	proc    string
	page    uint64
	files   files

	number    uint64 // of the sample
	processes map[int]*process
	groups    map[string]*group // by their path
	jobs      map[Key]*job
	ofUser    map[int]int // jobs by user, without a group
	swapped   Value       // bytes of the host's memory that are swapped out
	tooMany   int         // processes that are left out
	leftOut   int         // jobs likewise

	network    map[uint64]Network // by groups' inodes
	networkWhy string             // why a job has none

	wantClaims, wantBytes []*process // that root is asked for, in a sample
}

// job is a job that is, or was a moment ago, on this host.
type job struct {
	key     Key
	group   *group // nil: it has none
	account account
	living  []*process
	peak    uint64
	run     int       // of Slurm; 0: not known
	looks   int       // samples that looked for it
	gone    time.Time // since when it has neither group nor process; zero: it has
}

// keepAccount is how long a job without processes is remembered, so that its counters go on
// if it gets some again, such as those of its next step.
const keepAccount = time.Minute

// New returns a sampler. Nothing is read yet.
func New(o Options) *Sampler {
	o.MaxJobs = cmp.Or(o.MaxJobs, 2000)
	o.MaxJobsOfUser = cmp.Or(o.MaxJobsOfUser, 500)
	o.MaxProcesses = cmp.Or(o.MaxProcesses, 50000)
	o.MaxDescriptors = cmp.Or(o.MaxDescriptors, mostOpen())
	return &Sampler{
		options: o, proc: cmp.Or(o.Proc, "/proc"), page: uint64(os.Getpagesize()),
		files:     files{most: o.MaxDescriptors},
		processes: map[int]*process{}, groups: map[string]*group{}, jobs: map[Key]*job{}, ofUser: map[int]int{},
	}
}

// Close closes the descriptors that are open.
func (s *Sampler) Close() {
	for _, p := range s.processes {
		s.closeProcess(p)
	}
	for _, g := range s.groups {
		g.close(&s.files)
	}
	*s = *New(s.options)
}

// Sample measures all jobs of this host. now is by a clock that is not set back.
func (s *Sampler) Sample(now time.Time) Sample {
	s.number++
	s.leftOut = 0
	s.findGroups()
	s.askNetwork()
	ended := s.scan()
	for _, p := range s.processes {
		s.classify(p)
	}
	s.askClaims()
	s.findOwners()
	s.findRuns()
	s.readSwap()
	living := map[*job][]*process{}
	for _, p := range s.processes {
		if p.job != nil {
			s.readUse(p)
			living[p.job] = append(living[p.job], p)
		}
	}
	for _, j := range s.jobs {
		j.living = living[j]
	}
	supervisors := s.supervisors()
	s.askBytes()
	s.accountFor(ended, supervisors)
	devices := s.devices()
	result := Sample{At: now}
	for _, j := range s.jobs {
		if s.forget(j, now) {
			continue
		}
		if j.group != nil {
			j.group.read(&s.files, devices)
		}
		measured := j.measured(s.swapped)
		if j.group != nil {
			measured.Network = s.network[j.group.inode]
		}
		result.Jobs = append(result.Jobs, measured)
	}
	slices.SortFunc(result.Jobs, func(a, b Job) int { return a.Compare(b.Key) })
	gpus := s.readGPUs(now)
	s.shareGPUs(&gpus, result.Jobs)
	result.GPUs = gpus.GPUs
	result.Lacks = s.lacks(result.Jobs, &gpus)
	result.Seen = Seen{Processes: len(s.processes), Groups: len(s.groups), Descriptors: s.files.open}
	return result
}

// forget reports whether a job is not here any more, and drops it after a while.
func (s *Sampler) forget(j *job, now time.Time) bool {
	if j.group != nil || len(j.living) > 0 {
		j.gone = time.Time{}
		return false
	}
	if j.gone.IsZero() {
		j.gone = now
		j.run, j.looks = 0, 0 // it may come back in another one
	}
	if now.Sub(j.gone) >= keepAccount {
		delete(s.jobs, j.key)
		s.count(j.key.User, -1)
	}
	return true
}

func (s *Sampler) count(user, change int) {
	if s.ofUser[user] += change; s.ofUser[user] == 0 {
		delete(s.ofUser, user)
	}
}

// accountFor brings the jobs' accounts up to date.
func (s *Sampler) accountFor(ended []*process, supervisors map[*job]map[*process]bool) {
	of := map[*job][]*process{}
	for _, p := range ended {
		if p.job != nil {
			of[p.job] = append(of[p.job], p)
		}
	}
	for _, j := range s.jobs {
		j.account.end(of[j], j)
		j.account.supervise(supervisors[j])
	}
}

// supervisors returns the processes of queues, outside of jobs, whose children are all one job's.
func (s *Sampler) supervisors() map[*job]map[*process]bool {
	children := map[*process]*job{}
	mixed := map[*process]bool{}
	for _, p := range s.processes {
		if p.parent == nil || p.parent.job != nil || !isSupervisor(p.parent.s.Name) {
			continue
		}
		if of, ok := children[p.parent]; ok && of != p.job {
			mixed[p.parent] = true
		}
		children[p.parent] = p.job
	}
	now := map[*job]map[*process]bool{}
	for p, j := range children {
		if j == nil || mixed[p] {
			continue
		}
		if now[j] == nil {
			now[j] = map[*process]bool{}
		}
		now[j][p] = true
		s.readBytes(p)
	}
	return now
}

// jobOf returns a job that processes say they are of; nil: there are too many.
func (s *Sampler) jobOf(k Key) *job {
	if j := s.jobs[k]; j != nil {
		return j
	}
	if len(s.jobs) >= s.options.MaxJobs || s.ofUser[k.User] >= s.options.MaxJobsOfUser {
		s.leftOut++
		return nil
	}
	j := &job{key: k}
	s.jobs[k] = j
	s.count(k.User, 1)
	return j
}

// findGroups finds the jobs' control groups.
func (s *Sampler) findGroups() {
	mounts, err := s.files.readOnce(filepath.Join(s.proc, "self/mountinfo"))
	if err != nil {
		mounts = nil
	}
	for _, h := range hierarchies(mounts) {
		if !h.v2 && len(h.controllers) == 0 {
			continue
		}
		h.eachJob(func(path string) { s.foundGroup(h, path) })
	}
	for path, g := range s.groups {
		if g.seen != s.number {
			g.close(&s.files)
			delete(s.groups, path)
			if g.job.group == g {
				g.job.group = nil
			}
		}
	}
}

func (s *Sampler) foundGroup(h hierarchy, path string) {
	g := s.groups[path]
	if g == nil {
		if g = s.newGroup(h, path); g == nil {
			s.leftOut++
			return
		}
	}
	g.seen = s.number
	dir := filepath.Join(h.point, path)
	if h.v2 {
		g.dirs[""] = dir
		if s.options.Root != nil {
			g.inode = inode(dir)
		}
	}
	for _, c := range h.controllers {
		g.dirs[c] = dir
	}
	g.v2 = g.v2 || h.v2
}

func (s *Sampler) newGroup(h hierarchy, path string) *group {
	queue, id, user, _ := parseGroupName(path)
	k := Key{queue, id, user}
	j := s.jobs[k]
	if j == nil {
		if len(s.jobs) >= s.options.MaxJobs {
			return nil
		}
		j = &job{key: k}
		s.jobs[k] = j
		s.count(k.User, 1)
	}
	g := &group{queue: queue, id: id, user: user, v2: h.v2, job: j, dirs: map[string]string{}, files: map[string]*file{}}
	j.group = g
	j.run, j.looks = 0, 0
	s.groups[path] = g
	return g
}

// findOwners learns the users of groups whose paths do not name them: from the process that
// started first and is not root's. The queue's own are root's, and so is for a moment what
// becomes the job.
func (s *Sampler) findOwners() {
	type owner struct {
		*process
		user int
	}
	first := map[*group]owner{}
	for _, p := range s.processes {
		if p.job == nil || p.job.group == nil || p.job.group.user != NoUser {
			continue
		}
		user := s.realUser(p)
		f, ok := first[p.job.group]
		if user > 0 && (!ok || cmp.Or(cmp.Compare(p.s.Start, f.s.Start), p.pid-f.pid) < 0) {
			first[p.job.group] = owner{p, user}
		}
	}
	for g, f := range first {
		s.own(g, f.user)
	}
}

// own makes a group's job one of a user.
func (s *Sampler) own(g *group, user int) {
	g.user = user
	was := g.job
	k := Key{g.queue, g.id, user}
	if s.jobs[k] == nil {
		delete(s.jobs, was.key)
		s.count(was.key.User, -1)
		was.key = k
		s.jobs[k] = was
		s.count(user, 1)
		return
	}
	// The job was found by its environment before its group was.
	g.job = s.jobs[k]
	g.job.group = g
	for _, other := range s.processes {
		if other.job == was {
			other.job = g.job
		}
	}
	delete(s.jobs, was.key)
	s.count(was.key.User, -1)
}

// readSwap reads how much of this host's memory is swapped out.
func (s *Sampler) readSwap() {
	text, err := s.files.readOnce(filepath.Join(s.proc, "meminfo"))
	if err != nil {
		s.swapped = Value{}
		return
	}
	s.swapped = less(parseKB(text, "SwapTotal"), parseKB(text, "SwapFree"))
}

// devices returns the names of block devices by their numbers, if a group may count them.
func (s *Sampler) devices() map[string]string {
	if len(s.groups) == 0 {
		return nil
	}
	text, err := s.files.readOnce(filepath.Join(s.proc, "diskstats"))
	if err != nil {
		return nil
	}
	return parseDevices(text)
}

// counts reports whether a group counted a figure in the last sample.
func (g *group) counts(f Figure) bool {
	if g == nil {
		return false
	}
	switch f {
	case CPU:
		return g.used.cpu.Known
	case Memory:
		return g.used.memory.Known
	case Swap:
		return g.used.swap.Known
	case DiskBytes:
		return g.used.disks != nil
	default:
		return false
	}
}

func (g *group) source() Source {
	if g.v2 {
		return FromGroupV2
	}
	return FromGroupV1
}

// measured returns a job's figures: those of its group, and what that lacks from processes.
func (j *job) measured(swapped Value) Job {
	out := Job{Key: j.key, Source: FromProcesses, Run: j.run}
	u := groupUse{}
	if j.group != nil {
		u = j.group.used
		out.Source = j.group.source()
	}
	p := j.ofProcesses(swapped)
	out.CPU, out.Memory, out.Swap = u.cpu.or(p.CPU), u.memory.or(p.Memory), u.swap.or(p.Swap)
	out.Cache, out.Pressure = u.cache, u.pressure
	out.Processes, out.Threads = p.Processes, p.Threads
	out.Disks = u.disks
	if u.disks == nil {
		out.Disks = p.Disks
	}
	if j.peak = max(j.peak, out.Memory.N); out.Memory.Known {
		out.Peak = known(j.peak)
	}
	out.Peak = u.peak.or(out.Peak)
	return out
}

// ofProcesses sums the job's processes.
func (j *job) ofProcesses(swapped Value) (out Job) {
	sum := j.account.sum(j.living)
	if len(j.living) == 0 {
		return out
	}
	var processes, threads, memory, shared, swap uint64
	disks := false
	for _, p := range j.living {
		if p.s.State != 'Z' {
			processes++
			threads += uint64(max(p.s.Threads, 0))
		}
		memory += p.resident - p.shared
		shared = max(shared, p.shared)
		swap += p.swap
		disks = disks || p.ioKnown
	}
	out.CPU, out.Memory = known(sum[ofCPU]), known(memory+shared)
	out.Processes, out.Threads = known(processes), known(threads)
	if swapped.Known {
		out.Swap = known(swap)
	}
	if disks {
		out.Disks = []Disk{{ReadBytes: known(sum[ofRead]), WrittenBytes: known(sum[ofWritten])}}
	}
	return out
}

// lacks says what the jobs' figures lack, and why.
func (s *Sampler) lacks(jobs []Job, gpus *GPUReading) (all []Lack) {
	type kind struct {
		figure Figure
		why    string
	}
	count := map[kind]int{}
	for i := range jobs {
		for figure, why := range jobs[i].lacks() {
			count[kind{figure, why}]++
		}
		if !jobs[i].Network.Known {
			count[kind{NetworkBytes, s.networkWhy}]++
		}
	}
	for k, n := range count {
		all = append(all, Lack{k.figure, n, k.why})
	}
	all = append(all, gpus.lacks(len(jobs))...)
	slices.SortFunc(all, func(a, b Lack) int { return cmp.Or(cmp.Compare(a.Figure, b.Figure), cmp.Compare(a.Why, b.Why)) })
	locked := 0
	for _, p := range s.processes {
		if p.locked && p.job == nil {
			locked++
		}
	}
	if locked > 0 {
		all = append(all, Lack{Jobs, locked, fmt.Sprintf("user ID %d may not read the environments of these processes of other users: their jobs are found only by control groups", os.Getuid())})
	}
	if s.leftOut > 0 {
		all = append(all, Lack{Jobs, s.leftOut, fmt.Sprintf("these processes or control groups are of jobs beyond the bounds of %d jobs, and %d of a user", s.options.MaxJobs, s.options.MaxJobsOfUser)})
	}
	if s.tooMany > 0 {
		all = append(all, Lack{Jobs, s.tooMany, fmt.Sprintf("these processes are beyond the bound of %d", s.options.MaxProcesses)})
	}
	return all
}

// lacks returns the figures that a job lacks, and why.
func (j *Job) lacks() map[Figure]string {
	lacks := map[Figure]string{}
	need := func(f Figure, is bool, why string) {
		if !is {
			lacks[f] = why
		}
	}
	none := "no process of the job is seen, and its control group does not count it"
	need(CPU, j.CPU.Known, none)
	need(Memory, j.Memory.Known, none)
	need(Threads, j.Threads.Known, "no process of the job is seen: /proc may be mounted with hidepid")
	need(Swap, j.Swap.Known, "its control group does not count it, and /proc/meminfo has no swap")
	need(PressureStalls, j.Pressure.CPUSome.Known, "only control groups of version 2 have it, of a kernel with PSI (CONFIG_PSI, psi=1)")
	need(DiskBytes, j.Disks != nil, "its control group has no io or blkio controller, and its processes' io may not be read")
	operations := j.Disks != nil
	for _, d := range j.Disks {
		operations = operations && d.Reads.Known && d.Writes.Known
	}
	need(DiskOperations, operations, "only control groups with the io or blkio controller count operations, and bytes by device")
	return lacks
}
