// Command sameplans compares what plan.Make decides in this tree with what it decides
// in an older one: on random farms of pba/laws for eight cycles each, and on a recorded
// trace. It shows the first plan that differs. Of the words of reasons and warnings it
// compares only whether they are there, unless -texts is given.
//
//	make same-plans OLD=REVISION [FARMS=20000] [TRACE=FILE.swf.gz]
//
// Both trees run the same drivers, at the same time: pba/laws TestPlans, and pba
// simulate. The build's overlay adds testdata/watch.go.txt, by which plan.Make writes
// its plans to the file descriptor 3; neither tree is changed.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const driver = "pba/laws/plans_test.go"

// loads are the factors by which a trace's jobs arrive faster.
var loads = []string{"1", "1.5", "2"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	old := flag.String("old", "", "the `REVISION` to compare with")
	farms := flag.Int("farms", 20000, "so many random farms")
	texts := flag.Bool("texts", false, "compare the words of reasons and warnings, too")
	trace := flag.String("trace", "", "a recorded trace, too: a `FILE`")
	flag.Parse()
	if *texts {
		_ = os.Setenv("ALLOTMENT_SAME_TEXTS", "1")
	}
	if err := run(ctx, *old, *farms, *trace); err != nil {
		fmt.Fprintln(os.Stderr, "sameplans:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, old string, farms int, trace string) error {
	if old == "" {
		return errors.New("no revision to compare with: make same-plans OLD=REVISION")
	}
	tmp, err := os.MkdirTemp("", "allotment-sameplans-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	before := filepath.Join(tmp, "before")
	if err := runShown(exec.CommandContext(ctx, "git", "worktree", "add", "-q", "--detach", before, old)); err != nil {
		return err
	}
	defer func() {
		_ = runShown(exec.CommandContext(context.WithoutCancel(ctx), "git", "worktree", "remove", "--force", before))
	}()
	trees := [2]*tree{{dir: before}, {dir: "."}}
	for i, t := range trees {
		t.programs = filepath.Join(tmp, fmt.Sprint("programs", i))
		if err := t.build(ctx, trace != ""); err != nil {
			return err
		}
	}
	n, err := compare(ctx, trees, func(t *tree) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(t.programs, "laws"), "-test.run", "^TestPlans$", "-test.timeout", "0")
		cmd.Env = append(os.Environ(), fmt.Sprint("ALLOTMENT_SAME_PLANS=", farms))
		return cmd
	})
	if err != nil {
		return err
	}
	fmt.Printf("%d random farms: %d plans, all equal\n", farms, n)
	if trace == "" {
		return nil
	}
	for _, load := range loads {
		n, err := compare(ctx, trees, func(t *tree) *exec.Cmd {
			return exec.CommandContext(ctx, filepath.Join(t.programs, "pba"), "simulate", "--trace", trace, "--farm", "128", "--policy", "pba",
				"--guarantee", "user:7=32", "--guarantee", "user:4=32", "--suspend", "0.3", "--scale-arrivals", load)
		})
		if err != nil {
			return err
		}
		fmt.Printf("the trace, arrivals × %s: %d plans, all equal\n", load, n)
	}
	return nil
}

// tree is one of the two that are compared.
type tree struct{ dir, programs string }

// build builds the drivers with the watch in them.
func (t *tree) build(ctx context.Context, simulator bool) error {
	overlay, err := t.overlay()
	if err != nil {
		return err
	}
	builds := [][]string{{"test", "-c", "-o", filepath.Join(t.programs, "laws"), "-overlay", overlay, "./pba/laws"}}
	if simulator {
		builds = append(builds, []string{"build", "-o", filepath.Join(t.programs, "pba"), "-overlay", overlay, "./cmd/pba"})
	}
	for _, args := range builds {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = t.dir
		if err := runShown(cmd); err != nil {
			return err
		}
	}
	return nil
}

// overlay returns the path of the list, for -overlay, of files that replace the tree's.
func (t *tree) overlay() (string, error) {
	dir, err := filepath.Abs(t.dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(t.programs, 0o700); err != nil {
		return "", err
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	replace := map[string]string{filepath.Join(dir, "pba/plan/watch.go"): filepath.Join(here, "test/sameplans/testdata/watch.go.txt")}
	if _, err := os.Stat(filepath.Join(dir, driver)); errors.Is(err, os.ErrNotExist) {
		replace[filepath.Join(dir, driver)] = filepath.Join(here, driver)
	}
	sources, err := filepath.Glob(filepath.Join(dir, "pba/plan/*.go"))
	if err != nil {
		return "", err
	}
	for _, path := range sources {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if renamed := bytes.Replace(text, []byte("\nfunc Make("), []byte("\nfunc makeUnwatched("), 1); !bytes.Equal(renamed, text) {
			replace[path] = filepath.Join(t.programs, "make.go")
			if err := os.WriteFile(replace[path], renamed, 0o600); err != nil {
				return "", err
			}
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(t.programs, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}

// compare runs the same in both trees and returns how many plans were equal.
func compare(ctx context.Context, trees [2]*tree, command func(*tree) *exec.Cmd) (int, error) {
	var streams [2]*stream
	for i, t := range trees {
		s, err := begin(command(t))
		if err != nil {
			return 0, err
		}
		defer s.stop()
		streams[i] = s
	}
	for n := 0; ; n++ {
		was, is := streams[0].plan(), streams[1].plan()
		switch {
		case len(was) == 0 && len(is) > 0:
			return n, streams[0].end()
		case len(is) == 0 && len(was) > 0:
			return n, streams[1].end()
		case !bytes.Equal(was, is):
			return n, difference(streams, was, is)
		}
		if streams[0].head == nil {
			return n, errors.Join(streams[0].end(), streams[1].end(), ctx.Err())
		}
	}
}

// stream is what a driver writes.
type stream struct {
	cmd    *exec.Cmd
	lines  *bufio.Reader
	head   []byte // line that begins the next plan; nil: there is none
	where  string // last line that names a farm
	output bytes.Buffer
}

func begin(cmd *exec.Cmd) (*stream, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	s := &stream{cmd: cmd, lines: bufio.NewReaderSize(r, 1<<20)}
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{w}, &s.output, &s.output
	return s, cmd.Start()
}

// plan reads up to the line that begins the next plan; empty at the end.
func (s *stream) plan() []byte {
	text := s.head
	for {
		line, err := s.lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			s.head = nil
			return text
		case bytes.HasPrefix(line, []byte("plan ")):
			s.head = line
			return text
		case bytes.HasPrefix(line, []byte("farm ")):
			s.where = string(line)
		}
		text = append(text, line...)
	}
}

func (s *stream) end() error {
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(s.cmd.Args, " "), err, &s.output)
	}
	return nil
}

func (s *stream) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// difference prints two plans in full, and returns an error with their first difference.
func difference(streams [2]*stream, was, is []byte) error {
	before, after := strings.Split(string(was), "\n"), strings.Split(string(is), "\n")
	at := 0
	for at < len(before) && at < len(after) && before[at] == after[at] {
		at++
	}
	line := func(of []string) string {
		if at < len(of) {
			return of[at]
		}
		return "(nothing)"
	}
	fmt.Printf("before, %s%s\nafter, %s%s\n", streams[0].where, was, streams[1].where, is)
	return fmt.Errorf("the plans differ, line %d of that of %s\nbefore: %s\nafter:  %s", at+1, before[0], line(before), line(after))
}

func runShown(cmd *exec.Cmd) error {
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return nil
}
