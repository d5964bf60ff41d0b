package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/programs"
)

// TestScripts types command lines at a real miniqd. In the scripts
//
//	await STATE JOB [REQUEUES]    waits until the job is in that state, so often requeued
//	farm NODE...                  gives the queue these nodes, before its first use
func TestScripts(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022)) // files that others may write are not trusted
	built := programs.Build(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("LATER", time.Now().Add(12*time.Hour).Format("15:04")) // a fixed time of day is now, once a day
			return programs.Script(t, e, built, "")
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"await": await, "farm": writeFarm},
	})
}

func writeFarm(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: farm NODE...")
	}
	config := "miniq:\n  nodes: [\"" + strings.Join(args, `", "`) + "\"]\n"
	ts.Check(os.WriteFile(filepath.Join(ts.Getenv("ALLOTMENT_HOME"), "config.yaml"), []byte(config), 0o600))
}

// listed is a job as ajobs --json prints it, as far as it matters here.
type listed struct {
	State    backends.State `json:"state"`
	Requeues int            `json:"requeues"`
	ExitCode *int           `json:"exit_code"`
}

// awaitTime is how long a script waits for a job's state.
const awaitTime = 30 * time.Second

func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: await STATE JOB [REQUEUES]")
	}
	arrived := func(j listed) bool {
		return j.State.String() == args[0] && (len(args) < 3 || strconv.Itoa(j.Requeues) == args[2])
	}
	var last string
	for deadline := time.Now().Add(awaitTime); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ts.Check(ts.Exec("ajobs", "--json", args[1]))
		last = ts.ReadFile("stdout")
		var jobs []listed
		ts.Check(json.Unmarshal([]byte(last), &jobs))
		if len(jobs) > 0 && arrived(jobs[0]) {
			return
		}
	}
	ts.Fatalf("job %s is not %s after %v: %s", args[1], args[0], awaitTime, last)
}
