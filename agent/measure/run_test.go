package measure

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

func TestRunInEnvironment(t *testing.T) {
	for env, want := range map[string]int{
		"SLURM_JOB_ID=7": 1, "SLURM_JOB_ID=7\x00SLURM_RESTART_COUNT=0": 1, "SLURM_RESTART_COUNT=3\x00SLURM_JOB_ID=7": 4,
		"SLURM_RESTART_COUNT=3": 0, "SLURM_JOB_ID=7\x00SLURM_RESTART_COUNT=-1": 0, "SLURM_JOB_ID=7\x00SLURM_RESTART_COUNT=1048576": 0,
		"SLURM_JOB_ID=7\x00SLURM_RESTART_COUNT=1\x00SLURM_RESTART_COUNT=2": 2, "LSB_JOBID=7\x00SLURM_RESTART_COUNT=1": 0,
	} {
		if got := ParseEnvironment([]byte(env)).Run; got != want {
			t.Errorf("%q: run %d, want %d", env, got, want)
		}
	}
}

// A job in a control group is in the run that its user's first processes name, in a later sample
// where none is there yet, and at last in the first one.
func TestRunsOfGroups(t *testing.T) {
	m := newTree(t)
	m.mounts("cgroup2 cg nsdelegate")
	const scope = "system.slice/slurmstepd.scope/"
	group := func(job string) { m.write("cg/"+scope+job+"/cpu.stat", "usage_usec 1\n") }
	group("job_12")
	step := pid{n: 51, parent: 1, name: slurmStep, start: 6, group: "/" + scope + "job_12/step_batch", env: "SLURM_JOB_ID=12,SLURM_RESTART_COUNT=9"}
	m.pid(step)
	group("job_13")
	m.pid(pid{n: 60, parent: 1, name: "sleep", start: 5, group: "/" + scope + "job_13/step_extern"}) // Slurm's own
	m.pid(pid{n: 61, parent: 1, name: "bash", start: 6, group: "/" + scope + "job_13/step_batch", env: "SLURM_JOB_ID=13,SLURM_RESTART_COUNT=1"})
	m.pid(pid{n: 62, parent: 61, name: "x", start: 7, group: "/" + scope + "job_13/step_batch", env: "SLURM_JOB_ID=13,SLURM_RESTART_COUNT=7"})
	group("job_14")
	m.pid(pid{n: 70, parent: 1, name: "x", start: 5, group: "/" + scope + "job_14/step_0", env: "SLURM_JOB_ID=99,SLURM_RESTART_COUNT=7"})
	s := m.sampler()
	defer s.Close()
	runs := func() [3]int {
		jobs := s.Sample(noon).Jobs
		if len(jobs) != 3 {
			t.Fatalf("%+v", jobs)
		}
		return [3]int{jobs[0].Run, jobs[1].Run, jobs[2].Run}
	}
	if got := runs(); got != [3]int{0, 2, 0} {
		t.Errorf("runs %v", got)
	}
	step.name, step.env = "slurm_script", "SLURM_JOB_ID=12,SLURM_RESTART_COUNT=2"
	m.pid(step)
	if got := runs(); got != [3]int{3, 2, 0} {
		t.Errorf("when the job has become its user's: %v", got)
	}
	if got := runs(); got != [3]int{3, 2, 1} {
		t.Errorf("where nothing names it: %v", got)
	}
	// It ends, and comes back in its next run.
	if err := os.RemoveAll(filepath.Join(m.dir, "cg", scope, "job_12")); err != nil {
		t.Fatal(err)
	}
	m.ends(51)
	if got := s.Sample(noon).Jobs; len(got) != 2 {
		t.Errorf("%+v", got)
	}
	group("job_12")
	step.n, step.start, step.env = 52, 9, "SLURM_JOB_ID=12,SLURM_RESTART_COUNT=3"
	m.pid(step)
	if got := runs(); got != [3]int{4, 2, 1} {
		t.Errorf("in the next run: %v", got)
	}
}

