package lsf

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
)

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		text    string
		flavour flavour
		version string
	}{
		{answered(t, "submit.txt", "lsid").stdout, lava, "2.2"},
		{answered(t, "hosts.txt", "bjobs -V").stdout, lava, "2.2"},
		{answered(t, "hosts.txt", "lsid -V").stdout, lava, "2.2"},
		{string(captured(t, "lsf10/lsid.txt")), lsf10, "10.1.0.0"},
		{"IBM Platform LSF 9.1.3.0, Jul 04 2014\n", 0, ""},
		{"lsid: not found\n", 0, ""},
		{"", 0, ""},
	} {
		f, version, err := parseVersion(c.text)
		if f != c.flavour || version != c.version || (err == nil) != (c.flavour != 0) {
			t.Errorf("%q: %v %q, %v", c.text, f, version, err)
		}
	}
}

func TestVersionIsQueriedUntilKnown(t *testing.T) {
	down := errors.New("LIM is down")
	for name, x := range map[string]struct {
		answers map[string]string // by command line; others answer nothing
		failing bool              // all fail
		want    flavour
		doubt   string // a part of it
	}{
		"bjobs tells":        {answers: map[string]string{"bjobs -V": "volclava project 2.2, Nov 20 2026\n"}, want: lava},
		"bhosts alone tells": {answers: map[string]string{"bhosts -V": "volclava project 2.2, Nov 20 2026\n"}, want: lava},
		"lsid alone tells":   {answers: map[string]string{"lsid": "IBM Spectrum LSF Standard 10.1.0.0, Jul 08 2016\n"}, want: lsf10},
		"nothing tells":      {want: lava, doubt: "no version"},
		"another LSF":        {answers: map[string]string{"lsid": "IBM Platform LSF 9.1.3.0, Jul 04 2014\n"}, want: lsf10, doubt: "9.1.3"},
		"a later name":       {answers: map[string]string{"bjobs -V": "jhinno unischeduler 7\n"}, want: lava, doubt: "unischeduler"},
		"all fail":           {failing: true},
	} {
		kind, doubt, err := queryVersion(t.Context(), func(_ context.Context, argv ...string) ([]byte, error) {
			if x.failing {
				return nil, down
			}
			return []byte(x.answers[strings.Join(argv, " ")]), nil
		})
		if x.failing != errors.Is(err, down) || kind != x.want || (doubt == nil) != (x.doubt == "") || doubt != nil && !strings.Contains(doubt.Error(), x.doubt) {
			t.Errorf("%s: %v, %v, %v", name, kind, doubt, err)
		}
	}
}

// bothHosts reads bhosts -w and lshosts -w.
func bothHosts(bhosts, lshosts []byte) ([]listedHost, error) {
	static, err := parseStatics(lshosts)
	if err != nil {
		return nil, err
	}
	return parseHosts(bhosts, static)
}

