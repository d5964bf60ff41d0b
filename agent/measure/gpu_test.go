package measure

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
)

// What a process uses of GPUs is its job's, unless it began after they were read: then another
// process had its number.
func TestJobsUseOfGPUs(t *testing.T) {
	m := newTree(t)
	m.mounts("cgroup2 cg nsdelegate")
	m.pid(pid{n: 10, parent: 1, name: "train", start: 50, env: "SLURM_JOB_ID=7", group: "/"})
	m.pid(pid{n: 11, parent: 1, name: "train", start: 60, env: "SLURM_JOB_ID=7", group: "/"})
	m.pid(pid{n: 12, parent: 1, name: "later", start: 101, env: "SLURM_JOB_ID=8", group: "/"})
	m.pid(pid{n: 13, parent: 1, name: "idle", start: 50, env: "SLURM_JOB_ID=9", group: "/"})
	m.pid(pid{n: 14, parent: 1, name: "service", start: 50, env: "A=b", group: "/"})
	reading := GPUReading{GPUs: []GPU{
		{Index: 0, Listed: true, Read: 100, Processes: []GPUProcess{{10, known(100), known(30)}, {11, known(50), known(20)}, {12, known(1), known(1)}, {14, known(7), known(7)}, {99, known(1), known(1)}}},
		{Index: 1, Why: "GPU is lost", Read: 100},
		{Index: 2, Listed: true, Read: 100, Processes: []GPUProcess{{11, Value{}, known(40)}}},
	}}
	s := New(Options{Proc: m.dir + "/proc", GPUs: func(time.Time) GPUReading { return reading }})
	defer s.Close()
	sample := s.Sample(time.Unix(100, 0))
	type use struct {
		Sum  GPUUse
		GPUs []JobGPU
	}
	got := map[backends.ID]use{}
	for _, j := range sample.Jobs {
		got[j.ID] = use{j.GPU, j.GPUs}
	}
	none := use{Sum: GPUUse{known(0), known(0), known(0)}}
	want := map[backends.ID]use{
		{Job: 7}: {GPUUse{known(2), Value{N: 150}, known(90)}, []JobGPU{
			{0, GPUUse{known(1), known(150), known(50)}}, {2, GPUUse{known(1), Value{}, known(40)}},
		}},
		{Job: 8}: none, {Job: 9}: none,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	lack := func() (all []Lack) {
		for _, l := range sample.Lacks {
			if l.Figure == GPUs {
				all = append(all, l)
			}
		}
		return all
	}
	if diff := cmp.Diff([]Lack{{GPUs, 3, "GPU 1: GPU is lost"}}, lack()); diff != "" {
		t.Error(diff)
	}

	// Without an answer all is absent; without GPUs nothing is lacking.
	for _, x := range []struct {
		r    GPUReading
		want []Lack
	}{{GPUReading{Why: "no answer"}, []Lack{{GPUs, 3, "no answer"}}}, {GPUReading{}, nil}} {
		reading = x.r
		sample = s.Sample(time.Unix(105, 0))
		for _, j := range sample.Jobs {
			if j.GPU != (GPUUse{}) || j.GPUs != nil {
				t.Errorf("%+v, %+v", j.GPU, j.GPUs)
			}
		}
		if diff := cmp.Diff(x.want, lack()); diff != "" {
			t.Error(diff)
		}
	}
}
