package laws

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// books are a slow and simple record of which job is charged to which pool (R9, R12),
// made from the farm, the policy and the engine's memory alone.
type books struct {
	policy  *plan.Policy
	groups  map[string][]string
	room    []int               // by index of policy.Allocations
	charged map[backends.ID]int // index of the pool that a job is charged to or holds room in
	by      map[int][]*backends.Job
	hosts   []backends.Host
	serving map[backends.ID][]backends.Placement // where beneficiaries of open reclaims shall run
	aside   []int                                // of room, what is kept for a head whose turn has not come yet
}

// pools lists the pools that a job matches and fits, where it runs or may run, most
// specific first.
func (b *books) pools(j *backends.Job) []int {
	least := b.least(j)
	return slices.DeleteFunc(b.matching(j), func(i int) bool {
		return !b.placed(j, &b.policy.Allocations[i]) || b.policy.Allocations[i].Guarantee < least
	})
}

// least returns how many slots an exclusive job that waits has for itself at least: all of the smallest
// hosts that it could run on.
func (b *books) least(j *backends.Job) int {
	if !j.Exclusive || j.State == backends.Running || j.State == backends.Suspended {
		return 0
	}
	var sizes []int
	for _, h := range b.hosts {
		if couldRun(h, j) {
			sizes = append(sizes, h.Slots)
		}
	}
	slices.Sort(sizes)
	sum := 0
	for _, n := range sizes[:min(max(j.MinHosts, 1), len(sizes))] {
		sum += n
	}
	return sum
}

// matching is pools, wherever the job runs.
func (b *books) matching(j *backends.Job) []int {
	if !b.proven(j) {
		return nil
	}
	var match []int
	for i, a := range b.policy.Allocations {
		if a.Project == j.Project && (a.User == "" || a.User == j.User) && (a.Step == "" || a.Step == j.Step) && a.Guarantee >= j.Slots {
			match = append(match, i)
		}
	}
	specific := func(i int) int {
		a := b.policy.Allocations[i]
		rank := 0
		if a.User != "" {
			rank += 2
		}
		if a.Step != "" {
			rank++
		}
		return rank
	}
	slices.SortFunc(match, func(x, y int) int {
		return cmp.Or(cmp.Compare(specific(y), specific(x)), cmp.Compare(min(len(b.policy.Allocations[x].Hosts), 1), min(len(b.policy.Allocations[y].Hosts), 1)), cmp.Compare(b.policy.Allocations[x].ID, b.policy.Allocations[y].ID))
	})
	return match
}

// proven reports whether a job's project is known and its user a member of it.
func (b *books) proven(j *backends.Job) bool {
	known := slices.IndexFunc(b.policy.Projects, func(p plan.Project) bool { return p.Name == j.Project })
	return known >= 0 && slices.Contains(b.groups[j.User], b.policy.Projects[known].Group)
}

// account returns what a job counts under: its project if that is proven, else its user.
func (b *books) account(j *backends.Job) string {
	if b.proven(j) {
		return "project " + j.Project
	}
	return "user " + j.User
}

// leaving reports whether the engine requeued or suspended a job that still runs.
func leaving(j *backends.Job, memory *plan.Memory) bool {
	if j.State != backends.Running {
		return false
	}
	for i := range memory.Reclaims {
		r := &memory.Reclaims[i]
		for _, v := range r.Victims {
			if v.ID == j.ID && j.Mark == "r"+strconv.FormatInt(r.ID, 10) && j.Started.Equal(v.Started) {
				return true
			}
		}
	}
	return false
}

// charge makes the books: running jobs that had a charge, by start; pending ones
// that entered, by when; then what runs without a charge and heads, by time.
// Jobs in gone count as ended.
func charge(state *plan.State, policy *plan.Policy, gone map[backends.ID]bool) *books {
	b := &books{policy: policy, groups: state.Groups, charged: map[backends.ID]int{}, by: map[int][]*backends.Job{}, hosts: state.Farm.Hosts, serving: serving(&state.Memory)}
	for _, a := range policy.Allocations {
		b.room, b.aside = append(b.room, a.Guarantee), append(b.aside, 0)
	}
	type turn struct {
		order int
		at    time.Time
		seq   int
		job   *backends.Job
		head  bool
	}
	var turns []turn
	for i := range state.Farm.Jobs {
		j := &state.Farm.Jobs[i]
		m := state.Memory.Jobs[j.ID]
		switch waits := j.Eligible() || j.State == backends.Suspended && j.Resuming; {
		case gone[j.ID] || leaving(j, &state.Memory) || j.State == backends.Pending && odd(j):
		case j.State == backends.Running && m.Pool != 0 && m.Kept == 0 && !b.strayed(j, m):
			turns = append(turns, turn{0, j.Started, 0, j, false})
		case j.State == backends.Running:
			turns = append(turns, turn{2, j.Started, 0, j, false})
		case waits && m.Pool != 0 && m.Kept == 0:
			turns = append(turns, turn{1, m.Entered, i, j, false})
		case waits && m.Pool != 0 && b.restoreHead(j, m):
			turns = append(turns, turn{2, m.Entered, 0, j, true})
		}
	}
	slices.SortFunc(turns, func(x, y turn) int {
		return cmp.Or(cmp.Compare(x.order, y.order), x.at.Compare(y.at), cmp.Compare(x.seq, y.seq), x.job.ID.Compare(y.job.ID))
	})
	for _, t := range turns {
		p := b.index(state.Memory.Jobs[t.job.ID].Pool)
		if t.head {
			b.aside[p] = 0
		}
		switch {
		case b.admit(t.job):
		case t.head: // what is left is the head's
			b.aside[p] = max(b.room[p], 0)
		case t.order == 1:
			b.restore(t.job, p, state.Memory.Jobs)
		}
	}
	return b
}

