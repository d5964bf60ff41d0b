package lsf

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

func TestRequests(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]request{
		"":                                     {},
		"-":                                    {},
		"select[type == local] order[r15s:pg]": {conditions: []condition{{"type", "==", "local"}}},
		"select[(cs) && (type == any)] order[r15s:pg] rusage[mem=100.00:duration=1h] span[hosts=1] ": {
			conditions: []condition{{name: "cs"}, {"type", "==", "any"}}, oneHost: true,
		},
		"select[((mem>1000&&maxmem >= 4G) && model=='Intel-E5') && (ut < 0.5)] span[ptile=2]": {
			conditions: []condition{{"maxmem", ">=", "4G"}, {"model", "==", "Intel-E5"}}, room: true, perHost: 2,
		},
		"rusage[ngpus_physical=2.00,lic=1/job:tmp=0]":     {needs: []need{{"ngpus_physical", 2, ""}, {"lic", 1, "job"}}},
		"select[ngpus>0] span[hosts=-1]":                  {conditions: []condition{{"ngpus", ">", "0"}}},
		"span[hosts=1] same[type]":                        {oneHost: true},
		"select[(a || b) && (type == any)]":               {conditions: []condition{{"type", "==", "any"}}, unserved: "in select[]: a || b"},
		"select[a && b || c]":                             {unserved: "in select[]: a && b || c"},
		"select[!cs]":                                     {unserved: "in select[]: !cs"},
		"select[defined(big)]":                            {unserved: "in select[]: defined(big)"},
		"select[a,b]":                                     {unserved: "in select[]: a,b"},
		"select[a) && (b]":                                {unserved: "in select[]: a) && (b"},
		"select[maxmem - 5 > 3]":                          {unserved: "in select[]: maxmem - 5 > 3"},
		"select[a] select[b]":                             {conditions: []condition{{name: "a"}, {name: "b"}}, unserved: "a second section select[b]"},
		"rusage[mem=20 || mem=10]":                        {unserved: "in rusage[]: mem=20 || mem=10"},
		"rusage[gpu=0.5]":                                 {unserved: "in rusage[]: gpu=0.5"},
		"rusage[gpu=1:duration=5]":                        {needs: []need{{"gpu", 1, ""}}, unserved: "in rusage[]: duration=5"},
		"rusage[ngpus_physical=1:gmodel=K80]":             {needs: []need{{"ngpus_physical", 1, ""}}, unserved: "in rusage[]: gmodel=K80"},
		"span[hosts=2]":                                   {unserved: "the section span[hosts=2]"},
		"span[ptile='!',Intel:8]":                         {unserved: "the section span[ptile='!',Intel:8]"},
		"same[model]":                                     {unserved: "the section same[model]"},
		"cu[maxcus=2]":                                    {unserved: "the section cu[maxcus=2]"},
		"affinity[core(2)]":                               {unserved: "the section affinity[core(2)]"},
		"2*{select[a]} + 1*{select[b]}":                   {unserved: "the resource requirement 2*{select[a]} + 1*{select[b]}"},
		"{select[a]} || {select[b]}":                      {unserved: "the resource requirement {select[a]} || {select[b]}"},
		"cs":                                              {unserved: "the resource requirement cs"},
		"select[" + strings.Repeat("(", 5000) + "a" + "]": {unserved: "a resource requirement of more than 4096 characters"},
	} {
		if d := cmp.Diff(want, parseRequest(text), cmp.AllowUnexported(request{}, condition{}, need{})); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	}
}

