package slurm_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/cluster"
)

// An engine that dies between the submission of a placeholder and its release leaves
// one that is held. The next one releases it.
func TestPlaceholderAfterEngineCrash(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Nodes: 1, CPUs: 1})
	engine, dying := open(c, ""), open(c, failingCommands(t))
	placeholders := func(state string) string {
		out, err := c.Run(t.Context(), "squeue", "--noheader", "--name=allotment-placeholder", "-O", "JobID: ,StateCompact: ,Reason: ,PriorityLong: ")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, state) {
			return ""
		}
		return out
	}
	submit := func() backends.ID {
		r := engine.Submit(t.Context(), []backends.Spec{{
			Name: "job", Project: "chipA", Slots: 1, Dir: "/", Priority: backends.At(backends.LevelNormal, backends.DefaultValue),
			Script: []byte("#!/bin/sh\nexec sleep 600\n"), Env: []string{"PATH=/usr/bin:/bin"}, Stdout: os.DevNull, Stderr: os.DevNull, Stdin: os.DevNull,
		}})
		if r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
		return r[0].ID
	}
	is := func(id backends.ID, state backends.State) func() bool {
		return func() bool {
			jobs, err := engine.Jobs(t.Context(), []backends.ID{id})
			if err != nil || len(jobs) != 1 {
				t.Fatal(jobs, err)
			}
			return jobs[0].State == state
		}
	}
	stopped := submit()
	await(t, c, "a running job", is(stopped, backends.Running))
	if err := engine.Suspend(t.Context(), []backends.Act{{ID: stopped, Until: time.Now().Add(time.Hour)}}).First(); err != nil {
		t.Fatal(err)
	}
	other := submit()
	await(t, c, "another in its slot", is(other, backends.Running))

	_ = dying.Resume(t.Context(), []backends.ID{stopped})
	if left := placeholders(" PD JobHeld"); strings.Count(left, "\n") != 1 {
		t.Fatalf("it left %q: want one placeholder, held", placeholders(""))
	}
	if err := engine.Abilities().Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, c, "a placeholder that waits for slots", func() bool { return placeholders(" PD Resources ")+placeholders(" PD Priority ") != "" })
	if all := placeholders(""); strings.Count(all, "\n") != 1 {
		t.Errorf("there are more: %q", all)
	}
}

// failingCommands is a directory of Slurm's commands, of which scontrol dies before it would
// release anything, and some do nothing.
func failingCommands(t *testing.T, dead ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"squeue", "sinfo", "sbatch", "scancel", "scontrol"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		script := "#!/bin/sh\nexec " + path + " \"$@\"\n"
		switch {
		case slices.Contains(dead, name):
			script = "#!/bin/sh\nexit 1\n"
		case name == "scontrol":
			script = fmt.Sprintf("#!/bin/sh\norders=$(cat)\ncase $orders in *release*) exit 1 ;; esac\nprintf '%%s\\n' \"$orders\" | %s \"$@\"\n", path)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func await(t *testing.T, c *cluster.Cluster, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			out, _ := c.Run(t.Context(), "squeue", "--all")
			t.Fatalf("wait for %s: %s", what, out)
		}
	}
}
