package lsf

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
)

// asJSON returns a text as lava's JSON has it: bytes as they are but for control
// characters, quotes and backslashes.
func asJSON(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(rune(c)))
		case c < ' ':
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return `"` + b.String() + `"`
}

func (p printed) json() string {
	a := p.anchor()
	stat, started := p.status, "-"
	if stat == "" {
		stat = "PEND"
	}
	if stat != "PEND" && stat != "PSUSP" {
		started = "11/20-22:54:20"
	}
	fields := []string{}
	for name, value := range map[string]string{
		"JOBID": fmt.Sprint(a.id.Job), "USER": a.user, "STAT": stat, "QUEUE": "normal", "FROM_HOST": "lava0", "EXEC_HOST": "", "JOB_NAME": a.name,
		"SUBMIT_TIME": "Nov 20 22:54", "PROJ_NAME": a.project, "START_TIME": started, "FINISH_TIME": "-",
	} {
		fields = append(fields, `"`+name+`": `+asJSON(value))
	}
	return "{" + strings.Join(fields, ",\n\t") + "}"
}

// Whatever a job's owner puts into its texts, the job is listed correctly or is unclear,
// and another job is correct when it is queried alone.
func FuzzForgedJob(f *testing.F) {
	const (
		submits = ">\nFri Nov 20 22:54:18: Submitted from host <lava0>, CWD </x>;\n"
		starts  = "Fri Nov 20 22:54:20: Started 1 Task(s) on Host(s) <h>, Allocated 1 Slot(s) on Host(s) <h>, Execution CWD </x"
		tails   = "\n SCHEDULING PARAMETERS:\n\n RESOURCE REQUIREMENT DETAILS:\n Combined: x\n"
	)
	for _, s := range []string{
		"x>, User <root>, Project <chipA>, Status <RUN>", "arr[3]", "\xff>\x01", submits + starts, starts, ";\n" + starts + ">;\n\n RUNLIMIT\n 1.0 min\n" + tails,
		">;\n PENDING REASONS:\n New job is waiting for scheduling;\n ", ">;\n SUSPENDING REASONS:\n The job was suspended by LSF admin or root;\n ",
		">\n\nJob <6>, Job Name <n>, User <bob>, Project <chipA>, Status <RUN>, Queue <normal>, Job Priority <50>, Command <" + submits + starts + ">;\n" + tails + "------\n\nJob <5>,",
		"m>, Status <RUN>, Queue <high>, Job Priority <99>, Command <y", "c>, Job Description <allotment:1;mem=1;",
	} {
		f.Add(s, "true", "d", "/x", "", "", true)
		f.Add("n", s, "d", "/x", "", "", true)
		f.Add("n", "true", s, "/x", "", "", false)
		f.Add("n", "true", "d", s, "", "", true)
		f.Add("n", "true", "d", "/x", s, "", false)
		f.Add("n", "true", "d", "/x", "", s, true)
	}
	f.Fuzz(func(t *testing.T, name, command, description, cwd, mail, file string, runs bool) {
		notForged(t, name, command, description, cwd, mail, file, runs)
	})
}

