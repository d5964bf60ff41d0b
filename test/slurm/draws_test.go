package slurm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/test/judge"
)

// roundHost is a node of the rounds' farm.
type roundHost struct {
	judge.Amounts
	feature string
	small   bool // it is of the partition small, not large
}

var roundFarm = []roundHost{
	{judge.Amounts{Slots: 4}, "tiny", true},
	{judge.Amounts{Slots: 4}, "tiny", true},
	{judge.Amounts{Slots: 8}, "big", false},
	{judge.Amounts{Slots: 4, GPUs: 2}, "accelerated", false},
	{judge.Amounts{Slots: 8, GPUs: 2}, "big", false},
	{judge.Amounts{Slots: 4, GPUs: 2}, "accelerated", false},
}

const (
	roundSlots = 32
	roundFixed = 3 // slots of jobs that can't be preempted
)

// request is what a user types, and what a judge and the draw must know of it.
type request struct {
	shape     string
	options   []string
	slots     int   // of one element of an array
	hosts     int   // 0: as many as Slurm chooses
	gpus      int   // on each host
	on        []int // indices of hosts; nil: any
	exclusive bool
	elements  int // of an array; 0: none
	limit     int // of them at a time; 0: all
	seconds   int // that it runs
}

// draws are what may be drawn: each returns a request of random size.
var draws = []func(*rand.Rand) request{
	func(*rand.Rand) request { return request{shape: "1 slot", slots: 1, hosts: 1} },
	func(r *rand.Rand) request {
		n := 2 + r.IntN(3)
		return request{shape: "n slots on 1 host", options: []string{"--nodes=1", fmt.Sprintf("--ntasks=%d", n)}, slots: n, hosts: 1}
	},
	func(r *rand.Rand) request {
		n := 2 + r.IntN(4)
		return request{shape: "n slots anywhere", options: []string{fmt.Sprintf("--ntasks=%d", n)}, slots: n}
	},
	func(*rand.Rand) request {
		return request{shape: "-c 2", options: []string{"--nodes=1", "--ntasks=2", "--cpus-per-task=2"}, slots: 4, hosts: 1}
	},
	func(*rand.Rand) request {
		return request{shape: "-p small", options: []string{"--partition=small"}, slots: 1, hosts: 1, on: hostsWith(func(h roundHost) bool { return h.small })}
	},
	func(*rand.Rand) request {
		return request{shape: "-p large", options: []string{"--partition=large"}, slots: 1, hosts: 1, on: hostsWith(func(h roundHost) bool { return !h.small })}
	},
	func(*rand.Rand) request {
		return request{shape: "-p small,large", options: []string{"--partition=small,large"}, slots: 1, hosts: 1}
	},
	func(r *rand.Rand) request {
		out := r.Perm(len(roundFarm))[:1+r.IntN(4)]
		var names []string
		for _, i := range out {
			names = append(names, hostName(i))
		}
		var on []int
		for i := range roundFarm {
			if !slices.Contains(out, i) {
				on = append(on, i)
			}
		}
		return request{shape: "-x", options: []string{"--exclude=" + strings.Join(names, ",")}, slots: 1, hosts: 1, on: on}
	},
	func(r *rand.Rand) request {
		i := r.IntN(len(roundFarm))
		return request{shape: "-w", options: []string{"--nodelist=" + hostName(i)}, slots: 1, hosts: 1, on: []int{i}}
	},
	func(r *rand.Rand) request {
		n := 1 + r.IntN(2)
		return request{shape: "-C big", options: []string{"--constraint=big", "--nodes=1", fmt.Sprintf("--ntasks=%d", n)}, slots: n, hosts: 1, on: hostsWith(func(h roundHost) bool { return h.feature == "big" })}
	},
	func(r *rand.Rand) request {
		n := 1 + r.IntN(2)
		return request{shape: "--gres=gpu", options: []string{fmt.Sprintf("--gres=gpu:%d", n)}, slots: 1, hosts: 1, gpus: n, on: hostsWith(func(h roundHost) bool { return h.GPUs > 0 })}
	},
	func(*rand.Rand) request {
		return request{shape: "-N2 --gres=gpu:1", options: []string{"--nodes=2", "--ntasks=2", "--gres=gpu:1"}, slots: 2, hosts: 2, gpus: 1, on: hostsWith(func(h roundHost) bool { return h.GPUs > 0 })}
	},
	func(r *rand.Rand) request {
		n := 2 + r.IntN(2)
		return request{shape: "-Nn -nn", options: []string{fmt.Sprintf("--nodes=%d", n), fmt.Sprintf("--ntasks=%d", n)}, slots: n, hosts: n}
	},
	func(r *rand.Rand) request {
		n := 1 + r.IntN(2)
		return request{shape: "-N2 --ntasks-per-node", options: []string{"--nodes=2", fmt.Sprintf("--ntasks-per-node=%d", n)}, slots: 2 * n, hosts: 2}
	},
	func(r *rand.Rand) request {
		n := 2 + r.IntN(3)
		return request{shape: "-a 1-n", options: []string{fmt.Sprintf("--array=1-%d", n)}, slots: 1, hosts: 1, elements: n}
	},
	func(r *rand.Rand) request {
		n := 1 + r.IntN(2)
		return request{shape: "-a 1-4%n", options: []string{fmt.Sprintf("--array=1-4%%%d", n)}, slots: 1, hosts: 1, elements: 4, limit: n, seconds: 2}
	},
	func(*rand.Rand) request {
		return request{shape: "--exclusive", options: []string{"--exclusive", "--ntasks=1"}, slots: 1, hosts: 1, exclusive: true}
	},
	func(*rand.Rand) request {
		return request{shape: "--no-requeue", options: []string{"--no-requeue"}, slots: 1, hosts: 1}
	},
}

