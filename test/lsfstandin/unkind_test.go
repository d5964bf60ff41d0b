package lsfstandin

import (
	"os"
	"strings"
	"testing"
	"time"
)

// unkindly is a cluster that root may submit to, with some answers switched.
func unkindly(t *testing.T, o Options, edit func(*Unkind)) *Cluster {
	t.Helper()
	o.Hosts, o.Slots, o.Second = 1, 1, 30*time.Millisecond
	before := o.Edit
	o.Edit = func(c *Config) {
		if before != nil {
			before(c)
		}
		edit(&c.Unkind)
	}
	return New(t, o)
}

func TestBsubPrintsNoVersion(t *testing.T) {
	for _, empty := range []bool{true, false} {
		c := unkindly(t, Options{RootMaySubmit: true}, func(u *Unkind) { u.EmptyVersion = empty })
		for _, name := range Programs() {
			stdout, stderr, rc := c.Run(name, "-V")
			silent := empty && (name == "bsub" || name == "bmod")
			if rc != 0 || stderr != "" || (stdout == "") != silent {
				t.Errorf("%s -V, empty %v: %q %q %d", name, empty, stdout, stderr, rc)
			}
		}
	}
}

func TestRootMayNotSubmit(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be refused for being root")
	}
	for _, x := range []struct{ refused, rex, taken bool }{{true, false, false}, {true, true, true}, {false, false, true}} {
		c := unkindly(t, Options{RootMaySubmit: x.rex, Users: users}, func(u *Unkind) { u.RootRefused = x.refused })
		stdout, stderr, rc := c.Run("bsub", "true")
		if (rc == 0) != x.taken || !x.taken && (rc != 255 || stdout != "" || stderr != "User permission denied. Job not submitted.\n") {
			t.Errorf("%+v: %q %q %d", x, stdout, stderr, rc)
		}
		if _, stderr, rc := c.as("alice", "bsub", "true"); rc != 0 {
			t.Errorf("%+v: alice: %q %d", x, stderr, rc)
		}
	}
}

func TestFairshareIsMisspelt(t *testing.T) {
	for typo, want := range map[bool]string{true: "SCHEDULING POLICIES:  FAIRSAHRE\n", false: "SCHEDULING POLICIES:  FAIRSHARE\n"} {
		l := lavaCluster()
		l.Cluster.Unkind.FairshareTypo = typo
		l.Cluster.Queues[1].Policies = []string{"FAIRSHARE"}
		stdout, _, rc := List("bqueues", []string{"-l"}, l, "root")
		if rc != 0 || strings.Count(string(stdout), "POLICIES") != 1 || !strings.Contains(string(stdout), want) {
			t.Errorf("typo %v: %s", typo, stdout)
		}
	}
}

func TestBeginTimeIsNotCleared(t *testing.T) {
	t.Setenv("TZ", "UTC")
	for _, never := range []bool{true, false} {
		c := unkindly(t, Options{RootMaySubmit: true}, func(u *Unkind) { u.BeginNeverClears = never })
		if _, message, rc := c.Run("bsub", "-b", time.Now().Add(time.Hour).Format("15:04"), "true"); rc != 0 {
			t.Fatal(message)
		}
		if _, message, rc := c.Run("bmod", "-bn", "1"); rc != 0 {
			t.Fatal(message)
		}
		p, err := c.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if begin := p.Jobs[0].Begin; never && begin.Unix() != 1<<32-2 || !never && !begin.IsZero() {
			t.Errorf("never %v: it begins at %v", never, begin)
		}
		stdout, _, _ := c.Run("bjobs", "-UF", "1")
		if shown := strings.Contains(stdout, "Specified Start Time <Sun Feb  7 06:28:14>"); shown != never {
			t.Errorf("never %v: %s", never, stdout)
		}
	}
}

