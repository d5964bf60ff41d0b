package worker

import (
	"slices"
	"testing"
)

// A task has its split's environment, and knows the job that it runs in.
func TestEnvironment(t *testing.T) {
	split := []string{"PATH=/a", "SLURM_JOB_ID=1", "LSB_JOBID=2", "COLOUR=red", "ASPLIT_SOCKET=/old", "CUDA_VISIBLE_DEVICES=0", "SLURMX=1"}
	worker := []string{"PATH=/b", "SLURM_JOB_ID=5", "ASPLIT_URL=u", "CUDA_VISIBLE_DEVICES=3", "OTHER=x"}
	want := []string{"PATH=/a", "COLOUR=red", "SLURMX=1", "SLURM_JOB_ID=5", "ASPLIT_URL=u", "CUDA_VISIBLE_DEVICES=3"}
	if got := environment(split, worker); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
