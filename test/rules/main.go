// Command rules checks that docs/design.md and the tree agree: each rule has one home
// and a test, each home exists and cites its rule, and no file cites a rule that the
// page does not have. Users' pages cite none.
package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
)

func main() {
	out, err := exec.CommandContext(context.Background(), "git", "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rules: git ls-files:", err)
		os.Exit(1)
	}
	faults, err := check(os.DirFS("."), strings.Fields(string(out)))
	if err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
	for _, fault := range faults {
		fmt.Fprintln(os.Stderr, fault)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

// check returns the faults, a line each. The files are those of the tree.
func check(tree fs.FS, files []string) ([]string, error) {
	text, err := fs.ReadFile(tree, designPage)
	if err != nil {
		return nil, err
	}
	rules, faults := parsePage(string(text))
	for _, r := range rules {
		faults = append(faults, r.check(tree)...)
	}
	cited, err := citations(tree, files, rules)
	return append(faults, cited...), err
}
