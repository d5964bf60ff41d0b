package slurm

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// A dummy job is only what root or SlurmUser calls one, in its whole comment.
func TestOwnJobs(t *testing.T) {
	heavy, rank := backends.ID{Job: 60, Index: 3}, backends.At(backends.LevelPBA, 119)
	c := farm()
	c.memory = false
	for name, test := range map[string]struct {
		user, comment      string
		dummy, placeholder backends.ID
	}{
		"root's":           {"root", dummyComment(&backends.Dummy{For: heavy, Priority: rank}), heavy, backends.ID{}},
		"a placeholder":    {"root", placeholderComment(heavy), backends.ID{}, heavy},
		"a user's":         {"alice", dummyComment(&backends.Dummy{For: heavy, Priority: rank}), backends.ID{}, backends.ID{}},
		"with a user's":    {"root", "x " + dummyComment(&backends.Dummy{For: heavy, Priority: rank}), backends.ID{}, backends.ID{}},
		"merely named so":  {"alice", "", backends.ID{}, backends.ID{}},
		"root's other job": {"root", "allotment:1;step=x; engine:1;dummy=60;", backends.ID{}, backends.ID{}},
		"of nobody":        {"root", "allotment:1; engine:1;dummy=;", backends.ID{}, backends.ID{}},
	} {
		fields := make([]string, fieldCount)
		fields[fComment], fields[fName], fields[fAccount] = test.comment, dummyName, "chipa"
		j := listedJob{Job: backends.Job{User: test.user, Memory: 1 << 20}}
		if j.setTag(fields, c); j.DummyFor != test.dummy || j.holdsFor != test.placeholder {
			t.Errorf("%s: dummy job for %v, placeholder for %v", name, j.DummyFor, j.holdsFor)
		}
		if dummy := j.DummyFor == heavy; dummy && (j.rank != rank || j.Project != "" || j.Memory != 0) || !dummy && j.Memory == 0 {
			t.Errorf("%s: %+v", name, j)
		}
	}
}

// Dummy jobs that are alike are one array, as long as arrays may be.
func TestBatches(t *testing.T) {
	a := backends.Dummy{For: backends.ID{Job: 1}, Host: "n1", Priority: 119, Limit: time.Hour}
	b := a
	b.Host = "n2"
	if many := batches(slices.Repeat([]backends.Dummy{a}, 45), 1000); len(many) != 3 || len(many[0].indices) != 20 || len(many[2].indices) != 5 {
		t.Errorf("45 are %d arrays", len(many))
	}
	dummies := []backends.Dummy{a, b, a, a, b, a}
	for array, want := range map[int]string{
		0: "0|1|2|3|4|5", 1: "0|1|2|3|4|5", 3: "02|14|35", 1000: "0235|14",
	} {
		var got []string
		for i, batch := range batches(dummies, array) {
			batch.first = backends.ID{Job: int64(100 + i)}
			var text strings.Builder
			for k, of := range batch.indices {
				text.WriteByte(byte('0' + of))
				if id := batch.id(k); id.Job != batch.first.Job || (id.Index == 0) != (len(batch.indices) == 1) || id.Index > max(array-1, 0) {
					t.Errorf("arrays to %d: the %d. of %d is %v", array, k, len(batch.indices), id)
				}
			}
			got = append(got, text.String())
		}
		if strings.Join(got, "|") != want {
			t.Errorf("arrays to %d: %s, want %s", array, strings.Join(got, "|"), want)
		}
	}
}

// A dummy job waits in a partition of its job's that has the host.
func TestDummyPartition(t *testing.T) {
	p := snapshot{layout: layout{within: map[string][]string{"n1": {"main", "low"}, "n2": {"low"}}}}
	for _, test := range []struct{ queues, host, want string }{
		{"low", "n1", "low"}, {"main", "n2", "low"}, {"other,low,main", "n1", "low"}, {"", "n1", "main"}, {"main", "n3", ""},
	} {
		if got, err := p.partition(test.queues, test.host); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("of %q on %s: %q, %v, want %q", test.queues, test.host, got, err, test.want)
		}
	}
}

