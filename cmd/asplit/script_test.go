package main

import (
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/allotment-hpc/allotment/test/programs"
)

// TestScripts types command lines at a real miniqd.
func TestScripts(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022)) // files that others may write are not trusted
	built := programs.Build(t, "asplit", "asplit-task", "astate")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			return programs.Script(t, e, built, "miniq:\n  nodes: [\"n1:2\", \"n2:1\"]\n")
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"interrupt": interrupt},
	})
}

// interrupt runs asplit and sends it SIGINT once a file is there.
func interrupt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: interrupt FILE ARGUMENT...")
	}
	script := `asplit "$@" & pid=$!; until [ -e "$0" ]; do sleep 0.02; done; kill -INT $pid; wait $pid; echo "exit $?"`
	ts.Check(ts.Exec("bash", append([]string{"-c", "set -m; " + script, args[0]}, args[1:]...)...))
}
