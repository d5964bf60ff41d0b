package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// deliberate is a break: testdata/NAME.patch, whose first line says which test must
// fail ("test: TestName"), the second one what is wrong.
type deliberate struct {
	name, test, what string
	patch            []byte
}

// TestBreaks breaks the program on purpose, in one way after the other: the test
// that is there for it must fail. The source stays as it is: what is changed is
// laid over it (go help build: -overlay).
func TestBreaks(t *testing.T) {
	names, err := filepath.Glob("testdata/*.patch")
	if err != nil || len(names) == 0 {
		t.Fatalf("no breaks: %v", err)
	}
	only := os.Getenv("CRASH_BREAK")
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitN(string(data), "\n", 3)
		test, ok := strings.CutPrefix(lines[0], "test: ")
		if !ok || len(lines) < 3 {
			t.Fatalf("%s: its first line must be test: TestName, its second one what is wrong", name)
		}
		d := deliberate{strings.TrimSuffix(filepath.Base(name), ".patch"), test, lines[1], []byte(lines[2])}
		if only != "" && only != d.name {
			continue
		}
		t.Run(d.name, func(t *testing.T) { d.try(t) })
	}
}

func (d *deliberate) try(t *testing.T) {
	bin := t.TempDir()
	overlay, err := d.overlay(t.Context(), bin)
	if err != nil {
		t.Fatal(err)
	}
	if err := build(t.Context(), bin, overlay); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(bin, "crash.test")
	if text, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay="+overlay, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	const tries = 4 // chance may spare it
	for try := range tries {
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+d.test+"$", "-test.v", "-test.timeout=4m")
		cmd.Env = append(os.Environ(), "CRASH_BIN="+bin, fmt.Sprintf("CRASH_SEED=%d", try+1), "CRASH_ROUNDS=8", "CRASH_JOBS=500", "CRASH_KILLS=16")
		text, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		found := regexp.MustCompile(`(?m)^    \w+_test\.go:\d+: (.*\b(?:job|daemon)\b.*)$`).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s fails, and not for what is wrong (%s):\n%s", d.test, d.what, text)
		}
		t.Logf("%s: noticed in try %d: %s", d.what, try+1, found[1])
		return
	}
	t.Errorf("%s: nobody noticed in %d tries", d.what, tries)
}

// overlay writes the patched files into a directory and says where they belong.
func (d *deliberate) overlay(ctx context.Context, dir string) (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	copies := filepath.Join(dir, "source")
	replace := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^\+\+\+ b/(.*)$`).FindAllSubmatch(d.patch, -1) {
		name := string(m[1])
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		to := filepath.Join(copies, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, name)] = to
	}
	cmd := exec.CommandContext(ctx, "git", "apply", "--whitespace=nowarn", "-p1", "-")
	cmd.Dir, cmd.Stdin = copies, bytes.NewReader(d.patch)
	// The copy may lie below another repository, which is none of its business.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+dir)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("break %s does not fit the source any more: %w: %s\nmake it anew: change the code, git diff > test/crash/testdata/%s.patch, and keep its first two lines",
			d.name, err, bytes.TrimSpace(text), d.name)
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, data, 0o600)
}
