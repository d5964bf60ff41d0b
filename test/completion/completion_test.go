package completion

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/terminal"
)

const timeout = 20 * time.Second

// shell is a shell at a terminal, with the lines that prepare it.
type shell struct {
	name  string
	argv  []string
	setup []string
}

func shells(t *testing.T) []shell {
	files, err := filepath.Abs("../../completions")
	if err != nil {
		t.Fatal(err)
	}
	return []shell{
		{"bash", []string{"bash", "--norc", "--noprofile", "-i"}, []string{
			"bind 'set show-all-if-ambiguous on'; bind 'set completion-query-items 0'; bind 'set page-completions off'; bind 'set bell-style none'",
			"source " + files + "/allotment.bash",
		}},
		{"zsh", []string{"zsh", "-f", "-i"}, []string{
			"fpath=(" + files + " $fpath); unsetopt beep menu_complete auto_menu list_ambiguous; LISTMAX=0",
			"autoload -Uz compinit && compinit -u -D",
		}},
	}
}

// session is a running shell to type at.
type session struct {
	t    *testing.T
	term *terminal.Terminal
	dir  string
	n    int
}

func start(t *testing.T, s shell, env []string) *session {
	t.Helper()
	path, err := exec.LookPath(s.argv[0])
	if err != nil {
		t.Skipf("skip: no %s here: its completion is not tried", s.argv[0])
	}
	cmd := exec.Command(path, s.argv[1:]...)
	cmd.Env = append(env, "TERM=xterm", "PS1=> ", "HISTFILE=", "LC_ALL=C.UTF-8", "ZDOTDIR=/nonexistent")
	cmd.Dir = t.TempDir()
	term, err := terminal.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(term.Close)
	one := &session{t: t, term: term, dir: cmd.Dir}
	for _, line := range s.setup {
		one.run(line)
	}
	return one
}

// run types a line and waits until it is done.
func (s *session) run(line string) {
	s.t.Helper()
	s.n++
	mark, err := s.term.Type(fmt.Sprintf("%s; echo do''ne%d\r", line, s.n))
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.term.Await(mark, func(shown []byte) bool { return strings.Contains(plain(shown), fmt.Sprintf("done%d", s.n)) }, timeout); err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
}

// clear empties the command line.
func (s *session) clear() { s.run("\x15true") }

// tries is how often the tab key is pressed before it counts as without an answer: the
// completion waits only 80 ms for the queue, which may be slower on a busy machine.
const tries = 10

// awaitCandidates types a line and the tab key, and waits until all of want is shown behind
// it. It returns how long that took, and what was shown.
func (s *session) awaitCandidates(line string, want ...string) (time.Duration, string) {
	s.t.Helper()
	var failed error
	for range tries {
		mark, err := s.term.Type(line)
		if err != nil {
			s.t.Fatal(err)
		}
		last := line[strings.LastIndexByte(line, ' ')+1:]
		if _, err := s.term.Await(mark, func(shown []byte) bool { return strings.HasSuffix(strings.TrimRight(plain(shown), " "), last) }, timeout); err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
		begin := time.Now()
		if mark, err = s.term.Type("\t"); err != nil {
			s.t.Fatal(err)
		}
		shown, err := s.term.Await(mark, func(shown []byte) bool {
			words := strings.Fields(escapes.ReplaceAllString(string(shown), " ")) // cursor movements separate words
			return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(words, w) })
		}, timeout/tries)
		if failed = err; err == nil {
			return time.Since(begin), plain([]byte(shown))
		}
		s.clear()
	}
	s.t.Fatalf("%q and the tab key: want %q: %v", line, want, failed)
	return 0, ""
}

// requireCompletion types a line and the tab key, and requires that the line is then want.
func (s *session) requireCompletion(line, want string) {
	s.t.Helper()
	got := ""
	for range tries {
		if got = s.complete(line); got == want {
			return
		}
	}
	s.t.Errorf("%q and the tab key: %q, want %q", line, got, want)
}

// complete types a line and the tab key, and returns what the line is then.
func (s *session) complete(line string) string {
	s.t.Helper()
	s.n++
	mark, err := s.term.Type(fmt.Sprintf("%s\t\x01echo li''ne%d \x05 e''nd\r", line, s.n))
	if err != nil {
		s.t.Fatal(err)
	}
	echoed := regexp.MustCompile(fmt.Sprintf(`line%d (.*?) *end`, s.n))
	shown, err := s.term.Await(mark, func(shown []byte) bool { return echoed.MatchString(plain(shown)) }, timeout)
	if err != nil {
		s.t.Fatalf("%q and the tab key: %v", line, err)
	}
	return echoed.FindStringSubmatch(plain([]byte(shown)))[1]
}

var escapes = regexp.MustCompile("\x1b(\\[[0-9;?]*[a-zA-Z]|[=>]|\\([A-B])|[\x07\r]")

// plain returns what was shown without cursor movements and colours.
func plain(shown []byte) string { return escapes.ReplaceAllString(string(shown), "") }

func newFarm(t *testing.T) (*farm.Farm, []string) {
	t.Helper()
	f := farm.New(t, farm.Options{Config: "miniq:\n  nodes: [\"n1:2:8G\", \"n2:2:8G\"]\n"}, "pba")
	return f, f.Background(context.Background(), "pba").Env
}

