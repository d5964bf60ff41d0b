package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/programs"
)

// step is one command of a page.
type step struct {
	line    int
	command string
	want    []string // lines of its output; none: whatever it prints
	exit    int
	until   *regexp.Regexp // hidden: again and again until its output matches
}

var (
	exitCode  = regexp.MustCompile(`# exit (\d+)$`)
	hidden    = regexp.MustCompile(`^<!-- \$ (.*) -->$`)
	untilLine = regexp.MustCompile(`^<!-- until /(.*)/ \$ (.*) -->$`)
)

// steps reads a page. Blocks marked console hold commands, each after "$ ", and its output
// up to the next one. A command that ends in "# exit N" has that exit code, every other
// one 0. In the output … stands for any text, on a line of its own for any lines; the
// number of blanks does not matter. Readers don't see the comments
//
//	<!-- $ COMMAND -->                    runs it
//	<!-- until /PATTERN/ $ COMMAND -->    runs it until its output matches
func steps(page string) ([]step, error) {
	var all []step
	inBlock := false
	number := 0
	for text := range strings.Lines(page) {
		number++
		text = strings.TrimRight(text, "\n")
		command, isCommand := strings.CutPrefix(text, "$ ")
		switch {
		case strings.HasPrefix(text, "```"):
			inBlock = !inBlock && text == "```console"
		case inBlock && isCommand:
			s := step{line: number, command: command}
			if m := exitCode.FindStringSubmatch(command); m != nil {
				s.exit, _ = strconv.Atoi(m[1])
			}
			all = append(all, s)
		case inBlock && len(all) == 0:
			return nil, fmt.Errorf("line %d: output before any command", number)
		case inBlock:
			all[len(all)-1].want = append(all[len(all)-1].want, text)
		case hidden.MatchString(text):
			all = append(all, step{line: number, command: hidden.FindStringSubmatch(text)[1]})
		case untilLine.MatchString(text):
			m := untilLine.FindStringSubmatch(text)
			pattern, err := regexp.Compile("(?m)" + m[1])
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			all = append(all, step{line: number, command: m[2], until: pattern})
		}
	}
	return all, nil
}

// pattern returns the output that a page shows as a regular expression.
func pattern(want []string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`\A`)
	for _, line := range want {
		if strings.TrimSpace(line) == "…" {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		var words []string
		for _, word := range strings.Fields(line) {
			words = append(words, strings.ReplaceAll(regexp.QuoteMeta(word), "…", `.*`))
		}
		b.WriteString(` *` + strings.Join(words, ` +`) + " *\n")
	}
	b.WriteString(`\z`)
	return regexp.MustCompile(b.String())
}

const (
	stepTime  = 60 * time.Second
	untilTime = 45 * time.Second
)

// workspace is the directory and the environment in which a page's commands run.
type workspace struct {
	dir string
	env []string
}

func newWorkspace(t *testing.T, built string) *workspace {
	t.Helper()
	dir, err := os.MkdirTemp("", "docs-") // t.TempDir() is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	w := &workspace{dir: dir}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "ALLOTMENT_") && !strings.HasPrefix(name, "LSB_") && name != "PATH" && name != "TZ" {
			w.env = append(w.env, e)
		}
	}
	w.env = append(w.env, "ALLOTMENT_HOME="+home, "PATH="+built+":"+os.Getenv("PATH"), "LC_ALL=C.UTF-8")
	t.Cleanup(func() {
		programs.StopQueue(t, built, w.env)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return w
}

// run runs one command in a shell.
func (w *workspace) run(command string) (output string, exit int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), stepTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir, cmd.Env = w.dir, w.env
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	var status *exec.ExitError
	if errors.As(err, &status) && status.Exited() {
		return string(text), status.ExitCode(), nil
	}
	return string(text), 0, err
}

func (w *workspace) runStep(t *testing.T, page string, s step) {
	t.Helper()
	at := fmt.Sprintf("%s:%d: $ %s", page, s.line, s.command)
	if s.until != nil {
		last := ""
		ctx, cancel := context.WithTimeout(t.Context(), untilTime)
		defer cancel()
		if !await.Every(ctx, 50*time.Millisecond, func() bool { last, _, _ = w.run(s.command); return s.until.MatchString(last) }) {
			t.Fatalf("%s\n%q did not come within %v:\n%s", at, s.until, untilTime, last)
		}
		return
	}
	text, exit, err := w.run(s.command)
	if err != nil {
		t.Fatalf("%s\n%v:\n%s", at, err, text)
	}
	if exit != s.exit {
		t.Fatalf("%s\nexit code %d, want %d:\n%s", at, exit, s.exit, text)
	}
	if len(s.want) > 0 && !pattern(s.want).MatchString(text) {
		t.Errorf("%s\nprints\n%s\nand the page says\n%s", at, text, strings.Join(s.want, "\n"))
	}
}

// TestPagesAreTyped runs every command of README and the users' pages, in their order, on
// a real queue in a home of its own for each page, and compares what it prints.
func TestPagesAreTyped(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022)) // files that others may write are not trusted
	built := programs.Build(t, "pba", "allotd", "ahostd", "asplit", "asplit-task", "astate")
	for _, page := range []string{"README.md", "docs/hosts.md", "docs/leases.md", "docs/operate.md", "docs/plan.md", "docs/state.md", "docs/symptoms.md", "docs/use.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath("python3"); err != nil && page == "docs/use.md" {
				t.Skip("skip: python3 is missing: one of the page's jobs is a Python program")
			}
			if _, err := exec.LookPath("curl"); err != nil && page == "docs/leases.md" {
				t.Skip("skip: curl is missing: the page's workers are curls")
			}
			newWorkspace(t, built).runPage(t, page)
		})
	}
}

// runPage runs all commands of a page.
func (w *workspace) runPage(t *testing.T, page string) {
	t.Helper()
	content, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	all, err := steps(string(content))
	if err != nil || len(all) < 5 {
		t.Fatalf("%d steps, %v", len(all), err)
	}
	for _, s := range all {
		w.runStep(t, page, s)
	}
}

// TestPagesHaveNoDeadLinks checks that the files exist that pages refer to.
func TestPagesHaveNoDeadLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md") {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(content), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

func TestOutputPatterns(t *testing.T) {
	for _, x := range []struct {
		want, got string
		same      bool
	}{
		{"a  b", "a b\n", true},
		{"a b", "a c\n", false},
		{"Job <…> is submitted", "Job <12> is submitted\n", true},
		{"a\n…\nd", "a\nb\nc\nd\n", true},
		{"a\n…", "a\n", true},
		{"a", "a\nb\n", false},
		{"a.c", "abc\n", false},
	} {
		if got := pattern(strings.Split(x.want, "\n")).MatchString(x.got); got != x.same {
			t.Errorf("%q and %q: %v", x.want, x.got, got)
		}
	}
}
