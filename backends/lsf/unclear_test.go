package lsf

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

func clientOf(c *lsfstandin.Cluster) *Client {
	config := DefaultConfig()
	config.Bin, config.EnvDir = c.Bin(), c.EnvDir()
	return Open(Options{Config: config})
}

// However many jobs a user makes unclear, the number of commands is bounded.
func TestUnclearJobsHaveBoundedCost(t *testing.T) {
	t.Parallel()
	cluster := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 1, Slots: 2})
	const jobs = mostAlone + 30
	for _, options := range [][]string{{"-J", fmt.Sprintf("a[1-%d]", jobs), "-H"}, {"-J", "late"}} {
		if _, message, rc := cluster.Run(append(append([]string{"bsub"}, options...), "-o", "/tmp/x\ny", "sleep", "600")...); rc != 0 {
			t.Fatal(message)
		}
	}
	c := clientOf(cluster)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		before := c.latest.Commands()
		p, err := c.readAll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// Params, hosts, both lists, both again of one owner; three for each that is queried alone.
		if asked := c.latest.Commands() - before; len(p.jobs) != jobs+1 || asked > 10+3*mostAlone+2 {
			t.Fatalf("%d commands for %d jobs", asked, len(p.jobs))
		}
		for _, j := range p.jobs {
			if !j.listed.vague || j.listed.why == nil || j.Eligible() || j.ID.Job == 1 && j.State != backends.Held {
				t.Fatalf("%+v, because of %v", j.listed, j.listed.why)
			}
		}
		if j := p.jobs[jobs]; j.State == backends.Running {
			if len(j.Hosts) != 1 || j.Hosts[0] != (backends.Placement{Host: "h1", Slots: 1}) {
				t.Errorf("beyond those that are looked at alone: %+v", j.Job)
			}
			e, err := c.Examine(t.Context(), backends.Installation{UID: os.Getuid()})
			if err != nil || !slices.ContainsFunc(e.Findings, func(f backends.Finding) bool { return strings.Contains(f.What, "job 1[1] of") }) {
				t.Errorf("it is not reported: %+v, %v", e.Findings, err)
			}
			return
		}
	}
	t.Error("they do not start")
}

// A job has its host for itself if the host says so, whatever its own lines say.
func TestExclusiveIsCheckedByHost(t *testing.T) {
	t.Parallel()
	cluster := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 2, Slots: 2})
	for _, options := range [][]string{{"-m", "h1", "-o", t.TempDir() + "/x>, Exclusive Execution, Error File <x"}, {"-m", "h2", "-x"}} {
		if _, message, rc := cluster.Run(append(append([]string{"bsub"}, options...), "sleep", "600")...); rc != 0 {
			t.Fatal(message)
		}
	}
	c := clientOf(cluster)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		p, err := c.readAll(t.Context())
		if err != nil || len(p.jobs) != 2 {
			t.Fatal(p, err)
		}
		if forged, alone := p.jobs[0], p.jobs[1]; forged.State == backends.Running && alone.State == backends.Running {
			if !forged.listed.Exclusive || forged.Exclusive || !alone.Exclusive {
				t.Errorf("%v, want the second alone (of LSF's lines: %v)", []bool{forged.Exclusive, alone.Exclusive}, forged.listed.Exclusive)
			}
			return
		}
	}
	t.Error("they do not start")
}

// A text that holds the headers of another user's jobs does not make these unclear.
func TestForgedHeadersOfOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can be two users")
	}
	t.Parallel()
	const mallory = 54321
	cluster := lsfstandin.New(t, lsfstandin.Options{
		RootMaySubmit: true,
		Hosts:         1, Slots: 1, Users: map[string]lsfstandin.UserConfig{"mallory": {UID: mallory, GID: mallory, Home: "/tmp"}},
	})
	const jobs = 20
	var forged strings.Builder
	for i := range jobs {
		fmt.Fprintf(&forged, "\nJob <%d>, Job Name <plain>, User <root>, Project <default>, Status <RUN>", i+2)
	}
	if _, message, rc := cluster.RunAs(mallory, mallory, "bsub", "-H", "-J", "m", "true"+forged.String()); rc != 0 {
		t.Fatal(message)
	}
	for range jobs {
		if _, message, rc := cluster.Run("bsub", "-H", "-J", "plain", "true"); rc != 0 {
			t.Fatal(message)
		}
	}
	c := clientOf(cluster)
	p, err := c.readAll(t.Context())
	if err != nil || len(p.jobs) != jobs+1 || c.latest.Commands() > 15 {
		t.Fatalf("%d jobs for %d commands, %v", len(p.jobs), c.latest.Commands(), err)
	}
	for _, j := range p.jobs[1:] {
		if j.listed.vague || j.User != "root" || j.State != backends.Held {
			t.Errorf("%+v, because of %v", j.listed, j.listed.why)
		}
	}
}

// bjobs -UF dies of a text that is too long for it: only the job with that text is
// unclear.
func TestTextThatCrashesBjobsHidesOnlyItsJob(t *testing.T) {
	t.Parallel()
	const alice, mallory = 61_001, 61_002
	if os.Getuid() != 0 {
		t.Skip("two users submit: only root can be both")
	}
	cluster := lsfstandin.New(t, lsfstandin.Options{Hosts: 1, Slots: 4, Users: map[string]lsfstandin.UserConfig{
		"alice": {UID: alice, GID: alice, Home: "/tmp"}, "mallory": {UID: mallory, GID: mallory, Home: "/tmp"},
	}})
	long := strings.Repeat("x", 3000)
	for _, x := range []struct {
		uid  int
		args []string
	}{{alice, []string{"-J", "hers"}}, {mallory, []string{"-J", "his", "-Jd", long}}, {mallory, []string{"-J", "short"}}, {alice, []string{"-J", "other"}}} {
		if _, message, rc := cluster.RunAs(x.uid, x.uid, append(append([]string{"bsub", "-H"}, x.args...), "sleep", "600")...); rc != 0 {
			t.Fatal(message)
		}
	}
	if _, _, rc := cluster.Run("bjobs", "-u", "all", "-UF"); rc != 139 {
		t.Fatalf("bjobs -UF ends with %d", rc)
	}
	c := clientOf(cluster)
	p, err := c.readAll(t.Context())
	if err != nil || len(p.jobs) != 4 {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, j := range p.jobs {
		if vague := j.Name == "his"; j.listed.vague != vague || j.State != backends.Held {
			t.Errorf("%s is read as %+v", j.Name, j.listed)
		}
	}
	e, err := c.Examine(t.Context(), backends.Installation{UID: os.Getuid()})
	if err != nil || !slices.ContainsFunc(e.Findings, func(f backends.Finding) bool { return strings.Contains(f.What, "dies of one of its texts") }) {
		t.Errorf("it is not reported: %+v, %v", e.Findings, err)
	}
}
