package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

const designPage = "docs/design.md"

// location is a function in a file. Its line is in the page.
type location struct {
	file, function string
	line           int
}

func (p location) String() string { return p.file + " " + p.function }

type rule struct {
	name  string // "R12"
	line  int
	homes []location // what decides: one
	also  []location // what else carries it out
	tests []location
}

var (
	heading         = regexp.MustCompile(`^### (R\d+) \S`)
	locationPattern = regexp.MustCompile("`([^`]+\\.(?:go|lua))`(?: `([^`]+)`)?")
	citation        = regexp.MustCompile(`\bR\d{1,2}\b`)
)

// parsePage returns the rules of the page, and the faults of their form.
func parsePage(text string) (rules []rule, faults []string) {
	var r *rule
	for i, line := range strings.Split(text, "\n") {
		at := i + 1
		if m := heading.FindStringSubmatch(line); m != nil {
			if slices.ContainsFunc(rules, func(other rule) bool { return other.name == m[1] }) {
				faults = append(faults, fmt.Sprintf("%s:%d: %s stands here twice", designPage, at, m[1]))
			}
			rules = append(rules, rule{name: m[1], line: at})
			r = &rules[len(rules)-1]
			continue
		}
		if strings.HasPrefix(line, "#") {
			r = nil
		}
		if r == nil {
			continue
		}
		for prefix, list := range map[string]*[]location{"- Home: ": &r.homes, "- Also: ": &r.also, "- Tests: ": &r.tests} {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				for _, m := range locationPattern.FindAllStringSubmatch(rest, -1) {
					*list = append(*list, location{m[1], m[2], at})
				}
			}
		}
	}
	return rules, faults
}

// check returns the faults of one rule's home and tests.
func (r *rule) check(tree fs.FS) (faults []string) {
	fault := func(line int, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s:%d: %s: ", designPage, line, r.name)+fmt.Sprintf(format, args...))
	}
	if len(r.homes) != 1 {
		fault(r.line, "it has %d homes: one function decides", len(r.homes))
	}
	if len(r.tests) == 0 {
		fault(r.line, "no test")
	}
	for _, p := range slices.Concat(r.homes, r.also, r.tests) {
		text, err := fs.ReadFile(tree, p.file)
		switch {
		case err != nil:
			fault(p.line, "no file %s", p.file)
		case p.function == "":
			fault(p.line, "%s: name the function", p.file)
		case !declares(p.file, text, p.function):
			fault(p.line, "no %s", p)
		case slices.Contains(r.homes, p) && !slices.Contains(citation.FindAllString(string(text), -1), r.name):
			fault(p.line, "its home, %s, does not cite it", p.file)
		case slices.Contains(r.tests, p) && !strings.HasSuffix(p.file, "_test.go"):
			fault(p.line, "%s is no test", p)
		}
	}
	return faults
}

// declares reports whether a file has a function, method or field of that name.
func declares(name string, text []byte, function string) bool {
	if path.Ext(name) == ".lua" {
		return regexp.MustCompile(`(?m)^\s*(local )?function ` + regexp.QuoteMeta(function) + `\(`).Match(text)
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			found = found || n.Name.Name == function
		case *ast.Field:
			found = found || slices.ContainsFunc(n.Names, func(id *ast.Ident) bool { return id.Name == function })
		}
		return !found
	})
	return found
}

// citations returns where a file cites a rule that does not exist, or a user's page cites
// one.
func citations(tree fs.FS, files []string, rules []rule) (faults []string, err error) {
	known := map[string]bool{}
	for _, r := range rules {
		known[r.name] = true
	}
	for _, name := range files {
		users := name == "README.md" || name == "CHANGELOG.md" || name == "pba/configfile/config.yaml" || strings.HasPrefix(name, "docs/") && name != designPage
		source := path.Ext(name) == ".go" || path.Ext(name) == ".lua"
		if !users && !source || path.Ext(name) == ".png" || strings.HasPrefix(name, "test/rules/") {
			continue
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			continue // removed, and still in the index
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, cited := range citation.FindAllString(line, -1) {
				switch {
				case users:
					faults = append(faults, fmt.Sprintf("%s:%d: %s: a user's page cites no rule", name, i+1, cited))
				case !known[cited]:
					faults = append(faults, fmt.Sprintf("%s:%d: %s is no rule of %s", name, i+1, cited, designPage))
				}
			}
		}
	}
	return faults, nil
}
