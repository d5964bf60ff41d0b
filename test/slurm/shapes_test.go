package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/cluster"
)

// shape is a request that a member of a pool submits to a farm that others fill.
type shape struct {
	name    string
	fill    []filling // nil: a job in each slot
	options []string  // the member's
	evicted int       // the slots that are preempted for it
	on      []string  // the hosts on which its run may be; nil: any
	why     string    // what explain says of a job that is not served; "": it starts
}

// filling is jobs of one slot each.
type filling struct {
	jobs    int
	options []string
}

// The farm has 20 slots: node1 and node2 with 4 are the partition small, node3 with 8,
// which is big, and node4 with 4 and two GPUs are the partition large.
const shapedSlots = 20

var shapes = []shape{
	{name: "a partition", options: []string{"--partition=large"}, evicted: 1, on: []string{"node3", "node4"}},
	{name: "a full partition beside idle hosts", fill: []filling{{8, []string{"--partition=small"}}}, options: []string{"--partition=small"}, evicted: 1, on: []string{"node1", "node2"}},
	{name: "two partitions", options: []string{"--partition=small,large"}, evicted: 1},
	{name: "an excluded host", options: []string{"--exclude=node1,node2,node4"}, evicted: 1, on: []string{"node3"}},
	{name: "a requested host", options: []string{"--nodelist=node2"}, evicted: 1, on: []string{"node2"}},
	{name: "a feature", options: []string{"--constraint=big"}, evicted: 1, on: []string{"node3"}},
	{name: "busy GPUs beside idle slots", fill: []filling{{2, []string{"--gres=gpu:1"}}}, options: []string{"--gres=gpu:1"}, evicted: 1, on: []string{"node4"}},
	{name: "two GPUs and two slots", fill: []filling{{2, []string{"--gres=gpu:1"}}, {shapedSlots - 2, nil}}, options: []string{"--ntasks=2", "--nodes=1", "--gres=gpu:2"}, evicted: 2, on: []string{"node4"}},
	{name: "a throttled array", options: []string{"--array=1-8%1"}, evicted: 1},
	{name: "two hosts", options: []string{"--nodes=2", "--ntasks=2"}, evicted: 2},
	{name: "three hosts", options: []string{"--nodes=3", "--ntasks=3"}, evicted: 3},
	{name: "a task on each of two hosts", options: []string{"--nodes=2", "--ntasks-per-node=1"}, evicted: 2},
	{name: "two tasks of two slots on a host", options: []string{"--nodes=1", "--ntasks=2", "--cpus-per-task=2"}, evicted: 4},
	{name: "a host of its own", options: []string{"--exclusive", "--ntasks=1"}, evicted: 4},
	{name: "beside a burst that can't be preempted", fill: []filling{{20, []string{"--no-requeue"}}, {shapedSlots - 1, nil}}, options: nil, evicted: 1},
	{name: "a heterogeneous job", options: []string{"--ntasks=1", ":", "--ntasks=1"}, why: "a part of a job that starts on several kinds of hosts"},
	{name: "one feature of two", options: []string{"--constraint=[big|tiny]"}, why: "big|tiny"},
}

// R32: what a member of a pool asks is served one for one, whatever its shape, or nobody
// is preempted and explain says why. Slurm's own records are the judge.
func TestShapes(t *testing.T) {
	s := newShapedSite(t)
	for _, x := range shapes {
		t.Run(x.name, func(t *testing.T) {
			s := *s
			s.T = t
			s.empty()
			s.fill(x.fill)
			id := s.batch(&s.alice, nil, append([]string{"--account=chipA"}, x.options...)...)
			id, _, _ = strings.Cut(id, "+")
			if x.why != "" {
				s.untouched(id, x.why)
				return
			}
			s.served(id)
			s.judge(id, x)
			if strings.HasPrefix(x.name, "a throttled array") {
				s.nextElement(id)
			}
		})
	}
	s.noLuaErrors()
}

func newShapedSite(t *testing.T) *testSite {
	needed(t)
	const node = "CPUs=4 RealMemory=16384"
	s := newFarmSite(t, cluster.Options{
		Nodes: 4, Each: []string{node + " Feature=tiny", node + " Feature=tiny", "CPUs=8 RealMemory=65536 Feature=big", node + " Gres=gpu:2"},
		Queues: []string{
			"PartitionName=main Nodes=node[1-4] Default=YES MaxTime=INFINITE DefaultTime=1-0 State=UP",
			"PartitionName=small Nodes=node[1-2] MaxTime=INFINITE DefaultTime=1-0 State=UP",
			"PartitionName=large Nodes=node[3-4] MaxTime=INFINITE DefaultTime=1-0 State=UP",
		},
	}, 2)
	s.alice = s.addMember("chipA", 8)
	s.do("rebalance")
	return s
}

// newFarmSite starts a cluster with slurmdbd and installs Allotment there. Its jobs that
// can't be preempted hold at most so many slots, and one user half of these.
func newFarmSite(t *testing.T, o cluster.Options, fixed int) *testSite {
	t.Helper()
	sweep(t)
	dir, err := os.MkdirTemp("", ownName("-"))
	if err != nil {
		t.Fatal(err)
	}
	s := &testSite{T: t, dir: dir, state: filepath.Join(dir, "allotment")}
	t.Cleanup(func() { s.must(os.RemoveAll(dir)) })
	s.must(os.Chmod(dir, 0o755))
	o.Dir, o.Slurmdbd = dir, true
	cluster.New(t, o)
	s.install()
	licences := fmt.Sprintf("Licenses=allotment_fixed:%d", fixed)
	for i := range 8 {
		licences += fmt.Sprintf(",allotment_fixed_%d:%d", i, max(fixed/2, 1))
	}
	s.conf("s/^Licenses=.*/" + licences + "/")
	return s
}

