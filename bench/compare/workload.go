package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The comparison runs ten times as fast as the site that it stands for.
const (
	minute = 6 * time.Second // stands for a minute

	nodes, perNode = 4, 4
	slots          = nodes * perNode
	guarantee      = 4

	window    = 80 * minute
	lastBurst = 70 * minute // later ones might not start within the window
	load      = 110         // percent of the farm, by all jobs together
	backlog   = 8           // jobs that wait from the start, behind those that fill the farm
)

// scene is a kind of background.
type scene struct {
	Name, Title       string
	shortest, longest time.Duration // of its jobs
}

func scenes() []scene {
	return []scene{
		{"short", "Background jobs of 2 to 10 minutes", 2 * minute, 10 * minute},
		{"long", "Background jobs of 10 to 20 minutes", 10 * minute, 20 * minute},
	}
}

// job is a job of one slot that is to be submitted.
type job struct {
	guaranteed bool
	at         time.Duration // since the window's begin
	length     time.Duration
}

// tick is what times of jobs are a multiple of.
const tick = 100 * time.Millisecond

// name holds all that the judge must know of the job.
func (j job) name() string {
	class := "background"
	if j.guaranteed {
		class = "guaranteed"
	}
	return fmt.Sprintf("%s-%.1f-%.1f", class, j.at.Seconds(), j.length.Seconds())
}

// parseName reads what name returned.
func parseName(name string) (job, error) {
	fields := strings.Split(name, "-")
	if len(fields) != 3 || fields[0] != "guaranteed" && fields[0] != "background" {
		return job{}, fmt.Errorf("job %q is none of the comparison's", name)
	}
	j := job{guaranteed: fields[0] == "guaranteed"}
	for i, to := range []*time.Duration{&j.at, &j.length} {
		seconds, err := strconv.ParseFloat(fields[1+i], 64)
		if err != nil {
			return job{}, fmt.Errorf("job %q: %w", name, err)
		}
		*to = time.Duration(seconds * float64(time.Second)).Round(tick)
	}
	return j, nil
}

// workload returns the jobs of a run in the order of their submission; the same for the same
// seed. The farm is full from the start, and the background's jobs make up for what the
// guaranteed ones leave of the load.
//
// A burst is of 2 to 4 jobs of 1 to 4 minutes. The next comes 2 to 4 minutes after this one
// would have ended on slots of its own: all of its jobs are within the guarantee.
func (s scene) workload(seed uint64) []job {
	r := rand.New(rand.NewPCG(seed, uint64(s.longest)))
	between := func(least, most time.Duration) time.Duration {
		return (least + time.Duration(r.Float64()*float64(most-least))).Round(tick)
	}
	var all []job
	work := slots * window * load / 100
	add := func(j job) {
		all = append(all, j)
		work -= j.length
	}
	for at := between(2*minute, 4*minute); at <= lastBurst; {
		longest := time.Duration(0)
		for range 2 + r.IntN(guarantee-1) {
			j := job{guaranteed: true, at: at, length: between(minute, 4*minute)}
			add(j)
			longest = max(longest, j.length)
		}
		at += longest + between(2*minute, 4*minute)
	}
	for i := range slots + backlog {
		j := job{length: between(s.shortest, s.longest)}
		if i < slots { // it has run for a while
			j.length = between(tick, j.length)
		}
		add(j)
	}
	for work > 0 {
		add(job{at: between(0, window-tick), length: between(s.shortest, s.longest)})
	}
	slices.SortStableFunc(all, func(a, b job) int { return cmp.Compare(a.at, b.at) })
	return all
}
