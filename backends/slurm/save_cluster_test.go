package slurm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/slurm"
	"github.com/allotment-hpc/allotment/test/cluster"
)

// saver is a batch script of a user's, and what becomes of its job when that is asked to save
// itself. It writes a line to the file runs when it begins, and ends when there is a file go.
type saver struct {
	script  string
	options []string
	element int
	wait    time.Duration  // 0: plenty
	state   backends.State // in the end; running: again
	failed  int            // checkpoints
}

const untilGo = "; while [ ! -e go ]; do sleep 0.1; done"

var savers = map[string]saver{
	"counts": {script: `n=$(cat state 2>/dev/null || echo 0); trap 'echo $n >state; exit 85' USR1; echo $n >>runs
while [ ! -e go ]; do n=$((n+1)); sleep 0.1; done`, state: backends.Running},
	"has-steps": {script: `trap : USR1; echo begun >>runs
srun --quiet --ntasks=1 sh -c 'trap "echo saved >>state; exit 85" USR1` + untilGo + `' &
wait $!; status=$?
while [ $status -gt 128 ]; do wait $!; status=$?; done
exit $status`, state: backends.Running},
	"element":    {script: `trap 'exit 85' USR1; [ $SLURM_ARRAY_TASK_ID != 2 ] || echo begun >>runs` + untilGo, options: []string{"--array=1-3"}, element: 2, state: backends.Running},
	"finishes":   {script: `trap 'exit 0' USR1; echo begun >>runs` + untilGo, state: backends.Done},
	"dies":       {script: `echo begun >>runs` + untilGo, state: backends.Running, failed: 1},
	"hangs":      {script: `trap '' USR1; echo begun >>runs` + untilGo, wait: time.Second, state: backends.Running, failed: 1},
	"is-awaited": {script: `trap 'echo saved >state; exit 85' USR1; echo begun >>runs` + untilGo, state: backends.Running, failed: 1},
}

// R33: real batch scripts are asked to save themselves by an engine that dies right after. The
// next one completes what was begun, and its count of failures outlives slurmctld.
func TestSavers(t *testing.T) {
	t.Parallel()
	f := newSaverFarm(t)
	var acts []backends.Act
	for name, x := range savers {
		f.submit(name, x)
	}
	after := f.sbatch("--dependency=afterok:"+strconv.FormatInt(f.ids["is-awaited"].Job, 10), "--output=/dev/null", "--wrap=true")
	if farm, err := f.engine.Snapshot(t.Context(), time.Time{}); err != nil || slices.ContainsFunc(farm.Jobs, func(j backends.Job) bool { return j.Awaited }) {
		t.Errorf("jobs that do not offer to save themselves: %v", err)
	}
	for name, x := range savers {
		f.await(name+" to begin", func() bool { return len(f.lines(name, "runs")) == 1 })
		j := f.job(f.ids[name])
		acts = append(acts, backends.Act{ID: j.ID, Started: j.Started, Mark: "r1", Save: f.save(x)})
	}
	if err := open(f.Cluster, "").Requeue(t.Context(), acts).First(); err != nil {
		t.Fatal(err)
	}
	if j := f.job(f.ids["hangs"]); j.State != backends.Running || !j.Ending || j.Mark != "r1" || j.FailedSaves != 0 {
		t.Errorf("while it is to save itself: %+v", j)
	}
	if err := f.engine.Requeue(t.Context(), []backends.Act{{ID: f.ids["hangs"]}}).First(); err == nil {
		t.Error("a job that is to save itself was requeued")
	}
	for name, x := range savers {
		f.over(name, x)
	}
	if j := f.job(f.ids["finishes"]); j.Mark != "r1" {
		t.Errorf("the job that finished: %+v, want its mark", j)
	}
	for range 2 { // the first state may have been gathered before
		f.change("hangs")
		f.Saved()
	}
	if err := f.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := f.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, x := range savers {
		if j := f.job(f.ids[name]); j.State != x.state || j.FailedSaves != x.failed {
			t.Errorf("%s after a crash of slurmctld: %+v", name, j)
		}
		runs := f.lines(name, "runs")
		if again := len(runs) == 2; again != (x.state == backends.Running) {
			t.Errorf("%s wrote %q", name, runs)
		}
	}
	if saved, runs := f.lines("counts", "state"), f.lines("counts", "runs"); len(saved) != 1 || saved[0] == "0" || runs[1] != saved[0] {
		t.Errorf("it went on from %q, and had saved %q", runs, saved)
	}
	if saved := f.lines("has-steps", "state"); len(saved) != 1 {
		t.Errorf("its step wrote %q", saved)
	}
	f.isAwaited("is-awaited", true)
	f.isAwaited("counts", false)
	if saved := f.lines("is-awaited", "state"); len(saved) != 0 || f.job(after).Reason != "Dependency" {
		t.Errorf("it wrote %q, though Slurm takes its end for the job's; what waits for it: %+v", saved, f.job(after))
	}
	for name := range savers {
		f.write(name, "go", "")
		f.await("the end of "+name, func() bool { return f.job(f.ids[name]).State == backends.Done })
	}
	f.await("what waits for one", func() bool { return f.job(after).State == backends.Done })
}

