package measure

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Bounds of what is taken in of GPUs.
const (
	MaxGPUs         = 64
	MaxGPUProcesses = 1024 // of a GPU
)

// GPUReading is what the GPUs of this host do. Without GPUs and without a reason the host has
// none.
type GPUReading struct {
	GPUs []GPU  // by their indexes
	Why  string // nothing is known of them
}

// GPU is a GPU. Figures that it does not answer are absent.
type GPU struct {
	Index      int // as the driver numbers them
	UUID, Name string
	Why        string // it does not answer, or not all

	Busy               Value // per cent of the last sample period in which it ran something
	MemoryUsed, Memory Value // bytes
	Celsius            Value
	Milliwatts         Value

	Listed    bool         // its processes are known
	Processes []GPUProcess // at most MaxGPUProcesses
	More      int          // processes that are left out
	Read      uint64       // when the reading began, in clock ticks since boot: a process that began later is not meant
}

// GPUProcess is a process that uses a GPU.
type GPUProcess struct {
	PID    int
	Memory Value // bytes of the GPU's
	SM     Value // per cent of the time in which its streaming multiprocessors ran
}

// GPUUse is what a job uses of one GPU, or in sum of several. Devices is how many; it is 0 on
// a host with GPUs of which the job uses none.
type GPUUse struct {
	Devices Value
	Memory  Value // bytes
	SM      Value // per cent of a GPU
}

// JobGPU is what a job uses of a GPU.
type JobGPU struct {
	Index int
	GPUUse
}

// plus adds up figures. A sum of which one is absent is absent.
func (u GPUUse) plus(v GPUUse) GPUUse {
	add := func(a, b Value) Value { return Value{a.N + b.N, a.Known && b.Known} }
	return GPUUse{add(u.Devices, v.Devices), add(u.Memory, v.Memory), add(u.SM, v.SM)}
}

// readGPUs takes the last reading of the GPUs.
func (s *Sampler) readGPUs(now time.Time) GPUReading {
	if s.options.GPUs == nil {
		return GPUReading{}
	}
	return s.options.GPUs(now)
}

// shareGPUs adds to the jobs, which are sorted, what their processes use of the GPUs.
func (s *Sampler) shareGPUs(r *GPUReading, jobs []Job) {
	if !r.listed() {
		return
	}
	of := make(map[Key]*Job, len(jobs))
	for i := range jobs {
		jobs[i].GPU = GPUUse{known(0), known(0), known(0)}
		of[jobs[i].Key] = &jobs[i]
	}
	for i := range r.GPUs {
		g := &r.GPUs[i]
		for _, p := range g.Processes {
			is := s.processes[p.PID]
			if is == nil || is.job == nil || is.s.Start > g.Read {
				continue
			}
			if j := of[is.job.key]; j != nil {
				j.addGPU(g.Index, p)
			}
		}
	}
}

// addGPU adds what a process of the job uses of a GPU. GPUs come one after the other.
func (j *Job) addGPU(index int, p GPUProcess) {
	if n := len(j.GPUs); n == 0 || j.GPUs[n-1].Index != index {
		j.GPUs = append(j.GPUs, JobGPU{index, GPUUse{known(1), known(0), known(0)}})
		j.GPU.Devices.N++
	}
	use := GPUUse{known(0), p.Memory, p.SM}
	last := &j.GPUs[len(j.GPUs)-1]
	last.GPUUse = last.plus(use)
	j.GPU = j.GPU.plus(use)
}

// listed reports whether the processes of any GPU are known.
func (r *GPUReading) listed() bool {
	return slices.ContainsFunc(r.GPUs, func(g GPU) bool { return g.Listed })
}

// lacks says what of the jobs' use of GPUs can't be measured. It is nothing on a host without
// GPUs. Where no job is it is only that nothing is known of them: jobs that need GPUs may fail
// there at once, so that the host seems idle.
func (r *GPUReading) lacks(jobs int) (all []Lack) {
	switch {
	case r.Why != "":
		return []Lack{{GPUs, jobs, r.Why}}
	case jobs == 0:
		return nil
	}
	why := map[string][]int{}
	for i := range r.GPUs {
		g := &r.GPUs[i]
		if g.Why != "" {
			why[g.Why] = append(why[g.Why], g.Index)
		}
		if g.More > 0 {
			all = append(all, Lack{GPUs, jobs, fmt.Sprintf("GPU %d: processes beyond the bound of %d are left out", g.Index, MaxGPUProcesses)})
		}
	}
	for w, indexes := range why {
		all = append(all, Lack{GPUs, jobs, fmt.Sprintf("GPU %s: %s", joined(indexes), w)})
	}
	slices.SortFunc(all, func(a, b Lack) int { return cmp.Compare(a.Why, b.Why) })
	return all
}

// joined is a list of numbers as text.
func joined(numbers []int) (text string) {
	for i, n := range numbers {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprint(n)
	}
	return text
}
