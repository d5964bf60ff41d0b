// Command breaks puts the laws themselves to the test: it breaks the program on
// purpose, once for each law, and wants exactly that law to fail. A law that no
// break can make fail proves nothing.
//
//	make breaks
//
// Each file testdata/NAME.patch is one small break: a line "law: TestLaw…", a
// line that says what is wrong, and the patch.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := breaker{}
	flag.IntVar(&b.checks, "checks", 1500, "farms for each break")
	flag.Uint64Var(&b.seed, "seed", 1, "of the first farm")
	flag.StringVar(&b.only, "only", "", "the one break to be tried, by its file's name without .patch")
	flag.Parse()
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "breaks:", err)
		os.Exit(1)
	}
}

type breaker struct {
	checks int
	seed   uint64
	only   string
	dir    string // the copy that is broken
}

// deliberate is one break.
type deliberate struct {
	name  string
	law   string // the test that must fail
	what  string // is wrong
	patch []byte
}

// outcome is what the laws said of one tree.
type outcome struct {
	failed []string // laws, by name
	farms  string   // that broke the law which should fail: "12 of 1500"
	took   time.Duration
	output []byte
}

func (b *breaker) run(ctx context.Context) error {
	all, err := readBreaks(filepath.Join("test", "breaks", "testdata"))
	if err != nil {
		return err
	}
	if b.only != "" {
		all = slices.DeleteFunc(all, func(d deliberate) bool { return d.name != b.only })
	}
	if len(all) == 0 {
		return errors.New("no breaks to be tried in test/breaks/testdata")
	}
	b.dir, err = os.MkdirTemp("", "allotment-breaks-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	if err := copyTree(".", b.dir); err != nil {
		return fmt.Errorf("copy the tree to %s: %w", b.dir, err)
	}
	return b.tryAll(ctx, all)
}

// tryAll tries the whole tree, then each break, and prints a line for each.
func (b *breaker) tryAll(ctx context.Context, all []deliberate) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	line := func(cells ...string) {
		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	line("BREAK", "LAW", "FARMS THAT BREAK IT", "TOOK", "VERDICT")
	fmt.Fprintln(os.Stderr, "none: the tree as it is")
	whole, err := b.laws(ctx, "")
	if err != nil {
		return err
	}
	bad := 0
	verdict := "ok: no law fails"
	if len(whole.failed) > 0 {
		bad, verdict = 1, "WRONG: the whole tree fails "+strings.Join(whole.failed, ", ")
	}
	line("none", "", "", seconds(whole.took), verdict)
	for _, d := range all {
		fmt.Fprintf(os.Stderr, "%s: %s\n", d.name, d.what)
		got, err := b.try(ctx, d)
		if err != nil {
			_ = out.Flush()
			return err
		}
		verdict := "ok: exactly its law fails"
		switch {
		case len(got.failed) == 0:
			bad, verdict = bad+1, "WRONG: no law fails"
		case len(got.failed) > 1 || got.failed[0] != d.law:
			bad, verdict = bad+1, "WRONG: these fail: "+strings.Join(got.failed, ", ")
		}
		line(d.name, d.law, got.farms, seconds(got.took), verdict)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d trees are not as they should be; look closer with -only NAME", bad, len(all)+1)
	}
	return nil
}

// try applies a break, runs the laws and takes the break back.
func (b *breaker) try(ctx context.Context, d deliberate) (outcome, error) {
	if err := b.apply(ctx, d); err != nil {
		return outcome{}, err
	}
	got, err := b.laws(ctx, d.law)
	if err != nil {
		return got, fmt.Errorf("break %s: %w", d.name, err)
	}
	if b.only != "" {
		_, _ = os.Stderr.Write(got.output)
	}
	return got, b.apply(ctx, d, "--reverse")
}

