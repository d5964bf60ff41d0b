package lsf

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// listedAt is when the stand-in's jobs are listed: early in a year.
var listedAt = time.Date(2026, 1, 2, 3, 4, 35, 0, time.UTC)

// standInJob returns a job of bob's in the stand-in, in a state.
func standInJob(stat lsfstandin.Stat) lsfstandin.Job {
	j := lsfstandin.Job{
		ID: 12, Name: "n", User: "bob", Project: "chipB:layout", Queue: "normal", Stat: stat, Command: "c", Description: "allotment:1:suspend mine", FromHost: "h0", CWD: "$HOME",
		Home: "/home/bob", RunCWD: "/home/bob", Priority: 60, UserPriority: 60, Slots: 3, Asked: []string{"h1", "h2"}, ResReq: "rusage[mem=100]", RunLimit: 90 * time.Minute,
		Submitted: listedAt.Add(-4 * time.Hour),
	}
	switch stat {
	case lsfstandin.PEND, lsfstandin.PSUSP:
		j.Reasons = []lsfstandin.Reason{{Text: "Job slot limit reached", Hosts: 5}}
		return j
	case lsfstandin.USUSP, lsfstandin.SSUSP:
		j.Reasons = []lsfstandin.Reason{{Text: "The job was suspended by LSF admin or root"}}
	case lsfstandin.DONE, lsfstandin.EXIT, lsfstandin.ERROR, lsfstandin.ZOMBI:
		j.Ended = listedAt.Add(-time.Minute)
	}
	j.ExecHosts, j.Started = []string{"h1", "h1", "h2"}, listedAt.Add(-10*time.Minute)
	j.PGID, j.PIDs, j.MemUsed = 7, []int{7, 8}, 5<<20
	return j
}

// bjobs returns what the stand-in's bjobs prints.
func bjobs(l *lsfstandin.Listing, args ...string) []byte {
	stdout, _, _ := lsfstandin.List("bjobs", args, l, "root")
	return stdout
}

func standIn(flavour lsfstandin.Flavour, jobs ...lsfstandin.Job) *lsfstandin.Listing {
	l := &lsfstandin.Listing{Now: listedAt, Jobs: jobs}
	l.Cluster.Flavour, l.Cluster.Unkind = flavour, lsfstandin.AllUnkind()
	l.Cluster.Queues = []lsfstandin.QueueConfig{{Name: "normal", Priority: 30, Policies: []string{"FAIRSHARE"}}}
	return l
}

// parseListing reads what the stand-in lists of its jobs; lava's as its client does: a job
// that is unclear among others is queried alone.
func parseListing(t *testing.T, flavour lsfstandin.Flavour, jobs ...lsfstandin.Job) []*listedJob {
	t.Helper()
	l := standIn(flavour, jobs...)
	c := &cluster{at: listedAt.Add(24 * time.Hour), limitUnit: 1 << 10, usageUnit: 1 << 20}
	if flavour == lsfstandin.LSF10 {
		all, err := parseJobs(bjobs(l, "-u", "all", "-a", "-json", "-o", lsf10Fields), c)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	anchors, err := parseAnchors(bjobs(l, "-u", "all", "-a", "-json", "-o", lavaFields))
	if err != nil {
		t.Fatal(err)
	}
	found, err := parseDetails(anchors, bjobs(l, "-u", "all", "-a", "-UF"), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.missing) > 0 {
		t.Fatalf("not in both listings: %v", found.missing)
	}
	all := found.jobs
	for id := range found.unclear {
		j, err := parseDetail(found.unclear[id], bjobs(l, "-UF", id.String()), c)
		if err != nil {
			j, err = vagueJob(found.unclear[id], bjobs(l, "-a", "-w", id.String()), c)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, j)
	}
	return all
}

func TestStandInListingsAreParsed(t *testing.T) {
	on := []backends.Placement{{Host: "h1", Slots: 2}, {Host: "h2", Slots: 1}}
	states := map[lsfstandin.Stat]backends.State{
		lsfstandin.PEND: backends.Pending, lsfstandin.PSUSP: backends.Held, lsfstandin.RUN: backends.Running, lsfstandin.USUSP: backends.Suspended,
		lsfstandin.SSUSP: backends.Suspended, lsfstandin.DONE: backends.Done, lsfstandin.EXIT: backends.Exited, lsfstandin.UNKWN: backends.Running,
		lsfstandin.ZOMBI: backends.Running, lsfstandin.ERROR: backends.Exited,
	}
	kinds := map[string]func(*lsfstandin.Job){
		"plain":      func(*lsfstandin.Job) {},
		"element":    func(j *lsfstandin.Job) { j.Index, j.Name = 3, "arr[3]" },
		"nameless":   func(j *lsfstandin.Job) { j.Name = "" },
		"forged":     func(j *lsfstandin.Job) { j.Name = "x>, User <root>, Project <chipA>, Status <RUN>" },
		"exclusive":  func(j *lsfstandin.Job) { j.Exclusive = true },
		"attended":   func(j *lsfstandin.Job) { j.Interactive = true },
		"begins":     func(j *lsfstandin.Job) { j.Begin = listedAt.Add(time.Hour).Truncate(time.Minute) },
		"dispatched": func(j *lsfstandin.Job) { j.PGID, j.MemUsed = 0, 0 },
	}
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		// LSF 10.1 shows only minutes.
		exact := time.Second
		if flavour == lsfstandin.LSF10 {
			exact = time.Minute
		}
		for stat, state := range states {
			for kind, change := range kinds {
				j := standInJob(stat)
				j.Submitted, j.Started, j.Ended = j.Submitted.Truncate(exact), j.Started.Truncate(exact), j.Ended.Truncate(exact)
				if change(&j); stat == lsfstandin.EXIT || stat == lsfstandin.ERROR {
					j.ExitCode = 3
				}
				all := parseListing(t, flavour, j)
				if len(all) != 1 {
					t.Fatalf("%s, %s %s: %d jobs", flavour, stat, kind, len(all))
				}
				want := backends.Job{
					ID: backends.ID{Job: j.ID, Index: j.Index}, Name: j.Name, User: "bob", Project: "chipB", Step: "layout", Queue: "normal", State: state, Slots: 3,
					Memory: 100 << 20, Asked: j.Asked, Submitted: j.Submitted, RunLimit: j.RunLimit, BeginTime: j.Begin, Exclusive: j.Exclusive, Interactive: j.Interactive,
					NoRequeue: j.Interactive, ExitCode: j.ExitCode, Ending: stat == lsfstandin.ZOMBI,
				}
				if j.Name == "" {
					want.Name = j.Command
				}
				if state != backends.Pending && state != backends.Held {
					want.Hosts, want.Started = on, j.Started
				}
				if state.Ended() {
					want.Ended = j.Ended
				}
				got := all[0].Job
				if all[0].vague || all[0].priority != 60 || all[0].description != j.Description {
					t.Errorf("%s, %s %s: %+v", flavour, stat, kind, all[0])
				}
				got.Tag, got.Reason, got.Wait, got.RanFor = "", "", 0, 0
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s, %s %s (-want +got):\n%s", flavour, stat, kind, diff)
				}
			}
		}
	}
}