// strayed reports whether a job held room in a pool and runs on hosts that are not the pool's.
func (b *books) strayed(j *backends.Job, m plan.JobMemory) bool {
	p := b.index(m.Pool)
	return p >= 0 && !b.placed(j, &b.policy.Allocations[p])
}

func (b *books) index(id int64) int {
	return slices.IndexFunc(b.policy.Allocations, func(a plan.Allocation) bool { return a.ID == id })
}

// restoreHead sets aside what a head kept so far; a pool has one head.
func (b *books) restoreHead(j *backends.Job, m plan.JobMemory) bool {
	p := b.index(m.Pool)
	if p < 0 || b.aside[p] > 0 || !slices.Contains(b.pools(j), p) {
		return false
	}
	b.aside[p] = min(m.Kept, b.policy.Allocations[p].Guarantee)
	return true
}

// left returns what a pool has for jobs other than its head.
func (b *books) left(p int) int { return b.room[p] - b.aside[p] }

// admit charges a job to a pool: directly, or by one path of moves.
func (b *books) admit(j *backends.Job) bool {
	pools := b.pools(j)
	for _, p := range pools {
		if b.left(p) >= j.Slots {
			b.put(j, p)
			return true
		}
	}
	for depth := 1; depth <= len(b.room); depth++ {
		for _, p := range pools {
			if b.free(p, j.Slots, depth, map[int]bool{}) {
				b.put(j, p)
				return true
			}
		}
	}
	return false
}

// free makes room for slots in pool p by moving one job on, which may move one
// further, depth of them at most.
func (b *books) free(p, slots, depth int, seen map[int]bool) bool {
	if depth == 0 || seen[p] {
		return false
	}
	seen[p] = true
	defer delete(seen, p)
	for _, m := range slices.Clone(b.by[p]) {
		if b.left(p)+m.Slots < slots {
			continue
		}
		for _, to := range b.pools(m) {
			if to == p || seen[to] || b.left(to) < m.Slots && !b.free(to, m.Slots, depth-1, seen) {
				continue
			}
			b.remove(m, p)
			b.put(m, to)
			return true
		}
	}
	return false
}

// restore charges a job that entered to the pool that it was in, if what others have of its room goes
// back to where they were, and what is in their way there, too.
func (b *books) restore(j *backends.Job, home int, was map[backends.ID]plan.JobMemory) {
	if home < 0 || !slices.Contains(b.pools(j), home) {
		return
	}
	type move struct {
		job *backends.Job
		to  int
	}
	var moves []move
	emptied := []int{home} // of jobs from other pools
	for i := 0; i < len(emptied); i++ {
		for _, m := range b.by[emptied[i]] {
			to := b.index(was[m.ID].Pool)
			if to < 0 || to == emptied[i] || !slices.Contains(b.pools(m), to) {
				continue
			}
			moves = append(moves, move{m, to})
			if !slices.Contains(emptied, to) {
				emptied = append(emptied, to)
			}
		}
	}
	try := &books{room: slices.Clone(b.room), aside: b.aside}
	try.room[home] -= j.Slots
	for _, m := range moves {
		try.room[b.charged[m.job.ID]] += m.job.Slots
		try.room[m.to] -= m.job.Slots
	}
	for _, p := range emptied {
		if try.left(p) < 0 {
			return
		}
	}
	for _, m := range moves {
		b.remove(m.job, b.charged[m.job.ID])
		b.put(m.job, m.to)
	}
	b.put(j, home)
}

func (b *books) put(j *backends.Job, p int) {
	b.charged[j.ID] = p
	b.room[p] -= j.Slots
	b.by[p] = append(b.by[p], j)
}

func (b *books) remove(j *backends.Job, p int) {
	b.room[p] += j.Slots
	b.by[p] = slices.DeleteFunc(b.by[p], func(other *backends.Job) bool { return other == j })
}

// String lists the jobs that have a place in each pool.
func (b *books) String() string {
	var s strings.Builder
	for p, a := range b.policy.Allocations {
		fmt.Fprintf(&s, "pool %d of %d:", a.ID, a.Guarantee)
		for _, j := range b.by[p] {
			fmt.Fprintf(&s, " %v (%v %d of %s)", j.ID, j.State, j.Slots, j.User)
		}
		s.WriteString("; ")
	}
	return s.String()
}

// running sums what is charged to each pool by running jobs and those in also.
func (b *books) running(also map[backends.ID]bool) []int {
	sums := make([]int, len(b.room))
	for p, jobs := range b.by {
		for _, j := range jobs {
			if j.State == backends.Running || also[j.ID] {
				sums[p] += j.Slots
			}
		}
	}
	return sums
}
