package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/test/programs"
)

// TestCommandsAreInHelp looks up each option in the first column of docs/commands.md in its
// program's help.
func TestCommandsAreInHelp(t *testing.T) {
	content, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	built := programs.Build(t, "pba", "asplit")
	helps := map[string]string{}
	checked := 0
	for _, line := range ownCommands(string(content)) {
		program, options := optionsOf(line)
		help, known := helps[program]
		if !known {
			words := strings.Fields(program)
			text, err := exec.CommandContext(t.Context(), filepath.Join(built, words[0]), append(words[1:], "--help")...).CombinedOutput()
			if err != nil {
				t.Fatalf("%s --help: %v\n%s", program, err, text)
			}
			help = string(text)
			helps[program] = help
		}
		for _, option := range options {
			checked++
			if !hasOption(help, option) {
				t.Errorf("%s: %s --help has no %s", line, program, option)
			}
		}
	}
	if checked < 40 {
		t.Errorf("%d options were looked up", checked)
	}
}

// ownCommands returns the commands in the first column of a page's tables.
func ownCommands(page string) (lines []string) {
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(page, -1) {
		lines = append(lines, m[1])
	}
	return lines
}

// sortedBy is a value that looks like an option: descending.
const sortedBy = "-cpu_used"

// optionsOf returns a command line's program, with pba's command, and its options. Those of the
// command that asplit runs stand behind it.
func optionsOf(line string) (program string, options []string) {
	words := strings.Fields(line)
	program, words = words[0], words[1:]
	if program == "pba" {
		program, words = program+" "+words[0], words[1:]
	}
	if i := strings.Index(line, "sort {}"); i >= 0 {
		words = strings.Fields(line[:i])[1:]
	}
	for _, word := range words {
		if strings.HasPrefix(word, "-") && word != sortedBy {
			options = append(options, word)
		}
	}
	return program, options
}

// hasOption reports whether a help lists an option. Help may write LSF's -sum as --sum.
func hasOption(help, option string) bool {
	return regexp.MustCompile(`(?m)(^|[\s,])-?` + regexp.QuoteMeta(option) + `($|[\s,=])`).MatchString(help)
}

func TestHasOption(t *testing.T) {
	const help = "OPTIONS:\n   -n MIN[,MAX]  slots\n   --batch FILE, -pack FILE\n   --null, -0\n"
	for option, want := range map[string]bool{"-n": true, "--batch": true, "-pack": true, "-0": true, "-batch": true, "-m": false, "--nul": false, "-p": false} {
		if hasOption(help, option) != want {
			t.Errorf("%s: want %v", option, want)
		}
	}
	if program, options := optionsOf("pba explain 12 --json"); program != "pba explain" || len(options) != 1 {
		t.Errorf("%s %q", program, options)
	}
}