// notForged lists a job with such texts beside another user's, and queries both alone.
// certain reports whether the job is clear then.
func notForged(t testing.TB, name, command, description, cwd, mail, file string, runs bool) (certain bool) {
	t.Helper()
	if strings.Contains(name+command+description+cwd+mail+file, "\x00") || command == "" || cwd == "" {
		return false // not a C string; printed replaces an empty one
	}
	other := printed{id: "6", name: "n", user: "bob", project: "chipA", status: "RUN", command: "sleep"}
	p := printed{name: name, project: "own:" + strings.ReplaceAll(name, ":", ""), command: command, description: description, cwd: cwd, mail: mail}
	if file != "" {
		p.submission = ", Output File <" + file + ">, Pre-execute Command <" + file + ">"
	}
	if runs {
		p.status = "RUN"
		p.started = "Fri Nov 20 22:54:20: Started 1 Task(s) on Host(s) <lava1>, Allocated 1 Slot(s) on Host(s) <lava1>, Execution Home </home/m>, Execution CWD <" + cwd + ">;\n"
	}
	anchors, err := parseAnchors([]byte(`{"RECORDS": [` + p.json() + "," + other.json() + "]}"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := parseDetails(anchors, []byte(p.String()+uf80+other.String()+"\n"), lavaCluster())
	if err != nil || len(d.jobs)+len(d.unclear) != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	check := func(j *listedJob) {
		t.Helper()
		switch {
		case j.ID.Job == 6:
			if j.User != "bob" || j.Project != "chipA" || j.State != backends.Running || j.priority != 50 || len(j.Hosts) != 1 || j.Hosts[0].Host != "lava1" || j.RunLimit != 0 {
				t.Errorf("another job: %+v", j)
			}
		case j.ID != backends.ID{Job: 5}:
			t.Errorf("who is %v?", j.ID)
		case j.User != "mallory" || j.Project != "own" || j.priority != 50 || j.Queue != "normal" || j.RunLimit != 0 || j.Interactive || j.byAdmin || !j.Ended.IsZero():
			t.Errorf("%+v", j)
		case runs && (j.State != backends.Running || !slices.Equal(j.Hosts, []backends.Placement{{Host: "lava1", Slots: 1}}) || j.Slots != 1 || j.Started.Format(time.TimeOnly) != "22:54:20"):
			t.Errorf("%+v", j)
		case !runs && (j.State != backends.Pending || j.Hosts != nil || !j.Started.IsZero() || j.Wait != backends.WaitResources):
			t.Errorf("%+v", j)
		}
	}
	for _, j := range d.jobs {
		check(j)
	}
	for _, q := range []printed{p, other} {
		j, err := parseDetail(q.anchor(), []byte(q.String()+"\n"), lavaCluster())
		var unknown *backends.UnknownStateError
		switch {
		case err == nil:
			check(j)
			certain = certain || q.id != "6"
		case !errors.Is(err, errUnclear) || q.id == "6" || errors.As(err, &unknown):
			t.Errorf("%v", err)
		}
	}
	return certain
}

// Whatever bjobs prints is read, or is an error.
func FuzzDetails(f *testing.F) {
	f.Add([]byte(answered(f, "list.txt", listJSON).stdout), []byte(answered(f, "list.txt", listUF).stdout))
	f.Add([]byte(answered(f, "list.txt", listJSON).stdout), []byte(answered(f, "actions.txt", "bjobs -UF 803").stdout))
	f.Add([]byte(answered(f, "list.txt", "bjobs -u all -w").stdout), []byte(answered(f, "list.txt", "bjobs -u all -l").stdout))
	f.Fuzz(func(t *testing.T, json, uf []byte) {
		if stat, _, places, err := parseWide(json); err == nil && (stat == "" || slotsOf(places) < 0) {
			t.Errorf("%s %v", stat, places)
		}
		anchors, err := parseAnchors(json)
		if err != nil {
			return
		}
		d, err := parseDetails(anchors, uf, lavaCluster())
		if err != nil {
			return
		}
		for _, j := range d.jobs {
			running := j.State == backends.Running && !j.zombie || j.State == backends.Suspended
			if j.Slots < 1 || j.Memory < 0 || j.RunLimit < 0 || running != (len(j.Hosts) > 0) && !j.State.Ended() && !j.zombie || running && slotsOf(j.Hosts) != j.Slots || j.Submitted.After(asked().AddDate(0, 0, 1)) {
				t.Errorf("%+v", j)
			}
		}
		for _, a := range anchors[:min(len(anchors), 3)] {
			_, _ = vagueJob(a, uf, lavaCluster())
		}
	})
}

// LSF 10.1's JSON; a text there moves no field.
func FuzzJobs(f *testing.F) {
	f.Add(captured(f, "lsf10/bjobs.json"), "x>, User <root>\"")
	f.Add([]byte(`{"RECORDS":[]}`), "\xff\\u0001")
	f.Fuzz(func(t *testing.T, out []byte, text string) {
		jobs, err := parseJobs(out, lavaCluster())
		if err == nil && slices.ContainsFunc(jobs, func(j *listedJob) bool {
			return j.Slots < 1 || j.Memory < 0 || j.RunLimit < 0 || j.RanFor < 0 || j.ID.Job < 1
		}) {
			t.Errorf("%+v", jobs)
		}
		all := string(captured(t, "lsf10/bjobs.json"))
		all = strings.Replace(all, `"x>, User <root>, Project <chipA>, Status <RUN>"`, asJSON(text), 1)
		jobs, err = parseJobs([]byte(all), &cluster{at: asked().AddDate(0, 2, 0), limitUnit: 1 << 10, usageUnit: 1 << 20})
		if err != nil || len(jobs) != 6 || jobs[0].Name != text || jobs[0].User != "alice" || jobs[0].Project != "chipB" || jobs[0].State != backends.Running {
			t.Errorf("%q: %+v, %v", text, jobs, err)
		}
	})
}

// What a requirement is read to say can be found in its text, and a part that is refused is
// named in a line of its own.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		"select[(cs) && (type == any)] order[r15s:pg] rusage[mem=100.00:gpu=2/task] span[ptile=2]", "select[a||b] same[type]", "2*{select[a]}", "select[((((a))", "rusage[mem=1||mem=2]", "31.2G",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := parseRequest(text)
		for _, c := range r.conditions {
			if c.name == "" || !strings.Contains(text, c.name) || !strings.Contains(text, c.operator) || !strings.Contains(text, c.value) || slices.Contains(slices.Concat(loads, roomLeft), c.name) {
				t.Errorf("%q: %+v", text, c)
			}
		}
		for _, n := range r.needs {
			if n.count < 1 || n.count > maxSlots || !strings.Contains(text, n.name) {
				t.Errorf("%q: %+v", text, n)
			}
		}
		if r.perHost < 0 || r.perHost > maxSlots || len(r.unserved) > 300 || !utf8.ValidString(r.unserved) {
			t.Errorf("%q: %+v", text, r)
		}
		if n, ok := parseInterval(text); ok && n.least > n.most {
			t.Errorf("%q: %v", text, n)
		}
	})
}

