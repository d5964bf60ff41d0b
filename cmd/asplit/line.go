package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/split"
	"github.com/allotment-hpc/allotment/split/task"
)

// wordsMark stands between a command and items, as in GNU parallel.
const wordsMark = ":::"

// cutWords separates a command from the items behind it.
func cutWords(args []string) (argv, words []string, has bool, err error) {
	i := slices.Index(args, wordsMark)
	if i < 0 {
		return args, nil, false, nil
	}
	argv, words = args[:i], args[i+1:]
	if slices.Contains(words, wordsMark) {
		return nil, nil, false, shell.Usagef("%s stands twice: asplit makes no combinations of items", wordsMark)
	}
	if len(argv) == 0 {
		return nil, nil, false, shell.Usagef("no command before %s: see asplit --help", wordsMark)
	}
	return argv, words, true, nil
}

// shellSyntax are the characters that tell a line of a shell from a program's name.
const shellSyntax = " \t\n|&;<>()$`\\\"'*?[#~=%!"

// commandOf returns the command line that runs: COMMAND, or the shell for a LINE. With words
// and without a mark the item is its last argument.
func commandOf(argv []string, inShell, words bool) ([]string, error) {
	if inShell {
		if len(argv) != 1 {
			return nil, shell.Usagef("--shell wants one argument, a line of /bin/sh in quotes, and there are %d", len(argv))
		}
		line := argv[0]
		if mode, err := task.ModeOf(argv); err == nil && mode == task.Feed && words {
			line += " {}"
		}
		return shellCommand(line)
	}
	if argv[0] == "" {
		return nil, shell.Usagef("the command is empty: see asplit --help")
	}
	if len(argv) == 1 && strings.ContainsAny(argv[0], shellSyntax) {
		if _, err := os.Stat(argv[0]); err != nil {
			return nil, shell.Usagef("%q is one word with blanks or characters of a shell, and no file: asplit --shell %s has /bin/sh run it", argv[0], quoteWord(argv[0]))
		}
	}
	mode, err := task.ModeOf(argv)
	if err == nil && mode == task.Feed && words {
		argv = append(slices.Clone(argv), task.Marks()[0])
	}
	return argv, nil
}

const sh = "/bin/sh"

// shellCommand returns the command line of a line of a shell. The item is no part of the line: each
// mark becomes a parameter of the shell, quoted, whose text no shell reads.
func shellCommand(line string) ([]string, error) {
	if strings.TrimSpace(line) == "" {
		return nil, shell.Usagef("--shell: the line is empty")
	}
	var b strings.Builder
	var used []string
	quote := byte(0)
	for i := 0; i < len(line); {
		mark := markAt(line[i:])
		switch c := line[i]; {
		case mark != "" && (i == 0 || line[i-1] != '$'):
			if quote == '\'' {
				return nil, shell.Usagef("--shell: %s stands within single quotes, where the shell replaces nothing: omit the quotes around it, it is one word anyway", mark)
			}
			n := slices.Index(used, mark)
			if n < 0 {
				n, used = len(used), append(used, mark)
			}
			parameter := "${" + strconv.Itoa(n+1) + "}"
			if quote == 0 {
				parameter = `"` + parameter + `"`
			}
			b.WriteString(parameter)
			i += len(mark)
			continue
		case c == '\\' && quote != '\'' && i+1 < len(line):
			b.WriteByte(c)
			i++
		case c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		}
		b.WriteByte(line[i])
		i++
	}
	return append([]string{sh, "-c", b.String(), "sh"}, used...), nil
}

// markAt returns the mark that a text begins with.
func markAt(text string) string {
	if i := slices.IndexFunc(task.Marks(), func(mark string) bool { return strings.HasPrefix(text, mark) }); i >= 0 {
		return task.Marks()[i]
	}
	return ""
}

// quoteWord returns a text as a word of a shell.
func quoteWord(text string) string {
	if text != "" && !strings.ContainsAny(text, shellSyntax+"{}") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// checkProgram looks the command up before anything runs. Only the hosts can look up a
// full path: this one may not have it.
func checkProgram(d *split.Definition) error {
	name := d.Argv[0]
	if filepath.IsAbs(name) || task.HasMark(name) {
		return nil
	}
	_, err := exec.LookPath(name)
	if err == nil {
		return nil
	}
	what := "not found in PATH"
	if strings.Contains(name, "/") {
		what = "no program that can be executed"
		if errors.Is(err, fs.ErrNotExist) {
			what = "not found"
		}
	}
	const notFound = 127 // as of a shell
	return &shell.ExitError{Code: notFound, Err: fmt.Errorf("command %q: %s: nothing was run (a full path is looked up on the hosts only)", name, what)}
}
