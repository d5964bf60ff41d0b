package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Every decoder of this repository has its Fuzz tests.
func TestTheListIsComplete(t *testing.T) {
	tree, err := scan("../..")
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("fuzz.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range check(tree, string(list)) {
		t.Error(wrong)
	}
}

func TestCheckReportsFaults(t *testing.T) {
	parse, quiet, fuzz := function{"a", "Parse"}, function{"a", "T.quiet"}, function{"a", "FuzzParse"}
	tree := &tree{functions: []function{parse, quiet}, decoders: []function{parse}, targets: []function{fuzz}}
	for list, want := range map[string]string{
		"a.Parse FuzzParse\n":                      "",
		"# x\n\na.Parse FuzzParse\na.T.quiet - so": "",
		"":                                     "a.Parse reads what comes from outside, as its name and parameters say, and is not listed|a.FuzzParse is no listed function's",
		"a.Parse FuzzParse FuzzOther":          "line 1: a.Parse has no Fuzz test: there is no a.FuzzOther",
		"a.Parse - none\na.T.quiet FuzzParse":  "",
		"a.Parse -\na.T.quiet FuzzParse":       "line 1: why does a.Parse need no Fuzz test?",
		"a.Parse FuzzParse\na.Parse FuzzParse": "line 2: a.Parse is listed twice",
		"a.Parse FuzzParse\na.Gone FuzzParse":  "line 2: there is no function a.Gone",
		"a.Parse FuzzParse\nParse":             "line 2: want PACKAGE.FUNCTION and its Fuzz tests: Parse",
		"a.Parse FuzzParse\nb.Parse FuzzParse": "line 2: there is no function b.Parse|line 2: b.Parse has no Fuzz test: there is no b.FuzzParse",
	} {
		got := check(tree, list)
		var wanted []string
		if want != "" {
			wanted = strings.Split(want, "|")
		}
		if !slices.Equal(got, wanted) {
			t.Errorf("%q: %q, want %q", list, got, wanted)
		}
	}
}
