package measure

// Counters of a tree of processes.
//
// The kernel adds what a process has used to the parent that waits for it: so the sum over
// the living processes of a tree stays right when one of them ends. It is lost where the
// parent ignores SIGCHLD, and where the process that waits is not in the tree. What was
// seen of such a process last is added to the tree's account: its use is counted once, and
// the sum never falls. What such a process used after the last sample is lost, and with it
// a process that lived between two samples; but a supervisor of the queue that has the
// children of one job only (a keeper of miniq, slurmstepd, LSF's res) waits for all of
// them, and what it gathers counts for the job.

// counters are what is summed: processor time in ns, bytes read and written.
type counters [3]uint64

const (
	ofCPU = iota
	ofRead
	ofWritten
)

func (c counters) plus(d counters) counters {
	for i := range c {
		c[i] += d[i]
	}
	return c
}

// minus is the difference, at least 0.
func (c counters) minus(d counters) counters {
	for i := range c {
		c[i] -= min(d[i], c[i])
	}
	return c
}

func (c counters) atLeast(d counters) counters {
	for i := range c {
		c[i] = max(c[i], d[i])
	}
	return c
}

// use is what of a process is summed.
type use struct {
	total counters // its own, and of the children that it waited for
	// gathered is what total may have got from children since the process began: of
	// processor time what they used; of bytes, which the kernel does not tell apart, total.
	gathered counters
}

// account is that of a job.
type account struct {
	ended       counters               // of processes that are in no living process's total
	supervisors map[*process]*gathered // those that have children of this job alone
	shown       counters               // the last sum: it never falls
}

// gathered is what a supervisor had from other jobs before, and what it has now.
type gathered struct{ base, now counters }

// end accounts for processes of the job that have ended since the last sample.
func (a *account) end(ended []*process, j *job) {
	pools := map[*process]counters{}
	for _, p := range ended {
		if to := a.heir(p, j); to != nil {
			pools[to] = pools[to].plus(p.last.total)
		} else {
			a.ended = a.ended.plus(p.last.total)
		}
	}
	for _, p := range j.living {
		a.settle(p, pools[p])
	}
	for p := range a.supervisors {
		if !p.ended {
			a.settle(p, pools[p])
		}
	}
}

// settle adds to the account what of the ended processes below a living one has not come up
// in that one's total. A sample is no instant: a process that ends during it may have been
// read after the one that waited for it, which has its time in the next sample (debt), or
// before it, and its time came up in the last sample already (excess). Bytes are not settled
// that way: a process's own come up in the same number.
func (a *account) settle(p *process, pool counters) {
	growth := p.now.gathered.minus(p.last.gathered)
	missing, more := pool.minus(growth), growth.minus(pool)
	repaid := min(p.debt, more[ofCPU], a.ended[ofCPU])
	a.ended[ofCPU] -= repaid
	missing[ofCPU] -= min(missing[ofCPU], p.excess)
	a.ended = a.ended.plus(missing)
	p.excess, p.debt = more[ofCPU]-repaid, missing[ofCPU]
}

// heir returns the living process that has waited for an ended one, or for the one that
// did, if its total counts for the job; nil: there is none.
func (a *account) heir(p *process, j *job) *process {
	for range 1000 {
		if p = p.parent; p == nil {
			return nil
		}
		if !p.ended {
			if p.job == j || a.supervisors[p] != nil {
				return p
			}
			return nil
		}
	}
	return nil
}

// supervise brings the job's supervisors up to date.
func (a *account) supervise(now map[*process]bool) {
	for p, g := range a.supervisors {
		if !p.ended {
			g.now = p.now.gathered
		}
		if p.ended || !now[p] { // from now on it may gather from other jobs
			a.ended = a.ended.plus(g.now.minus(g.base))
			delete(a.supervisors, p)
		}
	}
	for p := range now {
		if a.supervisors[p] == nil {
			if a.supervisors == nil {
				a.supervisors = map[*process]*gathered{}
			}
			a.supervisors[p] = &gathered{p.now.gathered, p.now.gathered}
		}
	}
}

// sum returns what the job has used, with its living processes.
func (a *account) sum(living []*process) counters {
	s := a.ended
	for _, p := range living {
		s = s.plus(p.now.total)
	}
	for _, g := range a.supervisors {
		s = s.plus(g.now.minus(g.base))
	}
	a.shown = a.shown.atLeast(s)
	return a.shown
}
