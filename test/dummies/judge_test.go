package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/judge"
)

// second returns a time of an invented play.
func second(s float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second)))
}

func one(number int64, name string, memory int, host string, from, to float64) job {
	return job{name: name, id: backends.ID{Job: number}, memory: memory, runs: []run{{host, second(from), second(to)}}, ends: 1}
}

// faultless returns a play without faults of few jobs on two hosts: two heavy ones after
// each other on n1 with light ones in their dummies' slots, another at the same time on n2.
func faultless() *evidence {
	e := &evidence{jobs: []job{
		one(1, "heavy1", heavy, "n1", 5, 10),
		one(2, "heavy2", heavy, "n1", 15, 20),
		one(3, "heavy3", heavy, "n2", 5, 12),
		one(4, "medium1", medium, "n1", 0, 5.5),
		one(5, "medium2", medium, "n1", 6, 11),
		one(6, "medium3", medium, "n2", 4, 9),
		one(7, "light1", light, "n1", 6.5, 9.5),
		one(8, "light2", light, "n1", 7, 9),
		one(9, "light3", light, "n2", 0, 3),
		one(10, "light4", light, "n1", 16, 19),
	}}
	for i := range 24 {
		at := float64(i)
		l := snapshot{cycle: second(at), listed: second(at + 0.2), ended: map[backends.ID]bool{}, hosts: map[backends.ID]string{}}
		for _, j := range e.jobs { // a second later
			l.ended[j.id] = j.runs[0].to.Before(second(at - 1))
			if r := j.runs[0]; !r.from.After(second(at)) && !l.ended[j.id] {
				l.hosts[j.id] = r.host
			}
		}
		dummy := func(number, of int64, from, to float64) {
			if at >= from && at < to {
				l.dummies = append(l.dummies, dummyJob{backends.ID{Job: number}, backends.ID{Job: of}})
			}
		}
		dummy(20, 1, 2, 7)
		dummy(21, 1, 3, 6.5)
		dummy(22, 3, 3, 13)
		dummy(23, 3, 4, 13)
		dummy(24, 1, 10, 11)
		dummy(25, 2, 12, 21)
		dummy(26, 2, 12, 16)
		dummy(27, 2, 20, 21)
		e.snapshots = append(e.snapshots, l)
	}
	return e
}

