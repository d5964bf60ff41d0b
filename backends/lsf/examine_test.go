package lsf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
)

// wellSetUp is a cluster with nothing wrong.
func wellSetUp() *setup {
	return &setup{
		flavour: lava,
		params:  params{maxPriority: 100, cleanPeriod: time.Hour},
		queues:  []queue{{name: "normal", priority: 30}, {name: "low", priority: 10}},
		conf:    map[string]string{"LSF_SERVERDIR": "/lsf/etc"},
		admins:  []string{"lsfadmin"}, user: "lsfadmin",
		esubs: []program{{name: "esub", file: "/lsf/etc/esub", ours: true, listed: true}},
	}
}

func TestExamine(t *testing.T) {
	plain := func(p program) program { p.name, p.file, p.listed = "esub", "/lsf/etc/esub", true; return p }
	chained := func(p program) program { p.name, p.file = "esub.allotment", "/lsf/etc/esub.allotment"; return p }
	for name, x := range map[string]struct {
		spoil  func(s *setup)
		by     backends.Installation
		want   []string // a part of each finding
		remedy string   // a part of the first one's
	}{
		"all is well":     {spoil: func(*setup) {}},
		"no priorities":   {spoil: func(s *setup) { s.params.maxPriority = 0 }, want: []string{"no job can be ranked"}, remedy: "MAX_USER_PRIORITY=100 in lsb.params"},
		"few priorities":  {spoil: func(s *setup) { s.params.maxPriority = 14 }, want: []string{"MAX_USER_PRIORITY is 14, 7 of it above the default: jobs that were taken back 2 times or more go in the order of their submission"}, remedy: "MAX_USER_PRIORITY=100"},
		"too few":         {spoil: func(s *setup) { s.params.maxPriority = 8 }, want: []string{"MAX_USER_PRIORITY is 8: above the default of 4 there is no room"}, remedy: "MAX_USER_PRIORITY=100"},
		"a high default":  {spoil: func(s *setup) { s.params.defaultPriority = 85 }, want: []string{"15 of it above the default: jobs of pools"}, remedy: "MAX_USER_PRIORITY=100"},
		"enough":          {spoil: func(s *setup) { s.params.maxPriority = 40 }},
		"they age":        {spoil: func(s *setup) { s.params.overTime = true }, want: []string{"JOB_PRIORITY_OVER_TIME"}},
		"forgets at once": {spoil: func(s *setup) { s.params.cleanPeriod = 30 * time.Second }, want: []string{"CLEAN_PERIOD is 30s"}, remedy: "CLEAN_PERIOD=3600"},
		"forgets in time": {spoil: func(s *setup) { s.params.cleanPeriod = time.Minute }},
		"forgets within two long cycles": {
			spoil: func(s *setup) { s.params.cleanPeriod = 3 * time.Minute }, by: backends.Installation{Cycle: 2 * time.Minute},
			want: []string{"CLEAN_PERIOD is 3m0s, less than 4m0s"}, remedy: "CLEAN_PERIOD=3600",
		},
		"puts saved jobs back": {
			spoil: func(s *setup) { s.queues[0].requeues = parseExitValues("99 85") },
			want:  []string{"REQUEUE_EXIT_VALUES of queue normal has 85"}, remedy: "take it out in lsb.queues",
		},
		"puts others back": {spoil: func(s *setup) { s.queues[0].requeues = parseExitValues("all ~85") }},
		"unclear jobs": {spoil: func(s *setup) {
			s.vague = []*listedJob{{Job: backends.Job{ID: backends.ID{Job: 12, Index: 3}, User: "mallory"}, why: unclear("a line that lava does not print", "x\ny")}, {}}
		}, want: []string{`job 12[3] of mallory, and of 1 more, can't be distinguished from its owner's texts, so that it gets no slots of a pool: bjobs -UF is unclear: a line that lava does not print: "x\ny"`}, remedy: "bjobs -UF 12[3]"},
		"another user":   {spoil: func(s *setup) { s.user = "bob" }, want: []string{"bob runs the engine"}, remedy: "the LSF administrator lsfadmin"},
		"nobody knows":   {spoil: func(s *setup) { s.user, s.admins = "bob", nil }},
		"root, lava":     {spoil: func(s *setup) { s.user = "root" }, want: []string{"refuses root's submissions without LSF_ROOT_REX"}, remedy: "the LSF administrator lsfadmin (docs/lsf.md: the engine's user), or set LSF_ROOT_REX=local"},
		"root, submits":  {spoil: func(s *setup) { s.user, s.conf["LSF_ROOT_REX"] = "root", "all" }},
		"root, unknown":  {spoil: func(s *setup) { s.user, s.conf, s.admins = "root", nil, nil }, want: []string{"lsf.conf is not to be found", "refuses root's submissions"}, remedy: "envdir"},
		"root alone":     {spoil: func(s *setup) { s.user, s.admins = "root", []string{"root"} }, want: []string{"refuses root's submissions"}, remedy: "cron line to an LSF administrator"},
		"root, LSF 10.1": {spoil: func(s *setup) { s.user, s.flavour = "root", lsf10 }, want: []string{"denies root everything"}, remedy: "LSF administrator lsfadmin"},
		"root, allowed": {spoil: func(s *setup) {
			s.user, s.flavour, s.conf["LSF_ROOT_USER"], s.conf["LSF_ROOT_REX"] = "root", lsf10, "Y", "local"
		}},
		"root, half allowed": {spoil: func(s *setup) { s.user, s.flavour, s.conf["LSF_ROOT_USER"] = "root", lsf10, "Y" }, want: []string{"refuses root's submissions"}},
		"root, administers": {spoil: func(s *setup) {
			s.user, s.flavour, s.admins, s.conf["LSF_ROOT_REX"] = "root", lsf10, []string{"root"}, ""
		}},
		"an unknown LSF":     {spoil: func(s *setup) { s.doubt = errors.New("no version") }, want: []string{"it is taken for lava: no version"}},
		"no filter":          {spoil: func(s *setup) { s.esubs = nil }, want: []string{"does not ask our filter"}, remedy: "ln -s /opt/esub /lsf/etc/esub"},
		"another filter":     {spoil: func(s *setup) { s.esubs = []program{plain(program{})} }, want: []string{"but /lsf/etc/esub"}, remedy: `ln -s /opt/esub /lsf/etc/esub.allotment, then set LSB_ESUB_METHOD="allotment"`},
		"by way of theirs":   {spoil: func(s *setup) { s.esubs = []program{plain(program{calls: true})} }},
		"chained":            {spoil: func(s *setup) { s.esubs = []program{plain(program{}), chained(program{ours: true, listed: true})} }},
		"chained, not named": {spoil: func(s *setup) { s.esubs, s.conf[methodKey] = []program{chained(program{ours: true})}, "dce" }, want: []string{"is not in LSB_ESUB_METHOD"}, remedy: `LSB_ESUB_METHOD="dce allotment"`},
		"twice":              {spoil: func(s *setup) { s.esubs = append(s.esubs, chained(program{ours: true, listed: true})) }, want: []string{"asks the filter twice, as esub and esub.allotment"}},
		"twice, not named":   {spoil: func(s *setup) { s.esubs = append(s.esubs, chained(program{ours: true})) }},
		"can't be run":       {spoil: func(s *setup) { s.esubs = []program{plain(program{broken: true})} }, want: []string{"not every user can run /lsf/etc/esub"}, remedy: "chmod 755"},
		"no place for one":   {spoil: func(s *setup) { delete(s.conf, "LSF_SERVERDIR") }, want: []string{"LSF_SERVERDIR is not in lsf.conf"}},
		"no lsf.conf":        {spoil: func(s *setup) { s.conf = nil }, want: []string{"lsf.conf is not to be found"}, remedy: "envdir"},
		"open lsf.conf":      {spoil: func(s *setup) { s.confOpen, s.confPath = true, "/lsf/lsf.conf" }, want: []string{"/lsf/lsf.conf can be written by others"}},
		"queues not told":    {spoil: func(s *setup) { s.queues = nil }, by: backends.Installation{Queues: []string{"nosuch"}, Low: "lowest"}},
		"not there":          {spoil: func(*setup) {}, by: backends.Installation{Queues: []string{"normal", "nosuch"}, Low: "lowest"}}, // doctor says so of every queue
		"queues apart":       {spoil: func(s *setup) { s.queues = append(s.queues, queue{name: "high", priority: 60}) }, want: []string{"queues high (PRIORITY 60) and normal (30)"}},
		"not managed":        {spoil: func(s *setup) { s.queues = append(s.queues, queue{name: "high", priority: 60}) }, by: backends.Installation{Queues: []string{"normal"}}},
		"no lower":           {spoil: func(s *setup) { s.queues[1].priority = 30 }, want: []string{"it is no lower"}, remedy: "PRIORITY=29"},
		"fairshare":          {spoil: func(s *setup) { s.queues[0].policies = []string{"FAIRSHARE", "BACKFILL"} }, want: []string{"queue normal has fairshare"}},
		"fairshare, typo":    {spoil: func(s *setup) { s.queues[0].policies = []string{"FAIRSAHRE"} }, want: []string{"queue normal has fairshare (FAIRSAHRE)"}, remedy: "take FAIRSHARE out"},
		"a new policy":       {spoil: func(s *setup) { s.queues[0].policies = []string{"backfill", "Exclusive", "LUCKY\x1b[2J"} }, want: []string{`queue normal has the scheduling policy "LUCKY\x1b[2J", which is not known`}},
		"harmless policies": {spoil: func(s *setup) {
			s.queues[0].policies = []string{"BACKFILL", "IGNORE_DEADLINE", "EXCLUSIVE", "NO_INTERACTIVE", "ONLY_INTERACTIVE"}
		}},
		"APS":                {spoil: func(s *setup) { s.queues[0].policies = []string{"APS_PRIORITY"} }, want: []string{"queue normal has absolute priorities"}},
		"preempts":           {spoil: func(s *setup) { s.queues[0].policies = []string{"PREEMPTIVE"} }, want: []string{"LSF preempts there by itself"}},
		"a host without MXJ": {spoil: func(s *setup) { s.noSlots = []string{"h9"} }, want: []string{"is counted: host h9"}, remedy: "MXJ for each"},
		"hosts without MXJ":  {spoil: func(s *setup) { s.noSlots = []string{"h1", "h2", "h3"} }, want: []string{"is counted: hosts h1, h2, h3"}},
		"a strange host":     {spoil: func(s *setup) { s.strange = []string{`h2 "unknown"`} }, want: []string{`STATUS is not known: host h2 "unknown"`}, remedy: "bhosts -l"},
		"many without MXJ":   {spoil: func(s *setup) { s.noSlots = slices.Repeat([]string{"h"}, 13) }, want: []string{"h, h and 3 more"}},
		"clock":              {spoil: func(s *setup) { s.ahead = 3 * time.Minute }, want: []string{"3m0s ahead"}},
		"clock, hardly":      {spoil: func(s *setup) { s.ahead = time.Minute }},
	} {
		t.Run(name, func(t *testing.T) {
			s := wellSetUp()
			x.spoil(s)
			x.by.Filter = "/opt/esub"
			if x.by.Low == "" {
				x.by.Low = "low"
			}
			got := examine(s, x.by)
			if len(got) != len(x.want) {
				t.Fatalf("%d findings, want %d: %+v", len(got), len(x.want), got)
			}
			for i, want := range x.want {
				if !strings.Contains(got[i].What, want) || got[i].Remedy == "" {
					t.Errorf("%+v, want %q", got[i], want)
				}
			}
			if len(got) > 0 && !strings.Contains(got[0].Remedy, x.remedy) {
				t.Errorf("remedy %q, want %q", got[0].Remedy, x.remedy)
			}
		})
	}
}