func TestHostLists(t *testing.T) {
	t.Parallel()
	var hosts []listedHost
	for i := range 5 {
		hosts = append(hosts, listedHost{Host: backends.Host{Name: fmt.Sprintf("h%d", i+1), Slots: 4 * (4 - i)}}) // h5 has none
	}
	l := newHostLists(hosts)
	l.groups = map[string][]string{"small": {"h3", "h4", "h5"}, "big": {"h1", "h2"}, "odd": {"h1", "small/"}, "loop": {"loop/"}, "every": {"all"}, "cloud": {"x9"}}
	for list, want := range map[string]string{
		"":                 "",
		"all":              "h1 h2 h3 h4 all",
		"all ~h1 ~small/":  "h2",
		"h2+1 h1":          "h1 h2",
		"big/+3 h3":        "h1 h2 h3",
		"h1+2 others":      "h1 h2 h3 h4 all",
		"h1+2 others ~big": "h3 h4",
		"odd ~h3":          "h1 h4",
		"every":            "h1 h2 h3 h4 all",
		"none":             "",
		"h5":               "",
		"h1!":              "wrong h1!",
		"loop":             "",
		"cloud":            "wrong cloud",
		"~h1":              "wrong ~h1",
		"all ~others":      "wrong ~others",
		"allremote":        "wrong allremote",
		"all@east":         "wrong all@east",
	} {
		hosts, all, wrong := l.resolve(strings.Fields(list))
		got := strings.Join(hosts, " ")
		if all {
			got += " all"
		}
		if wrong != "" {
			got = "wrong " + wrong
		}
		if got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
}

func TestCountsOfResources(t *testing.T) {
	t.Parallel()
	shared, err := parseShared([]byte(`RESOURCE                 TOTAL       RESERVED       LOCATION
gpu                        1.0            3.0       h1 
gpu                        2.0            0.0       h2 
lic                       10.0            0.0       h1 h2 
                                                    h3 
half                       0.5            0.0       h1 
down                         -              -       h1 
`))
	if d := cmp.Diff(counts{"gpu": {"h1": 4, "h2": 2}}, shared); err != nil || d != "" {
		t.Errorf("%v, %s", err, d)
	}
	gpus, err := parseGPUs([]byte("HOST_NAME  gpu_id gpu_model gpu_driver gpu_factor numa_id vendor\nhosta           0 TeskaK20c        384.10      70         0       Nvidia\n                1 TeskaK20c        384.10      70         0       Nvidia\nhostb           - - - - -\n"))
	if d := cmp.Diff(map[string]int{"hosta": 2}, gpus); err != nil || d != "" {
		t.Errorf("%v, %s", err, d)
	}
	arrays := parseArrays([]byte(`JOBID      ARRAY_SPEC  OWNER   NJOBS PEND DONE  RUN EXIT SSUSP USUSP PSUSP
12         a[1-10]%2   bob        10    9    0    1    0     0     0     0
13         my b[1-3]   bob         3    3    0    0    0     0     0     0
14         x           eve         3    3    0    0    0     0     0     0
15         c[1-2]%0    eve         3    3    0    0    0     0     0     0
12         a[1-10]%1   eve        10    9    0    1    0     0     0     0
16         d
16         [1]%3       eve        10    9    0    1    0     0     0     0
`))
	if d := cmp.Diff(map[int64]int{13: 0, 16: 3}, arrays); d != "" {
		t.Error(d)
	}
	for _, text := range []string{"", "No resource\n", "RESOURCE TOTAL RESERVED LOCATION\ngpu 1\n"} {
		if got, err := parseShared([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
	for _, text := range []string{"", "HOST_NAME type\n", "HOST_NAME gpu_id\n   1 x\n", "HOST_NAME gpu_id\nh many\n"} {
		if got, err := parseGPUs([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
	for text, want := range map[string]interval{"16": {16, 16}, "12.5": {12.45, 12.55}, "24105M": {24105 << 20, 24105 << 20}, "4G": {3.5 * (1 << 30), 4.5 * (1 << 30)}} {
		if got, ok := parseInterval(text); !ok || got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	groups, err := parseGroups([]byte("GROUP_NAME    HOSTS\nbig           h1 h2 \nodd    h3 big/ \nevery  all hosts used by the batch system\n"))
	if d := cmp.Diff(map[string][]string{"big": {"h1", "h2"}, "odd": {"h3", "big/"}, "every": {"all"}}, groups); err != nil || d != "" {
		t.Errorf("%v, %s", err, d)
	}
}

// odd is a cluster of four hosts of three kinds, with queues for some of them.
func odd(flavour lsfstandin.Flavour) lsfstandin.Options {
	return lsfstandin.Options{Hosts: 4, Slots: 4, Flavour: flavour, RootMaySubmit: true, Edit: func(c *lsfstandin.Config) {
		c.Hosts[2].Resources, c.Hosts[3].Resources = []string{"cs", "big"}, []string{"cs", "big"}
		c.Hosts[3].Memory = 64 << 30
		for i := range c.Hosts[:2] {
			c.Hosts[i].Has, c.Hosts[i].GPUs = map[string]int{"card": 2 - i}, 2
		}
		c.Groups = map[string][]string{"small": {"h1", "h2"}}
		c.Queues = []lsfstandin.QueueConfig{
			{Name: "normal", Priority: 30},
			{Name: "small", Priority: 30, Hosts: "small/ ~h2 h3+2"},
			{Name: "need", Priority: 30, ResReq: "select[big] span[hosts=1]"},
			{Name: "lost", Priority: 30, Hosts: "nowhere"},
		}
	}}
}

// Where jobs may run follows from their queues, lists of hosts and requirements.
func TestWhereJobsMayRun(t *testing.T) {
	t.Parallel()
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		t.Run(string(flavour), func(t *testing.T) {
			t.Parallel()
			testWhere(t, flavour)
		})
	}
}

func testWhere(t *testing.T, flavour lsfstandin.Flavour) {
	cluster := lsfstandin.New(t, odd(flavour))
	type place struct {
		Suits, Asked, Unserved string
		Needs                  []backends.Amount
		OneHost                bool
		MaxHosts, PerHost      int
	}
	one := func(p place) place { p.OneHost, p.MaxHosts = true, 1; return p }
	jobs := map[string]struct {
		options []string
		want    place
	}{
		"plain":     {nil, one(place{})},
		"queue":     {[]string{"-q", "small"}, one(place{Suits: "h1 h3"})},
		"requires":  {[]string{"-q", "need", "-n", "2"}, one(place{Suits: "h3 h4"})},
		"both":      {[]string{"-q", "small", "-R", "select[big]"}, one(place{Suits: "h3"})},
		"lost":      {[]string{"-q", "lost"}, one(place{Unserved: "HOSTS of queue lost: nowhere"})},
		"list":      {[]string{"-m", "h2+1 h1"}, one(place{Asked: "h1 h2"})},
		"group":     {[]string{"-m", "small+3"}, one(place{Asked: "h1 h2"})},
		"prefers":   {[]string{"-m", "h1+2 others"}, one(place{})},
		"boolean":   {[]string{"-R", "big"}, one(place{Suits: "h3 h4"})},
		"memory":    {[]string{"-R", "select[maxmem>30000 && mem>10]"}, one(place{Suits: "h4"})},
		"ptile":     {[]string{"-n", "4", "-R", "span[ptile=2]"}, place{PerHost: 2}},
		"wide":      {[]string{"-n", "4,8"}, place{}},
		"cards":     {[]string{"-R", "rusage[card=2]"}, one(place{Needs: []backends.Amount{{Name: "card", Count: 2}}})},
		"either":    {[]string{"-R", "select[big||cs]"}, one(place{Unserved: "in select[]: "})},
		"unknown":   {[]string{"-R", "select[huge]"}, one(place{Unserved: "in select[]: huge"})},
		"uncounted": {[]string{"-R", "rusage[lic=1]"}, one(place{Unserved: "rusage[lic=], of which this LSF shows no number for each host"})},
		"bound":     {[]string{"-R", "affinity[core(1)]"}, one(place{Unserved: "the section affinity[core(1)]"})},
	}
	gpus := []string{"-R", "rusage[ngpus_physical=1]"}
	if jobs["gpus"] = struct {
		options []string
		want    place
	}{gpus, one(place{Unserved: "rusage[ngpus_physical=], of which this LSF shows no number for each host", Needs: []backends.Amount{{Name: "gpu", Count: 1}}})}; flavour == lsfstandin.LSF10 {
		jobs["gpus"] = struct {
			options []string
			want    place
		}{gpus, one(place{Needs: []backends.Amount{{Name: "gpu", Count: 1}}})}
	}
	for name, j := range jobs {
		if _, message, rc := cluster.Run(append(append([]string{"bsub", "-b", inHours(), "-J", name}, j.options...), "true")...); rc != 0 {
			t.Fatal(name, message)
		}
	}
	c := clientOf(cluster)
	snapshot, err := c.Snapshot(t.Context(), listedAt)
	if err != nil || len(snapshot.Jobs) != len(jobs) {
		t.Fatal(err, len(snapshot.Jobs))
	}
	sets := map[string]*backends.HostSet{}
	for _, j := range snapshot.Jobs {
		want := jobs[j.Name].want
		if want.Unserved == "in select[]: " && strings.HasPrefix(j.Unserved, want.Unserved) && strings.Contains(j.Unserved, "||") {
			want.Unserved = j.Unserved
		}
		if strings.HasPrefix(want.Unserved, "rusage[lic") {
			want.Needs = []backends.Amount{{Name: "lic", Count: 1}}
		}
		got := place{Asked: strings.Join(j.Asked, " "), Unserved: j.Unserved, Needs: j.Needs, OneHost: j.OneHost, MaxHosts: j.MaxHosts, PerHost: j.PerHost}
		if j.Suits != nil {
			if got.Suits = strings.Join(j.Suits.Hosts, " "); sets[got.Suits] == nil {
				sets[got.Suits] = j.Suits
			}
			if sets[got.Suits] != j.Suits {
				t.Errorf("%s has a set of its own", j.Name)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", j.Name, d)
		}
	}
	var findings []string
	examined, err := c.Examine(t.Context(), backends.Installation{UID: os.Getuid()})
	for _, f := range examined.Findings {
		if strings.Contains(f.What, "HOSTS") {
			findings = append(findings, f.What)
		}
	}
	if d := cmp.Diff([]string{"HOSTS of queue lost is not understood: nowhere: no job is preempted for its jobs"}, findings); err != nil || d != "" {
		t.Errorf("%v, %s", err, d)
	}
	has := map[string][]backends.Amount{}
	for _, h := range snapshot.Hosts {
		has[h.Name] = h.Has
	}
	gpu := func(name string, n int) []backends.Amount {
		all := []backends.Amount{{Name: name, Count: n}}
		if flavour == lsfstandin.LSF10 {
			all = append(all, backends.Amount{Name: "gpu", Count: 2})
		}
		return all
	}
	if d := cmp.Diff(map[string][]backends.Amount{"h1": gpu("card", 2), "h2": gpu("card", 1), "h3": nil, "h4": nil}, has); d != "" {
		t.Error(d)
	}
}

// A cycle runs no more commands for plain jobs than it did, but for bqueues once a minute;
// those for groups, resources and arrays only if a job needs them.
func TestCommandsOfPlainCycle(t *testing.T) {
	t.Parallel()
	cluster := lsfstandin.New(t, odd(lsfstandin.Lava))
	c := clientOf(cluster)
	count := func() uint64 {
		before := c.latest.Commands()
		if _, err := c.readAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		return c.latest.Commands() - before
	}
	count()
	empty := count()
	if _, message, rc := cluster.Run("bsub", "-b", inHours(), "true"); rc != 0 {
		t.Fatal(message)
	}
	if first, next := count(), count(); first != empty+1 || next != empty {
		t.Errorf("%d, then %d commands for a plain job, %d for none", first, next, empty)
	}
}

// Of an array no more elements wait for slots than may start.
func TestArrayLimits(t *testing.T) {
	t.Parallel()
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		t.Run(string(flavour), func(t *testing.T) {
			t.Parallel()
			cluster := lsfstandin.New(t, odd(flavour))
			for range 4 {
				if _, message, rc := cluster.Run("bsub", "-n", "4", "sleep", "60"); rc != 0 {
					t.Fatal(message)
				}
			}
			for _, name := range []string{"two[1-6]%2", "all[1-3]", "forged\n1 x[1]%1 root 1 1 1 1 1 1 1 1[1-2]"} {
				if _, message, rc := cluster.Run("bsub", "-J", name, "sleep", "60"); rc != 0 {
					t.Fatal(message)
				}
			}
			c := clientOf(cluster)
			p, err := c.readAll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			waits := map[string]int{}
			for _, j := range p.jobs {
				base, _, _ := strings.Cut(j.Name, "[")
				if j.Unserved == "" && j.Wait == backends.WaitResources {
					waits[fmt.Sprint(base[:3], j.ArrayLimit)]++
				}
			}
			if d := cmp.Diff(map[string]int{"two2": 2, "all0": 3}, waits); d != "" {
				t.Error(d)
			}
		})
	}
}

// However many distinct conditions a user types, those of others are read, and a user's first
// ones.
func TestDistinctConditionsAreBounded(t *testing.T) {
	t.Parallel()
	hosts := []listedHost{{Host: backends.Host{Name: "h1", Slots: 4}, statics: statics{resources: map[string]string{"cs": ""}, numbers: map[string]interval{"ncpus": {4, 4}}}}}
	p := &snapshot{hosts: hosts}
	w := newWhere(p)
	facts := &farmFacts{queues: map[string][]string{"normal": {"all"}}}
	place := func(user, requirement string) string {
		j := &job{Job: backends.Job{ID: backends.ID{Job: 1}, User: user, Queue: "normal", Slots: 1, OneHost: true, State: backends.Pending}, listed: &listedJob{request: requirement}}
		w.place(j, facts)
		return j.Unserved
	}
	for i := range 3 * mostConditionsU {
		refused := place("eve", fmt.Sprintf("select[ncpus>%d] rusage[mem=%d]", i, i))
		if (refused != "") != (i >= mostConditionsU) {
			t.Fatalf("%d distinct ones: %q", i+1, refused)
		}
	}
	for i := range 3 * mostConditionsU { // the same one
		if refused := place("bob", fmt.Sprintf("select[cs && mem>%d] rusage[mem=%d]", i, i)); refused != "" {
			t.Fatal(refused)
		}
	}
}

// A job whose slot the next one of its chunk would get is no victim.
func TestChunksAreSpared(t *testing.T) {
	t.Parallel()
	var jobs []*job
	for _, x := range [][3]string{{"RUN", "bob", "short"}, {"WAIT", "bob", "short"}, {"RUN", "bob", "normal"}, {"RUN", "eve", "short"}} {
		j := &job{listed: &listedJob{}}
		if err := j.listed.parseState(x[0]); err != nil {
			t.Fatal(err)
		}
		j.State, j.User, j.Queue = j.listed.State, x[1], x[2]
		jobs = append(jobs, j)
	}
	spareChunks(jobs)
	for i, want := range []bool{true, false, false, false} {
		if jobs[i].NoRequeue != want {
			t.Errorf("job %d: %v", i, jobs[i].NoRequeue)
		}
	}
}

// A job that wants memory to be left on its host waits for slots where all hosts are full.
func TestWaitsForRoom(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"Job's resource requirements not satisfied: 5 hosts;":                                                    true,
		"Queue's resource requirements not satisfied:  h1 h2;\nNot specified in job submission: 3 hosts;":        true,
		"Not usable to the queue: 5 hosts;":                                                                      false,
		"Job's resource requirements not satisfied: 4 hosts;\nThe queue has reached its job slot limit: 1 host;": false,
		"Job's resource requirements not satisfied: 4 hosts;\nJob slot limit reached: 1 host;":                   false,
		"": false,
	} {
		if got := waitsForRoom(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// inHours is a time of day that is not near, whenever the test runs.
func inHours() string { return time.Now().Add(12 * time.Hour).Format("15:04") }