func TestHosts(t *testing.T) {
	hosts, err := bothHosts([]byte(answered(t, "hosts.txt", "bhosts -w").stdout), []byte(answered(t, "hosts.txt", "lshosts -w").stdout))
	if err != nil || len(hosts) != 5 {
		t.Fatalf("%+v, %v", hosts, err)
	}
	if h := hosts[0]; h.Name != "lava0" || h.Slots != 0 || h.State != backends.HostUp {
		t.Errorf("%+v", h)
	}
	if h := hosts[4]; h.Name != "lava4" || h.Slots != 4 || h.Memory != 24105<<20 || h.State != backends.HostUp || h.inUse != 4 || h.running != 4 {
		t.Errorf("%+v", h)
	}
	hosts, err = bothHosts([]byte(answered(t, "actions.txt", "bhosts -w").stdout), []byte(answered(t, "hosts.txt", "lshosts -w").stdout))
	if err != nil || hosts[4].running != 3 || hosts[4].suspended != 1 || hosts[4].inUse != 4 {
		t.Errorf("%+v, %v", hosts, err)
	}
	hosts, err = bothHosts(captured(t, "lsf10/bhosts.txt"), captured(t, "lsf10/lshosts.txt"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]backends.Host{}
	for _, h := range hosts {
		got[h.status] = h.Host
	}
	want := map[string]backends.Host{
		"ok":          {Name: "hosta", Slots: 8, Memory: 33500744908},
		"closed_Adm":  {Name: "hostb", Slots: 4, Memory: 128.5 * (1 << 30), State: backends.HostClosed},
		"unavail":     {Name: "hostc", Slots: 4, State: backends.HostDown},
		"closed_Excl": {Name: "hostd", Slots: 4, Memory: 1.5 * (1 << 40), State: backends.HostClosed},
		"closed_RC":   {Name: "hoste", State: backends.HostClosed},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// A host of an unknown status is closed, and hides no other host.
	hosts, err = bothHosts([]byte("HOST_NAME STATUS JL/U MAX NJOBS RUN SSUSP USUSP RSV\nh1 unknown - 4 0 0 0 0 0\nh2 ok - 4 0 0 0 0 0\n"),
		[]byte("HOST_NAME type model cpuf ncpus maxmem maxswp server RESOURCES\n"))
	if err != nil || len(hosts) != 2 || hosts[0].State != backends.HostClosed || hosts[1].State != backends.HostUp {
		t.Errorf("%+v, %v", hosts, err)
	}
	const lshosts = "HOST_NAME type model cpuf ncpus maxmem maxswp server RESOURCES\n"
	for _, bhosts := range []string{
		"", "No hosts\n", "HOST_NAME STATUS JL/U MAX NJOBS RUN SSUSP USUSP\n",
		"HOST_NAME STATUS JL/U MAX NJOBS RUN SSUSP USUSP RSV\nh ok - many 0 0 0 0 0\n",
		"HOST_NAME STATUS JL/U MAX NJOBS RUN SSUSP USUSP RSV\nh ok - 4\n",
	} {
		if hosts, err := bothHosts([]byte(bhosts), []byte(lshosts)); err == nil {
			t.Errorf("%q: %+v", bhosts, hosts)
		}
	}
}

func TestParams(t *testing.T) {
	got, err := parseParams([]byte(answered(t, "hosts.txt", "bparams -l").stdout))
	want := params{defaultQueues: []string{"normal"}, maxPriority: 100, defaultPriority: 50, cleanPeriod: time.Hour, sleep: time.Second}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = parseParams([]byte("    CLEAN_PERIOD = 60 (seconds)\n    JOB_PRIORITY_OVER_TIME = 1/2 (in minutes)\n    RESOURCE_RESERVE_PER_TASK = Y\n"))
	if err != nil || got.maxPriority != 0 || !got.overTime || !got.perTask || got.cleanPeriod != time.Minute {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "connection refused\n", "MAX_USER_PRIORITY = many\n", "MAX_USER_PRIORITY = -1\n"} {
		if got, err := parseParams([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// A date without a year is the latest past one that has its weekday.
func TestYears(t *testing.T) {
	day := func(s string) time.Time {
		at, err := time.Parse(time.DateTime, s)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for _, c := range []struct{ stamp, now, want string }{
		{"Fri Nov 20 22:54:18", "2026-11-20 22:56:00", "2026-11-20 22:54:18"},
		{"Thu Dec 31 23:59:59", "2027-01-01 00:00:01", "2026-12-31 23:59:59"}, // across New Year
		{"Dec 31 23:59", "2027-01-01 00:00:01", "2026-12-31 23:59:00"},
		{"12/31-23:59:59", "2027-01-01 00:00:01", "2026-12-31 23:59:59"},
		{"Fri Jan  1 00:00:05", "2026-12-31 23:59:58", "2027-01-01 00:00:05"}, // its clock is ahead
		{"Jan  1 00:00", "2026-12-31 23:59:58", "2027-01-01 00:00:00"},
		{"Thu Nov 20 22:54:18", "2026-11-20 22:56:00", "2025-11-20 22:54:18"}, // a year old
		{"Sun Feb 29 12:00:00", "2026-11-20 22:56:00", "2004-02-29 12:00:00"},
		{"Feb 29 12:00", "2026-11-20 22:56:00", "2024-02-29 12:00:00"},
		{"Nov 22 00:00", "2026-11-20 22:56:00", "2025-11-22 00:00:00"}, // more than a day ahead
		{"Dec 28 19:56:03 2025", "2026-11-20 22:56:00", "2025-12-28 19:56:03"},
		{"Nov 20 22:54:18 2027", "2026-11-20 22:56:00", "2027-11-20 22:54:18"},
		{"Mon Nov 20 22:54:18 2026", "2026-11-20 22:56:00", ""},
		{"Feb 30 12:00", "2026-11-20 22:56:00", ""},
		{"Nov 20 24:00", "2026-11-20 22:56:00", ""},
		{"Nov 20", "2026-11-20 22:56:00", ""},
		{"tomorrow", "2026-11-20 22:56:00", ""},
		{"11/20", "2026-11-20 22:56:00", ""},
	} {
		got, err := parsePast(c.stamp, day(c.now))
		if (err == nil) != (c.want != "") || c.want != "" && !got.Equal(day(c.want)) {
			t.Errorf("%q at %s: %v, %v; want %s", c.stamp, c.now, got, err, c.want)
		}
	}
	// A begin time is usually in the future.
	for _, c := range []struct{ stamp, now, want string }{
		{"Fri Jan  1 08:00:00", "2026-12-31 23:59:58", "2027-01-01 08:00:00"},
		{"Sat Nov 28 08:00:00", "2026-11-20 22:56:00", "2026-11-28 08:00:00"},
		{"Jan  2 03:00", "2026-12-28 20:00:00", "2027-01-02 03:00:00"},
		{"Dec 31 08:00", "2027-01-01 00:00:00", "2026-12-31 08:00:00"},
	} {
		if got, err := parseNear(c.stamp, day(c.now)); err != nil || !got.Equal(day(c.want)) {
			t.Errorf("%q at %s: %v, %v; want %s", c.stamp, c.now, got, err, c.want)
		}
	}
	for _, none := range []string{"", "-", " - "} {
		if got, err := parsePast(none, asked()); err != nil || !got.IsZero() {
			t.Errorf("%q: %v, %v", none, got, err)
		}
	}
}

func TestExecHosts(t *testing.T) {
	p := func(host string, slots int) backends.Placement { return backends.Placement{Host: host, Slots: slots} }
	for s, want := range map[string][]backends.Placement{
		"": nil, "-": nil, "   -    ": nil, "lava4": {p("lava4", 1)}, "lava4:lava4": {p("lava4", 2)}, "4*hostA": {p("hostA", 4)},
		"4*hostA:hostB:hostA": {p("hostA", 5), p("hostB", 1)},
	} {
		if got, err := parseExecHosts(s); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"a::b", "0*a", "-1*a", "x*a", "a b", "2*", "999999999*a", "2*3*a"} {
		if got, err := parseExecHosts(s); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
}

func TestSizes(t *testing.T) {
	for s, want := range map[string]int64{
		"24105M": 24105 << 20, "4096000 K": 4096000 << 10, "4 Gbytes": 4 << 30, "512 Mbytes": 512 << 20, "1.5T": 3 << 39, "100.00": 100 << 20, "64KB": 64 << 10, "0": 0,
	} {
		if got, err := parseSize(s, 1<<20); err != nil || got != want {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "M", "-1M", "1e9", "0x10", "many", "9999999999999T", "NaN", "Inf"} {
		if got, err := parseSize(s, 1<<20); err == nil {
			t.Errorf("%q: %d", s, got)
		}
	}
	c := &cluster{usageUnit: 1 << 20}
	for s, want := range map[string]int64{
		"select[type == any] order[r15s:pg] rusage[mem=100.00]":    100 << 20,
		"rusage[mem=1G:duration=10,swp=5] rusage[tmp=7, mem=500M]": 1 << 30,
		"rusage[mem=10/task]": 40 << 20, "rusage[mem=10/job]": 10 << 20, "rusage[mem=lots]": 0, "select[mem>1]": 0, "": 0, "rusage[mem=1": 1 << 20,
	} {
		if got := usageMemory(s, 4, c); got != want {
			t.Errorf("%q: %d, want %d", s, got, want)
		}
	}
	c.perTask = true
	if got := usageMemory("rusage[mem=10]", 4, c); got != 40<<20 {
		t.Errorf("for each of its slots: %d", got)
	}
	for _, u := range []struct {
		flavour      flavour
		unit         string
		limit, usage int64
	}{{lava, "", 1 << 20, 1 << 20}, {lsf10, "", 1 << 10, 1 << 20}, {lsf10, "GB", 1 << 30, 1 << 30}, {lsf10, "m", 1 << 20, 1 << 20}, {lsf10, "XB", 0, 0}} {
		if limit, usage, err := units(u.flavour, u.unit); limit != u.limit || usage != u.usage || (err == nil) != (u.limit != 0) {
			t.Errorf("%v %q: %d %d, %v", u.flavour, u.unit, limit, usage, err)
		}
	}
	conf := parseConf("# LSF\nLSF_UNIT_FOR_LIMITS=MB # all of them\n LSF_SERVERDIR = \"/lsf/etc # x\"\n#LSB_X=1\nnoise\n")
	if want := map[string]string{"LSF_UNIT_FOR_LIMITS": "MB", "LSF_SERVERDIR": "/lsf/etc # x"}; !reflect.DeepEqual(conf, want) {
		t.Errorf("%q", conf)
	}
}

// R14: only reasons that are known to mean "for want of slots" make a job eligible.
func TestPendingReasons(t *testing.T) {
	for why, want := range map[string]backends.Wait{
		"Job slot limit reached: 5 hosts;":                                                             backends.WaitResources,
		"Job slot limit reached: 4 hosts;\nClosed by LSF administrator: 1 host;":                       backends.WaitResources,
		"Not specified in job submission: 3 hosts;\nJob slot limit reached: 1 host;":                   backends.WaitResources,
		"Job slot limit reached: lava1, lava2;":                                                        backends.WaitResources,
		"New job is waiting for scheduling;":                                                           backends.WaitResources,
		"Job's requirements for reserving resource (mem) not satisfied: 3 hosts":                       backends.WaitResources,
		"Individual host based reasons":                                                                backends.WaitResources,
		"Closed by LSF administrator: 5 hosts;":                                                        backends.WaitOther,
		"Load information unavailable: 5 hosts;":                                                       backends.WaitOther,
		"The user has reached his/her job slot limit;\nJob slot limit reached: 5 hosts;":               backends.WaitOther,
		"Resource limit defined on project has been reached (Resource: slots, Limit Name: a): 1 host;": backends.WaitOther,
		"Job requirements for reserving resource (lic1) not satisfied: 2 hosts;":                       backends.WaitOther,
		"something new: Job slot limit reached;":                                                       backends.WaitOther,
		"":                                                                                             backends.WaitOther,
		"The job has a specified start time: 1 host;":                                                  backends.WaitTime,
		"The job has a specified start time;\nJob slot limit reached: 5 hosts;":                        backends.WaitTime,
		"Job dependency condition not satisfied;":                                                      backends.WaitDependency,
		"Dependency condition invalid or never satisfied: 1 host;":                                     backends.WaitDependency,
		"The job array has reached its running element limit: 1 host;":                                 backends.WaitThrottle,
		"The job array has reached its job slot limit;":                                                backends.WaitThrottle,
	} {
		if got := parseWait(why); got != want {
			t.Errorf("%q: %d, want %d", why, got, want)
		}
	}
}

func TestSubmittedLines(t *testing.T) {
	want := []int64{789, 790, 791, 792, 793, 794, 795, 0, 0, 797}
	var got []int64
	for _, a := range transcript(t, "submit.txt") {
		if a.argv[0] != "bsub" {
			continue
		}
		id, queue, err := parseSubmitted(a.stdout)
		if got = append(got, id.Job); (err == nil) != (queue == "normal") {
			t.Errorf("%q: %q, %v", a.argv, queue, err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d, want %d", got, want)
	}
	if id, queue, err := parseSubmitted("a site's own words\nJob <12> is submitted to queue <night>.\n"); err != nil || id.Job != 12 || queue != "night" {
		t.Errorf("%v %q, %v", id, queue, err)
	}
	for _, s := range []string{"", "Job <0> is submitted to queue <q>.", "Job <1[2]> is submitted to queue <q>.", "Job <1> is submitted to queue <q>", "Job <1> is submitted to queue <>."} {
		if id, queue, err := parseSubmitted(s); err == nil {
			t.Errorf("%q: %v %q", s, id, queue)
		}
	}
}

func TestMalformedRecords(t *testing.T) {
	for _, s := range []string{"", "No unfinished job found\n", "{}", `{"RECORDS":[1]}`, `{"RECORDS":[{"JOBID":null}]}`, `{"RECORDS":[{"JOBID":["1"]}]}`, `{"RECORDS":[{"JOBID":"1"}]`} {
		if r, err := parseRecords([]byte(s)); err == nil {
			t.Errorf("%q: %v", s, r)
		}
	}
	for _, s := range []string{`{"RECORDS":[{"JOBID":"1"}]}`, `{"RECORDS":[{"JOBID":"x","USER":"","STAT":"","QUEUE":"","FROM_HOST":"","EXEC_HOST":"","JOB_NAME":"","SUBMIT_TIME":"","PROJ_NAME":"","START_TIME":"","FINISH_TIME":""}]}`} {
		if a, err := parseAnchors([]byte(s)); err == nil {
			t.Errorf("%q: %v", s, a)
		}
	}
	if r, err := parseRecords([]byte(`{"COMMAND":"bjobs","JOBS":0,"RECORDS":[]}`)); err != nil || len(r) != 0 {
		t.Errorf("%v, %v", r, err)
	}
	r, err := parseRecords([]byte("{\"RECORDS\":[{\"JOBID\":\"9\",\"ERROR\":\"Job <9> is not found\"},{\"JOBID\":7,\"JOB_NAME\":\"\xff\\u0001\xc3\xa4\"}]}"))
	if err != nil || len(r) != 1 || r[0]["JOB_NAME"] != "\xff\x01\xc3\xa4" || r[0]["JOBID"] != "7" {
		t.Errorf("%q, %v", r, err)
	}
}

func TestLSF10Jobs(t *testing.T) {
	at := time.Date(2026, 12, 28, 19, 58, 0, 0, time.UTC)
	jobs, err := parseJobs(captured(t, "lsf10/bjobs.json"), &cluster{at: at, limitUnit: 1 << 10, usageUnit: 1 << 20})
	if err != nil || len(jobs) != 6 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	minute := func(s string) time.Time {
		m, err := time.Parse("2006-01-02 15:04", s)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	want := []backends.Job{
		{
			ID: backends.ID{Job: 101}, Name: "x>, User <root>, Project <chipA>, Status <RUN>", User: "alice", Project: "chipB", Step: "synthesis", Queue: "normal",
			Tag: "allotment:1;preempt=suspend;", State: backends.Running, Slots: 6, Memory: 512 << 20, Hosts: []backends.Placement{{Host: "hosta", Slots: 4}, {Host: "hostb", Slots: 2}},
			Submitted: minute("2026-12-28 19:56"), Started: minute("2026-12-28 19:57"), RunLimit: 2 * time.Hour,
		},
		{
			ID: backends.ID{Job: 102, Index: 3}, Name: "arr[3]", User: "bob", Project: "chipA", Queue: "normal", State: backends.Pending, Wait: backends.WaitResources,
			Reason: "Individual host based reasons;", Slots: 2, Memory: 2 << 30, OneHost: true, Asked: []string{"hosta", "hostb"}, Submitted: minute("2026-12-28 19:56"),
			RunLimit: 30 * time.Minute, Exclusive: true,
		},
		{
			ID: backends.ID{Job: 103}, Name: "later", User: "bob", Project: "default", Queue: "night", State: backends.Pending, Wait: backends.WaitTime,
			Reason: "The job has a specified start time;", Slots: 1, Memory: 512 << 20, OneHost: true, Submitted: minute("2026-12-28 19:56").Add(3 * time.Second),
			BeginTime: minute("2027-01-02 03:00"), Interactive: true, NoRequeue: true,
		},
		{
			ID: backends.ID{Job: 104}, Name: "stopped\nJob <101>", User: "bob", Project: "default", Queue: "normal", State: backends.Suspended, Slots: 2,
			Hosts: []backends.Placement{{Host: "hosta", Slots: 2}}, Submitted: minute("2026-12-28 19:00"), Started: minute("2026-12-28 19:01"), RunLimit: time.Hour,
			RanFor: 10*time.Minute + 5*time.Second,
		},
		{
			ID: backends.ID{Job: 105}, Name: "/bin/false", User: "carol", Project: "default", Queue: "normal", State: backends.Exited, Slots: 1, OneHost: true,
			Hosts: []backends.Placement{{Host: "hostb", Slots: 1}}, Submitted: minute("2026-12-28 18:00"), Started: minute("2026-12-28 18:01"), Ended: minute("2026-12-28 18:02"), ExitCode: 3,
		},
		{
			ID: backends.ID{Job: 106}, Name: "lost", User: "carol", Project: "default", Queue: "normal", State: backends.Running, Slots: 1, OneHost: true,
			Hosts: []backends.Placement{{Host: "hostc", Slots: 1}}, Submitted: minute("2026-12-28 18:00"), Started: minute("2026-12-28 18:01"),
		},
	}
	var got []backends.Job
	for _, j := range jobs {
		if len(j.Asked) == 0 {
			j.Asked = nil
		}
		got = append(got, j.Job)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if jobs[0].priority != 60 || jobs[2].priority != 0 || !jobs[5].lost || jobs[0].description != "allotment:1;preempt=suspend; mine" {
		t.Errorf("%+v", jobs)
	}
}

func TestLSF10RejectsBadFields(t *testing.T) {
	good := map[string]string{}
	for name, value := range map[string]string{"JOBID": "5", "STAT": "RUN", "USER": "u", "QUEUE": "q", "EXEC_HOST": "h", "SUBMIT_TIME": "Nov 20 22:54", "START_TIME": "Nov 20 22:54"} {
		good[name] = value
	}
	for _, name := range []string{
		"JOBINDEX", "JOB_NAME", "JOB_DESCRIPTION", "PROJ_NAME", "JOB_PRIORITY", "PEND_REASON", "PENDSTATE", "ALLOC_SLOT", "NALLOC_SLOT", "MIN_REQ_PROC", "ASK_HOSTS", "SPECIFIED_START_TIME",
		"FINISH_TIME", "RUN_TIME", "RUNTIMELIMIT", "MEMLIMIT", "FROM_HOST", "COMBINED_RESREQ", "EXIT_CODE", "INTERACTIVE", "EXCLUSIVE",
	} {
		good[name] = ""
	}
	read := func(name, value string) error {
		r := map[string]string{}
		for n, v := range good {
			r[n] = v
		}
		if r[name] = value; value == "none" {
			delete(r, name)
		}
		return new(listedJob).parseRecord(r, lavaCluster())
	}
	if err := read("JOB_NAME", "x"); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"JOBID": "x", "STAT": "HUH", "EXEC_HOST": "a b", "SUBMIT_TIME": "soon", "START_TIME": "Feb 31 10:00", "RUNTIMELIMIT": "long", "MEMLIMIT": "much", "JOB_PRIORITY": "-1",
		"INTERACTIVE": "perhaps", "EXCLUSIVE": "2", "USER": "none", "NALLOC_SLOT": "some", "JOBINDEX": "a", "SPECIFIED_START_TIME": "x",
	} {
		if err := read(name, value); err == nil {
			t.Errorf("%s %q is read", name, value)
		}
	}
	var unknown *backends.UnknownStateError
	if err := read("STAT", "HUH"); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
}

// TRACK_ELIGIBLE_PENDINFO: LSF itself says which jobs wait for their turn.
func TestLSF10PendState(t *testing.T) {
	for _, c := range []struct {
		state, why string
		want       backends.Wait
	}{
		{"EPEND", "The user has reached his/her job slot limit;", backends.WaitResources},
		{"IPEND", "New job is waiting for scheduling;", backends.WaitOther},
		{"IPEND", "Job dependency condition not satisfied;", backends.WaitDependency},
		{"-", "New job is waiting for scheduling;", backends.WaitResources},
		{"NOTPEND", "New job is waiting for scheduling;", backends.WaitResources},
	} {
		r := map[string]string{}
		for name := range strings.SplitSeq(strings.ToUpper(lsf10Fields), " ") {
			r[name] = ""
		}
		r["JOBID"], r["STAT"], r["SUBMIT_TIME"], r["PEND_REASON"], r["PENDSTATE"] = "5", "PEND", "Nov 20 22:54", c.why, c.state
		var j listedJob
		if err := j.parseRecord(r, lavaCluster()); err != nil || j.Wait != c.want {
			t.Errorf("%+v: %d, %v", c, j.Wait, err)
		}
		if r["PENDSTATE"] = "HUH"; new(listedJob).parseRecord(r, lavaCluster()) == nil {
			t.Error("an unknown state of pending is read")
		}
	}
}

func TestCommentsOfClosedHosts(t *testing.T) {
	got := parseComments([]byte(`HOST  hostA
STATUS           CPUF  JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV DISPATCH_WINDOW
closed_Adm      60.00     -      4      0      0      0      0      0      -

 ADMIN ACTION COMMENT: "a fan: fails"

HOST  hostB
STATUS           CPUF  JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV DISPATCH_WINDOW
ok              60.00     -      4      0      0      0      0      0      -

HOST  hostC
 ADMIN ACTION COMMENTS: by lsfadmin: one
 ADMIN ACTION COMMENTS: by root: two
`))
	want := map[string]string{"hostA": "a fan: fails", "hostC": "by lsfadmin: one; by root: two"}
	if !cmp.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := parseComments([]byte("ADMIN ACTION COMMENT: x\nHOST  h\n ADMIN ACTION COMMENT: " + strings.Repeat("é", 2000))); len(got) != 1 || len(got["h"]) > 1010 {
		t.Errorf("%d hosts, %d bytes", len(got), len(got["h"]))
	}
}
