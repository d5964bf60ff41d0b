package lsfstandin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// run is what a command line prints: standard output, or standard error where
// there is any, and the exit code.
func run(l *Listing, user, command string, more ...string) (string, int) {
	words := append(strings.Fields(command), more...)
	stdout, stderr, rc := List(words[0], words[1:], l, user)
	return string(stdout) + string(stderr), rc
}

func expect(t *testing.T, l *Listing, want string, rc int, command string, more ...string) {
	t.Helper()
	got, gotRC := run(l, "bob", command, more...)
	if diff := cmp.Diff(want, got); diff != "" || rc != gotRC {
		t.Errorf("%s %q: exit code %d, want %d; -want +got:\n%s", command, more, gotRC, rc, diff)
	}
}

// lsfCluster is a cluster of LSF 10.1 with an array element that runs on two
// hosts, a job that waits, and one that was killed.
func lsfCluster() *Listing {
	l := lavaCluster()
	l.Cluster.Flavour, l.Cluster.Name = LSF10, "chips"
	l.Cluster.Version = "IBM Spectrum LSF Standard 10.1.0.15, Jan 01 2026"
	l.Hosts[1].Closed, l.Hosts[2].Down = true, true
	l.Hosts[3].NJobs, l.Hosts[3].Run = 3, 2
	l.Hosts[3].RSV, l.Hosts[4].MaxMem, l.Hosts[4].MaxSwp = 1, 2<<40, 512*MB
	l.Now = time.Date(2026, 1, 2, 3, 4, 35, 0, time.UTC)
	l.Jobs = []Job{{
		ID: 12, Index: 3, Name: "sim[3]", User: "alice", Project: "chipA:synthesis", Queue: "normal", Stat: RUN, Command: "./sim /in",
		Description: "allotment:1:suspend a/b", FromHost: "lava0", CWD: "$HOME/x", Home: "/home/alice", RunCWD: "/home/alice/x", Output: "/tmp/o.%J",
		Priority: 70, UserPriority: 70, Slots: 3, ExecHosts: []string{"lava3", "lava3", "lava4"}, Asked: []string{"lava3", "lava4"},
		ResReq: "rusage[mem=100]", Memory: 300 * MB, Submitted: time.Date(2025, 12, 31, 23, 59, 58, 0, time.UTC), Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		RunLimit: 90 * time.Minute, MemLimit: 1536 * 1024, PGID: 77, PIDs: []int{77, 78}, MemUsed: 3 * MB / 2,
	}, {
		ID: 13, User: "bob", Project: "default", Queue: "low", Stat: PEND, Command: "true", FromHost: "lava0", CWD: "$HOME", Priority: 50, Slots: 2, MaxSlots: 4,
		Depend: "done(12)", Exclusive: true, Begin: time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC), Submitted: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC),
		Reasons: []Reason{{"Job dependency condition not satisfied", 0}, {"Load information unavailable", 2}},
	}, {
		ID: 14, Name: "gone", User: "bob", Project: "default", Queue: "normal", Stat: EXIT, Command: "sleep 9", FromHost: "lava0", CWD: "$HOME", Home: "/home/bob", Priority: 50,
		Slots: 1, ExecHosts: []string{"lava4"}, Submitted: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), Started: time.Date(2026, 1, 2, 3, 1, 0, 0, time.UTC),
		Ended: time.Date(2026, 1, 2, 3, 2, 0, 0, time.UTC), ExitCode: 137, Termed: "TERM_OWNER: job killed by owner", PGID: 99,
	}}
	return l
}