// Tables and lists of hosts, parameters and configuration.
func FuzzTables(f *testing.F) {
	for _, command := range []string{"bhosts -w", "lshosts -w", "bparams -l", "bjobs -V"} {
		f.Add([]byte(answered(f, "hosts.txt", command).stdout))
	}
	for _, text := range []string{
		answered(f, "hosts.txt", "bqueues").stdout, "Begin ClusterAdmins\nAdministrators = root volclava\nEnd ClusterAdmins\n", "My cluster name is volclava\n",
	} {
		f.Add([]byte(text))
	}
	for _, text := range []string{
		"RESOURCE                 TOTAL       RESERVED       LOCATION\ngpu 1.0 3.0 h1 \n  h2\n", "HOST_NAME  gpu_id gpu_model\nhosta           0 K20\n                1 K20\n",
		"GROUP_NAME    HOSTS\nbig           h1 h2/ \n", "QUEUE: q\nHOSTS:  all ~h1+2\nREQUEUE_EXIT_VALUES:  30 EXCLUDE(20) ~1 all\n", "12         a[1-10]%2   bob        10    9    0    1    0     0     0     0\n",
	} {
		f.Add([]byte(text))
	}
	f.Add(captured(f, "lsf10/bhosts.txt"))
	f.Add(captured(f, "lsf10/lshosts.txt"))
	f.Add([]byte("LSF_UNIT_FOR_LIMITS=MB\n"))
	f.Add([]byte("HOST  h1\n ADMIN ACTION COMMENT: \"a fan\"\n"))
	f.Fuzz(func(t *testing.T, out []byte) {
		for host, comment := range parseComments(out) {
			if host == "" || len(comment) > 1010 {
				t.Errorf("%q: %d bytes", host, len(comment))
			}
		}
		for _, memory := range [][]byte{out, []byte(answered(t, "hosts.txt", "lshosts -w").stdout)} {
			hosts, err := bothHosts(out, memory)
			if err == nil && slices.ContainsFunc(hosts, func(h listedHost) bool { return h.Slots < 0 || h.Memory < 0 || h.running < 0 || h.Name == "" }) {
				t.Errorf("%+v", hosts)
			}
		}
		if noSlots, strange, err := parseOddHosts(out); err == nil && slices.Contains(slices.Concat(noSlots, strange), "") {
			t.Errorf("%q, %q", noSlots, strange)
		}
		if p, err := parseParams(out); err == nil && (p.maxPriority < 0 || p.cleanPeriod < 0) {
			t.Errorf("%+v", p)
		}
		if queues, err := parseQueues(out); err == nil && slices.ContainsFunc(queues, func(q queue) bool { return q.name == "" }) {
			t.Errorf("%+v", queues)
		}
		if shared, err := parseShared(out); err == nil {
			for name, of := range shared {
				for host, n := range of {
					if name == "" || host == "" || n < 0 || n > maxSlots {
						t.Errorf("%v", shared)
					}
				}
			}
		}
		if gpus, err := parseGPUs(out); err == nil && gpus[""] != 0 {
			t.Errorf("%v", gpus)
		}
		for id, limit := range parseArrays(out) {
			if id <= 0 || limit < 0 || limit > maxSlots {
				t.Errorf("array %d: %d", id, limit)
			}
		}
		groups, _ := parseGroups(out)
		lists := &hostLists{hosts: []string{"a", "b"}, known: map[string]bool{"a": true, "b": true}, groups: groups}
		for _, list := range parseQueueHosts(out) {
			if hosts, all, wrong := lists.resolve(list); all != (len(hosts) == 2) || wrong != "" && len(hosts) > 0 {
				t.Errorf("%q: %q, %v, %q", list, hosts, all, wrong)
			}
		}
		if values := parseRequeueValues(out); len(values[""].exact) > 0 {
			t.Errorf("%v", values)
		}
		if admins := parseAdmins(string(out)); slices.Contains(admins, "") {
			t.Errorf("%q", admins)
		}
		if name, err := parseClusterName(out); err == nil && (name == "" || strings.ContainsAny(name, "/ ")) {
			t.Errorf("%q", name)
		}
		if conf := parseConf(string(out)); reflect.DeepEqual(conf, map[string]string{"": "x"}) {
			_, _, _ = units(lsf10, conf[""])
		}
	})
}

