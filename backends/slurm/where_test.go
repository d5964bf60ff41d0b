package slurm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
)

// kinds is the snapshot of a cluster with jobs of many kinds: node1 in the partition small
// (1 h, one node), too; node3 has the features big and fast, node4 big, gpu and two GPUs.
func kinds(t testing.TB) (p *snapshot, excluded map[int64][]string) {
	t.Helper()
	l, err := parseNodes(captured(t, "sinfo_kinds.txt"), nonce)
	if err != nil {
		t.Fatal(err)
	}
	p = &snapshot{layout: *l, cluster: cluster{at: time.Unix(1795475460, 0), scale: Scale{Unit: 2}, from: FromAccount, slots: map[string]int{}, memory: true}}
	for _, h := range p.hosts {
		p.slots[h.Name] = h.Slots
	}
	read := jobLines(nonce, &p.cluster, &p.jobs)
	if err := read.feed(numbered(t, "requests.txt")); err != nil {
		t.Fatal(err)
	}
	if excluded, err = parseExclusions(captured(t, "excluded.txt"), nonce); err != nil {
		t.Fatal(err)
	}
	for _, j := range p.jobs {
		if j.State == backends.Running {
			j.Hosts = spread(j.nodes, j.Slots, p.slots)
		}
	}
	return p, excluded
}

func named(p *snapshot, name string) *listedJob {
	return p.jobs[slices.IndexFunc(p.jobs, func(j *listedJob) bool { return j.Name == name })]
}

