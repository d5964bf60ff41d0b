package daemon

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

func TestVariablesOfSlurm(t *testing.T) {
	run := manager.StartRun{
		ID: backends.ID{Job: 7, Index: 3}, Run: 2, User: "ann", Queue: "normal", Requeues: 1,
		Hosts: []backends.Placement{{Host: "n1", Slots: 2}, {Host: "n2", Slots: 2}, {Host: "n3", Slots: 1}},
		Spec:  &backends.Spec{Name: "sim", Project: "chipA:synthesis", Memory: 6 << 30, Array: &backends.Array{Indices: []int{1, 3, 5}}},
	}
	own := []string{"A=1", "SLURM_CONF=/etc/slurm.conf", "SLURM_JOB_ID=1", "SLURM_ARRAY_TASK_ID=9", "LSB_DJOB_HOSTFILE=/old", "ALLOTMENT_RESTARTED=1"}
	want := strings.Fields(`A=1 SLURM_CONF=/etc/slurm.conf
		LSB_JOBID=7 LSB_JOBINDEX=3 LSB_QUEUE=normal LSB_JOBNAME=sim[3] LSB_HOSTS=n1_n1_n2_n2_n3 LSB_MCPU_HOSTS=n1_2_n2_2_n3_1 LSB_DJOB_NUMPROC=5
		ALLOTMENT_JOBID=7[3] MINIQ_JOBID=7[3] ALLOTMENT_REQUEUES=1
		SLURM_JOB_ID=7 SLURM_JOBID=7 SLURM_JOB_NAME=sim SLURM_JOB_PARTITION=normal SLURM_JOB_USER=ann SLURM_JOB_ACCOUNT=chipA
		SLURM_JOB_NODELIST=n1,n2,n3 SLURM_NODELIST=n1,n2,n3 SLURM_JOB_NUM_NODES=3 SLURM_NNODES=3 SLURM_NTASKS=5 SLURM_NPROCS=5
		SLURM_TASKS_PER_NODE=2(x2),1 SLURM_JOB_CPUS_PER_NODE=2(x2),1 SLURM_CPUS_ON_NODE=2 SLURMD_NODENAME=n1 SLURM_SUBMIT_DIR=/work
		SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_RESTART_COUNT=1 SLURM_MEM_PER_NODE=2048
		SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=5 SLURM_ARRAY_TASK_STEP=2`)
	spaces := strings.NewReplacer("_n", " n", "_2", " 2", "_1", " 1")
	for i := range want {
		name, value, _ := strings.Cut(want[i], "=")
		want[i] = name + "=" + spaces.Replace(value)
	}
	if diff := cmp.Diff(want, environment(jobVariables(&run, "/work", miniq.EnvironmentSlurm), false, own)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	run.ID.Index, run.Spec.Array, run.Requeues, run.Spec.Memory = 0, nil, 0, 0
	for _, e := range environment(jobVariables(&run, "/work", miniq.EnvironmentSlurm), false, own) {
		if strings.Contains(e, "ARRAY") || strings.Contains(e, "RESTART") || strings.Contains(e, "MEM") || e == "SLURM_JOB_ID=1" {
			t.Errorf("a job that is no element has %s", e)
		}
	}
	inherited := environment(jobVariables(&run, "/work", miniq.EnvironmentLSF), true, own)
	if got := strings.Join(inherited[:4], " "); got != "A=1 SLURM_CONF=/etc/slurm.conf SLURM_JOB_ID=1 SLURM_ARRAY_TASK_ID=9" || inherited[len(inherited)-1] != "ALLOTMENT_RESTARTED=1" {
		t.Errorf("without environment: slurm: %q", inherited)
	}
}

func TestHostFile(t *testing.T) {
	if got := string(hostFile([]backends.Placement{{Host: "n1", Slots: 2}, {Host: "n2", Slots: 1}})); got != "n1\nn1\nn2\n" {
		t.Errorf("%q", got)
	}
	if got := hostFile([]backends.Placement{{Host: "n1", Slots: 1}}); got != nil {
		t.Errorf("one slot: %q", got)
	}
}