// Texts that stand in a field or in an answer.
func FuzzTexts(f *testing.F) {
	for _, s := range []string{
		"Fri Nov 20 22:54:18", "Nov 20 22:54", "11/20-22:54:20", "Dec 28 19:56:03 2026", "Dec 28 19:56 L", "4*hostA:hostB", "24105M", "4 Gbytes", "00:10:05", "30.0/host", "35 second(s)",
		"closed_Adm", "PSUSP", "Y", "Job slot limit reached: 5 hosts;", "rusage[mem=10/task:duration=1]", "Job <12[3]>: No matching job found\n", "Job <789> is submitted to default queue <normal>.\n",
		"IBM Spectrum LSF Standard 10.1.0.0, Jul 08 2016\n", "GB",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at := asked()
		stamp, _ := parseStamp(s)
		if got, err := parsePast(s, at); err == nil && got.After(at.AddDate(0, 0, 1)) && stamp.year == 0 {
			t.Errorf("%q: %v is to come", s, got)
		}
		if got, err := parseNear(s, at); err == nil && !got.IsZero() && got.Sub(at).Abs() > (stampYears+1)*366*24*time.Hour && stamp.year == 0 {
			t.Errorf("%q: %v", s, got)
		}
		_, _ = parseFinish(s, at)
		if clock, err := parseClock(s); err == nil && (clock < 0 || clock > 24*time.Hour) {
			t.Errorf("%q: %v", s, clock)
		}
		if n, err := parseSize(s, 1<<20); err == nil && n < 0 {
			t.Errorf("%q: %d", s, n)
		}
		for _, slots := range []int{1, maxSlots} {
			if n := usageMemory(s, slots, &cluster{usageUnit: 1 << 20, perTask: true}); n < 0 {
				t.Errorf("%q: %d", s, n)
			}
		}
		if d, err := parseSpan(s, time.Minute); err == nil && d < 0 {
			t.Errorf("%q: %v", s, d)
		}
		if places, err := parseExecHosts(s); err == nil && slices.ContainsFunc(places, func(p backends.Placement) bool {
			return p.Slots < 1 || p.Host == "" || strings.ContainsAny(p.Host, " <>\n")
		}) {
			t.Errorf("%q: %v", s, places)
		}
		var j listedJob
		if err := j.parseState(s); err == nil && strings.ToUpper(s) != s {
			t.Errorf("%q: %v", s, j.State)
		}
		if parseWait(s) == backends.WaitResources && !strings.ContainsAny(s, "aeiou") {
			t.Errorf("%q is for want of slots", s)
		}
		_, _ = parseYes(s)
		_, _ = parseHostState(s)
		_, _, _ = parseVersion(s)
		_, _, _ = units(lsf10, s)
		if id, queue, err := parseSubmitted(s); err == nil && (id.Job < 1 || queue == "") {
			t.Errorf("%q: %v %q", s, id, queue)
		}
		ids := []backends.ID{{Job: 12, Index: 3}, {Job: 12}}
		if parseMoved("", s, ids[0]) == nil && !strings.Contains(s, "<12[3]> has been moved") && !strings.Contains(s, "has been moved to position") {
			t.Errorf("%q has moved it", s)
		}
		if jobs, err := parseNumbers(s); err == nil && len(jobs) > strings.Count(s, "\n")+1 {
			t.Errorf("%q: %v", s, jobs)
		}
		for _, stdout := range []string{"", s} {
			done, errs := parseAnswers(stdout, s, ids)
			for i := range ids {
				if done[i] && (errs[i] != nil || !strings.Contains(stdout, "<"+ids[i].String()+">")) {
					t.Errorf("%q: %v is done, %v", s, ids[i], errs[i])
				}
			}
		}
		if failure(s) == nil {
			t.Errorf("%q is no failure", s)
		}
	})
}
