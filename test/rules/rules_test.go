package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestCheck: each difference of page and tree is found, and its place named.
func TestCheck(t *testing.T) {
	sound := map[string]string{
		designPage:    "## Rules\n\n### R1 First\n\ntext\n\n- Home: `a/a.go` `decide`\n- Also: `a/a.lua` `judge`: the same on Slurm\n- Tests: `a/a_test.go` `TestDecide`\n",
		"a/a.go":      "package a\n\n// decide decides (R1).\nfunc decide() {}\n",
		"a/a.lua":     "local function judge(x)\nend\n",
		"a/a_test.go": "package a\n\nfunc TestDecide(t *testing.T) {} // R1\n",
		"docs/use.md": "text\n",
		"docs/r2.png": "R2",
	}
	for name, c := range map[string]struct {
		file, old, new string
		want           string // "": no fault
	}{
		"sound":                   {},
		"no home":                 {designPage, "- Home: `a/a.go` `decide`\n", "", "docs/design.md:3: R1: it has 0 homes"},
		"two homes":               {designPage, "`a/a.go` `decide`", "`a/a.go` `decide`, `a/a.lua` `judge`", "it has 2 homes"},
		"no test":                 {designPage, "- Tests", "- Test", "R1: no test"},
		"no such file":            {designPage, "a/a.lua", "a/b.lua", "docs/design.md:8: R1: no file a/b.lua"},
		"no such function":        {"a/a.go", "func decide", "func decided", "no a/a.go decide"},
		"no such Lua function":    {"a/a.lua", "judge", "judges", "no a/a.lua judge"},
		"no such test":            {"a/a_test.go", "TestDecide", "TestOther", "no a/a_test.go TestDecide"},
		"a test that is none":     {designPage, "`a/a_test.go` `TestDecide`", "`a/a.go` `decide`", "a/a.go decide is no test"},
		"a file alone":            {designPage, "`a/a.go` `decide`", "`a/a.go`", "name the function"},
		"a home without the rule": {"a/a.go", "(R1)", "", "does not cite it"},
		"another rule's digits":   {"a/a.go", "(R1)", "(R11)", "does not cite it"},
		"a rule that is none":     {"a/a_test.go", "// R1", "// R99", "a/a_test.go:3: R99 is no rule"},
		"a rule on users' pages":  {"docs/use.md", "text", "by R1", "docs/use.md:1: R1: a user's page cites no rule"},
		"a rule twice":            {designPage, "text\n", "text\n### R1 Again\n", "R1 stands here twice"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := fstest.MapFS{}
			for file, text := range sound {
				if file == c.file {
					text = strings.Replace(text, c.old, c.new, 1)
				}
				tree[file] = &fstest.MapFile{Data: []byte(text)}
			}
			faults, err := check(tree, slices.Sorted(maps.Keys(tree)))
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if len(faults) > 0 {
					t.Errorf("a sound tree: %q", faults)
				}
				return
			}
			if !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, c.want) }) {
				t.Errorf("got %q, want %q", faults, c.want)
			}
		})
	}
}
