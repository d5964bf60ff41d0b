package slurm_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/cluster"
)

// What a real Slurm shows of where jobs may run, and what it says of pins.
func TestWhereJobsMayRunOnACluster(t *testing.T) {
	t.Parallel()
	f := newUnmanaged(t, cluster.Options{Nodes: 3, CPUs: 2, Memory: 1024, Conf: []string{"Licenses=allotment_fixed:1,allotment_fixed_0:1,other:2", "PartitionName=small Nodes=node1 MaxTime=60 State=UP"}})
	running := f.sbatch("--array=1-6")
	f.await("the farm is full", func() bool {
		return !slices.ContainsFunc(f.farm().Jobs, func(j backends.Job) bool { return j.ID.Job == running.Job && j.State != backends.Running })
	})
	plain, small, two := f.sbatch("--licenses=allotment_fixed:1,other:2,allotment_fixed_0:1"), f.sbatch("-p", "small", "-t", "10"), f.sbatch("-N2", "-n2")
	array, excluding := f.sbatch("--array=1-4%1"), f.sbatch("-x", "node3")
	all := []backends.ID{plain, small, two, excluding}
	ranked := slices.Clone(all)
	for index := range 4 { // the limit of an array is asked for where slots may be freed for it
		ranked = append(ranked, backends.ID{Job: array.Job, Index: index + 1})
	}
	rankings := make([]backends.PriorityChange, len(ranked))
	for i, id := range ranked {
		rankings[i] = backends.PriorityChange{ID: id, Priority: backends.At(backends.LevelPBA, 20)}
	}
	if err := f.queue.SetPriority(t.Context(), rankings).First(); err != nil {
		t.Fatal(err)
	}
	farm := f.farm()
	of := func(id backends.ID) backends.Job {
		return farm.Jobs[slices.IndexFunc(farm.Jobs, func(j backends.Job) bool { return j.ID == id })]
	}
	if j := of(plain); j.Suits != nil || j.Unserved != "" || !j.OneHost {
		t.Errorf("plain: %+v", j)
	}
	if j := of(small); j.Suits == nil || !slices.Equal(j.Suits.Hosts, []string{"node1"}) {
		t.Errorf("-p small: %+v", j.Suits)
	}
	if j := of(excluding); j.Suits == nil || !slices.Equal(j.Suits.Hosts, []string{"node1", "node2"}) {
		t.Errorf("-x node3: %+v", j.Suits)
	}
	if j := of(two); j.OneHost || j.MinHosts != 2 || j.MaxHosts != 2 || j.Unserved != "" {
		t.Errorf("-N2: %+v", j)
	}
	waits := map[backends.Wait]int{}
	for _, j := range farm.Jobs {
		if j.ID.Job == array.Job {
			waits[j.Wait]++
		}
	}
	if waits[backends.WaitResources] != 1 || waits[backends.WaitThrottle] != 3 {
		t.Errorf("--array=1-4%%1: %v", waits)
	}

	// A pin is considered: Slurm's reason is none until then.
	pin := func(id backends.ID, hosts ...string) {
		t.Helper()
		if err := f.queue.Abilities().Pin(t.Context(), []backends.Pin{{ID: id, Hosts: hosts}}).First(); err != nil {
			t.Fatal(err)
		}
	}
	pin(plain, "node2")
	f.await("the pinned job is considered", func() bool {
		j := f.job(plain)
		return !j.Considered.IsZero() && j.Wait == backends.WaitResources && slices.Equal(j.Pinned, []string{"node2"})
	})
	if got, err := f.cluster.Run(t.Context(), "squeue", "--noheader", "--jobs="+plain.String(), "-O", "Licenses:|"); err != nil || strings.TrimSpace(got) != "other:2|" {
		t.Errorf("a job of a pool that is to be served needs the licences %q, %v", got, err)
	}
	err := f.queue.Abilities().Pin(t.Context(), []backends.Pin{{ID: excluding, Hosts: []string{"node3"}}}).First()
	if err == nil || !strings.Contains(err.Error(), "excludes") {
		t.Errorf("a pin to a host that the owner excludes: %v", err)
	}

	// Slurm takes the priority of a job whose pin contradicts it; it has it again without.
	if err := f.queue.Kill(t.Context(), []backends.ID{plain, two, array, excluding}).First(); err != nil {
		t.Fatal(err)
	}
	pin(small, "node2")
	f.await("the pin is refused", func() bool {
		j := f.job(small)
		return j.Wait == backends.WaitOther && !j.Considered.IsZero()
	})
	t.Log(f.job(small).Reason)
	pin(small)
	f.await("the job waits again as it did", func() bool {
		j := f.job(small)
		return j.Wait == backends.WaitResources && !j.Considered.IsZero() && j.Priority.Level() == backends.LevelPBA && len(j.Pinned) == 0
	})
}
