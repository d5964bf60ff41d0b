package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// testCluster is the stand-in for LSF, which calls the filter as LSF does.
type testCluster struct {
	*lsfstandin.Cluster
	*testSite
	program string // the filter
}

func newTestCluster(t *testing.T, o lsfstandin.Options) *testCluster {
	t.Helper()
	o.Hosts, o.Slots, o.Second = 1, 1, 20*time.Millisecond
	c := &testCluster{Cluster: lsfstandin.New(t, o), testSite: newTestSite(t), program: filepath.Join(t.TempDir(), "esub")}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", c.program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.publishFor(t, esub.DefaultConfig(), 70)
	return c
}

// publishFor writes a snapshot in which the project mine is below its guarantee.
func (c *testCluster) publishFor(t *testing.T, config esub.Config, next int64) {
	t.Helper()
	snapshot := esub.Encode(esub.Policy{
		Settings: esub.Settings{Config: config, NextInLine: backends.Priority(next), MostRank: 50, DefaultQueue: "normal", MemoryUnit: 1 << 20, TagNoRequeue: true},
		Projects: []esub.Project{{Name: "mine", Group: "mine", GID: int64(os.Getgid()), Pools: []esub.Pool{{ID: 1, Slots: 4}}}},
	})
	generation, err := esub.EncodeGeneration(snapshot, esub.Standing{At: time.Now(), Below: map[int64]bool{1: true}})
	if err != nil {
		t.Fatal(err)
	}
	c.write(t, esub.SnapshotName, snapshot)
	c.write(t, esub.GenerationName, generation)
}

// installFilter installs the filter under a name, and lists methods in lsf.conf.
func (c *testCluster) installFilter(t *testing.T, name, methods string) {
	t.Helper()
	if err := os.Symlink(c.program, filepath.Join(c.ServerDir(), name)); err != nil {
		t.Fatal(err)
	}
	c.addMethods(t, methods)
}

func (c *testCluster) addMethods(t *testing.T, methods string) {
	t.Helper()
	conf, err := os.OpenFile(filepath.Join(c.EnvDir(), "lsf.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(conf, "LSB_ESUB_METHOD=%q\n", methods)
	if err = errors.Join(err, conf.Close()); err != nil {
		t.Fatal(err)
	}
}

// installScript installs another filter script, as a site has it.
func (c *testCluster) installScript(t *testing.T, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.ServerDir(), name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// runCommand runs one of the programs in an environment.
func (c *testCluster) runCommand(t *testing.T, env []string, words ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.Bin(), words[0]), words[1:]...)
	cmd.Env = append(append(c.Env(), "ALLOTMENT_HOME="+c.dir), env...)
	var out, printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &printed
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), printed.String(), cmd.ProcessState.ExitCode()
}

// lastJob is the job that was submitted last.
func (c *testCluster) lastJob(t *testing.T) lsfstandin.Job {
	t.Helper()
	l, err := c.Snapshot()
	if err != nil || len(l.Jobs) == 0 {
		t.Fatalf("no job: %v", err)
	}
	return l.Jobs[len(l.Jobs)-1]
}

