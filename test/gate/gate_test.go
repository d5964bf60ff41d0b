package gate

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// run runs bash lines with the steps of .ci/run, and returns what they print and
// whether the gate lets the change pass.
func run(t *testing.T, lines string) (output string, passes bool) {
	t.Helper()
	steps, err := os.ReadFile("../../.ci/steps") // read here, so that `go test` knows when it changed
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "set -euo pipefail\nlogs=" + dir + "/logs; mkdir \"$logs\"\n" + string(steps) + `
unstable() { # FILE: fails, and passes from the second call on
    echo "called $1"
    [ -e "$1" ] || { touch "$1"; echo "--- FAIL: TestSlow"; return 1; }
}
` + lines + "\nagain\nsummary\nif failed; then exit 1; fi\n"
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	text, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(text), err == nil
}

// TestGate: a failed step of real processes runs once more, and only such a step.
func TestGate(t *testing.T) {
	for name, c := range map[string]struct {
		lines  string
		passes bool
		want   []string // lines of the output, in order
		calls  int      // of unstable
	}{
		"all pass":             {"step a true\nreal b true", true, []string{"a                ok", "b                ok"}, 0},
		"a step fails":         {"step a unstable f", false, []string{"=== a FAILED", "--- FAIL: TestSlow", "a                FAILED"}, 1},
		"a real step is flaky": {"real a unstable f\nstep b true", true, []string{"=== once more, alone:", "=== a is FLAKY", "--- FAIL: TestSlow", "b                ok", "a                FLAKY"}, 2},
		"a real step fails":    {"real a false", false, []string{"=== once more, alone:", "=== a FAILED", "a                FAILED"}, 0},
		"it can't run here":    {"real a sh -c 'echo skip: no qemu; exit 77'\nstep b true", true, []string{"=== summary", "a                SKIP", "  skip: no qemu", "b                ok"}, 0},
		"words are kept":       {"real a unstable 'it is; $HOME'", true, []string{"called it is; $HOME", "=== once more", "called it is; $HOME", "a                FLAKY"}, 2},
		"beside, flaky":        {"one() { real a unstable f; }\nbeside one\nreal b true\njoin", true, []string{"b                ok", "a                FLAKY"}, 2},
		"beside, failed":       {"one() { step a false; }\nbeside one\nreal b true\njoin", false, []string{"=== a FAILED", "a                FAILED"}, 0},
		"beside, killed":       {"one() { kill -9 $BASHPID; }\nbeside one\njoin\nstep b true", false, []string{"ended by 137"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			output, passes := run(t, c.lines)
			if passes != c.passes {
				t.Errorf("the gate passes: %v, want %v", passes, c.passes)
			}
			rest := output
			for _, want := range c.want {
				_, after, ok := strings.Cut(rest, want)
				if !ok && strings.HasPrefix(name, "beside") { // in any order
					after, ok = rest, strings.Contains(output, want)
				}
				if !ok {
					t.Fatalf("no %q (in this order) in\n%s", want, output)
				}
				rest = after
			}
			steps, _, _ := strings.Cut(output, "; of its") // before the summary
			steps, _, _ = strings.Cut(steps, "is FLAKY")
			if calls := strings.Count(steps, "\ncalled "); calls != c.calls {
				t.Errorf("the command ran %d times, want %d:\n%s", calls, c.calls, output)
			}
			if strings.Contains(output, "unbound variable") || strings.Contains(output, "syntax error") {
				t.Errorf("bash complains:\n%s", output)
			}
		})
	}
}