// printedBy returns what a real cluster printed for a command.
func printedBy(t *testing.T, file, command string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/transcripts", file))
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(text), "== user=") {
		first, rest, _ := strings.Cut(part, "\n")
		if _, argv, _ := strings.Cut(first, "argv="); argv == command {
			out, _, _ := strings.Cut(strings.TrimPrefix(rest, "-- stdout\n"), "-- stderr")
			return []byte(out)
		}
	}
	t.Fatalf("%s: no %s", file, command)
	return nil
}

func TestParseQueues(t *testing.T) {
	got, err := parseQueues(printedBy(t, "hosts.txt", "bqueues"))
	row := func(priority, jobs, pending, running int) backends.QueueRow {
		return backends.QueueRow{
			Priority: priority, Status: "Open:Active", Max: "-", PerUser: "-", PerProcessor: "-", PerHost: "-", Jobs: jobs, Pending: pending, Running: running,
		}
	}
	want := []queue{
		{name: "high", priority: 60, row: row(60, 0, 0, 0)},
		{name: "normal", priority: 30, row: row(30, 18, 2, 16)},
		{name: "low", priority: 10, row: row(10, 0, 0, 0)},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(queue{}, exitValues{})); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	addPolicies(got, printedBy(t, "hosts.txt", "bqueues | -l | normal"))
	if got[1].policies != nil {
		t.Errorf("%+v", got[1])
	}
	// SCHEDULING POLICIES as IBM's page of bqueues describes it.
	addPolicies(got, []byte("\nQUEUE: nosuch\nSCHEDULING POLICIES:  EXCLUSIVE\n\nQUEUE: low\n  -- low\nSCHEDULING POLICIES:  FAIRSHARE  BACKFILL\nUSER_SHARES:  [all, 1]\n"))
	if want := []string{"FAIRSHARE", "BACKFILL"}; !slices.Equal(got[2].policies, want) || got[0].policies != nil {
		t.Errorf("%+v", got)
	}
	for _, text := range []string{"", "No queue\n", "QUEUE_NAME STATUS\n", "QUEUE_NAME PRIO\nnormal\n", "QUEUE_NAME PRIO\nnormal high\n", "QUEUE_NAME PRIO RUN\nnormal 30 many\n"} {
		if got, err := parseQueues([]byte(text)); err == nil {
			t.Errorf("%q gives %+v", text, got)
		}
	}
}