// Where slurm.conf has RequeueExit=85, Slurm itself requeues a job that has saved itself: jobs
// that wait for it go on waiting.
func TestSaverThatSlurmRequeues(t *testing.T) {
	t.Parallel()
	f := newSaverFarm(t, "RequeueExit=80-90")
	x := savers["is-awaited"]
	x.failed = 0
	f.submit("saves", x)
	after := f.sbatch("--dependency=afterany:"+strconv.FormatInt(f.ids["saves"].Job, 10), "--output=/dev/null", "--wrap=true")
	f.await("its run", func() bool { return len(f.lines("saves", "runs")) == 1 })
	if err := f.engine.Requeue(t.Context(), []backends.Act{{ID: f.ids["saves"], Save: f.save(x)}}).First(); err != nil {
		t.Fatal(err)
	}
	f.over("saves", x)
	f.isAwaited("saves", false)
	if saved := f.lines("saves", "state"); len(saved) != 1 || f.job(after).Reason != "Dependency" {
		t.Errorf("it wrote %q; what waits for it: %+v", saved, f.job(after))
	}
}

// The rank of a job whose owner set its priority does not show that it was asked to save itself:
// it is requeued at once.
func TestSaverWithAPriorityOfItsOwner(t *testing.T) {
	t.Parallel()
	f := newSaverFarm(t)
	x := savers["is-awaited"]
	f.submit("saves", x)
	f.await("its run", func() bool { return len(f.lines("saves", "runs")) == 1 })
	if _, err := f.Cluster.Run(t.Context(), "scontrol", "update", "JobId="+f.ids["saves"].String(), "Priority=5"); err != nil {
		t.Fatal(err)
	}
	if err := f.engine.Requeue(t.Context(), []backends.Act{{ID: f.ids["saves"], Save: f.save(x)}}).First(); err != nil {
		t.Fatal(err)
	}
	f.over("saves", x)
	if saved := f.lines("saves", "state"); len(saved) != 0 {
		t.Errorf("it wrote %q", saved)
	}
}

