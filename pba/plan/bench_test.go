package plan

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// BenchmarkMake measures plan.Make's budget (docs/design.md, Budgets): jobs of which a
// tenth run, 500 projects, 5 % entitled, 100 open reclaims.
func BenchmarkMake(b *testing.B) {
	for _, jobs := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(jobs), func(b *testing.B) {
			state, policy := bigFarm(jobs)
			Make(state, policy, noon)
			runtime.GC() // whatever making the farm left: every size begins alike
			b.ReportAllocs()
			began := usedCPU(b)
			for b.Loop() {
				Make(state, policy, noon)
			}
			b.ReportMetric(float64(usedCPU(b)-began)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkScenes measures plan.Make on farms that make a search for victims long
// (docs/design.md, Budgets).
func BenchmarkScenes(b *testing.B) {
	for _, scene := range []struct {
		name string
		make func() (State, Policy)
	}{
		{"hosts", func() (State, Policy) { return mixedMemory(50, 128, 4) }},
		{"host", func() (State, Policy) { return mixedMemory(1, 192, 1) }},
		{"projects", func() (State, Policy) { return manyProjects(2000) }},
	} {
		b.Run(scene.name, func(b *testing.B) {
			state, policy := scene.make()
			if p := Make(state, policy, noon); len(p.Memory.Reclaims) == 0 {
				b.Fatal("no job was preempted: nothing was searched")
			}
			runtime.GC()
			began := usedCPU(b)
			for b.Loop() {
				Make(state, policy, noon)
			}
			b.ReportMetric(float64(usedCPU(b)-began)/float64(b.N), "cpu-ns/op")
		})
	}
}

// dueJob adds a job that has waited for its pool's slots.
func (s *scene) dueJob(user, project string, change ...func(*backends.Job)) {
	id := s.job(user, project, "", time.Hour, change...)
	s.state.Memory.Jobs[id] = JobMemory{Clock: 2 * time.Minute, ClockSeen: noon.Add(-20 * time.Second)}
}

// mixedMemory returns full hosts of one-slot jobs, no two with the same memory, and due jobs of 48
// slots that differ in memory, too.
func mixedMemory(hosts, slotsEach, due int) (State, Policy) {
	r := rand.New(rand.NewPCG(3, 4))
	s := newScene(&testing.T{}, hosts, slotsEach).pool("chipA", 48*due)
	s.state.Memory.Jobs = map[backends.ID]JobMemory{}
	for i := range s.state.Farm.Hosts {
		h := &s.state.Farm.Hosts[i]
		for range slotsEach {
			need := 1<<30 + r.Int64N(6<<30)
			h.Memory += need
			s.job(fmt.Sprint("user", r.IntN(20)), "", h.Name, time.Duration(60+r.IntN(7200))*time.Second, func(j *backends.Job) { j.Memory = need })
		}
	}
	for i := range due {
		s.dueJob("ann", "chipA", slots(48), memory(300+10*int64(i)))
	}
	return s.state, s.policy
}

// manyProjects returns a full farm on which each of many projects has a due job, no two of the
// same memory.
func manyProjects(projects int) (State, Policy) {
	r := rand.New(rand.NewPCG(5, 6))
	s := newScene(&testing.T{}, projects/16, 32)
	s.state.Memory.Jobs = map[backends.ID]JobMemory{}
	for i := range s.state.Farm.Hosts {
		h := &s.state.Farm.Hosts[i]
		h.Memory = 32 * 4 << 30
		for range 32 {
			need := 1<<30 + r.Int64N(3<<30)
			s.job(fmt.Sprint("user", r.IntN(500)), "", h.Name, time.Duration(60+r.IntN(7200))*time.Second, func(j *backends.Job) { j.Memory = need })
		}
	}
	for p := range projects {
		name := fmt.Sprintf("p%04d", p)
		s.policy.Projects = append(s.policy.Projects, Project{Name: name, Group: name})
		s.state.Groups["in"+name] = []string{name}
		s.pool(name, 1)
		s.dueJob("in"+name, name, func(j *backends.Job) { j.Memory = 1<<30 + int64(p)<<20 })
	}
	return s.state, s.policy
}

// usedCPU is the processor time of this process so far, the collector's included:
// it is the same on a busy machine.
func usedCPU(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func bigFarm(jobs int) (State, Policy) {
	r := rand.New(rand.NewPCG(1, 2))
	running := jobs / 10
	farm := &backends.Snapshot{At: noon, Jobs: make([]backends.Job, 0, jobs)}
	for i := range (running + 31) / 32 {
		farm.Hosts = append(farm.Hosts, backends.Host{Name: fmt.Sprintf("n%05d", i), Slots: 32, Memory: 128 << 30})
	}
	s := newScene(&testing.T{}, 0, 0)
	state, policy := s.state, s.policy
	state.Farm = farm
	state.Groups = map[string][]string{}
	policy.Projects = nil
	const projects = 500
	for p := range projects {
		name := fmt.Sprintf("p%03d", p)
		policy.Projects = append(policy.Projects, Project{Name: name, Group: name})
		policy.Allocations = append(policy.Allocations, Allocation{ID: int64(p + 1), Project: name, Guarantee: max(2, running*6/10/projects)})
		state.Groups["in"+name] = []string{name}
	}
	state.Memory.Jobs = map[backends.ID]JobMemory{}
	for i := range jobs {
		project := fmt.Sprintf("p%03d", r.IntN(projects))
		j := backends.Job{
			ID: backends.ID{Job: int64(i + 1)}, User: "someone" + fmt.Sprint(r.IntN(1000)), Project: project, Queue: "normal", Slots: 1, OneHost: true,
			Memory: 1 << 30, State: backends.Pending, Wait: backends.WaitResources, Priority: 20, Submitted: noon.Add(-time.Hour),
		}
		if r.IntN(20) == 0 {
			j.User = "in" + project
			state.Memory.Jobs[j.ID] = JobMemory{Clock: time.Duration(r.IntN(100)) * time.Second, ClockSeen: noon.Add(-20 * time.Second)}
		}
		if i < running {
			j.State, j.Started = backends.Running, noon.Add(-time.Duration(r.IntN(7200))*time.Second)
			j.Hosts = []backends.Placement{{Host: farm.Hosts[i/32].Name, Slots: 1}}
		}
		farm.Jobs = append(farm.Jobs, j)
	}
	state.Memory.NextID = 101
	for i := range 100 {
		b := backends.ID{Job: int64(running + 1 + i)}
		victim := &farm.Jobs[i]
		victim.Mark = fmt.Sprintf("r%d", i+1)
		farm.Jobs[running+i].User = "in" + farm.Jobs[running+i].Project
		state.Memory.Jobs[b] = JobMemory{Pool: 1, Entered: noon.Add(-time.Minute), ClockSeen: noon.Add(-20 * time.Second), Clock: time.Minute}
		state.Memory.Reclaims = append(state.Memory.Reclaims, Reclaim{
			ID: int64(i + 1), Beneficiary: b, Phase: Acted, Planned: noon.Add(-20 * time.Second), Acted: noon.Add(-20 * time.Second),
			Hosts: victim.Hosts, Need: 1, Victims: []Victim{{ID: victim.ID, Started: victim.Started, Slots: 1, Fate: Taken}},
		})
	}
	return state, policy
}