func TestLSFPrintsJSONWithEveryDocumentedField(t *testing.T) {
	want := `{
  "COMMAND":"bjobs",
  "JOBS":3,
  "RECORDS":[
    {
      "JOBID":"12",
      "JOBINDEX":"3",
      "STAT":"RUN",
      "USER":"alice",
      "QUEUE":"normal",
      "PROJ_NAME":"chipA:synthesis",
      "JOB_NAME":"sim[3]",
      "JOB_DESCRIPTION":"allotment:1:suspend a\/b",
      "JOB_PRIORITY":"70",
      "SLOTS":"3",
      "NALLOC_SLOT":"3",
      "MIN_REQ_PROC":"3",
      "MAX_REQ_PROC":"3",
      "EXEC_HOST":"lava3:lava3:lava4",
      "ASK_HOSTS":"lava3 lava4",
      "SUBMIT_TIME":"Dec 31 23:59",
      "START_TIME":"Jan  2 03:04",
      "SPECIFIED_START_TIME":"",
      "FINISH_TIME":"Jan  2 04:34 L",
      "RUN_TIME":"30 second(s)",
      "RUNTIMELIMIT":"90.0",
      "MEMLIMIT":"1.5 Gbytes",
      "MEM":"1.5 Mbytes",
      "COMBINED_RESREQ":"select[type == any] order[r15s:pg] rusage[mem=100.00] ",
      "EXIT_CODE":"",
      "EXIT_REASON":"",
      "PEND_REASON":"",
      "DEPENDENCY":"",
      "EXCLUSIVE":"N",
      "INTERACTIVE":"N"
    },
    {
      "JOBID":"13",
      "JOBINDEX":"0",
      "STAT":"PEND",
      "USER":"bob",
      "QUEUE":"low",
      "PROJ_NAME":"default",
      "JOB_NAME":"true",
      "JOB_DESCRIPTION":"",
      "JOB_PRIORITY":"50",
      "SLOTS":"",
      "NALLOC_SLOT":"",
      "MIN_REQ_PROC":"2",
      "MAX_REQ_PROC":"4",
      "EXEC_HOST":"",
      "ASK_HOSTS":"",
      "SUBMIT_TIME":"Jan  2 03:00",
      "START_TIME":"",
      "SPECIFIED_START_TIME":"Jan  2 04:00",
      "FINISH_TIME":"",
      "RUN_TIME":"0 second(s)",
      "RUNTIMELIMIT":"",
      "MEMLIMIT":"",
      "MEM":"",
      "COMBINED_RESREQ":"select[type == local] order[r15s:pg] ",
      "EXIT_CODE":"",
      "EXIT_REASON":"",
      "PEND_REASON":"Job dependency condition not satisfied;",
      "DEPENDENCY":"done(12)",
      "EXCLUSIVE":"Y",
      "INTERACTIVE":"N"
    },
    {
      "JOBID":"14",
      "JOBINDEX":"0",
      "STAT":"EXIT",
      "USER":"bob",
      "QUEUE":"normal",
      "PROJ_NAME":"default",
      "JOB_NAME":"gone",
      "JOB_DESCRIPTION":"",
      "JOB_PRIORITY":"50",
      "SLOTS":"1",
      "NALLOC_SLOT":"1",
      "MIN_REQ_PROC":"1",
      "MAX_REQ_PROC":"1",
      "EXEC_HOST":"lava4",
      "ASK_HOSTS":"",
      "SUBMIT_TIME":"Jan  2 03:00",
      "START_TIME":"Jan  2 03:01",
      "SPECIFIED_START_TIME":"",
      "FINISH_TIME":"Jan  2 03:02",
      "RUN_TIME":"60 second(s)",
      "RUNTIMELIMIT":"",
      "MEMLIMIT":"",
      "MEM":"",
      "COMBINED_RESREQ":"select[type == local] order[r15s:pg] ",
      "EXIT_CODE":"137",
      "EXIT_REASON":"TERM_OWNER: job killed by owner",
      "PEND_REASON":"",
      "DEPENDENCY":"",
      "EXCLUSIVE":"N",
      "INTERACTIVE":"N"
    }
  ]
}
`
	expect(t, lsfCluster(), want, 0, "bjobs -u all -a -json -o", "jobid jobindex stat user queue proj_name job_name job_description job_priority slots nalloc_slot "+
		"min_req_proc max_req_proc exec_host ask_hosts submit_time start_time specified_start_time finish_time run_time runtimelimit memlimit mem "+
		"combined_resreq exit_code exit_reason pend_reason dependency exclusive interactive")
}

