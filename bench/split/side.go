package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/quantile"
	"github.com/allotment-hpc/allotment/test/farm"
)

// sideSlots is how many items run side by side on the only host.
const sideSlots = 6

// maxSide is the bound of asplit's time ÷ GNU parallel's.
const maxSide = 1.0

// sideWork is work that asplit, GNU parallel and xargs do on the same host, one after the
// other. asplit's items are measured with its start and the queue's.
type sideWork struct {
	name  string
	items int
	item  string // a line of sh; $1 is the item
}

func sideWorks() []sideWork {
	return []sideWork{
		{"small items", 2000, `echo "$1"`},
		{"items of 0.5 s", 60, `sleep 0.5; echo "$1"`},
	}
}

// sideTool is one way to do it.
type sideTool struct {
	name string
	argv []string // the items are on standard input
}

func sideTools(w sideWork) []sideTool {
	item := []string{"/bin/sh", "-c", w.item, "sh"}
	slots := strconv.Itoa(sideSlots)
	return []sideTool{
		{"asplit", append(append([]string{"asplit", "--no-qualify", "--quiet"}, item...), "{}")},
		{parallelName, append([]string{"parallel", "--will-cite", "-k", "-q", "-j" + slots}, item...)},
		{"xargs", append([]string{"xargs", "-P" + slots, "-n1"}, item...)},
	}
}

// sideBySide measures asplit against GNU parallel and xargs on one host of this machine,
// without quotas; false: asplit is slower than parallel. Each is the median of three runs
// in turn.
func sideBySide(ctx context.Context, programs string) (met bool, err error) {
	err = onFarm(ctx, oneHost(programs), func(f *farm.Farm, work string) error {
		met, err = runSides(ctx, f, work)
		return err
	})
	return met, err
}

// oneHost is the farm of sideBySide.
func oneHost(programs string) farm.Options {
	return farm.Options{Programs: programs, Config: fmt.Sprintf("miniq: {nodes: [\"n1:%d\"]}\n", sideSlots)}
}

// onFarm starts a farm, calls do with an empty directory there, and closes the farm.
func onFarm(ctx context.Context, o farm.Options, do func(f *farm.Farm, work string) error) (err error) {
	f, err := farm.Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	work := filepath.Join(f.Home, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	return do(f, work)
}

func runSides(ctx context.Context, f *farm.Farm, work string) (met bool, err error) {
	missing := missingParallel(ctx)
	if missing != "" {
		printf("not compared: %s", missing)
	}
	printf("%-36s %6s  %8s  %9s", "on one host, "+strconv.Itoa(sideSlots)+" side by side", "items", "makespan", "÷ asplit's")
	met = true
	for _, w := range sideWorks() {
		times := map[string][]float64{}
		for range 3 {
			for _, tool := range sideTools(w) {
				if tool.name == parallelName && missing != "" {
					continue
				}
				took, err := runSide(ctx, f, work, w, tool)
				if err != nil {
					return false, fmt.Errorf("%s, %s: %w", w.name, tool.name, err)
				}
				times[tool.name] = append(times[tool.name], took.Seconds())
			}
		}
		own := quantile.Median(times["asplit"])
		for _, tool := range sideTools(w) {
			if all := times[tool.name]; len(all) > 0 {
				printf("%-36s %6d  %6.2f s  %9.2f", tool.name+", "+w.name, w.items, quantile.Median(all), quantile.Median(all)/own)
			}
		}
		other := math.NaN()
		if all := times[parallelName]; len(all) > 0 {
			other = quantile.Median(all)
		}
		l := budget{what: w.name + ": asplit's time ÷ GNU parallel's", value: own / other, limit: maxSide}
		printf("  %-10s  %s: %.3f of %.3f", l.verdict(), l.what, l.value, l.limit)
		met = met && l.verdict() != "missed"
	}
	return met, nil
}

// runSide runs one tool, and checks that each item has its result.
func runSide(ctx context.Context, f *farm.Farm, work string, w sideWork, tool sideTool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	cmd := f.Background(ctx, "asplit", tool.argv[1:]...)
	if tool.name != "asplit" {
		cmd = exec.CommandContext(ctx, tool.argv[0], tool.argv[1:]...)
		cmd.Env = append(os.Environ(), "HOME="+work, "SHELL=/bin/sh")
	}
	return timed(cmd, work, w.items, func(results string) error { return checkSide(results, w.items, tool.name != "xargs") }) // which keeps no order
}

// timed runs a command on so many items, has its results checked, and returns how long it took.
func timed(cmd *exec.Cmd, work string, items int, check func(results string) error) (time.Duration, error) {
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = work, bytes.NewReader(numbers(items)), &out, &errs
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, bytes.TrimSpace(errs.Bytes()))
	}
	took := time.Since(began)
	return took, check(out.String())
}

// checkSide returns an error unless the results are those of the items.
func checkSide(results string, items int, ordered bool) error {
	want := string(numbers(items))
	if ordered && results == want {
		return nil
	}
	seen := map[string]int{}
	for line := range strings.Lines(results) {
		seen[line]++
	}
	if !ordered && len(seen) == items && strings.Count(results, "\n") == items {
		return nil
	}
	return fmt.Errorf("%d results, %d of them different, of %d items (in order: %v)", strings.Count(results, "\n"), len(seen), items, ordered)
}