func hostName(i int) string { return fmt.Sprintf("node%d", i+1) }

func hostsWith(is func(roundHost) bool) (all []int) {
	for i, h := range roundFarm {
		if is(h) {
			all = append(all, i)
		}
	}
	return all
}

// atOnce returns how many elements run at a time.
func (q *request) atOnce() int {
	switch {
	case q.elements == 0:
		return 1
	case q.limit > 0:
		return min(q.limit, q.elements)
	}
	return q.elements
}

// layout finds places on an empty farm for requests that are to run at the same time.
type layout struct {
	free  [6]judge.Amounts
	alone [6]bool
}

func newLayout() *layout {
	var l layout
	for i, h := range roundFarm {
		l.free[i] = h.Amounts
	}
	return &l
}

// place adds a request, and returns the slots that it has then; 0: it does not fit.
func (l *layout) place(q *request) (slots int) {
	after := *l
	for range q.atOnce() {
		n := after.placeOne(q)
		if n == 0 {
			return 0
		}
		slots += n
	}
	*l = after
	return slots
}

func (l *layout) placeOne(q *request) int {
	var on []int
	for i := range roundFarm {
		if !l.alone[i] && (q.on == nil || slices.Contains(q.on, i)) && l.free[i].GPUs >= q.gpus && l.free[i].Slots > 0 {
			on = append(on, i)
		}
	}
	if q.exclusive {
		for _, i := range on {
			if l.free[i].Slots == roundFarm[i].Slots {
				l.alone[i] = true
				return roundFarm[i].Slots
			}
		}
		return 0
	}
	if q.hosts == 0 {
		left := q.slots
		for _, i := range on {
			n := min(left, l.free[i].Slots)
			l.free[i].Slots -= n
			left -= n
		}
		if left > 0 {
			return 0
		}
		return q.slots
	}
	placed := 0
	for _, i := range on {
		if n := q.slots / q.hosts; placed < q.hosts && l.free[i].Slots >= n {
			l.free[i].Slots -= n
			l.free[i].GPUs -= q.gpus
			placed++
		}
	}
	if placed < q.hosts {
		return 0
	}
	return q.slots
}

// drawWave draws requests for a pool until it has no room for the next ones.
func drawWave(r *rand.Rand, l *layout, pool int) (all []request) {
	left := pool
	for misses := 0; left > 0 && misses < 6; {
		q := draws[r.IntN(len(draws))](r)
		after := *l
		if n := after.place(&q); n == 0 || n > left {
			misses++
		} else {
			*l, left = after, left-n
			all = append(all, q)
		}
	}
	return all
}

// drawBackground draws what others submit: more than the farm holds, of which some ends by
// itself in a third of the rounds.
func drawBackground(r *rand.Rand) (all []request) {
	churn := r.IntN(3) == 0
	for slots := 0; slots < roundSlots*3/2; {
		q := draws[r.IntN(len(draws))](r)
		switch {
		case r.IntN(3) == 0:
			n := 3 + r.IntN(8)
			q = request{shape: "-a 1-n", options: []string{fmt.Sprintf("--array=1-%d", n)}, slots: 1, hosts: 1, elements: n}
		case q.exclusive: // its slots are more than the share of such jobs
			continue
		case q.shape == "--no-requeue":
			q.options, q.elements = append(q.options, "--array=1-20"), 20
		}
		if q.seconds = 0; churn && r.IntN(3) == 0 {
			q.seconds = 3 + r.IntN(15)
		}
		if q.shape != "--no-requeue" {
			slots += q.slots * q.atOnce()
		}
		all = append(all, q)
	}
	return all
}
