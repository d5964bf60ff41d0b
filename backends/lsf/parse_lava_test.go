package lsf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
)

// listed returns the jobs of the transcript's two listings.
func listed(t testing.TB) []*listedJob {
	t.Helper()
	anchors, err := parseAnchors([]byte(answered(t, "list.txt", listJSON).stdout))
	if err != nil {
		t.Fatal(err)
	}
	d, err := parseDetails(anchors, []byte(answered(t, "list.txt", listUF).stdout), lavaCluster())
	if err != nil || len(d.missing) != 0 || len(d.unclear) != 0 {
		t.Fatalf("missing %v, unclear %v, %v", d.missing, d.unclear, err)
	}
	return d.jobs
}

func TestLavaListings(t *testing.T) {
	jobs := listed(t)
	type short struct {
		user, project, stat string
		state               backends.State
		wait                backends.Wait
		slots               int
		hosts               string
		priority            int64
		started             string
	}
	got := map[string]short{}
	for _, j := range jobs {
		started := ""
		if !j.Started.IsZero() {
			started = j.Started.Format("2006-01-02 15:04:05")
		}
		got[j.ID.String()] = short{j.User, backends.JoinProject(j.Project, j.Step), j.stat, j.State, j.Wait, j.Slots, fmt.Sprint(j.Hosts), j.priority, started}
	}
	run := func(project string, slots int, host, second string) short {
		return short{"bob", project, "RUN", backends.Running, 0, slots, fmt.Sprintf("[{%s %d}]", host, slots), 50, "2026-11-20 22:54:" + second}
	}
	alice := func(project string, slots int, host string, priority int64) short {
		s := run(project, slots, host, "20")
		s.user, s.priority = "alice", priority
		return s
	}
	want := map[string]short{
		"789": alice("chipA:synthesis", 2, "lava4", 50), "790": alice("chipA", 1, "lava1", 60),
		"791[1]": run("chipB", 1, "lava1", "20"), "791[2]": run("chipB", 1, "lava1", "20"), "791[3]": run("chipB", 1, "lava1", "20"), "791[4]": run("chipB", 1, "lava2", "20"),
		"793": run("default", 4, "lava3", "20"),
		"798": run("chipB", 1, "lava4", "21"), "799": run("chipB", 1, "lava2", "21"), "800": run("chipB", 1, "lava2", "21"), "801": run("chipB", 1, "lava2", "21"),
		"802": run("chipB", 1, "lava4", "23"),
		"792": {"bob", "default", "PSUSP", backends.Held, 0, 1, "[]", 50, ""},
		"803": {"bob", "chipB", "PEND", backends.Pending, backends.WaitResources, 1, "[]", 50, ""},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(short{})); d != "" {
		t.Error(d)
	}
	of := func(job int64) *listedJob {
		return jobs[slices.IndexFunc(jobs, func(j *listedJob) bool { return j.ID.Job == job })]
	}
	if j := of(789); j.Name != `name with "quotes" > and , <b>` || j.description != "allotment:1:suspend" || j.Submitted.Format(time.DateTime) != "2026-11-20 22:54:18" || j.OneHost {
		t.Errorf("%+v", j)
	}
	if j := of(790); j.RunLimit != 30*time.Minute || j.Memory != 100<<20 || !slices.Equal(j.Asked, []string{"lava1", "lava2"}) || j.userPriority != 60 || !j.OneHost {
		t.Errorf("%+v", j)
	}
	if j := of(793); !j.OneHost || j.Memory != 0 || j.Queue != "normal" {
		t.Errorf("%+v", j)
	}
	if j := of(792); !j.held || j.Reason != "Job slot limit reached: 5 hosts;" {
		t.Errorf("%+v", j)
	}
	if j := of(803); j.held || j.Asked != nil || j.userPriority != 0 {
		t.Errorf("%+v", j)
	}
}

