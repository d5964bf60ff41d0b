package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// The farm: a slot's share of a host's memory is 4 GB.
const (
	hosts      = 4
	slots      = 4  // of each
	hostMemory = 16 // GB of each
)

// The kinds of jobs, by what they ask for in GB. They use none of it.
const (
	heavy  = 10 // needs three slots' worth: its own and two dummies
	medium = 4
	light  = 1 // a quarter of a share

	dummiesOfHeavy = 2
)

// jobSpec is what a job is to do.
type jobSpec struct {
	name   string
	memory int // GB
	work   time.Duration
}

// amount is how much of each kind a load has. A queue that is slow to submit to needs fewer and longer
// jobs: its slots are full before the load is submitted, and a job outlives a cycle.
type amount struct {
	others   int           // medium jobs, and as many light ones
	shortest time.Duration // the longest works twice as long
}

// load returns the jobs in the order in which they are submitted, the same for one seed.
func load(seed uint64, of amount) []jobSpec {
	r := rand.New(rand.NewPCG(seed, 1))
	var all []jobSpec
	for _, kind := range []struct {
		name          string
		memory, count int
	}{{"heavy", heavy, 12}, {"medium", medium, of.others}, {"light", light, of.others}} {
		for i := range kind.count {
			work := of.shortest + time.Duration(r.Int64N(int64(of.shortest)))
			all = append(all, jobSpec{fmt.Sprintf("%s%d", kind.name, i+1), kind.memory, work})
		}
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}