// apply gives a break to git apply, with its options.
func (b *breaker) apply(ctx context.Context, d deliberate, options ...string) error {
	args := append([]string{"apply", "--whitespace=nowarn", "-p1"}, options...)
	cmd := exec.CommandContext(ctx, "git", append(args, "-")...)
	cmd.Dir, cmd.Stdin = b.dir, bytes.NewReader(d.patch)
	// The copy may lie below another repository, which is none of its business.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(b.dir))
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("break %s does not fit the tree any more: %w: %s\nmake it anew: change the code, git diff > test/breaks/testdata/%s.patch, and keep its first two lines",
			d.name, err, bytes.TrimSpace(text), d.name)
	}
	return nil
}

var (
	failedLaw = regexp.MustCompile(`(?m)^--- FAIL: (Test(?:Heavy)?Law\w+)`)
	ranLaw    = regexp.MustCompile(`(?m)^--- (?:PASS|FAIL): Test(?:Heavy)?Law\w+`)
	farmsOf   = regexp.MustCompile(`(?m)(\d+ of \d+) farms break it`)
)

// laws runs the laws on the copy as it is.
func (b *breaker) laws(ctx context.Context, law string) (outcome, error) {
	began := time.Now()
	binary := filepath.Join(b.dir, "laws.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "./pba/laws")
	build.Dir = b.dir
	if text, err := build.CombinedOutput(); err != nil {
		return outcome{}, fmt.Errorf("build the laws: %w\n%s", err, text)
	}
	which, checks := "^Test(Heavy)?Law", b.checks
	switch {
	case strings.HasPrefix(law, "TestHeavyLaw"): // the others' farms have no heavy jobs
		which, checks = "^TestHeavyLaw", b.checks/3 // which such a break shows on most of
	case law != "":
		which = "^TestLaw"
	}
	test := exec.CommandContext(ctx, binary, "-test.run", which, "-test.v", "-test.timeout", "20m",
		"-rapid.checks", strconv.Itoa(checks), "-rapid.seed", strconv.FormatUint(b.seed, 10), "-rapid.shrinktime", "0s")
	test.Dir = filepath.Join(b.dir, "pba", "laws")
	text, err := test.CombinedOutput()
	got := outcome{took: time.Since(began), output: text}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || !ranLaw.Match(text) || ctx.Err() != nil {
		return got, fmt.Errorf("run the laws: %w\n%s", errors.Join(err, ctx.Err()), text)
	}
	for _, block := range failedLaw.FindAllSubmatchIndex(text, -1) {
		got.failed = append(got.failed, string(text[block[2]:block[3]]))
	}
	// A break may well keep farms from what they should meet: that test judges
	// the farms, not the program.
	got.failed = slices.DeleteFunc(got.failed, func(name string) bool { return law != "" && strings.HasSuffix(name, "WerePutToTheTest") })
	if i := bytes.Index(text, []byte("=== RUN   "+law+"\n")); law != "" && i >= 0 {
		if m := farmsOf.FindSubmatch(text[i:]); m != nil && slices.Contains(got.failed, law) {
			got.farms = string(m[1])
		}
	}
	return got, nil
}

func seconds(d time.Duration) string { return d.Round(time.Second).String() }

// readBreaks reads the patches of a directory in order of their names.
func readBreaks(dir string) ([]deliberate, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []deliberate
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		lines := strings.SplitN(string(data), "\n", 3)
		law, ok := strings.CutPrefix(lines[0], "law: ")
		if !ok || len(lines) < 3 {
			return nil, fmt.Errorf("%s: its first line must be law: TestLaw…, its second one what is wrong", name)
		}
		all = append(all, deliberate{
			name: strings.TrimSuffix(filepath.Base(name), ".patch"), law: strings.TrimSpace(law), what: lines[1], patch: []byte(lines[2]),
		})
	}
	return all, nil
}

// copyTree copies a source tree without its history and what was built.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != from && (entry.Name() == ".git" || entry.Name() == "bin"):
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, path), 0o700)
		case !entry.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // somebody's temporary file
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), data, 0o600)
	})
}
