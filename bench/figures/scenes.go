package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/bench/made"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/settings"
	"github.com/allotment-hpc/allotment/pba/simulate"
	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

const slots = 128

// scene is one of the comparisons.
type scene struct {
	Title   string
	About   string `json:",omitempty"`
	Command string // that shows the same
	Setup   simulate.Setup
	Result  *simulate.Result

	section string // it is in
	readme  bool   // it is in the README too
	bounds  bounds
}

// bounds are what a correct engine keeps to in a scene, beside what it keeps to in all.
type bounds struct {
	asUseful float64 // useful utilization is lower than fifo's by so much at most; 0: whatever it is
	lost     float64 // most of the farm that is lost; 0: whatever it is
	exact    bool    // no slot is evicted that was not requested, and dedicated is 5 points less useful
	ends     bool    // the widest job ends before the last submission
}

// Scenes with guarantees as they are for the trace that was recorded.
const (
	onePool  = "One project: user 7 holds 32 of 128 slots"
	twoPools = "Two projects: user 4 holds 64 beside it"
	oneSlot  = "One-slot jobs: the first 3,000, each job of n slots as n jobs of one"
	saving   = "Jobs that save their work"
	wide     = "One wide job"
	asked    = "Jobs with run limits"
)

// aPoint is one hundredth of the farm.
const aPoint = 0.01

func user(name string, slots int) simulate.PlanEntry {
	return simulate.PlanEntry{Allocation: plan.Allocation{Project: name, Guarantee: slots}}
}

// byUser selects users' jobs, each as a project of the user's name.
func byUser(names ...string) []simulate.Selector {
	var all []simulate.Selector
	for _, name := range names {
		all = append(all, simulate.Selector{Kind: simulate.ByUser, Name: name, Project: name})
	}
	return all
}

// base is what all scenes have: user 7 holds 32 of 128 slots.
func base(store *trace.Store, format trace.Format, name string) simulate.Setup {
	return simulate.Setup{
		Trace: store, Format: format, Name: name,
		Hosts: []backends.Host{{Name: "farm", Slots: slots}}, Plan: []simulate.PlanEntry{user("7", 32)}, By: byUser("7"),
		Policy: settings.Default().Policy(), Reserve: 10 * time.Minute, Seed: 1, ScaleArrivals: 1, Buckets: 240, Check: true,
		Policies: []string{simulate.FIFO, simulate.Dedicated, simulate.PBA},
		Filter: esub.Settings{
			Config: esub.DefaultConfig(), NextInLine: backends.At(backends.LevelNext, backends.DefaultValue), SuspendFrees: true,
		},
	}
}

// command is the command that simulates the same.
func command(name, options string) string {
	return "pba simulate --trace " + name + " --farm 128 --guarantee user:7=32" + options
}

// recorded are the scenes of the recorded trace.
func recorded(store *trace.Store, format trace.Format, path string) []scene {
	name := filepath.Base(path)
	one := base(store, format, name)
	two := one
	two.Plan, two.By = []simulate.PlanEntry{user("7", 32), user("4", 64)}, byUser("7", "4")
	const second = " --guarantee user:4=64"
	var all []scene
	for _, pool := range []struct {
		title, options string
		setup          simulate.Setup
	}{{onePool, "", one}, {twoPools, second, two}} {
		for _, arrivals := range []float64{1, 1.5, 2} {
			s := scene{Title: fmt.Sprintf("%s; arrivals × %g", pool.title, arrivals), Setup: pool.setup, section: pool.title, readme: arrivals == 2, bounds: bounds{asUseful: aPoint}}
			s.Setup.ScaleArrivals = arrivals
			s.Command = command(name, fmt.Sprintf("%s --scale-arrivals %g", pool.options, arrivals))
			all = append(all, s)
		}
	}
	grid := one
	grid.OneSlot, grid.First, grid.ScaleArrivals = true, 3000, 4
	all = append(all, scene{Title: oneSlot, Command: command(name, " --scale-arrivals 4 --first 3000 --one-slot"), Setup: grid, section: oneSlot, readme: true, bounds: bounds{asUseful: aPoint, exact: true}})

	two.ScaleArrivals = 2
	for _, part := range []struct {
		share float64
		title string
		lost  float64
	}{{0.5, "half of them", 0.012}, {1, "all of them", 0.003}} {
		s := scene{
			Title: "Two projects, arrivals × 2: " + part.title + " save their work when they are asked to", Setup: two, section: saving, bounds: bounds{asUseful: aPoint, lost: part.lost},
			Command: command(name, fmt.Sprintf("%s --scale-arrivals 2 --checkpoint %g%%:30s:60s", second, 100*part.share)),
		}
		s.Setup.OnDemand = simulate.Saves{Share: part.share, Time: 30 * time.Second, Restore: time.Minute}
		all = append(all, s)
	}
	every := scene{
		Title: "Two projects, arrivals × 2: all save their work every 10 minutes", Setup: two, section: saving, bounds: bounds{asUseful: aPoint},
		Command: command(name, second+" --scale-arrivals 2 --checkpoint-every 100%:10m:60s"),
	}
	every.Setup.Periodic = simulate.Saves{Share: 1, Time: 10 * time.Minute, Restore: time.Minute}
	return append(all, every)
}

// The names of the traces that are made, as `figures -made DIR` writes them.
const (
	wideName  = "wide.swf"
	askedName = "run-limits.swf"
)

func madeTraces() map[string]made.Records {
	return map[string]made.Records{wideName: made.WideJob(), askedName: made.Requested()}
}

// madeScenes are the scenes of traces that are made.
func madeScenes(stores map[string]*trace.Store) []scene {
	one := base(stores[wideName], trace.SWF, wideName)
	wideJob := func(how, options string, lost float64, set func(*simulate.Setup)) scene {
		s := scene{Title: "The job " + how, Command: command(wideName, options), Setup: one, section: wide, bounds: bounds{lost: lost, ends: lost < 0.02}}
		set(&s.Setup)
		return s
	}
	return []scene{
		wideJob("offers nothing", "", 0.025, func(*simulate.Setup) {}),
		wideJob("saves its work when it is asked to", " --checkpoint 100%:30s:60s", aPoint, func(s *simulate.Setup) {
			s.OnDemand = simulate.Saves{Share: 1, Time: 30 * time.Second, Restore: time.Minute}
		}),
		wideJob("is suspended", " --suspend 1", aPoint, func(s *simulate.Setup) { s.Suspend = 1 }),
		{Title: asked, Command: command(askedName, ""), Setup: base(stores[askedName], trace.SWF, askedName), section: asked},
	}
}

// about is what a section's scenes are about.
func about(section string) string {
	switch section {
	case saving:
		return "It takes 30 s to save, and a run needs 60 s to go on from there; both count as lost. The last case: jobs that save their work by themselves."
	case wide:
		return "A normal job of 124 slots for 4 h; from then on user 7, who holds 32 slots, sends a job of 8 slots for 10 minutes every half hour, for 8 days. `go run ./bench/figures -made DIR` writes this trace, " + wideName + ", and the next one."
	case asked:
		return "6,000 jobs of 1 to 96 slots, made by a seeded generator (" + askedName + "), whose users asked for two to five times the time that they take: the queue knows by when slots come free, and starts narrow jobs ahead of a wide one that waits only where they end before."
	}
	return ""
}
