package slurm_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/slurm"
	"github.com/allotment-hpc/allotment/test/cluster"
)

// unmanaged is a farm whose queue gives out slots and looks at no memory.
type unmanaged struct {
	*testing.T
	cluster *cluster.Cluster
	queue   *slurm.Client
}

func newUnmanaged(t *testing.T, o cluster.Options) *unmanaged {
	t.Helper()
	o.Conf = append(o.Conf, "SelectTypeParameters=CR_CPU")
	f := &unmanaged{T: t, cluster: cluster.New(t, o)}
	f.queue = open(f.cluster, "")
	return f
}

// sbatch submits a job that sleeps, with options.
func (f *unmanaged) sbatch(options ...string) backends.ID {
	f.Helper()
	argv := append([]string{"sbatch", "--parsable", "--output=/dev/null", "--chdir=/"}, options...)
	out, err := f.cluster.Run(f.Context(), append(argv, "--wrap=exec sleep 600")...)
	if err != nil {
		f.Fatal(err)
	}
	id, err := backends.ParseID(strings.TrimSpace(out))
	if err != nil {
		f.Fatal(err)
	}
	return id
}

func (f *unmanaged) farm() *backends.Snapshot {
	f.Helper()
	farm, err := f.queue.Snapshot(f.Context(), time.Time{})
	if err != nil {
		f.Fatal(err)
	}
	return farm
}

func (f *unmanaged) job(id backends.ID) backends.Job {
	f.Helper()
	jobs, err := f.queue.Jobs(f.Context(), []backends.ID{id})
	if err != nil || len(jobs) != 1 {
		f.Fatal(jobs, err)
	}
	return jobs[0]
}

// dummies are the dummy jobs for a job, by state.
func (f *unmanaged) dummies(heavy backends.ID) map[backends.State][]backends.Job {
	f.Helper()
	found := map[backends.State][]backends.Job{}
	farm := f.farm()
	for _, j := range slices.Concat(farm.Jobs, farm.Ended) {
		if j.DummyFor == heavy {
			found[j.State] = append(found[j.State], j)
		}
	}
	return found
}

func (f *unmanaged) submitDummies(queue *slurm.Client, dummies ...backends.Dummy) (ids []backends.ID) {
	f.Helper()
	for _, s := range queue.Abilities().Place(f.Context(), dummies) {
		if s.Err != nil {
			f.Fatal(s.Err)
		}
		ids = append(ids, s.ID)
	}
	return ids
}

func (f *unmanaged) kill(ids ...backends.ID) {
	f.Helper()
	if err := f.queue.Kill(f.Context(), ids).First(); err != nil {
		f.Fatal(err)
	}
}

func (f *unmanaged) await(what string, is func() bool) {
	f.Helper()
	await(f.T, f.cluster, what, is)
}