// addMember makes a user, and a project with a pool of so many slots of which the user is a
// member.
func (s *testSite) addMember(project string, slots int) person {
	s.Helper()
	group := addGroup(s.T, "g")
	p := addPerson(s.T, "m", group)
	s.addAccount(project, p)
	s.do("project", "add", project, "--group", group)
	s.do("alloc", "set", project, strconv.Itoa(slots), "--weeks", "2")
	return p
}

// addAccount adds an account to slurmdbd, with a user in it.
func (s *testSite) addAccount(account string, p person) {
	s.Helper()
	s.root("sacctmgr", "--immediate", "--quiet", "add", "account", account)
	s.root("sacctmgr", "--immediate", "--quiet", "add", "user", p.name, "account="+account)
}

// empty ends all jobs.
func (s *testSite) empty() {
	s.Helper()
	for _, partition := range []string{"main", "small", "large"} {
		s.as(nil, nil, "scancel", "--quiet", "--state=PENDING", "--partition="+partition)
		s.as(nil, nil, "scancel", "--quiet", "--full", "--state=RUNNING", "--signal=KILL", "--partition="+partition)
	}
	s.await("an empty queue", func() bool {
		for _, partition := range []string{"main", "small", "large"} {
			s.as(nil, nil, "scancel", "--quiet", "--partition="+partition) // one may be on its way back into the queue
		}
		return s.root("squeue", "--noheader", "--all") == ""
	})
}

// fill submits jobs of no project, and waits until as many run as can.
func (s *testSite) fill(with []filling) {
	s.Helper()
	if with == nil {
		with = []filling{{jobs: shapedSlots}}
	}
	n := 0
	for _, f := range with {
		if slices.Contains(f.options, "--no-requeue") { // all but one wait for a licence
			s.root(slices.Concat([]string{"sbatch", "--parsable", "--output=/dev/null", fmt.Sprintf("--array=1-%d", f.jobs)}, f.options, []string{"--wrap=exec sleep 600"})...)
			n++
			continue
		}
		for range f.jobs {
			s.root(slices.Concat([]string{"sbatch", "--parsable", "--output=/dev/null"}, f.options, []string{"--wrap=exec sleep 600"})...)
			n++
		}
	}
	s.await("a filled farm", func() bool {
		return len(strings.Fields(s.root("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i"))) == n
	})
}

// cyclesAfter is how many cycles follow before a judgement: more may not be done then.
const cyclesAfter = 3

// served runs cycles until a job, or an element of an array, runs.
func (s *testSite) served(id string) {
	s.Helper()
	s.await("the start of "+id, func() bool {
		s.do("rebalance")
		return s.root("squeue", "--noheader", "--array", "--states=RUNNING", "--jobs="+id, "--format=%i") != ""
	})
	for range cyclesAfter {
		s.do("rebalance")
	}
}

// untouched runs cycles, and requires that nothing is preempted for a job that waits,
// and that explain says why.
func (s *testSite) untouched(id, why string) {
	s.Helper()
	begun := time.Now()
	s.await("cycles", func() bool { s.do("rebalance"); return time.Since(begun) > 6*time.Second })
	if n, what := s.evicted(); n != 0 {
		s.Errorf("%d slots were preempted:\n%s", n, what)
	}
	if text := s.do("explain", id); !strings.Contains(text, why) {
		s.Errorf("explain does not say %q:\n%s", why, text)
	}
}

// evicted returns how many slots Slurm took from the jobs that filled the farm.
func (s *testSite) evicted() (slots int, listing string) {
	s.Helper()
	listing = s.root("squeue", "--noheader", "--all", "--array", "-O", "JobID:|,UserName:|,RestartCnt:|,NumCPUs:|,StateCompact:|,ReasonList:|")
	for line := range strings.Lines(listing) {
		fields := strings.Split(line, "|")
		restarts, err := strconv.Atoi(strings.TrimSpace(fields[2]))
		n, err2 := strconv.Atoi(strings.TrimSpace(fields[3]))
		if err != nil || err2 != nil {
			s.Fatalf("squeue: %q", line)
		}
		slots += restarts * n
	}
	return slots, listing
}

// judge compares what was preempted, and where the job runs, with what is wanted.
func (s *testSite) judge(id string, x shape) {
	s.Helper()
	if n, what := s.evicted(); n != x.evicted {
		s.Errorf("%d slots were preempted, want %d:\n%s", n, x.evicted, what)
	}
	if x.on == nil {
		return
	}
	at := s.root("squeue", "--noheader", "--array", "--states=RUNNING", "--jobs="+id, "--format=%N")
	if !slices.Contains(x.on, at) {
		s.Errorf("it runs on %q, want one of %q", at, x.on)
	}
}

// nextElement ends the element of an array that runs: the next one starts.
func (s *testSite) nextElement(id string) {
	s.Helper()
	was := s.root("squeue", "--noheader", "--array", "--states=RUNNING", "--jobs="+id, "--format=%i")
	s.root("scancel", "--full", "--signal=KILL", was)
	s.await("the next element", func() bool {
		s.do("rebalance")
		is := s.root("squeue", "--noheader", "--array", "--states=RUNNING", "--jobs="+id, "--format=%i")
		return is != "" && is != was
	})
	if n, what := s.evicted(); n > 2 {
		s.Errorf("%d slots were preempted for one element at a time:\n%s", n, what)
	}
}