// A job whose script begins long after its control group is there is in the run that the script
// names, not in the first one.
func TestRunOfJobThatBeginsLate(t *testing.T) {
	m := newTree(t)
	m.mounts("cgroup2 cg nsdelegate")
	const scope = "system.slice/slurmstepd.scope/"
	m.write("cg/"+scope+"job_12/cpu.stat", "usage_usec 1\n")
	m.pid(pid{n: 50, parent: 1, name: "sleep", start: 4, group: "/" + scope + "job_12/step_extern/user/task_special"})
	m.pid(pid{n: 51, parent: 1, name: slurmStep, start: 5, group: "/" + scope + "job_12/step_batch"})
	s := m.sampler()
	defer s.Close()
	for i := range 5 * runSamples {
		if jobs := s.Sample(noon.Add(time.Duration(i) * time.Second)).Jobs; len(jobs) != 1 || jobs[0].Run != 0 {
			t.Fatalf("sample %d: %+v", i, jobs)
		}
	}
	m.pid(pid{n: 52, parent: 51, name: "slurm_script", start: 6, group: "/" + scope + "job_12/step_batch", env: "SLURM_JOB_ID=12,SLURM_RESTART_COUNT=2"})
	if jobs := s.Sample(noon.Add(time.Hour)).Jobs; len(jobs) != 1 || jobs[0].Run != 3 {
		t.Errorf("%+v", jobs)
	}
}

// The job of a process that no sample has seen.
func TestJobOfProcess(t *testing.T) {
	m := newTree(t)
	m.mounts("cgroup2 cg nsdelegate")
	s := m.sampler()
	defer s.Close()
	m.pid(pid{n: 1, parent: 0, name: "init", start: 1, group: "/init.scope"})
	m.pid(pid{n: 10, parent: 1, name: "bash", start: 2, group: "/user.slice", env: "SLURM_JOB_ID=5,SLURM_RESTART_COUNT=1"})
	s.Sample(noon)
	const scope = "system.slice/slurmstepd.scope/"
	m.write("cg/"+scope+"job_12/cpu.stat", "usage_usec 1\n")
	m.pid(pid{n: 20, parent: 1, name: slurmStep, start: 6, group: "/" + scope + "job_12/step_batch"})
	m.pid(pid{n: 21, parent: 20, name: "bash", start: 7, group: "/" + scope + "job_12/step_batch", env: "SLURM_JOB_ID=12,SLURM_RESTART_COUNT=2"})
	m.pid(pid{n: 22, parent: 21, name: "x", start: 8, group: "/" + scope + "job_12/step_batch", env: "SLURM_JOB_ID=99"})
	m.pid(pid{n: 30, parent: 10, name: "env", start: 8, group: "/user.slice"}) // of its parent's job, by a clean environment
	m.pid(pid{n: 31, parent: 30, name: "x", start: 9, group: "/user.slice"})
	m.pid(pid{n: 40, parent: 1, name: "x", start: 9, group: "/user.slice", env: "LSB_JOBID=8,LSB_JOBINDEX=3"})
	m.pid(pid{n: 50, parent: 1, name: "x", start: 9, group: "/user.slice"})
	m.pid(pid{n: 60, parent: 31, name: "x", start: 3, group: "/user.slice"}) // older than what has its parent's number
	for n, want := range map[int]Job{
		22: {Key: Key{Slurm, backends.ID{Job: 12}, 1000}, Source: FromGroupV2},
		21: {Key: Key{Slurm, backends.ID{Job: 12}, 1000}, Source: FromGroupV2, Run: 3},
		31: {Key: Key{Slurm, backends.ID{Job: 5}, 1000}, Source: FromProcesses, Run: 2},
		10: {Key: Key{Slurm, backends.ID{Job: 5}, 1000}, Source: FromProcesses, Run: 2},
		40: {Key: Key{LSF, backends.ID{Job: 8, Index: 3}, 1000}, Source: FromProcesses},
	} {
		got, ok := s.JobOf(n)
		if run := got.Run; n == 22 && run == 3 { // whichever was asked first
			got.Run = 0
		}
		if !ok || got.Key != want.Key || got.Source != want.Source || got.Run != want.Run {
			t.Errorf("process %d: %+v, %v\nwant %+v", n, got, ok, want)
		}
	}
	for _, n := range []int{1, 50, 60, 77} {
		if got, ok := s.JobOf(n); ok {
			t.Errorf("process %d: %+v", n, got)
		}
	}
	if got := s.Sample(noon.Add(time.Second)).Jobs; len(got) != 3 || got[1].Processes.N != 3 || got[2].Run != 3 {
		t.Errorf("the next sample: %+v", got)
	}
}