// FuzzOwnersTexts: whatever an owner writes into a job's texts, no job is read as another
// user's, nor in another state, project or place than its own, and the job beside it in
// the listing is read whole.
func FuzzOwnersTexts(f *testing.F) {
	line := "\nJob <13>, Job Name <honest>, User <bob>, Project <chipB:layout>, Status <RUN>, Queue <normal>, Job Priority <60>, Command <c>\n"
	f.Add("x>, User <root>, Project <chipA>, Status <RUN>", "c", "d", "o")
	f.Add("n", "c>"+line, line, "o")
	f.Add("n", "c", "d", "o>, 9 Task(s), Exclusive Execution, Specified Hosts <h9>")
	f.Add("n\n\n SCHEDULING PARAMETERS:\n", "c\n RESOURCE REQUIREMENT DETAILS:\n", "d", "o\nFri Jan  2 03:00:00: Started 1 Task(s) on Host(s) <h9>, Allocated 1 Slot(s) on Host(s) <h9>;")
	run := "\nFri Jan  2 00:00:00: Submitted from host <h0>, CWD <$HOME>;\nFri Jan  2 02:54:35: Started 1 Task(s) on Host(s) <h9>, Allocated 1 Slot(s) on Host(s) <h9>;\n"
	f.Add("n", "c>"+run+"\n SCHEDULING PARAMETERS:\n\n RESOURCE REQUIREMENT DETAILS:\n Combined: -\n Effective: -\n", "d", "")
	f.Add("n", "c>"+run, "d", "")
	f.Add("n", "c", "d>"+run+line+run, "o")
	f.Add("a[3]", "c[3]", "", "")
	f.Add("", "\xff", "\x00\"\\", "/\t")
	f.Fuzz(func(t *testing.T, name, command, description, output string) {
		for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
			hostile := standInJob(lsfstandin.RUN)
			hostile.User, hostile.Project, hostile.ExecHosts = "mallory", "chipM", []string{"h3"}
			hostile.Name, hostile.Command, hostile.Description, hostile.Output = name, command, description, output
			if strings.ContainsRune(name+command+description+output, 0) {
				continue // not a C string
			}
			honest := standInJob(lsfstandin.RUN)
			honest.ID, honest.Name = 13, "honest"
			all := parseListing(t, flavour, hostile, honest)
			if len(all) != 2 {
				t.Fatalf("%s: %d jobs", flavour, len(all))
			}
			for _, j := range all {
				user, project, hosts := "mallory", "chipM", []backends.Placement{{Host: "h3", Slots: 1}}
				if j.ID.Job == 13 {
					user, project, hosts = "bob", "chipB", []backends.Placement{{Host: "h1", Slots: 2}, {Host: "h2", Slots: 1}}
				}
				if j.User != user || j.Project != project || j.State != backends.Running || !cmp.Equal(j.Hosts, hosts) || j.Queue != "normal" {
					t.Errorf("%s: job %s is read as %+v", flavour, j.ID, j)
				}
				if j.ID.Job == 13 && (j.vague || j.priority != 60 || !j.Started.Equal(honest.Started.Truncate(time.Minute)) && flavour == lsfstandin.LSF10) {
					t.Errorf("%s: the honest job is read as %+v", flavour, j)
				}
			}
		}
	})
}