func TestLSFLaysOutColumns(t *testing.T) {
	l := lsfCluster()
	expect(t, l, "JOBID^JOB_NAME  ^ QUEUE^PROJ_NAME \n13^true      ^   low^default   \n", 0, "bjobs -o", "id name: queue:-6 project:10 delimiter='^'")
	expect(t, l, "13 - \n", 0, "bjobs -noheader -o", `jobid exit_code:2 delimiter=" "`)
	expect(t, l, "*3]|chipA\n", 0, "bjobs -noheader -o", "job_name:3 proj_name:5 delimiter='|'", "12[3]")
	l.Jobs[2].RunLimit = time.Hour
	expect(t, l, "FINISH_TIME|EXIT_CODE\nJan  2 03:02 L|137\n", 0, "bjobs -o", "finish_time exit_code delimiter='|'", "14")
	expect(t, l, "<nosuch> in the format string is not a valid field name.\n", 255, "bjobs -o", "jobid nosuch")
	expect(t, l, "Bad delimiter in the format string: give one character between quotes.\n", 255, "bjobs -o", "jobid delimiter='ab'")
	expect(t, l, "bjobs: -json and -noheader exclude each other\n", 255, "bjobs -json -noheader -o", "jobid")
	expect(t, l, "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME\n14      bob     EXIT  normal     lava0       lava4       gone       Jan  2 03:00\n", 0, "bjobs -json 14")
	expect(t, l, "bjobs: Illegal option -- zzz\n", 255, "bjobs -zzz")
	expect(t, l, "13      bob     PEND  low        lava0          -        true       Jan  2 03:00\n", 0, "bjobs -noheader -w")
}

func TestLSFReportsNothingFound(t *testing.T) {
	l := lsfCluster()
	expect(t, l, "No unfinished job found\n", 0, "bjobs -u nobody")
	expect(t, l, "No job found\n", 0, "bjobs -a -u nobody -o", "jobid")
	expect(t, l, "{\n  \"COMMAND\":\"bjobs\",\n  \"JOBS\":0,\n  \"RECORDS\":[\n  ]\n}\n", 0, "bjobs -u nobody -json -o", "jobid")
	expect(t, l, "Job <99> is not found\n", 255, "bjobs 99")
	expect(t, l, "{\n  \"COMMAND\":\"bjobs\",\n  \"JOBS\":1,\n  \"RECORDS\":[\n    {\n      \"JOBID\":\"99\",\n      \"ERROR\":\"Job <99> is not found\"\n    }\n  ]\n}\n", 255, "bjobs -json -o", "jobid", "99")
}