// slurmctld dies after it has acknowledged a record and before the signal, and comes back
// without the record. The job ends before it could be written again.
func TestSaverWhoseRecordIsLost(t *testing.T) {
	t.Parallel()
	f := newSaverFarm(t)
	x := savers["is-awaited"]
	x.failed = 0
	f.submit("saves", x)
	f.await("its run", func() bool { return len(f.lines("saves", "runs")) == 1 })
	bin := failingCommands(t)
	f.engine = open(f.Cluster, bin)
	for name, text := range map[string]string{
		"scontrol": "exec /usr/bin/scontrol \"$@\"",
		"scancel":  "kill -9 $(head -n 1 " + filepath.Join(f.Dir, "run", "slurmctld.pid") + "); sleep 0.5; env -i PATH=/usr/sbin:/usr/bin:/bin SLURM_CONF=" + f.Conf() + " slurmctld >/dev/null 2>&1; exec /usr/bin/scancel \"$@\"",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// What is written within five seconds after its state was saved slurmctld loses.
	f.change("saves")
	f.Saved()
	if err := f.engine.Requeue(t.Context(), []backends.Act{{ID: f.ids["saves"], Save: f.save(x)}}).First(); err != nil {
		t.Fatal(err)
	}
	f.over("saves", x)
	if saved := f.lines("saves", "state"); len(saved) != 1 {
		t.Errorf("it wrote %q", saved)
	}
}

// change gives slurmctld something to save.
func (f *saverFarm) change(name string) {
	f.Helper()
	if _, err := f.Cluster.Run(f.Context(), "scontrol", "update", "JobId="+strconv.FormatInt(f.ids[name].Job, 10), "Comment=x"+strconv.FormatInt(time.Now().UnixNano(), 10)); err != nil {
		f.Fatal(err)
	}
}

// isAwaited checks what a snapshot of all jobs says of one, whose owner says that it saves
// itself.
func (f *saverFarm) isAwaited(name string, want bool) {
	f.Helper()
	if _, err := f.Cluster.Run(f.Context(), "scontrol", "update", "JobId="+strconv.FormatInt(f.ids[name].Job, 10), "Comment="+backends.TagPrefix+"checkpoint=SIGUSR1%3A30s;"); err != nil {
		f.Fatal(err)
	}
	farm, err := f.engine.Snapshot(f.Context(), time.Time{})
	if err != nil {
		f.Fatal(err)
	}
	for i := range farm.Jobs {
		if j := &farm.Jobs[i]; j.ID == f.ids[name] && j.Awaited != want {
			f.Errorf("job %v of %s is awaited: %v, want %v", j.ID, name, j.Awaited, want)
		}
	}
}

// saverFarm is a cluster with jobs of savers, each in a directory of its name.
type saverFarm struct {
	*testing.T
	*cluster.Cluster
	engine *slurm.Client
	dir    string
	ids    map[string]backends.ID
}

func newSaverFarm(t *testing.T, conf ...string) *saverFarm {
	t.Helper()
	dir := dirForJobs(t)
	c := cluster.New(t, cluster.Options{Nodes: 1, CPUs: 12, Memory: 4096, Conf: append(conf, "MinJobAge=300")}) // a busy machine may take long
	return &saverFarm{t, c, open(c, ""), dir, map[string]backends.ID{}}
}

func (f *saverFarm) submit(name string, x saver) {
	f.Helper()
	if err := os.Mkdir(filepath.Join(f.dir, name), 0o755); err != nil {
		f.Fatal(err)
	}
	f.write(name, "job.sh", "#!/bin/bash\n"+x.script+"\n")
	f.ids[name] = f.sbatch(append(x.options, "--chdir="+filepath.Join(f.dir, name), filepath.Join(f.dir, name, "job.sh"))...)
	f.ids[name] = backends.ID{Job: f.ids[name].Job, Index: x.element}
}

func (f *saverFarm) sbatch(args ...string) backends.ID {
	f.Helper()
	out, err := f.Cluster.Run(f.Context(), append([]string{"sbatch", "--parsable"}, args...)...)
	if err != nil {
		f.Fatal(err)
	}
	id, err := backends.ParseID(strings.TrimSpace(out))
	if err != nil {
		f.Fatal(err)
	}
	return id
}

func (f *saverFarm) save(x saver) backends.Checkpoint {
	if x.wait == 0 {
		x.wait = time.Minute
	}
	return backends.Checkpoint{Signal: "SIGUSR1", Wait: x.wait}
}

// over has the engine do what is due until a job that was asked is what it is to be.
func (f *saverFarm) over(name string, x saver) {
	f.Helper()
	var j backends.Job
	f.await(fmt.Sprintf("%s to be %v", name, x.state), func() bool {
		if err := f.engine.Abilities().Reconcile(f.Context()); err != nil {
			f.Fatal(err)
		}
		j = f.job(f.ids[name])
		return j.State == x.state && !j.Ending && (x.state.Ended() || len(f.lines(name, "runs")) == 2)
	})
	if j.FailedSaves != x.failed || !x.state.Ended() && (j.Requeues != 1 || j.Mark != "r1" && j.Mark != "") {
		f.Errorf("%s: %+v, want %d failed checkpoints", name, j, x.failed)
	}
}

func (f *saverFarm) job(id backends.ID) backends.Job {
	f.Helper()
	jobs, err := f.engine.Jobs(f.Context(), []backends.ID{id})
	if err != nil || len(jobs) != 1 {
		f.Fatal(jobs, err)
	}
	return jobs[0]
}

func (f *saverFarm) await(what string, is func() bool) {
	f.Helper()
	await(f.T, f.Cluster, what, is)
}

// lines returns those of a file that a job writes.
func (f *saverFarm) lines(name, file string) []string {
	text, _ := os.ReadFile(filepath.Join(f.dir, name, file))
	return strings.Fields(string(text))
}

func (f *saverFarm) write(name, file, text string) {
	f.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name, file), []byte(text), 0o755); err != nil {
		f.Fatal(err)
	}
}
