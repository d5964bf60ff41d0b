// Command fuzz runs every Fuzz test of the repository, one after the other, and checks
// that none is missing: fuzz.txt lists every function that reads bytes from outside its
// process, with its Fuzz tests.
//
//	make fuzz FUZZTIME=60s
//
// A line of fuzz.txt is a function, PACKAGE.NAME or PACKAGE.TYPE.NAME, and the
// names of its tests in the same package; or a dash, and why it needs none.
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
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	fuzzTime := flag.Duration("time", 0, "for each test, such as 30s")
	only := flag.String("only", "", "run only tests whose names have this in them")
	flag.Parse()
	if *fuzzTime <= 0 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(ctx, *fuzzTime, *only); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, fuzzTime time.Duration, only string) error {
	tree, err := scan(".")
	if err != nil {
		return err
	}
	list, err := os.ReadFile(filepath.Join("test", "fuzz", "fuzz.txt"))
	if err != nil {
		return err
	}
	wrong := check(tree, string(list))
	for _, line := range wrong {
		fmt.Fprintln(os.Stderr, line)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d things are wrong with test/fuzz/fuzz.txt", len(wrong))
	}
	var failed []string
	for _, t := range tree.targets {
		if !strings.Contains(t.String(), only) {
			continue
		}
		fmt.Println("===", t)
		cmd := exec.CommandContext(ctx, "go", "test", "./"+t.dir, "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", fuzzTime.String(), "-fuzzminimizetime", "2s")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			failed = append(failed, t.String())
		}
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("these failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// check compares the list with the tree, and returns a line for each error.
func check(tree *tree, list string) []string {
	var wrong []string
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	listed, used := map[function]bool{}, map[function]bool{}
	for n, line := range strings.Split(list, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		f, ok := parseFunction(fields[0])
		switch {
		case !ok || len(fields) < 2:
			report("line %d: want PACKAGE.FUNCTION and its Fuzz tests: %s", n+1, line)
			continue
		case listed[f]:
			report("line %d: %v is listed twice", n+1, f)
		case !slices.Contains(tree.functions, f):
			report("line %d: there is no function %v", n+1, f)
		}
		listed[f] = true
		if fields[1] == "-" {
			if len(fields) < 3 {
				report("line %d: why does %v need no Fuzz test?", n+1, f)
			}
			continue
		}
		for _, name := range fields[1:] {
			target := function{f.dir, name}
			used[target] = true
			if !slices.Contains(tree.targets, target) {
				report("line %d: %v has no Fuzz test: there is no %v", n+1, f, target)
			}
		}
	}
	for _, f := range tree.decoders {
		if !listed[f] {
			report("%v reads what comes from outside, as its name and parameters say, and is not listed", f)
		}
	}
	for _, t := range tree.targets {
		if !used[t] {
			report("%v is no listed function's", t)
		}
	}
	return wrong
}