func TestParseAdmins(t *testing.T) {
	for name, x := range map[string]struct {
		text string
		want []string
	}{
		"IBM's example":  {"Begin ClusterAdmins \nADMINISTRATORS = lsfadmin admin1 admin2\nEnd ClusterAdmins\n", []string{"lsfadmin", "admin1", "admin2"}},
		"as lava has it": {"#c\nBegin   ClusterAdmins\nAdministrators = volclava # its own\nEnd    ClusterAdmins\nBegin Host\nHOSTNAME model\nEnd Host\n", []string{"volclava"}},
		"as it was":      {"Begin ClusterManager\nManager = lsf\nEnd ClusterManager\n", []string{"lsf"}},
		"none":           {"Begin Host\nADMINISTRATORS = bob\nEnd Host\n", []string{"root"}},
	} {
		if got := parseAdmins(x.text); !slices.Equal(got, x.want) {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}

func TestParseOddHosts(t *testing.T) {
	noSlots, strange, err := parseOddHosts(printedBy(t, "hosts.txt", "bhosts | -w"))
	if err != nil || noSlots != nil || strange != nil {
		t.Errorf("%q, %q, %v", noSlots, strange, err)
	}
	noSlots, strange, err = parseOddHosts([]byte("HOST_NAME STATUS JL/U MAX NJOBS RUN SSUSP USUSP RSV\nh1 ok - - 0 0 0 0 0\nh2 unknown - 4 0 0 0 0 0\n"))
	if err != nil || !slices.Equal(noSlots, []string{"h1"}) || !slices.Equal(strange, []string{`h2 "unknown"`}) {
		t.Errorf("%q, %q, %v", noSlots, strange, err)
	}
}

// fakeCluster is a directory with a cluster's files, and the answers of its commands.
type fakeCluster struct {
	dir    string
	filter string
	answer map[string][]byte
}

func newCluster(t *testing.T) *fakeCluster {
	t.Helper()
	c := &fakeCluster{dir: t.TempDir()}
	c.filter = c.write(t, "bin/esub", "\x7fELF of ours", 0o755)
	c.write(t, "lsf.conf", fmt.Sprintf("# a comment\nLSF_CONFDIR=%s\nLSF_SERVERDIR=\"%s/etc\"\nLSF_ROOT_REX=all\n", c.dir, c.dir), 0o644)
	c.write(t, "lsf.cluster.volclava", "Begin ClusterAdmins\nAdministrators = "+nameOf(os.Getuid())+"\nEnd ClusterAdmins\n", 0o644)
	c.write(t, "etc/.keep", "", 0o644)
	c.answer = map[string][]byte{
		"lsid":       printedBy(t, "submit.txt", "lsid"),
		"bparams -l": printedBy(t, "hosts.txt", "bparams | -l"),
		"bhosts -w":  printedBy(t, "hosts.txt", "bhosts | -w"),
	}
	return c
}

func (c *fakeCluster) write(t *testing.T, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(c.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

func (c *fakeCluster) run(_ context.Context, argv ...string) ([]byte, error) {
	if text, ok := c.answer[strings.Join(argv, " ")]; ok {
		return text, nil
	}
	return nil, exec.ErrNotFound
}

func (c *fakeCluster) readSetup(t *testing.T) *setup {
	t.Helper()
	around := surroundings{config: Config{Bin: "/lsf/bin", EnvDir: c.dir}, env: func(string) string { return "" }, system: t.TempDir()}
	s, err := readSetup(t.Context(), c.run, around, backends.Installation{UID: os.Getuid(), Filter: c.filter})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// findings returns what examine says of a cluster.
func (c *fakeCluster) findings(t *testing.T) []string {
	t.Helper()
	var what []string
	for _, f := range examine(c.readSetup(t), backends.Installation{Filter: c.filter}) {
		what = append(what, strings.ReplaceAll(f.What, c.dir, "DIR"))
	}
	return what
}

// ofRoot returns what is found if root runs the test.
func ofRoot(what string) []string {
	if os.Getuid() == 0 {
		return []string{what}
	}
	return nil
}

func TestReadSetup(t *testing.T) {
	const notAsked = "LSF does not ask our filter at submission: jobs are neither tested nor tagged"
	for name, x := range map[string]struct {
		do   func(t *testing.T, c *fakeCluster) error
		want []string
	}{
		"as it comes": {func(*testing.T, *fakeCluster) error { return nil }, []string{notAsked}},
		"linked":      {func(_ *testing.T, c *fakeCluster) error { return os.Symlink(c.filter, c.dir+"/etc/esub") }, nil},
		"copied":      {func(t *testing.T, c *fakeCluster) error { c.write(t, "etc/esub", "\x7fELF of ours", 0o755); return nil }, nil},
		"called": {func(t *testing.T, c *fakeCluster) error {
			c.write(t, "etc/esub", "#!/bin/sh\nexec /usr/lib/allotment/esub\n", 0o755)
			return nil
		}, nil},
		"another": {func(t *testing.T, c *fakeCluster) error { c.write(t, "etc/esub", "#!/bin/sh\n", 0o755); return nil }, []string{"LSF does not ask our filter at submission, but DIR/etc/esub: jobs are neither tested nor tagged"}},
		"closed":  {func(t *testing.T, c *fakeCluster) error { c.write(t, "etc/esub", "\x7fELF of ours", 0o700); return nil }, []string{"not every user can run DIR/etc/esub: LSF submits jobs without it"}},
		"leads nowhere": {
			func(_ *testing.T, c *fakeCluster) error { return os.Symlink("/no/such", c.dir+"/etc/esub") },
			[]string{"not every user can run DIR/etc/esub: LSF submits jobs without it"},
		},
		"chained": {func(t *testing.T, c *fakeCluster) error {
			c.write(t, "lsf.conf", fmt.Sprintf("LSF_ROOT_REX=all\nLSF_SERVERDIR=%s/etc\nLSB_ESUB_METHOD=\"dce allotment(x)\"\n", c.dir), 0o644)
			return os.Symlink(c.filter, c.dir+"/etc/esub.allotment")
		}, nil},
		"open": {func(_ *testing.T, c *fakeCluster) error {
			return errors.Join(os.Symlink(c.filter, c.dir+"/etc/esub"), os.Chmod(c.dir+"/lsf.conf", 0o666))
		}, []string{"DIR/lsf.conf can be written by others: they decide which filter is asked"}},
		"root": {func(t *testing.T, c *fakeCluster) error {
			c.write(t, "lsf.conf", fmt.Sprintf("LSF_SERVERDIR=%s/etc\n", c.dir), 0o644)
			return os.Symlink(c.filter, c.dir+"/etc/esub")
		}, ofRoot("root runs the engine: LSF refuses root's submissions without LSF_ROOT_REX, so that no dummy job is placed")},
		"fairshare": {func(t *testing.T, c *fakeCluster) error {
			c.answer["bqueues -w"] = printedBy(t, "hosts.txt", "bqueues")
			c.answer["bqueues -l"] = []byte("QUEUE: low\nSCHEDULING POLICIES:  FAIRSHARE\n")
			return os.Symlink(c.filter, c.dir+"/etc/esub")
		}, []string{
			"queues high (PRIORITY 60) and low (10): jobs of the first go before all of the second, those of pools too",
			"queue low has fairshare (FAIRSHARE): LSF orders its jobs by their users' shares, whatever their ranks",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			if err := x.do(t, c); err != nil {
				t.Fatal(err)
			}
			if got := c.findings(t); !slices.Equal(got, x.want) {
				t.Errorf("got  %q\nwant %q", got, x.want)
			}
		})
	}
	c := newCluster(t)
	if s := c.readSetup(t); s.flavour != lava || s.params.maxPriority != 100 || s.params.cleanPeriod != time.Hour || s.user != nameOf(os.Getuid()) || !slices.Contains(s.admins, s.user) {
		t.Errorf("%+v", s)
	}
}

// A setting of a shell's profile is missing from cron's environment.
func TestSettingsFromEnvironment(t *testing.T) {
	dir := t.TempDir()
	bsub := filepath.Join(dir, "bsub")
	if err := os.WriteFile(bsub, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	env := func(name string) string {
		if name == "LSF_ENVDIR" {
			return "/lsf/conf"
		}
		return ""
	}
	got := surroundings{env: env, system: dir}.settings()
	if diff := cmp.Diff(map[string]string{"bin": dir, "envdir": "/lsf/conf"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := (surroundings{config: Config{Bin: dir, EnvDir: "/lsf"}, env: env, system: dir}).settings(); len(got) > 0 {
		t.Errorf("all is in the config file: %v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, confName), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := (surroundings{config: Config{Bin: dir}, env: env, system: dir}).settings(); len(got) > 0 {
		t.Errorf("the commands find it by themselves: %v", got)
	}
	for _, x := range []struct {
		config Config
		want   string
	}{{Config{EnvDir: "/a"}, "/a"}, {Config{}, "/lsf/conf"}} {
		if got := (surroundings{config: x.config, env: env, system: "/etc"}).directory(); got != x.want {
			t.Errorf("%s, want %s", got, x.want)
		}
	}
}

// R12, R1: what the filter must know of the cluster that runs it.
func TestFilterFacts(t *testing.T) {
	p, err := parseParams(printedBy(t, "hosts.txt", "bparams | -l"))
	if err != nil {
		t.Fatal(err)
	}
	want := backends.FilterFacts{NextInLine: newScale(p).number(backends.At(backends.LevelNext, 20)), MostRank: 50, DefaultQueue: "normal", MemoryUnit: 1 << 20, TagNoRequeue: true}
	if got := filterFacts(p, 1<<20); got != want || got.NextInLine <= 50 || got.NextInLine > 100 {
		t.Errorf("%+v, want %+v, between the default and MAX_USER_PRIORITY", got, want)
	}
	p.maxPriority, p.defaultQueues = 0, nil
	if got := filterFacts(p, 1<<10); got != (backends.FilterFacts{MemoryUnit: 1 << 10, TagNoRequeue: true}) {
		t.Errorf("without priorities: %+v", got)
	}
}