func TestWhereJobsMayRun(t *testing.T) {
	p, excluded := kinds(t)
	placeJobs(p, excluded, nil, nil)
	got := map[string]string{}
	for _, j := range p.jobs {
		if j.State != backends.Pending {
			continue
		}
		if j.Unserved != "" {
			got[j.Name] = "unserved: " + j.Unserved
			continue
		}
		text := "any"
		if j.Suits != nil {
			text = strings.Join(j.Suits.Hosts, " ")
		}
		got[j.Name] = fmt.Sprintf("%s; %d-%d hosts, per host %d, unit %d", text, j.MinHosts, j.MaxHosts, j.PerHost, j.Unit)
		for _, n := range j.Needs {
			got[j.Name] += fmt.Sprintf(", %s %d", n.Name, n.Count)
		}
	}
	one := "any; 1-1 hosts, per host 0, unit 0"
	want := map[string]string{
		"plain":      one,
		"small":      "node1; 1-1 hosts, per host 0, unit 0",
		"both":       one,
		"long":       one,
		"big":        "node3 node4; 1-1 hosts, per host 0, unit 0",
		"bigfast":    "node3; 1-1 hosts, per host 0, unit 0",
		"or":         "unserved: --constraint=big|gpu",
		"counted":    "unserved: --constraint=[big*1&gpu*1]",
		"exclude":    "node1 node2 node3; 1-1 hosts, per host 0, unit 0",
		"on1":        one,
		"on12":       "any; 2-2 hosts, per host 0, unit 0",
		"on1of2":     "unserved: --nodelist of some of its nodes",
		"typed":      one + ", gpu 1, gpu:a100 1",
		"gpus":       one + ", gpu 2",
		"gpu2":       one + ", gpu 1",
		"pertask":    one + ", gpu 2",
		"cpusper":    "unserved: --cpus-per-gpu",
		"N2":         "any; 2-2 hosts, per host 0, unit 0",
		"N2t1":       "any; 2-2 hosts, per host 1, unit 0",
		"n6t2":       "any; 3-3 hosts, per host 2, unit 0",
		"n3":         one,
		"n8":         "any; 1-2 hosts, per host 0, unit 0",
		"n2c2":       "any; 1-1 hosts, per host 0, unit 2",
		"n3c2":       "any; 1-2 hosts, per host 0, unit 2",
		"N23":        "any; 2-3 hosts, per host 0, unit 0",
		"exclusive":  one,
		"user":       "unserved: --exclusive=user",
		"mincpus":    "unserved: --mincpus",
		"contiguous": "unserved: --contiguous",
		"hint":       one,
		"array":      one,
		"odd":        one,
		"het":        "unserved: it is a heterogeneous job",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if named(p, "big").Suits == named(p, "bigfast").Suits || named(p, "plain").Suits != nil {
		t.Error("sets of hosts are mixed up")
	}
	if j := named(p, "het"); !j.Component {
		t.Errorf("%+v", j)
	}
	if j := named(p, "small"); j.Wait != backends.WaitResources || j.Considered.IsZero() {
		t.Errorf("%+v", j)
	}
}

func TestArraysAreExpanded(t *testing.T) {
	p, _ := kinds(t)
	limitArrays(p.jobs, nil)
	var array, odd []int
	for _, j := range p.jobs {
		switch j.Name {
		case "array":
			array = append(array, j.ID.Index)
			if j.ArrayLimit != 2 {
				t.Errorf("%v: limit %d", j.ID, j.ArrayLimit)
			}
		case "odd":
			odd = append(odd, j.ID.Index)
		}
	}
	if !slices.Equal(array, []int{4, 1, 2, 3, 5, 6, 7, 8, 9}) || !slices.Equal(odd, []int{backends.ZeroIndex, 4, 8}) {
		t.Error(array, odd)
	}
}

// squeue does not show the limit once no element is left that has no line of its own.
func TestStaleArrayLimit(t *testing.T) {
	jobs := make([]*listedJob, 3)
	for i := range jobs {
		jobs[i] = &listedJob{Job: backends.Job{ID: backends.ID{Job: 7, Index: i + 1}, State: backends.Pending, Wait: backends.WaitThrottle}}
	}
	limitArrays(jobs, nil)
	if jobs[0].ArrayLimit != 1 {
		t.Errorf("none runs: limit %d, want 1", jobs[0].ArrayLimit)
	}
	jobs[0].State, jobs[1].State, jobs[0].ArrayLimit, jobs[1].ArrayLimit, jobs[2].ArrayLimit = backends.Running, backends.Running, 0, 0, 0
	limitArrays(jobs, nil)
	if jobs[2].ArrayLimit != 2 {
		t.Errorf("two run: limit %d, want 2", jobs[2].ArrayLimit)
	}
}

func TestCPUsOfATaskAreCountedOnce(t *testing.T) {
	for text, want := range map[string]string{"cpu=2": "", "N/A": "N/A", "cpu=2,gres/gpu=1": "gres/gpu=1", "gres:gpu:1": "gres:gpu:1", "cpu=3": "cpu=3"} {
		if got := withoutCPUs(text, 2); got != want {
			t.Errorf("%s of 2: %q, want %q", text, got, want)
		}
	}
}

// An array all of whose elements have lines of their own shows no limit: it is asked for
// with one element, until it is known that there is none.
func TestLimitOfASplitArrayIsAskedFor(t *testing.T) {
	c := Open(Options{})
	element := func(array int64, index int, level backends.Level) *listedJob {
		return &listedJob{Job: backends.Job{ID: backends.ID{Job: array, Index: index}, State: backends.Pending, Wait: backends.WaitResources, Priority: backends.At(level, 120)}}
	}
	shows := element(9, 1, backends.LevelPBA)
	shows.ArrayLimit = 3
	p := &snapshot{jobs: []*listedJob{
		element(7, 1, backends.LevelNormal), element(7, 2, backends.LevelPBA), element(7, 3, backends.LevelPBA),
		element(8, 1, backends.LevelNormal), shows, element(9, 2, backends.LevelPBA),
		{Job: backends.Job{ID: backends.ID{Job: 10}, Priority: backends.At(backends.LevelPBA, 120)}},
	}}
	second := []backends.ID{{Job: 7, Index: 2}}
	if ask := c.unlimited(p); !slices.Equal(ask, second) {
		t.Fatalf("asked for %v, want %v", ask, second)
	}
	d, ok := parseDetail("JobId=12 ArrayJobId=7 ArrayTaskId=2 ArrayTaskThrottle=1 JobName=job\n   SuspendTime=None SecsPreSuspend=0 LastSchedEval=N/A\n")
	if !ok || d.limit != 1 {
		t.Fatalf("%+v, %v", d, ok)
	}
	c.recordLimit(p.jobs[1], d.limit)
	if ask := c.unlimited(p); !slices.Equal(ask, second) {
		t.Errorf("a limit is read again, as its owner may change it: asked for %v", ask)
	}
	limitArrays(p.jobs, c.limits)
	throttle(p.jobs)
	for i, want := range []backends.Wait{backends.WaitResources, backends.WaitThrottle, backends.WaitThrottle, backends.WaitResources} {
		if p.jobs[i].Wait != want {
			t.Errorf("%v waits for %v, want %v", p.jobs[i].ID, p.jobs[i].Wait, want)
		}
	}
	c.recordLimit(p.jobs[1], 0)
	if ask := c.unlimited(p); len(ask) != 0 {
		t.Errorf("asked for %v, which has none", ask)
	}
	if _, ok := parseDetail("JobId=12 ArrayTaskThrottle=1 JobName= ArrayTaskThrottle=9 x\n   SuspendTime=None SecsPreSuspend=0 x\n"); ok {
		t.Error("a user's text passes for a limit")
	}
}

// A running job that asked for any GPU has one of the only type there is; what jobs use
// without saying so is not there.
func TestWhatHostsHave(t *testing.T) {
	p, _ := kinds(t)
	placeJobs(p, nil, nil, nil)
	amounts := []backends.Amount{{Name: "gpu", Count: 1}, {Name: "gpu:a100", Count: 1}}
	if j := named(p, "gpu1"); !slices.Equal(j.Needs, amounts) {
		t.Errorf("%v", j.Needs)
	}
	two := []backends.Amount{{Name: "gpu", Count: 2}, {Name: "gpu:a100", Count: 2}}
	if has := p.hosts[3].Has; !slices.Equal(has, two) {
		t.Errorf("%v", has)
	}
	p, _ = kinds(t)
	p.nodes["node4"].used = map[string]int{"gpu": 2, "gpu:a100": 2}
	placeJobs(p, nil, nil, nil)
	if has := p.hosts[3].Has; !slices.Equal(has, amounts) {
		t.Errorf("one of two used GPUs is no known job's: %v", has)
	}
	p, _ = kinds(t)
	p.nodes["node4"].used = map[string]int{"gpu": 2, "gpu:a100": 2}
	named(p, "gpu1").Exclusive = true
	placeJobs(p, nil, nil, nil)
	if has, needs := p.hosts[3].Has, named(p, "gpu1").Needs; !slices.Equal(has, two) || !slices.Equal(needs, two) {
		t.Errorf("an exclusive job uses all GPUs: %v of %v", needs, has)
	}
}

// A job has whole cores.
func TestThreads(t *testing.T) {
	p, _ := kinds(t)
	for _, n := range p.nodes {
		n.threads = 2
	}
	placeJobs(p, nil, nil, nil)
	for name, slots := range map[string]int{"plain": 2, "n3": 4, "N2": 4} {
		if j := named(p, name); j.Slots != slots || j.Unserved != "" {
			t.Errorf("%s: %d slots, %q", name, j.Slots, j.Unserved)
		}
	}
	if j := named(p, "hint"); j.Unserved == "" {
		t.Errorf("%+v", j)
	}
	p.nodes["node1"].threads = 1
	placeJobs(p, nil, nil, nil)
	if j := named(p, "plain"); j.Unserved == "" {
		t.Errorf("%+v", j)
	}
}

func TestPinOutsideOneOfItsPartitions(t *testing.T) {
	p, _ := kinds(t)
	for i := range p.hosts {
		p.hosts[i].State = backends.HostUp
	}
	j := named(p, "both")
	for _, reason := range []string{"ReqNodeNotAvail, UnavailableNodes:node2", reserved} {
		j.Pinned, j.Wait, j.Reason = []string{"node2"}, backends.WaitOther, reason
		placeJobs(p, nil, nil, nil)
		if j.Wait != backends.WaitResources {
			t.Errorf("%s: %+v", reason, j)
		}
	}
}

func TestParseTasks(t *testing.T) {
	for text, want := range map[string]string{
		"N/A": "[0] 0", "7": "[7] 0", "0-1": "[-1 1] 0", "1-7:3,9%2": "[1 4 7 9] 2",
	} {
		if indices, limit, err := parseTasks(text, 100); err != nil || fmt.Sprint(indices, limit) != want {
			t.Errorf("%s: %v %d, %v", text, indices, limit, err)
		}
	}
	for _, text := range []string{"", "x", "1-", "5-1", "1-3%", "1-3:0", "1-100", "1,2...", "0-99,0-99"} {
		if indices, _, err := parseTasks(text, 100); err == nil {
			t.Errorf("%s: %v", text, indices)
		}
	}
}

func TestParseResources(t *testing.T) {
	for text, want := range map[string]string{
		"gres:gpu:1": "[{gpu 1}]", "gres/gpu:a100:2": "[{gpu 2} {gpu:a100 2}]", "gres:gpu": "[{gpu 1}]", "gres:tape:2K": "[{tape 2048}]", "N/A": "[]",
		"gres/gpu=2": "[{gpu 2}]",
	} {
		if all, ok := parseTresRequest(text); !ok || fmt.Sprint(all) != want {
			t.Errorf("%s: %v", text, all)
		}
	}
	for _, text := range []string{"cpu=2", "gres:mps:50", "gres:shard:1", "gres:", "gres:a:b:c:1", "gres:gpu:a100:-1"} {
		if all, ok := parseTresRequest(text); ok && !strings.Contains(text, "-1") {
			t.Errorf("%s: %v", text, all)
		}
	}
	for text, want := range map[string]string{
		"gpu:a100:2(S:0-1),gpu:v100:1(S:0),tape:3": "[{gpu 3} {gpu:a100 2} {gpu:v100 1} {tape 3}]",
		"gpu:a100:1(IDX:0,2)":                      "[{gpu 1} {gpu:a100 1}]",
		"gpu:(null):2(IDX:0-1)":                    "[{gpu 2}]",
		"(null)":                                   "[]", "gpu:0": "[]", "x:no_consume:4": "[]",
	} {
		if all := parseGres(text); fmt.Sprint(all) != want {
			t.Errorf("%s: %v", text, all)
		}
	}
}

// A pinned job's hosts are not available to it while another job that is pinned there is
// ahead: it waits as that one does. Where no other is, the queue has another reason.
func TestHostsOfAnotherPinnedJob(t *testing.T) {
	for _, reason := range []string{reserved, "ReqNodeNotAvail, UnavailableNodes:node3"} {
		for _, c := range []struct {
			other string
			down  bool
			want  backends.Wait
		}{{"node3", false, backends.WaitResources}, {"node3", true, backends.WaitOther}, {"node1", false, backends.WaitOther}} {
			p, _ := kinds(t)
			for i := range p.hosts {
				if p.hosts[i].State = backends.HostUp; c.down {
					p.hosts[i].State = backends.HostDown
				}
			}
			j, ahead := named(p, "plain"), named(p, "small")
			j.Pinned, j.Reason, j.Wait = []string{"node3"}, reason, waitReasons[reason]
			ahead.Pinned = []string{c.other}
			placeJobs(p, nil, nil, p.pins())
			if j.Wait != c.want {
				t.Errorf("%s, beside a job on %s (down: %v): %v, want %v", reason, c.other, c.down, j.Wait, c.want)
			}
		}
	}
}

// So it is with a job whose owner asked for the host (22.05).
func TestHostThatAnotherJobMustHave(t *testing.T) {
	const reason = "ReqNodeNotAvail, UnavailableNodes:node3"
	for _, c := range []struct {
		other string
		state backends.HostState
		want  backends.Wait
	}{{"node3", backends.HostUp, backends.WaitResources}, {"node3", backends.HostDown, backends.WaitOther}, {"node1", backends.HostUp, backends.WaitOther}} {
		p, _ := kinds(t)
		for i := range p.hosts {
			p.hosts[i].State = c.state
		}
		j, ahead := named(p, "plain"), named(p, "small")
		j.Asked, j.Reason, j.Wait = []string{"node3"}, reason, waitReasons[reason]
		ahead.Asked = []string{c.other}
		placeJobs(p, nil, nil, p.pins())
		if j.Wait != c.want {
			t.Errorf("beside a job that must have %s (%s): %v, want %v", c.other, c.state, j.Wait, c.want)
		}
	}
}

func TestPartsAreFound(t *testing.T) {
	const line = "JobId=16 HetJobId=15 HetJobOffset=1 JobName=j.sh HetJobIdSet=15-16\n"
	if id, err := parsePart(line, 15, 1); err != nil || id != (backends.ID{Job: 16}) {
		t.Errorf("%v, %v", id, err)
	}
	for _, out := range []string{"Job 15+7 not found\n", "", "JobId=16 JobName=HetJobId=15 HetJobOffset=1\n", line[5:]} {
		if id, err := parsePart(out, 15, 1); !errors.Is(err, backends.ErrUnknownJob) {
			t.Errorf("%q: %v, %v", out, id, err)
		}
	}
}