// The host of two jobs dies while one of them is requeued: that one ends, the other lives
// through it.
func TestRequeueOnADeadHost(t *testing.T) {
	for _, x := range []struct{ loses, stays bool }{{true, true}, {true, false}, {false, false}} {
		c := unkindly(t, Options{RootMaySubmit: true, Edit: func(c *Config) { c.Hosts[0].Slots = 2 }}, func(u *Unkind) {
			u.RequeueLosesJobOnDeadHost, u.ExitedStayEnded = x.loses, x.stays
		})
		stats := func() (stats [2]Stat) {
			p, err := c.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			for i, j := range p.Jobs {
				stats[i] = j.Stat
			}
			return stats
		}
		await := func(want ...Stat) {
			t.Helper()
			for deadline := time.Now().Add(patience); [2]Stat(want) != stats(); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%+v: %v, want %v", x, stats(), want)
				}
			}
		}
		for range 2 {
			if _, message, rc := c.Run("bsub", "sleep", "300"); rc != 0 {
				t.Fatal(message)
			}
		}
		await(RUN, RUN)
		c.SetHost("h1", false, true)
		await(UNKWN, UNKWN)
		if _, message, rc := c.Run("brequeue", "-H", "1"); rc != 0 {
			t.Fatal(message)
		}
		if !x.loses {
			await(PSUSP, UNKWN)
			continue
		}
		await(EXIT, UNKWN)
		_, message, rc := c.Run("brequeue", "-e", "-H", "1")
		if (rc == 0) == x.stays {
			t.Errorf("%+v: brequeue -e: %d %s", x, rc, message)
		}
		c.SetHost("h1", false, false)
		if x.stays {
			await(EXIT, RUN)
		} else {
			await(PSUSP, RUN)
		}
	}
}

func TestOptionalJobDetails(t *testing.T) {
	detail := func(unkind func(*Unkind)) (string, int) {
		l := lavaCluster()
		unkind(&l.Cluster.Unkind)
		l.Cluster.Queues[1].Policies = []string{"FAIRSHARE"}
		stdout, _, rc := List("bjobs", []string{"-u", "all", "-UF"}, l, "root")
		return string(stdout), rc
	}
	for text, switched := range map[string]func(*Unkind){
		"Started 2 Task(s) on Host(s) <2*lava4>, Allocated 2 Slot(s) on Host(s) <2*lava4>,": func(u *Unkind) { u.ShortHostList = true },
		"Command <sleep 300>, Share group charged </alice>, Job Description <":              func(u *Unkind) { u.ChargedShare = true },
	} {
		if message, rc := detail(switched); rc != 0 || !strings.Contains(message, text) {
			t.Errorf("no %q in %s", text, message)
		}
		if message, rc := detail(func(*Unkind) {}); rc != 0 || strings.Contains(message, text) {
			t.Errorf("%q is printed unasked", text)
		}
	}
	for _, crash := range []bool{true, false} {
		l := lavaCluster()
		l.Cluster.Unkind.LongTextsCrash = crash
		l.find(t, 790).Description = strings.Repeat("x", 2561)
		stdout, _, rc := List("bjobs", []string{"-u", "all", "-UF"}, l, "root")
		if (rc == exitCrashed && len(stdout) == 0) != crash {
			t.Errorf("crash %v: %d, %d bytes", crash, rc, len(stdout))
		}
	}
}

func TestFailedJobInPostExecQueue(t *testing.T) {
	for unkind, want := range map[bool]Stat{true: ERROR, false: EXIT} {
		c := unkindly(t, Options{RootMaySubmit: true, Edit: func(c *Config) {
			c.Queues = []QueueConfig{{Name: "normal", Priority: 30, PostExec: true}}
		}}, func(u *Unkind) { u.PostExecError = unkind })
		if stdout, stderr, rc := c.Run("bsub", "-K", "exit 3"); rc != 3 {
			t.Fatalf("%q %q %d", stdout, stderr, rc)
		}
		l, err := c.Snapshot()
		if err != nil || len(l.Jobs) != 1 || l.Jobs[0].Stat != want {
			t.Errorf("%+v, %v", l.Jobs, err)
		}
	}
}

func TestResumedRunShowsSSUSPFirst(t *testing.T) {
	for _, unkind := range []bool{true, false} {
		c := unkindly(t, Options{RootMaySubmit: true, Edit: func(c *Config) { c.Second = 5 * time.Second }},
			func(u *Unkind) { u.ResumedBySSUSP = unkind })
		id := c.submit("sleep", "300")
		c.awaitStat(id, RUN)
		c.ok("bstop", id)
		c.awaitStat(id, USUSP)
		c.ok("bresume", id)
		want := RUN
		if unkind {
			want = SSUSP
		}
		l, err := c.Snapshot()
		if err != nil || l.Jobs[0].Stat != want {
			t.Errorf("unkind %v: %+v, %v", unkind, l.Jobs, err)
		}
		c.awaitStat(id, RUN)
	}
}
