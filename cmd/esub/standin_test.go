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

// cluster is the stand-in for LSF, which calls the filter as LSF does.
type cluster struct {
	*lsfstandin.Cluster
	*site
	program string // the filter
}

func newCluster(t *testing.T, o lsfstandin.Options) *cluster {
	t.Helper()
	o.Hosts, o.Slots, o.Second = 1, 1, 20*time.Millisecond
	c := &cluster{Cluster: lsfstandin.New(t, o), site: newSite(t), program: filepath.Join(t.TempDir(), "esub")}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", c.program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.publishFor(t, esub.DefaultConfig(), 70)
	return c
}

// publishFor writes a snapshot in which the project mine is below its guarantee.
func (c *cluster) publishFor(t *testing.T, config esub.Config, next int64) {
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

// link installs the filter under a name, and lists methods in lsf.conf.
func (c *cluster) link(t *testing.T, name, methods string) {
	t.Helper()
	if err := os.Symlink(c.program, filepath.Join(c.ServerDir(), name)); err != nil {
		t.Fatal(err)
	}
	c.method(t, methods)
}

func (c *cluster) method(t *testing.T, methods string) {
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

// own installs another filter script, as a site has it.
func (c *cluster) own(t *testing.T, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.ServerDir(), name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// types runs one of the programs in an environment.
func (c *cluster) types(t *testing.T, env []string, words ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.Bin(), words[0]), words[1:]...)
	cmd.Env = append(append(c.Env(), "ALLOTMENT_HOME="+c.dir), env...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), said.String(), cmd.ProcessState.ExitCode()
}

// last is the job that was submitted last.
func (c *cluster) last(t *testing.T) lsfstandin.Job {
	t.Helper()
	l, err := c.Picture()
	if err != nil || len(l.Jobs) == 0 {
		t.Fatalf("no job: %v", err)
	}
	return l.Jobs[len(l.Jobs)-1]
}

// For each way to install the filter, on either flavour: a job that fails the tests goes to
// the lowest queue with a tag, one that is next in line gets a number that the cluster
// accepts, a bmod changes only its own options, and the user reads why.
func TestFilterIsAskedByLSF(t *testing.T) {
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		for name, install := range map[string]func(*testing.T, *cluster){
			"plain":   func(t *testing.T, c *cluster) { c.link(t, "esub", "") },
			"chained": func(t *testing.T, c *cluster) { c.own(t, "esub", "exit 1\n"); c.link(t, "esub.allotment", "allotment") },
			"called":  func(t *testing.T, c *cluster) { c.own(t, "esub", "exec "+c.program+"\n") },
		} {
			t.Run(string(flavour)+" "+name, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, lsfstandin.Options{RootMaySubmit: true, Flavour: flavour})
				install(t, c)
				_, said, code := c.types(t, nil, "bsub", "-H", "-P", "nosuch", "-Jd", `a "text"`, "sleep", "300")
				if j := c.last(t); code != 0 || j.Queue != "low" || j.Description != "allotment:1;queue=normal;low=1; a 'text'" || said != "esub: -P nosuch: no project of that name: correct it; it goes to queue low\n" {
					t.Errorf("%d, %q: %+v", code, said, j)
				}
				_, said, code = c.types(t, []string{"ALLOTMENT_PREEMPT=suspend"}, "bsub", "-H", "-P", "mine:synthesis", "-R", "rusage[mem=100]", "sleep", "300")
				if j := c.last(t); code != 0 || said != "" || j.UserPriority != 70 || j.Queue != "normal" || j.Description != "allotment:1;preempt=suspend;mem=104857600;step=synthesis;" {
					t.Errorf("%d, %q: %+v", code, said, j)
				}
				id := fmt.Sprint(c.last(t).ID)
				if out, said, code := c.types(t, nil, "bmod", "-q", "low", id); code != 0 || said != "" {
					t.Errorf("bmod: %d, %s%s", code, out, said)
				}
				if j := c.last(t); j.UserPriority != 70 || j.Queue != "low" || !strings.HasPrefix(j.Description, "allotment:1;preempt=suspend;") {
					t.Errorf("after bmod -q: %+v", j)
				}
				spared := []string{"-rn"}
				if flavour == lsfstandin.Lava { // its bsub has none
					spared = []string{"-Jd", "allotment:1;norequeue=1;"}
				}
				if _, said, code = c.types(t, nil, append(append([]string{"bsub", "-H", "-P", "mine"}, spared...), "true")...); code != 0 || said != "" || c.last(t).Description != "allotment:1;norequeue=1;" {
					t.Errorf("not to be requeued: %d, %q, %+v", code, said, c.last(t))
				}
				const clipped = "esub: -sp 100: only pba may set more than 50, the default: 50 is used\n"
				if _, said, code = c.types(t, nil, "bsub", "-H", "-q", "low", "-P", "nosuch", "-sp", "100", "true"); code != 0 || !strings.HasPrefix(said, clipped) || c.last(t).UserPriority != 50 {
					t.Errorf("a raised job: %d, %q, %+v", code, said, c.last(t))
				}
				raised := fmt.Sprint(c.last(t).ID)
				for _, change := range []struct {
					env  []string
					to   string
					said string
					want int64
				}{{nil, "100", clipped, 50}, {nil, "30", "", 30}, {nil, "100", clipped, 50}, {[]string{backends.RankVariable + "=1"}, "100", "", 100}} {
					if _, said, code := c.types(t, change.env, "bmod", "-sp", change.to, raised); code != 0 || said != change.said || int64(c.last(t).UserPriority) != change.want {
						t.Errorf("bmod -sp %s: %d, %q, %+v, want %d", change.to, code, said, c.last(t), change.want)
					}
				}
				if _, said, code = c.types(t, nil, "bmod", "-P", "nosuch", id); code != 0 || said != "esub: -P nosuch: no project of that name: correct it\n" {
					t.Errorf("bmod -P: %d, %q", code, said)
				}
			})
		}
	}
}

// R3: a submission is never lost because the filter fails; it is refused only where the
// site's config says so.
func TestFilterOnLSFFailsOpen(t *testing.T) {
	c := newCluster(t, lsfstandin.Options{RootMaySubmit: true})
	c.link(t, "esub", "")
	submit := func(what string, env []string, accepted bool, want string) {
		t.Helper()
		before := int64(0)
		if l, err := c.Picture(); err == nil && len(l.Jobs) > 0 {
			before = l.Jobs[len(l.Jobs)-1].ID
		}
		_, said, code := c.types(t, env, "bsub", "-H", "-P", "nosuch", "true")
		if (code == 0) != accepted || !strings.Contains(said, want) {
			t.Errorf("%s: %d, %q, want %q", what, code, said, want)
		}
		if !accepted {
			return
		}
		if j := c.last(t); j.ID == before || j.Queue != "normal" || j.Description != "" {
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
	if _, said, code := c.types(t, nil, "bsub", "-H", "-P", "mine", "true"); code != 255 || said != "Bad user priority. Job not submitted.\n" {
		t.Errorf("%d, %q", code, said)
	}
	c.publishFor(t, esub.DefaultConfig(), 0)
	if _, said, code := c.types(t, nil, "bsub", "-H", "-P", "mine", "true"); code != 0 || said != "" || c.last(t).UserPriority != 0 {
		t.Errorf("no priority for it: %d, %q, %+v", code, said, c.last(t))
	}
}