// Each property is broken, one at a time: its check fails.
func TestJudge(t *testing.T) {
	const once, fits, apart, full, lights, outlived, covered, left, kills = "each of the", "the memory asked", "two heavy", "a host never", "light jobs ran", "no dummy job outlived", "after each cycle", "nothing is left", "the engine was killed"
	find := func(e *evidence, name string) *job {
		return &e.jobs[slices.IndexFunc(e.jobs, func(j job) bool { return j.name == name })]
	}
	without := func(e *evidence, gone func(dummyJob) bool) {
		for i := range e.snapshots {
			e.snapshots[i].dummies = slices.DeleteFunc(e.snapshots[i].dummies, gone)
		}
	}
	killed := func(e *evidence) {
		for _, i := range []int{4, 8, 18} {
			e.kills = append(e.kills, e.snapshots[i].cycle.Add(-3*time.Second/2))
			e.snapshots[i].restarted = true
		}
	}
	for name, c := range map[string]struct {
		change func(e *evidence)
		judge  func(*evidence) []judge.Check
		fails  []string
	}{
		"as it should":      {func(*evidence) {}, (*evidence).with, nil},
		"a job never ran":   {func(e *evidence) { *find(e, "medium3") = job{name: "medium3", memory: medium} }, (*evidence).with, []string{once}},
		"a job never ended": {func(e *evidence) { find(e, "medium3").ends = 0 }, (*evidence).with, []string{once}},
		"a job ran twice": {func(e *evidence) {
			j := find(e, "medium3")
			j.runs = append(j.runs, run{"n2", second(13), second(15)})
		}, (*evidence).with, []string{once}},
		"nothing ran at all": {func(e *evidence) {
			for i := range e.jobs {
				e.jobs[i].runs = nil
			}
		}, (*evidence).with, []string{once, fits, apart, full, lights, covered}},
		"a light job too many for the memory": {func(e *evidence) {
			find(e, "medium1").runs[0].to = second(9) // two medium ones beside a heavy one
		}, (*evidence).with, []string{fits, full}},
		"two heavy jobs meet": {func(e *evidence) {
			find(e, "heavy3").runs[0] = run{"n1", second(11.5), second(15.5)}
			without(e, func(d dummyJob) bool { return d.job.Job == 3 })
		}, (*evidence).with, []string{fits, apart, covered}},
		"they meet and would fit": {func(e *evidence) {
			e.jobs = []job{one(1, "heavy1", heavy, "n1", 5, 10), one(2, "heavy2", heavy, "n1", 9, 12)}
			e.snapshots = nil
		}, (*evidence).with, []string{fits, apart, lights, covered}},
		"five on a host": {func(e *evidence) {
			for i := range 5 {
				e.jobs = append(e.jobs, one(int64(30+i), "more", light, "n3", 1, 3))
			}
		}, (*evidence).with, []string{full}},
		"no light job had a dummy's slot": {func(e *evidence) {
			e.jobs = slices.DeleteFunc(e.jobs, func(j job) bool { return j.memory == light })
			without(e, func(d dummyJob) bool { return d.job.Job != 3 })
			e.jobs = slices.DeleteFunc(e.jobs, func(j job) bool { return j.memory == heavy && j.name != "heavy3" })
		}, (*evidence).with, []string{lights}},
		"a light job in the slot that is left": {func(e *evidence) {
			e.jobs = []job{*find(e, "heavy3"), one(40, "light5", light, "n2", 9.5, 11)}
			without(e, func(d dummyJob) bool { return d.job.Job != 3 })
		}, (*evidence).with, []string{lights}},
		"a dummy outlives its job": {func(e *evidence) {
			e.snapshots[15].dummies = append(e.snapshots[15].dummies, dummyJob{backends.ID{Job: 22}, backends.ID{Job: 3}})
		}, (*evidence).with, []string{outlived}},
		"a dummy is there while the queue learns of the end": {func(e *evidence) {
			e.snapshots[13].dummies = append(e.snapshots[13].dummies, dummyJob{backends.ID{Job: 22}, backends.ID{Job: 3}})
		}, (*evidence).with, nil},
		"a dummy of an unknown job": {func(e *evidence) {
			e.snapshots[9].dummies = append(e.snapshots[9].dummies, dummyJob{backends.ID{Job: 28}, backends.ID{Job: 99}})
		}, (*evidence).with, []string{outlived}},
		"a dummy of a job that needs none": {func(e *evidence) {
			e.snapshots[6].dummies = append(e.snapshots[6].dummies, dummyJob{backends.ID{Job: 28}, backends.ID{Job: 6}})
		}, (*evidence).with, []string{covered}},
		"a dummy too many": {func(e *evidence) {
			e.snapshots[6].dummies = append(e.snapshots[6].dummies, dummyJob{backends.ID{Job: 28}, backends.ID{Job: 3}})
		}, (*evidence).with, []string{covered}},
		"a running heavy job without a dummy": {func(e *evidence) {
			without(e, func(d dummyJob) bool { return d.id.Job == 23 })
		}, (*evidence).with, []string{covered}},
		"a light job is slow to start in its dummy's slot": {func(e *evidence) {
			find(e, "light1").runs[0].from = second(9)
		}, (*evidence).with, nil},
		"a light job that starts too late, and was not given the slot": {func(e *evidence) {
			j := find(e, "light1")
			j.runs[0].from = second(9)
			for i := range 9 {
				delete(e.snapshots[i].hosts, j.id)
			}
		}, (*evidence).with, []string{covered}},
		"a light job whose end the queue learns late": {func(e *evidence) {
			find(e, "light4").runs[0].to = second(16.5) // its dummy is back at 20
			for i := 16; i < 20; i++ {
				e.snapshots[i].hosts[backends.ID{Job: 10}] = "n1"
			}
		}, (*evidence).with, nil},
		"a light job that ended, and the queue knew": {func(e *evidence) {
			find(e, "light4").runs[0].to = second(16.5)
			for i := 17; i < 20; i++ {
				delete(e.snapshots[i].hosts, backends.ID{Job: 10})
			}
		}, (*evidence).with, []string{covered}},
		"no snapshot": {func(e *evidence) { e.snapshots = nil }, (*evidence).with, []string{covered}},
		"a dummy is left": {func(e *evidence) {
			e.left = []string{"job 27 (running), a dummy of 2"}
		}, (*evidence).with, []string{left}},

		"killed":            {killed, (*evidence).killed, nil},
		"killed too seldom": {func(e *evidence) { killed(e); e.kills = e.kills[:2]; e.snapshots[18].restarted = false }, (*evidence).killed, []string{kills}},
		"never restarted":   {func(e *evidence) { killed(e); e.snapshots[18].restarted = false }, (*evidence).killed, []string{kills}},
		"killed, and its first cycle leaves dummies missing": {func(e *evidence) {
			killed(e)
			e.snapshots[8].dummies = nil
		}, (*evidence).killed, []string{covered}},
	} {
		t.Run(name, func(t *testing.T) {
			e := faultless()
			c.change(e)
			compare(t, c.judge(e), c.fails)
		})
	}
}

