package days

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// jobs writes what their owners submitted and what other users could have changed:
// hosts that pending ones are bound to, what holds them, their priority. The priority
// that a job gains by a requeue stays with it (R10), and its state changes by itself:
// both are left out.
func jobs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: jobs FILE")
	}
	ts.Check(ts.Exec("ajobs", "-u", "all", "-l", "--json"))
	var all []map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &all))
	var b strings.Builder
	for _, j := range all {
		value := j["priority"].(float64) - 10*j["requeues"].(float64)
		fmt.Fprintln(&b, j["id"], j["name"], j["user"], j["project"], j["command"], j["queue"], j["level"], value, j["slots"],
			j["preempt_mode"], j["asked_hosts"], j["pinned_hosts"], j["begin"], j["held_until"])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(b.String()), 0o600))
}

// unchanged compares two files of jobs: each job of the first is in the second, the same,
// unless it is done by now or named as ended by its owner.
func unchanged(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: unchanged BEFORE AFTER JOB...")
	}
	ended := slices.Clone(args[2:])
	ts.Check(ts.Exec("ajobs", "-a", "-u", "all", "--json"))
	var all []struct{ ID, State string }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &all))
	for _, j := range all {
		if j.State == "done" {
			ended = append(ended, j.ID)
		}
	}
	after := slices.Collect(strings.Lines(ts.ReadFile(args[1])))
	compared := 0
	for job := range strings.Lines(ts.ReadFile(args[0])) {
		id, _, _ := strings.Cut(job, " ")
		if slices.Contains(ended, id) {
			continue
		}
		compared++
		if !slices.Contains(after, job) {
			ts.Fatalf("this job has changed: %s\nthe jobs are now:\n%s", job, strings.Join(after, ""))
		}
	}
	if compared == 0 {
		ts.Fatalf("no job of %s is left to compare", args[0])
	}
}

// files writes what is in $ROOT and in the farm's home, without what dpkg and the queue
// keep there, and without directories that other packages may share.
func files(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: files FILE")
	}
	var b strings.Builder
	for _, top := range []string{ts.Getenv("ROOT"), ts.Getenv("ALLOTMENT_HOME")} {
		ts.Check(filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(path, top)
			switch {
			case name == "/"+dpkgDir, name == "/miniq":
				return filepath.SkipDir
			case entry.IsDir() && !strings.Contains(name, "allotment"), name == "/var/log/dpkg.log", name == "/miniq.sock":
				return nil
			}
			info, err := entry.Info()
			if err == nil {
				fmt.Fprintln(&b, info.Mode(), filepath.Base(top)+name)
			}
			return err
		}))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(b.String()), 0o600))
}
