// Command words checks that comments (of Go, test scripts and SQL) and pages are in plain
// technical English: it counts indefinite pronouns and verbs that hide what happens (see
// families), and fails above a bound for each 1,000 comment lines. Users' pages have none
// of them. CONTRIBUTING.md has the word list. `make lint` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
)

func main() {
	list := flag.Bool("list", false, "print each place, not only those above the bound")
	flag.Parse()
	out, err := exec.CommandContext(context.Background(), "git", "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "words: git ls-files:", err)
		os.Exit(1)
	}
	if !check(os.DirFS("."), strings.Fields(string(out)), *list, os.Stdout) {
		os.Exit(1)
	}
}

// family is a group of words that comments should not need.
type family struct {
	name  string
	words *regexp.Regexp
	bound int // of 1,000 comment lines
}

func families() []family {
	return []family{
		{"nobody, somebody, anybody, everybody, whoever, whom", regexp.MustCompile(`(?i)\b(nobody|somebody|anybody|everybody|whoever|whom)\b`), 5},
		{"tell, tells, told", regexp.MustCompile(`(?i)\b(tell|tells|telling|told)\b`), 5},
		{"phrases that need a second reading", regexp.MustCompile(`(?i)\b(all the same|in earnest|no more than that|is content|lets? go|of ours|of its own accord)\b`), 10},
		{"he, his, him", regexp.MustCompile(`(?i)\b(he|his|him|himself)\b`), 2},
	}
}

// location is a line of a file.
type location struct {
	file string
	line int
	text string
}

// check reports whether no family is above its bound. It prints the counts, and the
// places of families that are above it.
func check(tree fs.FS, files []string, list bool, out io.Writer) bool {
	var comments, pages []location
	for _, name := range files {
		text, err := fs.ReadFile(tree, name)
		switch {
		case err != nil: // removed, and still in the index
		case strings.HasPrefix(name, "test/words/"):
		case path.Ext(name) == ".go":
			comments = append(comments, commentLines(name, text)...)
		case isScript(name):
			comments = append(comments, linesWith(name, text, "#")...)
		case path.Ext(name) == ".sql":
			comments = append(comments, linesWith(name, text, "--")...)
		case isPage(name):
			for i, line := range strings.Split(string(text), "\n") {
				pages = append(pages, location{name, i + 1, line})
			}
		}
	}
	good := true
	for _, f := range families() {
		inComments, inPages := f.find(comments), f.find(pages)
		rate := 1000 * float64(len(inComments)) / float64(max(len(comments), 1))
		above := rate > float64(f.bound) || len(inPages) > 0
		fmt.Fprintf(out, "words: %.1f of 1,000 comment lines (at most %d) and %d lines of pages (none): %s\n", rate, f.bound, len(inPages), f.name)
		if above || list {
			for _, p := range append(inPages, inComments...) {
				fmt.Fprintf(out, "  %s:%d: %s\n", p.file, p.line, strings.TrimSpace(p.text))
			}
		}
		good = good && !above
	}
	return good
}

// isScript reports whether a file is a test script, with # before its comments.
func isScript(name string) bool {
	commands, _ := path.Match("cmd/*/testdata/*.txt", name)
	return commands || strings.Contains(name, "testdata/script/") || path.Ext(name) == ".txtar"
}

// isPage reports whether a file is a page for users, a man page, or the config file
// that `pba init` writes.
func isPage(name string) bool {
	return name == "README.md" || name == "CHANGELOG.md" || name == "pba/configfile/config.yaml" || strings.HasPrefix(name, "docs/") && path.Ext(name) != ".png"
}

func (f *family) find(lines []location) (found []location) {
	for _, p := range lines {
		if f.words.MatchString(p.text) {
			found = append(found, p)
		}
	}
	return found
}

// commentLines returns each line of a Go file's comments.
func commentLines(name string, text []byte) (lines []location) {
	files := token.NewFileSet()
	file := files.AddFile(name, files.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok != token.COMMENT {
			continue
		}
		first := file.Line(pos)
		for i, line := range strings.Split(literal, "\n") {
			lines = append(lines, location{name, first + i, line})
		}
	}
}

// linesWith returns the lines that have a comment which begins with sign, from there on.
func linesWith(name string, text []byte, sign string) (lines []location) {
	for i, line := range strings.Split(string(text), "\n") {
		if before, comment, ok := strings.Cut(line, sign); ok && (sign == "--" || strings.TrimSpace(before) == "") {
			lines = append(lines, location{name, i + 1, sign + comment})
		}
	}
	return lines
}
