package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// defect is one break.
type defect struct {
	name  string
	suite string // law or crash
	test  string // must fail
	pkg   string // that it is in
	what  string // is wrong
	patch []byte
}

// firstLine of a patch names the suite and its test, and the package of a law that is not in
// pba/laws.
var firstLine = regexp.MustCompile(`^(law|crash): (Test\w+)(?: in (\S+))?$`)

// readBreaks reads the patches of a directory in order of their names.
func readBreaks(dir string) ([]defect, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []defect
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		lines := strings.SplitN(string(data), "\n", 3)
		m := firstLine.FindStringSubmatch(lines[0])
		if m == nil || len(lines) < 3 {
			return nil, fmt.Errorf("%s: its first line must be law: TestLaw… (in PACKAGE) or crash: Test…, its second one what is wrong", name)
		}
		all = append(all, defect{
			name: strings.TrimSuffix(filepath.Base(name), ".patch"), suite: m[1], test: m[2], pkg: cmp.Or(m[3], "pba/laws"),
			what: lines[1], patch: []byte(lines[2]),
		})
	}
	return all, nil
}

var changedFile = regexp.MustCompile(`(?m)^\+\+\+ b/(.*)$`)

// overlay writes the changed files into a directory and returns the path of the list for
// go's -overlay that replaces the source's by them. The source stays as it is.
func (d *defect) overlay(ctx context.Context, root, dir string) (string, error) {
	replace := map[string]string{}
	for _, m := range changedFile.FindAllSubmatch(d.patch, -1) {
		name := string(m[1])
		from, to := filepath.Join(root, name), filepath.Join(dir, name)
		data, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			return "", err
		}
		replace[from] = to
	}
	cmd := exec.CommandContext(ctx, "git", "apply", "--whitespace=nowarn", "--allow-empty", "-p1", "-")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(d.patch)
	// The copy may lie below another repository, which git must not find.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("break %s does not fit the tree any more: %w: %s\nmake it anew: change the code, git diff > test/breaks/testdata/%s.patch, and keep its first two lines",
			d.name, err, bytes.TrimSpace(text), d.name)
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}