func TestLSFListsDetails(t *testing.T) {
	want := `
Job <12[3]>, Job Name <sim[3]>, User <alice>, Project <chipA:synthesis>, Status 
                     <RUN>, Queue <normal>, Job Priority <70>, Command <./sim /i
                     n>, Job Description <allotment:1:suspend a/b>
Wed Dec 31 23:59:58: Submitted from host <lava0>, CWD <$HOME/x>, Output File </t
                     mp/o.%J>, 3 Task(s), Requested Resources <rusage[mem=100]>,
                      Specified Hosts <lava3>, <lava4>, User Priority <70>;

 RUNLIMIT                
 90.0 min                

 MEMLIMIT
 1572864 K
Fri Jan  2 03:04:05: [3] started 3 Task(s) on Host(s) <lava3> <lava3> <lava4>, A
                     llocated 3 Slot(s) on Host(s) <lava3> <lava3> <lava4>, Exec
                     ution Home </home/alice>, Execution CWD </home/alice/x>;
Fri Jan  2 03:04:35: Resource usage collected.
                     MEM: 1 Mbytes;  SWAP: 1 Mbytes
                     PGID: 77;  PIDs: 77 78 
`
	got, rc := run(lsfCluster(), "bob", "bjobs -l 12")
	got, _, _ = strings.Cut(got, "\n MEMORY USAGE")
	if diff := cmp.Diff(want, got); diff != "" || rc != 0 {
		t.Errorf("exit code %d; -want +got:\n%s", rc, diff)
	}
	want = `
Job <14>, Job Name <gone>, User <bob>, Project <default>, Status <EXIT>, Queue <normal>, Job Priority <50>, Command <sleep 9>
Fri Jan  2 03:00:00: Submitted from host <lava0>, CWD <$HOME>;
Fri Jan  2 03:01:00: Started 1 Task(s) on Host(s) <lava4>, Allocated 1 Slot(s) on Host(s) <lava4>, Execution Home </home/bob>;
Fri Jan  2 03:02:00: Exited with exit code 137. The CPU time used is 0.0 seconds.
Fri Jan  2 03:02:00: Completed <exit>; TERM_OWNER: job killed by owner.
`
	got, _ = run(lsfCluster(), "bob", "bjobs -UF 14")
	got, _, _ = strings.Cut(got, "\n SCHEDULING")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLSFListsHostsAndParameters(t *testing.T) {
	l := lsfCluster()
	expect(t, l, `HOST_NAME          STATUS          JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV 
lava0              closed_Full        -      0      0      0      0      0      0
lava1              closed_Adm         -      4      4      4      0      0      0
lava2              unavail            -      4      4      4      0      0      0
lava3              ok                 -      4      3      2      0      0      1
lava4              closed_Full        -      4      4      4      0      0      0
`, 0, "bhosts -w")
	expect(t, l, `HOST_NAME                       type       model  cpuf ncpus maxmem maxswp server RESOURCES
lava3                          linux     IntelI5 100.0     2  23.5G      -    Yes (cs)
lava4                          linux     IntelI5 100.0     2   2.0T   512M    Yes (cs)
`, 0, "lshosts -w lava3 lava4")
	expect(t, l, "nosuch: Bad host name, host group name or cluster name\n", 255, "bhosts nosuch")
	expect(t, l, "bhosts: invalid option -- 'z'\nUsage: bhosts [-h] [-V] [-w] [host_name ...]\n", 255, "bhosts -z")
	release := l.Cluster.Version + `
Copyright International Business Machines Corp. 1992, 2016.
US Government Users Restricted Rights - Use, duplication or disclosure restricted by GSA ADP Schedule Contract with IBM Corp.
`
	expect(t, l, release+"\nMy cluster name is chips\nMy master name is lava0\n", 0, "lsid")
	if stdout, stderr, rc := List("bsub", []string{"-V"}, l, "bob"); len(stdout) > 0 || string(stderr) != release || rc != 0 {
		t.Errorf("-V: %q, %q, %d; want the version on standard error", stdout, stderr, rc)
	}
	expect(t, l, `lsb.params configuration at Fri Jan  2 03:04:35 UTC 2026
        DEFAULT_QUEUE = normal
        DEFAULT_PROJECT = default
        CLEAN_PERIOD = 3600
        MAX_JOB_ARRAY_SIZE = 20000
        MAX_USER_PRIORITY = 100
`, 0, "bparams -a")
	l.Cluster.Params.MaxUserPriority = 0
	for _, form := range []string{"-a", "-l"} {
		if all, _ := run(l, "bob", "bparams "+form); strings.Contains(all, "MAX_USER_PRIORITY") || !strings.Contains(all, "MAX_JOB_ARRAY_SIZE = 20000") {
			t.Errorf("%s tells a parameter that is not set, or leaves one out: %s", form, all)
		}
	}
	expect(t, lavaCluster(), "bparams: invalid option -- 'a'\nUsage: bparams [-h] [-V] [-l]\n", 255, "bparams -a")
}

// For a while a requeued job is in no list of unfinished jobs, but in those that name it.
func TestRequeuedJobIsMissingForAWhile(t *testing.T) {
	for _, l := range []*Listing{lavaCluster(), lsfCluster()} {
		j := &l.Jobs[0]
		j.Stat, j.Gone, j.ExitCode, j.Name = EXIT, true, 130, "inthegap"
		id := j.listedID()
		for command, want := range map[string]bool{
			"bjobs -w -u all": false, "bjobs -UF -u all": false, "bjobs -w -r -u all": false,
			"bjobs -w -a -u all": true, "bjobs -w " + id: true, "bjobs -UF " + id: true,
		} {
			if got, rc := run(l, "bob", command); strings.Contains(got, "inthegap") != want || rc != 0 {
				t.Errorf("%s, %s: listed is not %v (exit code %d):\n%s", l.Cluster.Flavour, command, want, rc, got)
			}
		}
	}
}

func TestLavaAnswersToJobIDs(t *testing.T) {
	l := lavaCluster()
	const header = "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME\n"
	two, three := "791     bob     RUN   normal     lava0       lava1       arr[2]     Nov 20 22:54\n", "791     bob     RUN   normal     lava0       lava1       arr[3]     Nov 20 22:54\n"
	expect(t, l, header+two, 0, "bjobs 791[2]")
	expect(t, l, header+two+three, 0, "bjobs 791[2-3]")
	expect(t, l, header+three+"Job <791[9]> is not found\nJob <7> is not found\n", 255, "bjobs 791[9] 7 791[3]")
	expect(t, l, "bad: Illegal job ID.\n", 255, "bjobs bad")
	expect(t, l, "{\n\t\"COMMAND\":\t\"bjobs\",\n\t\"JOBS\":\t2,\n\t\"RECORDS\":\t[{\n\t\t\t\"JOBID\":\t\"791\"\n\t\t}, {\n"+
		"\t\t\t\"JOBID\":\t\"7\",\n\t\t\t\"ERROR\":\t\"Job <7> is not found\"\n\t\t}]\n}\n", 0, "bjobs -json -o", "jobid jobid", "7", "791[2]")
	expect(t, l, "{\n\t\"COMMAND\":\t\"bjobs\",\n\t\"JOBS\":\t0,\n\t\"RECORDS\":\t[]\n}\n", 255, "bjobs -u nobody -json -o jobid")
}

func TestLavaSelects(t *testing.T) {
	l := lavaCluster()
	ended := l.find(t, 801)
	ended.Stat, ended.Ended = DONE, at("22:54:30")
	for command, want := range map[string]string{
		"bjobs -w -P default": "793 792", "bjobs -w -J fill5": "802", "bjobs -w -q normal -m lava3": "793", "bjobs -w -J arr": "791 791 791 791",
		"bjobs -w -J arr[4]": "791", "bjobs -w -J fill*": "798 802 799 800 803", "bjobs -w -d": "801", "bjobs -wp": "792 803", "bjobs -aw": "798 802 791 791 791 793 791 799 800 792 803 801",
		"bjobs -w -u alice": "789 790",
	} {
		got, rc := run(l, "bob", command)
		var ids []string
		for _, line := range strings.Split(got, "\n")[1:] {
			if line != "" && line[0] != ' ' {
				ids = append(ids, strings.Fields(line)[0])
			}
		}
		if strings.Join(ids, " ") != want || rc != 0 {
			t.Errorf("%s: %v (exit code %d), want %s", command, ids, rc, want)
		}
	}
	for command, want := range map[string]string{
		"bjobs -q low": "No unfinished job found in queue <low>\n", "bjobs -a -u x": "No job found\n", "bjobs -d -u alice": "No DONE/EXIT job found\n",
		"bjobs -p -u alice": "No pending job found\n", "bjobs -r -m lava0": "No running job found on host/group <lava0>\n", "bjobs -J x": "Job <x> is not found\n",
		"bjobs -UF -a -u x": "No job found\n",
	} {
		expect(t, l, want, 254, command)
	}
	expect(t, l, "No job found in project x\n", 255, "bjobs -P x")
}

func TestLavaRefusesUnknownOptions(t *testing.T) {
	l := lavaCluster()
	for _, command := range []string{"bjobs -json", "bjobs -l -o jobid", "bjobs -jsn -o jobid", "bjobs -UX", "bjobs -u", "bjobs -z", "bjobs -W"} {
		if got, rc := run(l, "bob", command); rc != 255 || !strings.Contains(got, "Usage: bjobs [-h] [-V]") {
			t.Errorf("%s: exit code %d, %q; want its usage", command, rc, got)
		}
	}
}

func TestLavaCutsTables(t *testing.T) {
	l := lavaCluster()
	l.Jobs = l.Jobs[:1]
	j := &l.Jobs[0]
	j.User, j.Queue, j.Name, j.Submitted = "bartholomew", "a_very_long_queue", "a_rather_long_näme", time.Date(2026, 11, 2, 1, 0, 0, 0, time.UTC)
	j.ExecHosts = []string{"compute-node-17", "c2"}
	l.Now = l.Now.In(time.FixedZone("", -2*3600))
	expect(t, l, "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME\n"+
		"789     barthol RUN   a_very_lon lava0       compute-nod *ong_n\u00e4me Nov  1 23:00\n"+
		"                                             c2\n", 0, "bjobs -u all")
}

func TestLavaShowsHowJobsEnd(t *testing.T) {
	for _, c := range []struct {
		stat Stat
		code int
		want string
	}{
		{DONE, 0, "Fri Nov 20 22:54:30: Done successfully. The CPU time used is 0.0 seconds.\n"},
		{EXIT, 3, "Fri Nov 20 22:54:30: Exited with exit code 3. The CPU time used is 0.0 seconds.\n"},
		{EXIT, 0, "Fri Nov 20 22:54:30: Exited The CPU time used is 0.0 seconds.\n"},
		{ZOMBI, 0, "Fri Nov 20 22:54:30: Termination request issued; the job will be killed once the host is ok;"},
		{USUSP, 0, " SUSPENDING REASONS:\n The job was suspended by user;\n"},
		{UNKWN, 0, ""},
	} {
		l := lavaCluster()
		j := l.find(t, 801)
		j.Stat, j.ExitCode, j.Ended = c.stat, c.code, at("22:54:30")
		j.Reasons = []Reason{{"The job was suspended by user", 0}}
		got, _ := run(l, "bob", "bjobs -UF 801")
		_, got, _ = strings.Cut(got, "Execution CWD </home/bob>;\n")
		got, _, _ = strings.Cut(got, "\n SCHEDULING")
		if got != c.want {
			t.Errorf("%s %d: %q, want %q", c.stat, c.code, got, c.want)
		}
	}
}

// A run is dispatched before it is started.
func TestRunIsDispatchedFirst(t *testing.T) {
	l := lavaCluster()
	for i := range l.Jobs {
		l.Jobs[i].PGID = 0
	}
	for command, want := range map[string]string{
		"bjobs -UF 802":    "22:54:23: Dispatched to 1 Task(s) on Host(s) <lava4>, Allocated 1 Slot(s)",
		"bjobs -l 802":     "22:54:23: Dispatched to <lava4>, Execution",
		"bjobs -UF 791[2]": "22:54:20:  [2] dispatched to 1 Task(s) on Host(s) <lava1>",
	} {
		if got, _ := run(l, "bob", command); !strings.Contains(got, want) {
			t.Errorf("%s has no %q:\n%s", command, want, got)
		}
	}
}

// Clocks of hosts differ: no run starts before its job was submitted.
func TestRunStartsNotBeforeItsSubmission(t *testing.T) {
	l := lavaCluster()
	l.find(t, 802).Started = at("22:54:01")
	if got, _ := run(l, "bob", "bjobs -UF 802"); !strings.Contains(got, "\nFri Nov 20 22:54:19: Started 1 Task(s)") {
		t.Errorf("%s", got)
	}
}

func TestLavaShowsAJobWithoutAName(t *testing.T) {
	l := lavaCluster()
	l.find(t, 802).Name = ""
	if got, _ := run(l, "bob", "bjobs -UF 802"); !strings.HasPrefix(got, "\nJob <802>, User <bob>, Project <chipB>, Status <RUN>, ") {
		t.Errorf("-UF: %s", got)
	}
	expect(t, l, "JOBID JOB_NAME\n802 sleep 300\n", 0, "bjobs -o", "jobid job_name", "802")
}

// forgery is a name that says that its job is another's.
const forgery = `x>, User <root>, Project <chipA>, Status <RUN>`

// forged is a cluster with a job of bob's, project chipB, that is named so.
func forged(flavour Flavour) *Listing {
	l := lavaCluster()
	l.Cluster.Flavour = flavour
	l.Jobs = l.Jobs[1:2]
	l.Jobs[0].Name = forgery
	return l
}

// The long formats of both flavours print the name as it is: a reader of the first User <
// of the line reads root. JSON separates the name from the rest.
func TestForgedNameInLongFormatsAndJSON(t *testing.T) {
	for _, flavour := range []Flavour{Lava, LSF10} {
		l := forged(flavour)
		want := "\nJob <798>, Job Name <x>, User <root>, Project <chipA>, Status <RUN>>, User <bob>, Project <chipB>, Status <RUN>, Queue <normal>, "
		if got, _ := run(l, "root", "bjobs -u all -a -UF"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: -UF prints %q", flavour, got)
		}
		got, rc := run(l, "root", "bjobs -u all -a -json -o", "jobid user stat job_name proj_name")
		var read struct{ RECORDS []map[string]string }
		if err := json.Unmarshal([]byte(got), &read); err != nil || rc != 0 {
			t.Fatalf("%s: exit code %d, %v: %s", flavour, rc, err, got)
		}
		record := []map[string]string{{"JOBID": "798", "USER": "bob", "STAT": "RUN", "JOB_NAME": forgery, "PROJ_NAME": "chipB"}}
		if diff := cmp.Diff(record, read.RECORDS); diff != "" {
			t.Errorf("%s: JSON, -want +got:\n%s", flavour, diff)
		}
	}
}

// Whatever a name is, JSON gives it back, and the long formats and tables print
// its bytes.
func FuzzNames(f *testing.F) {
	for _, name := range []string{forgery, "a\nJob <1>, User <root>", "\x00\x1f\x7f\b\f\t\r", `\"/`, "ä\u2028", "\xff\xfe", "[1]", "%s%n", ""} {
		f.Add(name, true)
		f.Add(name, false)
	}
	f.Fuzz(func(t *testing.T, name string, lava bool) {
		flavour := LSF10
		if lava {
			flavour = Lava
		}
		l := forged(flavour)
		l.Jobs[0].Name = name
		l.Jobs[0].Command = name
		for _, command := range []string{"bjobs -UF -u all", "bjobs -w -u all"} {
			if got, _ := run(l, "root", command); !strings.Contains(got, name) {
				t.Errorf("%s %s: %q has no %q", flavour, command, got, name)
			}
		}
		got, _ := run(l, "root", "bjobs -u all -json -o", "job_name")
		var read struct{ RECORDS []map[string]string }
		if err := json.Unmarshal([]byte(got), &read); err != nil {
			t.Fatalf("%s: %v: %s", flavour, err, got)
		}
		// Bytes that are no UTF-8 are for the reader to replace.
		if want := strings.ToValidUTF8(name, "\ufffd"); len(read.RECORDS) != 1 || want == name && read.RECORDS[0]["JOB_NAME"] != name {
			t.Errorf("%s: %q from %s", flavour, read.RECORDS, got)
		}
	})
}