// A begin time counts as the filter's hold as long as it is the one in the tag.
func TestFilterHold(t *testing.T) {
	at := time.Unix(1795307972, 0).UTC()
	until := at.Add(10 * time.Minute)
	tag := backends.Tag{Held: until.Unix()}.String()
	for name, test := range map[string]struct {
		admin       string
		eligible    time.Time
		held, begin time.Time
	}{
		"held":             {tag, until, until, time.Time{}},
		"with a site's":    {tag + " site", until, until, time.Time{}},
		"moved since":      {tag, until.Add(time.Second), time.Time{}, until.Add(time.Second)},
		"its owner's":      {"", until, time.Time{}, until},
		"over":             {tag, at, time.Time{}, time.Time{}},
		"the engine's own": {tag + record{until: until.Add(time.Minute)}.String(), until.Add(time.Minute), until.Add(time.Minute), time.Time{}},
	} {
		j := listedJob{Job: backends.Job{State: backends.Pending}, eligible: test.eligible}
		if j.addDetail(detail{comment: test.admin}, at); !j.HeldUntil.Equal(test.held) || !j.BeginTime.Equal(test.begin) {
			t.Errorf("%s: held until %v, begins at %v", name, j.HeldUntil, j.BeginTime)
		}
	}
}

// The memory that a job asks for is known where the cluster doesn't manage it, too.
func TestUnmanagedMemoryRequests(t *testing.T) {
	c := farm()
	c.memory = false
	for _, test := range []struct {
		tres, least  string
		slots        int
		memory, each int64
	}{
		{"cpu=1,mem=16G,node=1", "0", 1, 0, 0},             // nothing was asked for
		{"cpu=2,mem=10G,node=1", "10240M", 2, 10 << 30, 0}, // it waits
		{"cpu=1,node=1", "10240M", 1, 10 << 30, 0},
		{"cpu=2,node=1", "10240M", 2, 10 << 30, 10 << 30},
		{"cpu=2,node=1", "0", 2, 0, 0},
	} {
		j := listedJob{Job: backends.Job{Slots: test.slots}, nodes: []string{"n1"}}
		if err := j.setMemory(test.tres, test.least, c); err != nil || j.Memory != test.memory || j.each != test.each {
			t.Errorf("%s, %s: %d, %d, %v", test.tres, test.least, j.Memory, j.each, err)
		}
	}
	for text, want := range map[string]bool{" MinMemoryCPU=5G ": true, " MinMemoryNode=10G ": false} {
		d, ok := parseDetail("   SuspendTime=None SecsPreSuspend=0 x\n  MinCPUsNode=1" + text + "MinTmpDiskNode=0\n")
		if !ok || d.perSlot != want {
			t.Errorf("%s: %+v, %v", text, d, ok)
		}
	}
	if d, ok := parseDetail("   JobName=a MinMemoryCPU=5G \n   SuspendTime=None SecsPreSuspend=0 x\n  MinMemoryNode=10G MinTmpDiskNode=0\n"); ok {
		t.Errorf("a forged name was believed: %+v", d)
	}
}

// Forget must end the engine's own jobs: without its records they would stay.
func TestSplitOwn(t *testing.T) {
	jobs := []jobTexts{
		{ID: 1, User: "root", Comment: dummyComment(&backends.Dummy{For: backends.ID{Job: 9}, Priority: 20})},
		{ID: 2, User: "alice", Comment: dummyComment(&backends.Dummy{For: backends.ID{Job: 9}, Priority: 20})},
		{ID: 4, Array: number{3, true}, Task: number{1, true}, User: "slurm", Comment: placeholderComment(backends.ID{Job: 9})},
		{ID: 5, User: "root", Comment: "allotment:1;step=x;"},
	}
	own, others := splitOwn(jobs, trustedUsers(map[string]string{"SlurmUser": "slurm(64030)"}))
	if !slices.Equal(own, []string{"1", "3_1"}) || len(others) != 2 || others[0].ID != 2 || others[1].ID != 5 {
		t.Errorf("%q, %+v", own, others)
	}
}

// slurmctld's config says whether memory is managed.
func TestManagesMemory(t *testing.T) {
	config, err := os.ReadFile("testdata/show_config.txt")
	if err != nil {
		t.Fatal(err)
	}
	for parameters, want := range map[string]bool{"CR_CPU_Memory": true, "CR_CPU_MEMORY": true, "CR_CPU": false, "CR_Core,CR_LLN": false} {
		text := strings.Replace(string(config), "= CR_CPU_MEMORY", "= "+parameters, 1)
		if got := managesMemory(parseConfig([]byte(text))); got != want {
			t.Errorf("%s: %v", parameters, got)
		}
	}
}