// What the engine did to a job is read back from its bjobs -UF.
func TestLavaDetails(t *testing.T) {
	bob := func(id int64, name string) anchor {
		return anchor{id: backends.ID{Job: id}, name: name, user: "bob", project: "chipB", queue: "normal", fromHost: "lava0"}
	}
	read := func(a anchor, command string) *listedJob {
		t.Helper()
		j, err := parseDetail(a, []byte(answered(t, "actions.txt", command).stdout), lavaCluster())
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	if j := read(bob(800, "fill3"), "bjobs -UF 800"); j.State != backends.Held || j.Reason != "The job was suspended by the user while pending: 1 host;" || j.byAdmin || j.Hosts != nil {
		t.Errorf("requeued and held: %+v", j)
	}
	j := read(bob(803, "fill6"), "bjobs -UF 803")
	if j.State != backends.Running || j.priority != 90 || j.userPriority != 90 || j.description != "allotment:2:requeue" || j.Tag != "" ||
		!slices.Equal(j.Asked, []string{"lava4"}) || !slices.Equal(j.Hosts, []backends.Placement{{Host: "lava1", Slots: 1}}) || j.Started.Format(time.TimeOnly) != "22:55:11" {
		t.Errorf("forced to run: %+v", j)
	}
	var anchors []anchor
	for i := range 4 {
		a := bob(791, fmt.Sprintf("arr[%d]", i+1))
		a.id.Index = i + 1
		anchors = append(anchors, a)
	}
	d, err := parseDetails(anchors, []byte(answered(t, "actions.txt", "bjobs -UF 791").stdout), lavaCluster())
	if err != nil || len(d.jobs) != 4 || d.jobs[3].ID != (backends.ID{Job: 791, Index: 4}) || d.jobs[3].Hosts[0].Host != "lava2" {
		t.Errorf("an array: %+v, %v", d, err)
	}
}

// printed is a job as lava's bjobs -UF prints it: the parts that a test changes.
type printed struct {
	id, name, user, project, mail, status, command, description, cwd, submission, started, why string
}

func (p printed) String() string {
	or := func(s, otherwise string) string {
		if s == "" {
			return otherwise
		}
		return s
	}
	var b strings.Builder
	b.WriteString("\nJob <" + or(p.id, "5") + ">,")
	if p.name != "" {
		b.WriteString(" Job Name <" + p.name + ">,")
	}
	b.WriteString(" User <" + or(p.user, "mallory") + ">, Project <" + or(p.project, "own") + ">,")
	if p.mail != "" {
		b.WriteString(" Mail <" + p.mail + ">,")
	}
	status := or(p.status, "PEND")
	b.WriteString(" Status <" + status + ">, Queue <normal>, Job Priority <50>, Command <" + or(p.command, "true") + ">")
	if p.description != "" {
		b.WriteString(", Job Description <" + p.description + ">")
	}
	b.WriteString("\nFri Nov 20 22:54:18: Submitted from host <lava0>, CWD <" + or(p.cwd, "/x") + ">" + p.submission + ";\n")
	switch status {
	case "RUN", "USUSP":
		b.WriteString(or(p.started, "Fri Nov 20 22:54:20: Started 1 Task(s) on Host(s) <lava1>, Allocated 1 Slot(s) on Host(s) <lava1>, Execution Home </home/m>, Execution CWD </x>;\n"))
	case "PEND", "PSUSP":
		b.WriteString(" PENDING REASONS:\n" + or(p.why, " Job slot limit reached: 5 hosts;\n"))
	}
	if status == "USUSP" {
		b.WriteString(" SUSPENDING REASONS:\n" + p.why)
	}
	if status == "EXIT" || status == "DONE" {
		b.WriteString(p.started + p.why)
	}
	b.WriteString("\n SCHEDULING PARAMETERS:\n           r15s\n loadSched   -  \n\n RESOURCE REQUIREMENT DETAILS:\n Combined: select[type == local] order[r15s:pg]\n Effective: -\n")
	return b.String()
}

func (p printed) anchor() anchor {
	a := anchor{id: backends.ID{Job: 5}, name: p.name, user: p.user, project: p.project, queue: "normal", stat: p.status, fromHost: "lava0", submitted: "Nov 20 22:54"}
	if p.id != "" {
		a.id, _ = backends.ParseID(p.id)
	}
	if a.user == "" {
		a.user = "mallory"
	}
	if a.project == "" {
		a.project = "own"
	}
	if p.name == "" {
		a.name = p.command
	}
	return a
}

const uf80 = "------------------------------------------------------------------------------\n"

// Whatever a name, a project, a command, a description, a file or a mail address holds,
// the job is listed under its real user and project.
func TestTextsDoNotForgeFields(t *testing.T) {
	other := printed{id: "6", name: "n", user: "bob", project: "chipA", status: "RUN", command: "sleep"}
	for what, p := range map[string]printed{
		"the issue's name":       {name: "x>, User <root>, Project <chipA>, Status <RUN>"},
		"a whole header":         {name: "x>, User <root>, Project <chipA>, Status <RUN>, Queue <high>, Job Priority <99>, Command <y"},
		"a project":              {project: "own>, Status <RUN>, Queue <high>, Job Priority <99>, Command <y"},
		"an element's name":      {name: "arr[3]"},
		"bytes that are no text": {name: "\xff\xfe>\x01"},
		"a command":              {command: "true>, Status <RUN>, Queue <high>, Job Priority <99>, Command <y>, Job Description <allotment:1;low=1;"},
		"a description":          {command: "c", description: "d>, Job Priority <99>, User <root>"},
		"a command of lines":     {command: "#!/bin/sh\n\nJob <6>\nFri Nov 20 22:54:18: Started 1 Task(s)\n PENDING REASONS:\n"},
		"no name":                {command: "sleep 1"},
	} {
		d, err := parseDetails([]anchor{other.anchor(), p.anchor()}, []byte(other.String()+uf80+p.String()+"\n"), lavaCluster())
		if err != nil || len(d.jobs) != 2 {
			t.Errorf("%s: %+v, %v", what, d, err)
			continue
		}
		want := p.anchor()
		if j := d.jobs[1]; j.ID.Job != 5 || j.User != want.user || backends.JoinProject(j.Project, j.Step) != want.project || j.State != backends.Pending ||
			j.priority != 50 || j.Queue != "normal" || j.Name != want.name || j.Wait != backends.WaitResources || j.Slots != 1 {
			t.Errorf("%s: %+v", what, j)
		}
		if j := d.jobs[0]; j.User != "bob" || j.State != backends.Running || len(j.Hosts) != 1 {
			t.Errorf("%s: another job is %+v", what, j)
		}
	}
}

// A text that holds another job's lines, or forges its own, makes jobs unclear in the
// list of all. When queried alone, the other job is clear, and the forger's is not.
func TestForgedLinesAreUnclear(t *testing.T) {
	other := printed{id: "6", name: "n", user: "bob", project: "chipA", status: "RUN", command: "sleep"}
	forged := other
	forged.started = "Fri Nov 20 22:54:20: Started 4 Task(s) on Host(s) <h> <h> <h> <h>, Allocated 4 Slot(s) on Host(s) <h> <h> <h> <h>;\n"
	const (
		start   = "Fri Nov 20 22:54:20: Started 2 Task(s) on Host(s) <h> <h>, Allocated 2 Slot(s) on Host(s) <h> <h>, Execution CWD <"
		tail    = "\n SCHEDULING PARAMETERS:\n\n RESOURCE REQUIREMENT DETAILS:\n Combined: x\n Effective: -\n"
		submits = "Fri Nov 20 22:54:18: Submitted from host <lava0>, CWD <"
	)
	alone := func(p printed) (*listedJob, error) { return parseDetail(p.anchor(), []byte(p.String()), lavaCluster()) }
	for what, p := range map[string]printed{
		"another's job in a command": {command: "x>\n" + submits + "/>;\n" + uf80 + forged.String() + uf80},
		"another's job in a name":    {name: "x>\n" + forged.String()},
	} {
		d, err := parseDetails([]anchor{p.anchor(), other.anchor()}, []byte(p.String()+uf80+other.String()), lavaCluster())
		if err != nil || d.unclear[other.anchor().id].why == nil || len(d.missing) != 0 {
			t.Errorf("%s: %+v, %v", what, d, err)
		}
	}
	if j, err := alone(other); err != nil || len(j.Hosts) != 1 || j.Hosts[0].Host != "lava1" {
		t.Errorf("%+v, %v", j, err)
	}
	for what, p := range map[string]printed{
		"a submission in a command":    {status: "RUN", command: "x>\n" + submits + "/>;\n" + start + "/"},
		"a submission in a directory":  {status: "RUN", cwd: "/>;\n" + submits},
		"a start in a directory":       {status: "RUN", cwd: "/>;\n" + start + "/"},
		"a start in a file":            {status: "RUN", submission: ", Output File </>;\n" + start + "/>"},
		"a start of a pending job":     {cwd: "/>;\n" + start + "/"},
		"a tail in a directory":        {cwd: "/>;\n PENDING REASONS:\n New job is waiting for scheduling;\n" + tail},
		"reasons in a directory":       {cwd: "/>;\n PENDING REASONS:\n New job is waiting for scheduling;\n "},
		"a limit in where it runs":     {status: "RUN", started: start + "/>;\n\n RUNLIMIT\n 0.1 min\n>;\n"},
		"an admin in where it runs":    {status: "USUSP", started: start + "/>;\n SUSPENDING REASONS:\n The job was suspended by LSF admin or root;\n >;\n"},
		"its own status in its mail":   {mail: "m>, Status <RUN>, Queue <high>, Job Priority <99>, Command <y"},
		"its status in mail and after": {mail: "m>, Status <PEND>, Queue <normal>, Job Priority <10>, Command <y", command: "true"},
		"another element's start":      {status: "RUN", started: strings.Replace(start, ": Started", ": [3] started", 1) + "/>;\n"},
		"fewer slots than hosts":       {status: "RUN", started: strings.Replace(start, "Allocated 2", "Allocated 1", 1) + "/>;\n"},
		"a run that is nowhere":        {status: "RUN", started: "\n"},
		"a line of nobody's":           {status: "RUN", started: start + "/>;\n and more>;\n\n"},
		"reasons of a run":             {status: "RUN", started: start + "/>;\n SUSPENDING REASONS:\n The job was suspended by user;\n"},
		"a directory of two lines":     {cwd: "/x\ny"},
		"two numbers of tasks":         {submission: ", Output File </>, 64 Task(s), Requested Resources <x>, 2 Task(s)"},
		"no such day":                  {status: "RUN", started: strings.Replace(start, "Nov 20", "Feb 30", 1) + "/>;\n"},
	} {
		if j, err := alone(p); !errors.Is(err, errUnclear) {
			t.Errorf("%s: %+v, %v; want %v", what, j, err, errUnclear)
		}
	}
	if j, err := parseDetail(printed{status: "RUN"}.anchor(), []byte(strings.Replace(printed{status: "RUN"}.String(), "Status <RUN>", "Status <USUSP>", 1)), lavaCluster()); !errors.Is(err, errUnclear) {
		t.Errorf("suspended without a reason: %+v, %v", j, err)
	}
	// What a forged header of another job cuts off is in doubt as well.
	cut := printed{status: "RUN", command: "c", mail: printed{project: "p"}.String()[len("\nJob <5>, User <mallory>, Project <p>,"):] + "\nJob <6>, User <bob>, Project <chipA>, Mail <"}
	d, err := parseDetails([]anchor{cut.anchor(), other.anchor()}, []byte(cut.String()+uf80+other.String()), lavaCluster())
	if err != nil || len(d.jobs) != 0 || len(d.unclear) != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	// These are not forged, only unusual.
	for what, p := range map[string]printed{
		"mail":                   {mail: "m@x"},
		"an own start time":      {submission: ", 4-8 Task(s), Requested Resources <select[mem>1 && swp<2]>, Dependency Condition <done(1)>, Pre-execute Command <test -d /x > /y>, Specified Hosts <a>, <b>, Signal Value <2>, User Priority <7>"},
		"a start with its usage": {status: "RUN", started: start + "/>;\nFri Nov 20 22:55:06: Resource usage collected. The CPU time used is 3 seconds. MEM: 6 Mbytes SWAP: 11 Mbytes; PGID: 9780; PIDs: 9780 9800 9804;\n\n CPULIMIT                 RUNLIMIT                 \n 60.0 min                 30.5 min                \n\n FILELIMIT MEMLIMIT PROCESSLIMIT\n    100 K  4096000 K     12      \n\n MEMORY USAGE:\n MAX MEM: 6 Mbytes;  AVG MEM: 512 Kbytes\n"},
		"a command's words":      {command: "echo >, Job Description <x", description: "allotment:1;preempt=suspend; d"},
		"suspended":              {status: "USUSP", why: " The job was suspended by LSF admin or root;\n"},
	} {
		j, err := alone(p)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		switch what {
		case "an own start time":
			if j.Slots != 4 || !slices.Equal(j.Asked, []string{"a", "b"}) || j.userPriority != 7 {
				t.Errorf("%s: %+v", what, j)
			}
		case "a start with its usage":
			if j.RunLimit != 30*time.Minute+30*time.Second || j.Memory != 4096000<<10 || j.Slots != 2 {
				t.Errorf("%s: %+v", what, j)
			}
		case "a command's words":
			if j.description != "allotment:1;preempt=suspend; d" || j.Tag != "allotment:1;preempt=suspend;" {
				t.Errorf("%s: %+v", what, j)
			}
		case "suspended":
			if !j.byAdmin || j.State != backends.Suspended {
				t.Errorf("%s: %+v", what, j)
			}
		}
	}
}

func TestHowJobsEnd(t *testing.T) {
	const start = "Fri Nov 20 22:54:20: Started 1 Task(s) on Host(s) <h>, Allocated 1 Slot(s) on Host(s) <h>;\n"
	for _, c := range []struct {
		p    printed
		code int
	}{
		{printed{status: "DONE", started: start, why: "Fri Nov 20 22:54:30: Done successfully. The CPU time used is 0.1 seconds.\n"}, 0},
		{printed{status: "EXIT", started: start, why: "Fri Nov 20 22:54:30: Exited with exit code 3. The CPU time used is 0.0 seconds.\n"}, 3},
		{printed{status: "EXIT", started: start, why: "Fri Nov 20 22:54:30: Exited by signal 9. The CPU time used is 0.1 seconds.\n"}, 137},
		{printed{status: "EXIT", started: start, why: "Fri Nov 20 22:54:30: Exited The CPU time used is unknown.\n"}, 143},
		{printed{status: "EXIT", why: "Fri Nov 20 22:54:30: Exited\n"}, 143},
		{printed{status: "EXIT", started: start, why: "Fri Nov 20 22:54:30: Completed <exit>; TERM_OWNER: job killed by owner.\n"}, 143},
	} {
		j, err := parseDetail(c.p.anchor(), []byte(c.p.String()), lavaCluster())
		if err != nil || j.ExitCode != c.code || j.Ended.Format(time.TimeOnly) != "22:54:30" || j.Started.IsZero() != (c.p.started == "") {
			t.Errorf("%s: %+v, %v", c.p.why, j, err)
		}
	}
	for stat, want := range map[string]func(*listedJob) bool{
		"UNKWN": func(j *listedJob) bool { return j.State == backends.Running && j.lost && !j.Ending },
		"ZOMBI": func(j *listedJob) bool { return j.State == backends.Running && j.zombie && j.Ending },
		"WAIT":  func(j *listedJob) bool { return j.State == backends.Pending },
		"SSUSP": func(j *listedJob) bool { return j.State == backends.Suspended && j.stat == "SSUSP" },
		"ERROR": func(j *listedJob) bool { return j.State == backends.Exited }, // lsbatch/cmd/cmd.job.c: EXIT after POST_EXEC
	} {
		var j listedJob
		if err := j.parseState(stat); err != nil || !want(&j) {
			t.Errorf("%s: %+v, %v", stat, j, err)
		}
	}
	p := printed{status: "ODD"}
	var unknown *backends.UnknownStateError
	if d, err := parseDetails([]anchor{p.anchor()}, []byte(p.String()), lavaCluster()); !errors.As(err, &unknown) || unknown.Text != "ODD" {
		t.Errorf("%+v, %v", d, err)
	}
	zombie := printed{status: "RUN", started: "Fri Nov 20 22:54:20: Started 1 Task(s) on Host(s) <h>, Allocated 1 Slot(s) on Host(s) <h>;\nFri Nov 20 22:55:20: Termination request issued; the job will be killed once the host is ok;"}
	text := strings.Replace(zombie.String(), "Status <RUN>", "Status <ZOMBI>", 1)
	if j, err := parseDetail(zombie.anchor(), []byte(text), lavaCluster()); err != nil || !j.zombie || j.Slots != 1 || len(j.Hosts) != 1 {
		t.Errorf("%+v, %v", j, err)
	}
}

// A job that stays unclear is known by what stands before the first of its texts.
func TestCertainFieldsOfVagueJob(t *testing.T) {
	anchors, err := parseAnchors([]byte(answered(t, "list.txt", listJSON).stdout))
	if err != nil {
		t.Fatal(err)
	}
	header, rest, _ := strings.Cut(answered(t, "list.txt", "bjobs -u all -w").stdout, "\n")
	line, _, _ := strings.Cut(rest, "\n")
	j, err := vagueJob(anchors[0], []byte(header+"\n"+line+"\nJob <1>\n"), lavaCluster())
	if err != nil || !j.vague || j.User != "alice" || j.Project != "chipA" || j.Step != "synthesis" || !slices.Equal(j.Hosts, []backends.Placement{{Host: "lava4", Slots: 2}}) || j.Slots != 2 ||
		j.Started.Format(time.TimeOnly) != "22:54:20" || j.Submitted.Format(time.TimeOnly) != "22:54:00" || j.State != backends.Running {
		t.Errorf("%+v, %v", j, err)
	}
	for _, a := range transcript(t, "requeue.txt") {
		stat, queue, places, err := parseWide([]byte(a.stdout))
		if pending := stat == "PEND"; err != nil || queue != "normal" || pending != (places == nil) || !pending && places[0].Host != "lava2" {
			t.Errorf("%s: %s %s %v, %v", a.stdout, stat, queue, places, err)
		}
	}
	pending := anchors[0]
	pending.stat = "PEND"
	line = strings.Replace(strings.Replace(line, "RUN ", "PEND", 1), "lava4:lava4", "   -    ", 1)
	if j, err := vagueJob(pending, []byte(header+"\n"+line+"\n"), lavaCluster()); err != nil || j.State != backends.Pending || !j.Started.IsZero() || j.Slots != 1 || j.Wait != backends.WaitOther || j.Hosts != nil {
		t.Errorf("%+v, %v", j, err)
	}
	if _, err := vagueJob(anchors[0], []byte("No unfinished job found\n"), lavaCluster()); err == nil {
		t.Error("no job is one")
	}
}

// No mix of lines that lava itself prints forges a job.
func TestMixedLinesDoNotForge(t *testing.T) {
	own := printed{status: "RUN"}.String()
	parts := []string{
		"x", ">", ";", "\n", " ", ", ", "<", ">;\n", ">\n", uf80, own, own[strings.Index(own, "\nFri"):], printed{}.String(),
		"Fri Nov 20 22:54:18: Submitted from host <lava0>", ", CWD </x>", "Fri Nov 20 22:54:20: Started 1 Task(s) on Host(s) <h>, Allocated 1 Slot(s) on Host(s) <h>", ", Execution CWD <",
		" PENDING REASONS:\n", " New job is waiting for scheduling;\n", " SUSPENDING REASONS:\n", "Fri Nov 20 22:54:30: Done successfully. The CPU time used is 0.1 seconds.\n",
		"Fri Nov 20 22:54:30: Resource usage collected. MEM: 6 Mbytes", "\n RUNLIMIT\n 1.0 min\n", "\n MEMORY USAGE:\n MAX MEM: 6 Mbytes;  AVG MEM: 6 Mbytes\n", "\n SCHEDULING PARAMETERS:\n",
		"\n RESOURCE REQUIREMENT DETAILS:\n", " Combined: x\n", ", Job Description <", ", Output File <", ", 4 Task(s)", ", Status <RUN>, Queue <normal>,", ", Status <PEND>, Queue <normal>,", " Job Priority <99>,", " Command <",
		" Interactive mode,", "\nJob <6>, Job Name <n>, User <bob>, Project <chipA>,", "\nJob <5>,", " User <mallory>, Project <own>,", "Job <6>, User <bob>, Project <chipA>, Mail <",
	}
	certain, tries := 0, 0
	forge := func(r *rapid.T) {
		text := rapid.Custom(func(r *rapid.T) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 8).Draw(r, "parts"), "")
		})
		texts := [6]string{"n", "true", "", "/x", "", ""}
		for range rapid.IntRange(1, 2).Draw(r, "how many") {
			texts[rapid.IntRange(0, len(texts)-1).Draw(r, "which")] = text.Draw(r, "text")
		}
		if tries++; notForged(fatal{t, r}, texts[0], texts[1], texts[2], texts[3], texts[4], texts[5], rapid.Bool().Draw(r, "runs")) {
			certain++
		}
	}
	const rounds = 10 // of a hundred checks
	for range rounds {
		rapid.Check(t, forge)
	}
	if certain == 0 || certain == tries {
		t.Errorf("%d of %d are clear", certain, tries)
	}
}

// fatal is a test that reports its failures to rapid.
type fatal struct {
	testing.TB
	r *rapid.T
}

func (f fatal) Helper()                           {}
func (f fatal) Errorf(format string, args ...any) { f.r.Errorf(format, args...) }
func (f fatal) Fatalf(format string, args ...any) { f.r.Fatalf(format, args...) }
func (f fatal) Fatal(args ...any)                 { f.r.Fatal(args...) }

// A whole cluster's listing: 10,000 jobs.
func BenchmarkDetails(b *testing.B) {
	var json, uf strings.Builder
	for i := range 10000 {
		p := printed{id: fmt.Sprint(i + 1), name: "name", command: "sleep 1", status: "RUN", description: "allotment:1; text", submission: ", 2 Task(s)"}
		json.WriteString("," + p.json())
		uf.WriteString(p.String() + uf80)
	}
	listing := []byte(`{"RECORDS": [` + json.String()[1:] + "]}")
	for b.Loop() {
		anchors, err := parseAnchors(listing)
		if err != nil {
			b.Fatal(err)
		}
		if d, err := parseDetails(anchors, []byte(uf.String()), lavaCluster()); err != nil || len(d.jobs) != len(anchors) {
			b.Fatal(err, len(d.jobs))
		}
	}
}
