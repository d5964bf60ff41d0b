// Command breaks tests the tests: it breaks the program on purpose, in one way after the
// other, and requires that the test of that property fails. A test that no break can
// make fail proves nothing.
//
//	make breaks       the laws: exactly the law of the break must fail
//	make test-crash   the crash tests, after they passed on the whole tree
//
// Each file testdata/NAME.patch is one small break: a line "law: TestLaw…", with "in PACKAGE" if
// that is not pba/laws, or "crash: Test…", a line that says what is wrong, and the patch.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := breaker{}
	flag.StringVar(&b.suite, "of", "law", "the tests that are put to the test: law or crash")
	flag.IntVar(&b.checks, "checks", 1500, "farms for each break of a law")
	flag.Uint64Var(&b.seed, "seed", 1, "of the first farm, or the first try")
	flag.StringVar(&b.only, "only", "", "the one break to be tried, by its file's name without .patch")
	flag.Func("part", "K/N: each Nth break, from the Kth (0 to N-1) on", b.part.set)
	flag.Parse()
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "breaks:", err)
		os.Exit(1)
	}
}

type breaker struct {
	suite  string
	checks int
	seed   uint64
	only   string
	part   part
	root   string
}

// part is each nth of something, from the kth on; all of it if n is 0.
type part struct{ k, n int }

func (p *part) set(text string) error {
	if _, err := fmt.Sscanf(text, "%d/%d", &p.k, &p.n); err != nil || p.k < 0 || p.k >= p.n {
		return fmt.Errorf("%q is not K/N, with K from 0 to N-1", text)
	}
	return nil
}

func (p *part) has(i int) bool { return p.n == 0 || i%p.n == p.k }

// outcome is the result of the tests of one tree.
type outcome struct {
	failed  []string // tests, by name
	noticed string   // how the test that should fail saw the break
	took    time.Duration
	output  []byte
}

func (b *breaker) run(ctx context.Context) error {
	all, err := readBreaks(filepath.Join("test", "breaks", "testdata"))
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(d defect) bool { return d.suite != b.suite || b.only != "" && d.name != b.only })
	i := -1
	all = slices.DeleteFunc(all, func(defect) bool { i++; return !b.part.has(i) })
	if len(all) == 0 {
		return errors.New("no such breaks in test/breaks/testdata")
	}
	if b.root, err = filepath.Abs("."); err != nil {
		return err
	}
	return b.tryAll(ctx, all)
}

// tryAll tries the tree as it is, if its tests are quick, then each break, and prints a
// line for each.
func (b *breaker) tryAll(ctx context.Context, all []defect) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	line := func(cells ...string) {
		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	line("BREAK", "TEST", "NOTICED", "TOOK", "VERDICT")
	trees, bad := all, 0
	if b.suite == "law" && b.only == "" {
		trees = append([]defect{{name: "none", suite: b.suite, what: "the tree as it is"}}, all...)
	}
	outcomes, err := b.tryEach(ctx, trees)
	if err != nil {
		return err
	}
	for i, d := range trees {
		got, verdict := outcomes[i], "ok: exactly this test fails"
		switch {
		case d.test == "" && len(got.failed) == 0:
			verdict = "ok: no test fails"
		case len(got.failed) == 0:
			bad, verdict = bad+1, "WRONG: no test fails"
		case len(got.failed) > 1 || got.failed[0] != d.test:
			bad, verdict = bad+1, "WRONG: these fail: "+strings.Join(got.failed, ", ")
		}
		line(d.name, d.test, got.noticed, got.took.Round(time.Second).String(), verdict)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d trees are wrong; run one with -only NAME", bad, len(trees))
	}
	return nil
}

// tryEach returns the outcome of each tree. Those of the laws are tried two at a time, each with
// half of the processors: building and the last farms of one leave processors idle.
func (b *breaker) tryEach(ctx context.Context, trees []defect) ([]outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outcomes := make([]outcome, len(trees))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range b.atOnce() {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(trees) || ctx.Err() != nil {
					return
				}
				d := &trees[i]
				fmt.Fprintf(os.Stderr, "%s: %s\n", d.name, d.what)
				got, err := b.try(ctx, d)
				if err != nil {
					cancel(err)
				}
				outcomes[i] = got
			}
		})
	}
	workers.Wait()
	return outcomes, context.Cause(ctx)
}

// atOnce returns the number of trees that are tried at a time.
func (b *breaker) atOnce() int {
	if b.suite == "law" && b.only == "" {
		return min(2, runtime.NumCPU())
	}
	return 1
}

// try runs the tests with a break laid over the source.
func (b *breaker) try(ctx context.Context, d *defect) (got outcome, err error) {
	began := time.Now()
	dir, err := os.MkdirTemp("", "allotment-break-")
	if err != nil {
		return got, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	list, err := d.overlay(ctx, b.root, dir)
	if err != nil {
		return got, err
	}
	if d.suite == "law" {
		got, err = b.laws(ctx, d, list)
	} else {
		got, err = b.crash(ctx, d, list)
	}
	got.took = time.Since(began)
	if err != nil {
		return got, fmt.Errorf("break %s: %w", d.name, err)
	}
	if b.only != "" {
		_, _ = os.Stderr.Write(got.output)
	}
	return got, nil
}

// test runs tests of a package. The programs that they build are broken, too.
func (b *breaker) test(ctx context.Context, list string, env []string, pkg, run string, args ...string) (text []byte, failed bool, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-vet=off", "-v", "-timeout=20m", pkg, "-run", run}, args...)...)
	cmd.Dir = b.root
	cmd.Env = append(append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+list)), env...)
	text, err = cmd.CombinedOutput()
	var exit *exec.ExitError
	if failed = err != nil; errors.As(err, &exit) {
		err = nil
	}
	return text, failed, errors.Join(err, ctx.Err())
}