// For each way to install the filter, on either flavour: a job that fails the tests goes to
// the lowest queue with a tag, one that is next in line gets a number that the cluster
// accepts, a bmod changes only its own options, and the user reads why.
func TestFilterUnderLSF(t *testing.T) {
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		for name, install := range map[string]func(*testing.T, *testCluster){
			"plain": func(t *testing.T, c *testCluster) { c.installFilter(t, "esub", "") },
			"chained": func(t *testing.T, c *testCluster) {
				c.installScript(t, "esub", "exit 1\n")
				c.installFilter(t, "esub.allotment", "allotment")
			},
			"called": func(t *testing.T, c *testCluster) { c.installScript(t, "esub", "exec "+c.program+"\n") },
		} {
			t.Run(string(flavour)+" "+name, func(t *testing.T) {
				t.Parallel()
				c := newTestCluster(t, lsfstandin.Options{RootMaySubmit: true, Flavour: flavour})
				install(t, c)
				_, printed, code := c.runCommand(t, nil, "bsub", "-H", "-P", "nosuch", "-Jd", `a "text"`, "sleep", "300")
				if j := c.lastJob(t); code != 0 || j.Queue != "low" || j.Description != "allotment:1;queue=normal;low=1; a 'text'" || printed != "esub: -P nosuch: no project of that name: correct it; it goes to queue low\n" {
					t.Errorf("%d, %q: %+v", code, printed, j)
				}
				_, printed, code = c.runCommand(t, []string{"ALLOTMENT_PREEMPT=suspend"}, "bsub", "-H", "-P", "mine:synthesis", "-R", "rusage[mem=100]", "sleep", "300")
				if j := c.lastJob(t); code != 0 || printed != "" || j.UserPriority != 70 || j.Queue != "normal" || j.Description != "allotment:1;preempt=suspend;mem=104857600;step=synthesis;" {
					t.Errorf("%d, %q: %+v", code, printed, j)
				}
				id := fmt.Sprint(c.lastJob(t).ID)
				if out, printed, code := c.runCommand(t, nil, "bmod", "-q", "low", id); code != 0 || printed != "" {
					t.Errorf("bmod: %d, %s%s", code, out, printed)
				}
				if j := c.lastJob(t); j.UserPriority != 70 || j.Queue != "low" || !strings.HasPrefix(j.Description, "allotment:1;preempt=suspend;") {
					t.Errorf("after bmod -q: %+v", j)
				}
				noRequeue := []string{"-rn"}
				if flavour == lsfstandin.Lava { // its bsub has none
					noRequeue = []string{"-Jd", "allotment:1;norequeue=1;"}
				}
				if _, printed, code = c.runCommand(t, nil, append(append([]string{"bsub", "-H", "-P", "mine"}, noRequeue...), "true")...); code != 0 || printed != "" || c.lastJob(t).Description != "allotment:1;norequeue=1;" {
					t.Errorf("not to be requeued: %d, %q, %+v", code, printed, c.lastJob(t))
				}
				const clipped = "esub: -sp 100: only pba may set more than 50, the default: 50 is used\n"
				if _, printed, code = c.runCommand(t, nil, "bsub", "-H", "-q", "low", "-P", "nosuch", "-sp", "100", "true"); code != 0 || !strings.HasPrefix(printed, clipped) || c.lastJob(t).UserPriority != 50 {
					t.Errorf("a raised job: %d, %q, %+v", code, printed, c.lastJob(t))
				}
				raised := fmt.Sprint(c.lastJob(t).ID)
				for _, change := range []struct {
					env     []string
					to      string
					printed string
					want    int64
				}{{nil, "100", clipped, 50}, {nil, "30", "", 30}, {nil, "100", clipped, 50}, {[]string{backends.RankVariable + "=1"}, "100", "", 100}} {
					if _, printed, code := c.runCommand(t, change.env, "bmod", "-sp", change.to, raised); code != 0 || printed != change.printed || int64(c.lastJob(t).UserPriority) != change.want {
						t.Errorf("bmod -sp %s: %d, %q, %+v, want %d", change.to, code, printed, c.lastJob(t), change.want)
					}
				}
				if _, printed, code = c.runCommand(t, nil, "bmod", "-P", "nosuch", id); code != 0 || printed != "esub: -P nosuch: no project of that name: correct it\n" {
					t.Errorf("bmod -P: %d, %q", code, printed)
				}
			})
		}
	}
}

// R3: a submission is never lost because the filter fails; it is refused only where the
// site's config says so.
func TestFilterOnLSFFailsOpen(t *testing.T) {
	c := newTestCluster(t, lsfstandin.Options{RootMaySubmit: true})
	c.installFilter(t, "esub", "")
	submit := func(what string, env []string, accepted bool, want string) {
		t.Helper()
		before := int64(0)
		if l, err := c.Snapshot(); err == nil && len(l.Jobs) > 0 {
			before = l.Jobs[len(l.Jobs)-1].ID
		}
		_, printed, code := c.runCommand(t, env, "bsub", "-H", "-P", "nosuch", "true")
		if (code == 0) != accepted || !strings.Contains(printed, want) {
			t.Errorf("%s: %d, %q, want %q", what, code, printed, want)
		}
		if !accepted {
			return
		}
		if j := c.lastJob(t); j.ID == before || j.Queue != "normal" || j.Description != "" {
			t.Errorf("%s: %+v", what, j)
		}
	}
	reject := esub.DefaultConfig()
	reject.OnFailure = esub.Reject
	c.publishFor(t, reject, 70)
	submit("refused", nil, false, "esub: -P nosuch: no project of that name: correct it\nRequest aborted by esub. Job not submitted.\n")
	submit("another home", []string{"ALLOTMENT_HOME=" + t.TempDir()}, true, "")
	submit("no filter installed", []string{"LSF_SERVERDIR=" + t.TempDir()}, true, "")
	remove(t, c.dir, esub.SnapshotName)
	submit("no snapshot", nil, true, "the job goes through as it is")

	// A cluster whose MAX_USER_PRIORITY is less than the snapshot says refuses jobs that
	// are next in line: that is why pba asks it in each cycle.
	c.publishFor(t, esub.DefaultConfig(), 3020)
	if _, printed, code := c.runCommand(t, nil, "bsub", "-H", "-P", "mine", "true"); code != 255 || printed != "Bad user priority. Job not submitted.\n" {
		t.Errorf("%d, %q", code, printed)
	}
	c.publishFor(t, esub.DefaultConfig(), 0)
	if _, printed, code := c.runCommand(t, nil, "bsub", "-H", "-P", "mine", "true"); code != 0 || printed != "" || c.lastJob(t).UserPriority != 0 {
		t.Errorf("no priority for it: %d, %q, %+v", code, printed, c.lastJob(t))
	}
}