// R29, R31: dummy jobs take the slots of their host as those come free, before jobs
// that rank below them, and end by Kill or by their limit.
func TestDummyJobs(t *testing.T) {
	t.Parallel()
	f := newUnmanaged(t, cluster.Options{Nodes: 2, CPUs: 4, Conf: []string{"PartitionName=short Nodes=ALL MaxTime=2"}})
	if _, err := f.queue.Snapshot(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if f.queue.Abilities().ManagesMemory {
		t.Error("the cluster is told to manage memory")
	}
	heavy := f.sbatch("--hold", "--mem=10G")
	var fillers []backends.ID
	for _, host := range []string{"node1", "node2"} {
		for range 4 {
			fillers = append(fillers, f.sbatch("--nodelist="+host, "--mem=1G"))
		}
	}
	f.await("a full farm", func() bool {
		return f.job(fillers[0]).State == backends.Running && f.job(fillers[7]).State == backends.Running
	})
	waiting := f.sbatch("--mem=1G")

	d := backends.Dummy{For: heavy, Host: "node1", Priority: backends.At(backends.LevelPlaceholder, 20), Limit: time.Hour}
	ids := f.submitDummies(f.queue, d, d, d)
	for _, id := range ids {
		j := f.job(id)
		if j.DummyFor != heavy || j.State != backends.Pending || !j.Eligible() || j.Priority != d.Priority || j.Slots != 1 || j.Memory != 0 || !j.NoRequeue || j.Project != "" || j.Queue != "main" {
			t.Errorf("a dummy job that waits: %+v", j)
		}
	}
	f.kill(fillers[4]) // of the other host: the dummy jobs leave it to others
	f.await("the other job", func() bool { return f.job(waiting).State == backends.Running })
	if running := f.dummies(heavy)[backends.Running]; len(running) > 0 {
		t.Errorf("on another host: %+v", running)
	}
	later := f.sbatch("--mem=1G", "--nodelist=node1")
	rank := func(id backends.ID, p backends.Priority) {
		t.Helper()
		if err := f.queue.SetPriority(t.Context(), []backends.PriorityChange{{ID: id, Priority: p}}).First(); err != nil {
			t.Error(err)
		}
	}
	rank(later, backends.At(backends.LevelVictim, 50))
	f.kill(fillers[0], fillers[1])
	f.await("two dummy jobs", func() bool { return len(f.dummies(heavy)[backends.Running]) == 2 })
	rank(f.dummies(heavy)[backends.Pending][0].ID, backends.At(backends.LevelNormal, 20))
	f.kill(fillers[2])
	f.await("who ranks above the last dummy job by now", func() bool { return f.job(later).State == backends.Running })
	f.kill(fillers[3])
	f.await("the last dummy job", func() bool { return len(f.dummies(heavy)[backends.Running]) == 3 })
	for _, j := range f.dummies(heavy)[backends.Running] {
		if !slices.Equal(j.Hosts, []backends.Placement{{Host: "node1", Slots: 1}}) {
			t.Errorf("it is not on its host: %+v", j)
		}
	}
	f.kill(ids[1])
	f.await("its slot", func() bool {
		return len(f.dummies(heavy)[backends.Running]) == 2 && f.job(ids[1]).State.Ended()
	})
	f.kill(ids[0], ids[2])

	// A partition may allow less than the limit that is asked for, and jobs may be gone.
	short := f.sbatch("--hold", "--mem=10G", "--partition=short")
	d.For, d.Limit = short, 3*time.Second
	long := d
	long.Limit = time.Hour
	submitted := f.submitDummies(f.queue, d, long)
	f.await("the end by its own limit", func() bool { return f.job(submitted[0]).State == backends.Done })
	if j := f.job(submitted[1]); j.State != backends.Running || j.RunLimit != 2*time.Minute || j.Queue != "short" {
		t.Errorf("of a longer limit: %+v", j)
	}
	if ended := f.dummies(short)[backends.Done]; len(ended) != 1 || ended[0].DummyFor != short {
		t.Errorf("it ended as %+v", ended)
	}
	f.kill(waiting)
	f.await("the end of a job", func() bool { return f.job(waiting).State.Ended() })
	wrong := []backends.Dummy{d, d, d, d}
	wrong[0].For, wrong[1].For, wrong[2].Host, wrong[3].Limit = waiting, backends.ID{Job: 9999}, "nowhere", 0
	for i, s := range f.queue.Abilities().Place(t.Context(), wrong) {
		if want := []error{backends.ErrWrongState, backends.ErrUnknownJob, nil, nil}[i]; s.Err == nil || want != nil && !errors.Is(s.Err, want) {
			t.Errorf("%+v: %v, %v", wrong[i], s.ID, s.Err)
		}
	}

	// Forget ends the engine's own jobs.
	if _, err := f.queue.Abilities().Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.await("no dummy job", func() bool { return f.job(submitted[1]).State.Ended() })
}

// Another user's job is no dummy job, whatever its name and comment.
func TestForgedDummyJobs(t *testing.T) {
	t.Parallel()
	f := newUnmanaged(t, cluster.Options{Nodes: 1})
	heavy := f.sbatch("--hold", "--mem=10G")
	genuine := f.submitDummies(f.queue, backends.Dummy{For: heavy, Host: "node1", Priority: backends.At(backends.LevelPBA, 119), Limit: time.Hour})[0]
	out, err := f.cluster.Run(t.Context(), "squeue", "--noheader", "--jobs="+genuine.String(), "-O", "Comment:200")
	if err != nil || !strings.Contains(out, "dummy="+heavy.String()+";") {
		t.Fatalf("%q, %v", out, err)
	}
	forged := f.sbatch("--uid=nobody", "--job-name=allotment-dummy", "--comment="+strings.TrimSpace(out))
	held := f.sbatch("--uid=nobody", "--hold", "--job-name=allotment-dummy", "--comment="+strings.TrimSpace(out))
	for _, id := range []backends.ID{forged, held} {
		if j := f.job(id); j.User != "nobody" || j.IsDummy() {
			t.Errorf("%+v", j)
		}
	}
	if err := f.queue.Abilities().Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if j := f.job(held); j.State != backends.Held {
		t.Errorf("another's was released: %+v", j)
	}
	if _, err := f.queue.Abilities().Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.await("the genuine one's end", func() bool { return f.job(genuine).State.Ended() })
	if j := f.job(forged); j.State.Ended() {
		t.Errorf("another's was ended: %+v", j)
	}
}

// An engine that dies between the submission of dummy jobs and their release leaves some
// that are held. The next one gives them the priority that they were to have.
func TestDummyJobsAfterEngineCrash(t *testing.T) {
	t.Parallel()
	f := newUnmanaged(t, cluster.Options{Nodes: 1, CPUs: 1})
	filler := f.sbatch()
	f.await("a full host", func() bool { return f.job(filler).State == backends.Running })
	heavy := f.sbatch("--hold", "--mem=10G")
	d := backends.Dummy{For: heavy, Host: "node1", Priority: backends.At(backends.LevelPBA, 119), Limit: time.Hour}
	other := d
	other.Priority = backends.At(backends.LevelNormal, 30)
	for _, s := range open(f.cluster, failingCommands(t, "scancel")).Abilities().Place(t.Context(), []backends.Dummy{d, d, other}) {
		if s.Err == nil {
			t.Errorf("%v was acknowledged", s.ID)
		}
	}
	if held := f.dummies(heavy)[backends.Held]; len(held) != 3 {
		t.Fatalf("it left %+v: want three dummy jobs, held", f.dummies(heavy))
	}
	if err := f.queue.Abilities().Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	var ranks []backends.Priority
	for _, j := range f.dummies(heavy)[backends.Pending] {
		ranks = append(ranks, j.Priority)
	}
	if slices.Sort(ranks); !slices.Equal(ranks, []backends.Priority{other.Priority, d.Priority, d.Priority}) {
		t.Errorf("they wait with the priorities %v: %+v", ranks, f.dummies(heavy))
	}
	// One that could not be released is cancelled.
	for _, s := range open(f.cluster, failingCommands(t)).Abilities().Place(t.Context(), []backends.Dummy{d}) {
		if s.Err == nil {
			t.Errorf("%v was acknowledged", s.ID)
		}
	}
	if found := f.dummies(heavy); len(found[backends.Held]) != 0 || len(found[backends.Pending]) != 3 {
		t.Errorf("there are %+v", found)
	}
}

// The memory that jobs ask for is known where the cluster does not manage it.
func TestUnmanagedMemory(t *testing.T) {
	t.Parallel()
	f := newUnmanaged(t, cluster.Options{Nodes: 2, CPUs: 8, Memory: 16384})
	const giga = 1 << 30
	want := map[backends.ID]int64{}
	for _, hold := range []string{"--hold", "--requeue"} { // the latter changes nothing
		want[f.sbatch(hold, "--mem=10G")] = 10 * giga
		want[f.sbatch(hold, "--mem=3G", "--ntasks=2", "--nodes=1", "--job-name=a MinMemoryCPU=5G ")] = 3 * giga
		want[f.sbatch(hold, "--mem-per-cpu=3G", "--ntasks=2")] = 6 * giga
		want[f.sbatch(hold, "--mem=3G", "--ntasks=3", "--nodes=2")] = 6 * giga
	}
	f.await("their start", func() bool { return len(f.running()) == 4 })
	for range 2 { // the second time it is remembered
		farm := f.farm()
		for _, j := range farm.Jobs {
			if j.Memory != want[j.ID] {
				t.Errorf("%v job %v asks for %d, want %d", j.State, j.ID, j.Memory, want[j.ID])
			}
		}
		for _, h := range farm.Hosts {
			if h.Memory != 16*giga {
				t.Errorf("%+v", h)
			}
		}
	}
}

func (f *unmanaged) running() (ids []backends.ID) {
	farm := f.farm()
	for i := range farm.Jobs {
		if farm.Jobs[i].State == backends.Running {
			ids = append(ids, farm.Jobs[i].ID)
		}
	}
	return ids
}

// A begin time that the submit filter gave a job, and noted in its tag, is the engine's
// hold: it renews and ends it.
func TestFilterHold(t *testing.T) {
	t.Parallel()
	cluster.Needed(t)
	hook := filepath.Join(t.TempDir(), "job_submit.lua")
	script := `function slurm_job_submit(job, partitions, uid)
   if job.name == "heavy" then
      local at = os.time() + 600
      job.begin_time = at
      job.admin_comment = "allotment:1;held=" .. string.format("%d", at) .. ";"
   end
   return slurm.SUCCESS
end
function slurm_job_modify() return slurm.SUCCESS end
return slurm.SUCCESS
`
	if err := os.WriteFile(hook, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	f := newUnmanaged(t, cluster.Options{Nodes: 1, JobSubmit: hook})
	before := time.Now()
	ours, owners := f.sbatch("--job-name=heavy"), f.sbatch("--begin=now+600")
	array := f.sbatch("--job-name=heavy", "--array=1-2")
	array.Index = 2
	isHeld := func(id backends.ID, until time.Time) error {
		j := f.job(id)
		if j.State != backends.Pending || j.HeldUntil.Sub(until).Abs() > 30*time.Second || !j.BeginTime.IsZero() {
			return fmt.Errorf("job %v: held until %v, want about %v: %+v", id, j.HeldUntil, until, j)
		}
		return nil
	}
	for _, id := range []backends.ID{ours, array} {
		if err := isHeld(id, before.Add(600*time.Second)); err != nil {
			t.Error(err)
		}
	}
	if j := f.job(owners); !j.HeldUntil.IsZero() || j.BeginTime.IsZero() {
		t.Errorf("its owner's: %+v", j)
	}
	hold := f.queue.Abilities().HoldUntil
	later := time.Now().Add(time.Hour)
	if err := hold(t.Context(), []backends.HoldUntil{{ID: ours, Until: later}}).First(); err != nil {
		t.Fatal(err)
	}
	if err := isHeld(ours, later); err != nil {
		t.Error(err)
	}
	if err := hold(t.Context(), []backends.HoldUntil{{ID: ours}, {ID: array}}).First(); err != nil {
		t.Fatal(err)
	}
	f.await("both", func() bool {
		return f.job(ours).State == backends.Running && f.job(array).State == backends.Running
	})
	array.Index = 1
	if err := isHeld(array, before.Add(600*time.Second)); err != nil {
		t.Error(err)
	}
}
