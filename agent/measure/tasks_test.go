package measure

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// R47: what freezes a job of Slurm leaves slurmstepd out.
func TestTasks(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"step_batch/user/task_0", "step_batch/slurm", "step_0/user", "step_extern", "user", "other/user"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "user"), filepath.Join(dir, "step_extern/user")); err != nil {
		t.Fatal(err)
	}
	g := &JobGroup{Queue: Slurm, ID: backends.ID{Job: 7}, Path: "job_7", Dirs: map[string]string{"": dir}}
	var paths []string
	for _, task := range g.Tasks() {
		paths = append(paths, task.Path)
		if task.Queue != Slurm || task.ID != g.ID || task.Dirs[""] != filepath.Join(dir, task.Path[len("job_7/"):]) {
			t.Errorf("%+v", task)
		}
	}
	if want := []string{"job_7/step_0/user", "job_7/step_batch/user"}; !slices.Equal(paths, want) {
		t.Errorf("%q, want %q", paths, want)
	}
	for _, none := range []*JobGroup{{Queue: LSF, Dirs: g.Dirs}, {Queue: Slurm, Dirs: map[string]string{"freezer": dir}}} {
		if all := none.Tasks(); len(all) > 0 {
			t.Errorf("%+v: %+v", none, all)
		}
	}
}