func mustRun(t *testing.T, f *farm.Farm, argv ...string) string {
	t.Helper()
	out, err := f.Run(t.Context(), argv[0], argv[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func group(t *testing.T) string {
	g, err := user.LookupGroupId(fmt.Sprint(os.Getgid()))
	if err != nil {
		t.Skipf("skip: this process's group has no name: %v", err)
	}
	return g.Name
}

// TestTab: in bash and zsh the tab key lists live values, within 100 ms, and completes
// options, subcommands and single matches.
func TestTab(t *testing.T) {
	f, env := newFarm(t)
	mustRun(t, f, "pba", "init")
	mustRun(t, f, "pba", "project", "add", "chipA", "--group", group(t))
	hostile := "$(touch pwned)`touch pwned`\x1bP0;x\x07"
	var ids []string
	for _, name := range []string{"plain", hostile, "held"} {
		id, err := farm.Submitted(mustRun(t, f, "asub", "-H", "-J", name, "sleep", "600"))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, fmt.Sprint(id))
	}
	array, err := farm.Submitted(mustRun(t, f, "asub", "-H", "-J", "a[1-3]", "sleep", "600"))
	if err != nil {
		t.Fatal(err)
	}
	ids = append(ids, fmt.Sprint(array))
	for _, sh := range shells(t) {
		t.Run(sh.name, func(t *testing.T) {
			s := start(t, sh, env)
			s.requireFastList(max(maxAnswerTime, mostAnswers*bestTime(t, f, "ajobs")), "ajobs ", ids...)
			s.awaitCandidates("ahosts ", "n1", "n2")
			s.clear()
			s.awaitCandidates("asub -q ", "low", "normal")
			s.clear()
			s.awaitCandidates("pba alloc ", "set", "unset", "list")
			s.clear()
			for typed, want := range map[string]string{
				"ahosts n1 n":                    "ahosts n1 n2",
				"ajobs -m n1 -P ch":              "ajobs -m n1 -P chipA",
				"asub -P ch":                     "asub -P chipA",
				"pba alloc list --proj":          "pba alloc list --project",
				"pba alloc list --project=ch":    "pba alloc list --project=chipA",
				"pba reb":                        "pba rebalance",
				"asub -P chipA:logic -n 2 dirna": "asub -P chipA:logic -n 2 dirname",
				"akill " + strings.Join(ids[:len(ids)-1], " ") + " ": "akill " + strings.Join(ids, " "),
			} {
				s.requireCompletion(typed, want)
			}
			if _, err := os.Stat(filepath.Join(s.dir, "pwned")); err == nil {
				t.Error("a job's name was run by the shell")
			}
		})
	}
	for _, sh := range shells(t) {
		t.Run("silent without a queue/"+sh.name, func(t *testing.T) {
			home := t.TempDir()
			s := start(t, sh, append(env, "ALLOTMENT_HOME="+home))
			if got := s.complete("ajobs "); got != "ajobs" {
				t.Errorf("without a queue the tab key makes of `ajobs `: %q", got)
			}
			if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
				t.Errorf("the tab key left %v in an empty home (%v)", left, err)
			}
		})
	}
}

// TestFish: the same in fish, which completes without a terminal.
func TestFish(t *testing.T) {
	fish, err := exec.LookPath("fish")
	if err != nil {
		t.Skip("skip: no fish here: its completion is not tried")
	}
	f, env := newFarm(t)
	id, err := farm.Submitted(mustRun(t, f, "asub", "-H", "-J", "$(touch pwned)", "sleep", "600"))
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"ajobs ":          fmt.Sprintf("%d\theld", id),
		"ahosts n1 ":      "n2\tok",
		"pba alloc uns":   "unset\tremove a project's allocation",
		"asub -n 2 dirna": "dirname",
	} {
		var out []byte
		var err error
		answered := func() bool {
			cmd := exec.Command(fish, "--no-config", "-c", "source ../../completions/allotment.fish; complete -C $argv[1]", line)
			cmd.Env = append(env, "HOME="+t.TempDir())
			out, err = cmd.Output()
			first, _, _ := strings.Cut(string(out), "\n")
			return err == nil && strings.HasPrefix(first, want)
		}
		is := false
		for i := 0; i < tries && !is; i++ {
			is = answered()
		}
		if !is {
			t.Errorf("%q: %q (%v), want %q", line, out, err, want)
		}
	}
}

// maxAnswerTime is how long the tab key may take, and mostAnswers how many times the command's
// own time where that is longer: on a slow or busy machine.
const (
	maxAnswerTime = 100 * time.Millisecond
	mostAnswers   = 5
)

// bestTime returns the shortest time that a command takes in a few tries.
func bestTime(t *testing.T, f *farm.Farm, argv ...string) time.Duration {
	t.Helper()
	best := timeout
	for range tries {
		begun := time.Now()
		mustRun(t, f, argv...)
		best = min(best, time.Since(begun))
	}
	return best
}

// requireFastList requires that the values are shown within soon in one of a few tries: a busy
// machine may delay the others.
func (s *session) requireFastList(most time.Duration, line string, want ...string) {
	s.t.Helper()
	best := timeout
	for range tries {
		took, shown := s.awaitCandidates(line, want...)
		best = min(best, took)
		s.clear()
		if strings.Contains(shown, "touch") {
			s.t.Errorf("a job's name was shown: %q", shown)
		}
	}
	s.t.Logf("%q and the tab key: %v of %v", line, best, most)
	if best > most {
		s.t.Errorf("%q and the tab key: %v, want at most %v", line, best, most)
	}
}

func TestMain(m *testing.M) {
	syscall.Umask(0o022) // files that others may write are not trusted
	os.Exit(m.Run())
}
