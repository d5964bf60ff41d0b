// Command figures simulates a recorded trace, checks that the engine keeps its
// promises, and writes what guaranteed slots are worth there into docs/figures.md.
// `make figures TRACE=FILE` runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/bench/made"
	"github.com/allotment-hpc/allotment/bench/page"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/simulate"
	charts "github.com/allotment-hpc/allotment/pba/simulate/page"
	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	figures := flag.String("page", "docs/figures.md", "the page that is written; the sweeps' chart lies beside it")
	readme := flag.String("readme", "README.md", "the page whose tables, between its two marks, are replaced")
	data := flag.String("json", "", "write the results, for charts, to this file")
	noSweep := flag.Bool("no-sweep", false, "simulate the scenes only")
	only := flag.String("only", "", "simulate the scenes whose titles contain this, print what they break, and write no page")
	madeDir := flag.String("made", "", "write the traces that are made (SWF) into this folder, and simulate nothing")
	flag.Parse()
	if *madeDir != "" {
		if err := writeMade(*madeDir); err != nil {
			fmt.Fprintln(os.Stderr, "figures:", err)
			os.Exit(1)
		}
		return
	}
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: figures [-page FILE] [-readme FILE] [-json FILE] [-no-sweep] [-only TEXT] TRACE, or figures -made DIR")
		os.Exit(2)
	}
	if err := run(ctx, flag.Arg(0), *figures, *readme, *data, *only, *noSweep); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

// chart is the sweeps' file, beside the page.
const chart = "figures-sweeps.svg"

func run(ctx context.Context, path, figures, readme, data, only string, noSweep bool) error {
	store, format, err := readTrace(path)
	if err != nil {
		return err
	}
	defer store.Close()
	stores := map[string]*trace.Store{}
	for name, records := range madeTraces() {
		if stores[name], err = made.Store(records); err != nil {
			return err
		}
		defer stores[name].Close()
	}
	all := append(recorded(store, format, path), madeScenes(stores)...)
	all = slices.DeleteFunc(all, func(s scene) bool { return !strings.Contains(s.Title, only) })
	var broken []error
	for i := range all {
		s := &all[i]
		began := time.Now()
		if s.Result, err = simulate.Run(ctx, s.Setup); err != nil {
			return fmt.Errorf("%s: %w", s.Title, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %d jobs, %v\n", s.Title, s.Result.Trace.Jobs, time.Since(began).Round(time.Millisecond))
		broken = append(broken, s.check()...)
	}
	if only != "" {
		return errors.Join(append(broken, writeScenes(os.Stdout, all))...)
	}
	var sweeps []simulate.Sweep
	if !noSweep {
		swept := slices.IndexFunc(all, func(s scene) bool { return s.section == onePool && s.readme })
		if sweeps, err = sweep(ctx, all[swept].Setup); err != nil {
			return err
		}
	}
	if err := write(path, figures, readme, data, all, sweeps, broken); err != nil {
		return err
	}
	return errors.Join(broken...)
}

// sweptTitle names the scene that settings are varied in.
const sweptTitle = "one project, arrivals × 2"

// write writes the pages, and the results as data where that is asked for.
func write(path, figures, readme, data string, all []scene, sweeps []simulate.Sweep, broken []error) error {
	name := filepath.Base(path)
	if err := page.Write(figures, func(out io.Writer) error { return writePage(out, name, all, sweeps, broken) }); err != nil {
		return err
	}
	if len(sweeps) > 0 {
		if err := page.Write(filepath.Join(filepath.Dir(figures), chart), func(out io.Writer) error { return charts.WriteSweeps(out, sweeps) }); err != nil {
			return err
		}
	}
	if err := page.Replace(readme, "make figures", func(out io.Writer) error { return writeTables(out, name, all) }); err != nil {
		return err
	}
	if data == "" {
		return nil
	}
	return page.Write(data, func(out io.Writer) error {
		return json.NewEncoder(out).Encode(struct {
			Scenes []scene
			Sweeps []simulate.Sweep
		}{all, sweeps})
	})
}

// writeMade writes the traces that are made into a folder.
func writeMade(dir string) error {
	for name, records := range madeTraces() {
		if err := page.Write(filepath.Join(dir, name), func(out io.Writer) error { return made.WriteSWF(out, records) }); err != nil {
			return err
		}
	}
	return nil
}

func readTrace(path string) (*trace.Store, trace.Format, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	format, records, err := trace.Open(f, time.UTC)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	store := new(trace.Store)
	if err := store.Fill(records, 0); err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	return store, format, nil
}

// sweep varies one setting at a time.
func sweep(ctx context.Context, base simulate.Setup) ([]simulate.Sweep, error) {
	base.Policies, base.Check, base.Buckets = []string{simulate.PBA}, false, 0
	defaults := base.Policy
	settings := []struct {
		name   string
		is     float64
		values []float64
		set    func(p *plan.Policy, value float64)
	}{
		{"pending_threshold", defaults.PendingThreshold.Seconds(), []float64{20, 40, 60, 120, 300, 600}, func(p *plan.Policy, v float64) { p.PendingThreshold = seconds(v) }},
		{"min_runtime", defaults.MinRuntime.Seconds(), []float64{0, 30, 60, 120, 300, 600}, func(p *plan.Policy, v float64) { p.MinRuntime = seconds(v) }},
		{"headroom", defaults.Headroom, []float64{0, 0.5, 1, 1.5, 2, 3, 5}, func(p *plan.Policy, v float64) { p.Headroom = v }},
	}
	var all []simulate.Sweep
	for _, setting := range settings {
		s := simulate.Sweep{Setting: setting.name, Default: setting.is}
		for _, value := range setting.values {
			varied := base
			setting.set(&varied.Policy, value)
			r, err := simulate.Run(ctx, varied)
			if err != nil {
				return nil, err
			}
			s.Points = append(s.Points, simulate.SweepPoint{Value: value, Outcome: r.Policies[0]})
		}
		all = append(all, s)
	}
	return all, nil
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