// If the memory never exceeds a host's without dummy jobs, the scenario fails.
func TestJudgeWithout(t *testing.T) {
	const overlap = "without dummy jobs the memory"
	e := faultless()
	compare(t, e.without(), []string{overlap})
	e.jobs = append(e.jobs, one(30, "heavy4", heavy, "n1", 7, 9))
	compare(t, e.without(), nil)
	e.jobs[0].ends = 0
	compare(t, e.without(), []string{"each of the"})
	compare(t, (&evidence{}).without(), []string{overlap})
}

func TestJudgeGone(t *testing.T) {
	const went, once, left = "when the engine was killed", "each of the", "nothing is left"
	for name, c := range map[string]struct {
		change func(e *evidence)
		fails  []string
	}{
		"as it should":       {func(*evidence) {}, nil},
		"heavy jobs meet":    {func(e *evidence) { e.jobs[1].runs[0] = run{"n2", second(10), second(13)} }, nil},
		"a heavy never ran":  {func(e *evidence) { e.jobs[1].runs, e.jobs[1].ends = nil, 0 }, []string{once}},
		"a dummy is left":    {func(e *evidence) { e.left = []string{"job 25"} }, []string{left}},
		"no dummy was there": {func(e *evidence) { e.snapshots[len(e.snapshots)-1].dummies = nil }, []string{went}},
		"none waited": {func(e *evidence) {
			e.jobs[1].runs[0] = run{"n3", second(8), second(13)}
		}, []string{went}},
		"never killed":  {func(e *evidence) { e.kills = nil }, []string{went}},
		"killed before": {func(e *evidence) { e.snapshots = nil }, []string{went}},
	} {
		t.Run(name, func(t *testing.T) {
			e := faultless()
			e.snapshots = e.snapshots[:10]
			e.kills = []time.Time{second(9.5)}
			c.change(e)
			compare(t, e.gone(), c.fails)
		})
	}
}

// compare requires that the checks whose texts begin with one of fails, and no others, fail.
func compare(t *testing.T, checks []judge.Check, fails []string) {
	t.Helper()
	for _, f := range fails {
		if !slices.ContainsFunc(checks, func(c judge.Check) bool { return strings.HasPrefix(c.What, f) }) {
			t.Errorf("there is no check %q", f)
		}
	}
	for _, c := range checks {
		want := !slices.ContainsFunc(fails, func(f string) bool { return strings.HasPrefix(c.What, f) })
		if c.OK != want {
			t.Errorf("%s: %v, want %v: %s", c.What, c.OK, want, c.Found)
		}
	}
}

func TestUsage(t *testing.T) {
	e := &evidence{jobs: []job{one(1, "a", light, "n1", 1, 4), one(2, "b", light, "n1", 2, 11)}}
	if worked, took := e.usage(); worked != 12*time.Second || took != 10*time.Second {
		t.Errorf("%v in %v", worked, took)
	}
}

// A seed determines the load, which has jobs of all kinds.
func TestLoad(t *testing.T) {
	of := amount{others: 40, shortest: 3 * time.Second}
	seven, again, eight := load(7, of), load(7, of), load(8, of)
	if !slices.Equal(seven, again) || slices.Equal(seven, eight) {
		t.Error("a seed does not determine the load")
	}
	counts := map[int]int{}
	for _, w := range seven {
		counts[w.memory]++
		if w.work < 3*time.Second || w.work > 6*time.Second {
			t.Errorf("%s works for %v", w.name, w.work)
		}
	}
	if fmt.Sprint(counts) != "map[1:40 4:40 10:12]" {
		t.Error(counts)
	}
}

func TestParseEnv(t *testing.T) {
	env := func(pairs ...string) func(string) string {
		return func(key string) string {
			if i := slices.Index(pairs, key); i >= 0 {
				return pairs[i+1]
			}
			return ""
		}
	}
	on, plays, seed, err := parseEnv(env("ALLOTMENT_BACKEND", "slurm", "RUN", "gone", "SEED", "12"))
	if err != nil || len(on) != 1 || on[0].options.Slurm == nil || len(plays) != 1 || plays[0].name != "gone" || seed != 12 {
		t.Errorf("%d farms, %v, %d, %v", len(on), plays, seed, err)
	}
	if on, plays, _, err := parseEnv(env()); err != nil || len(on) != 2 || len(plays) != 4 {
		t.Errorf("%d farms, %d plays, %v", len(on), len(plays), err)
	}
	for _, bad := range [][]string{{"ALLOTMENT_BACKEND", "moab"}, {"RUN", "away"}, {"SEED", "x"}} {
		if _, _, _, err := parseEnv(env(bad...)); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}
