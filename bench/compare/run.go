package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/bench/page"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/farm"
)

// patience bounds what is not the window itself: clusters start in turn.
const patience = 10 * time.Minute

// record returns the file that holds the window's begin, Slurm's version, and what sacct printed.
func (c cell) record(dir string) string { return filepath.Join(dir, c.String()+".sacct") }

// judged reads a record and judges it.
func (c cell) judged(dir string) (result, error) {
	text, err := os.ReadFile(c.record(dir))
	if err != nil {
		return result{}, err
	}
	first, lines, _ := strings.Cut(string(text), "\n")
	begin, version, _ := strings.Cut(first, " ")
	from, err := strconv.ParseInt(begin, 10, 64)
	if err != nil {
		return result{}, fmt.Errorf("%s: the window's begin: %w", c.record(dir), err)
	}
	jobs, err := parse(lines)
	if submitted := len(c.scene.workload(c.seed)); err == nil && len(jobs) != submitted {
		err = fmt.Errorf("%s: %d jobs were submitted, sacct has %d", c.record(dir), submitted, len(jobs))
	}
	return result{c, version, judge(jobs, from)}, err
}

// runAll runs the cells that have no record yet, also after one of them failed.
func (o options) runAll(ctx context.Context, cells []cell) error {
	if err := os.MkdirAll(o.records, 0o755); err != nil {
		return err
	}
	free := make(chan struct{}, o.parallel)
	errs := make([]error, len(cells))
	var wg sync.WaitGroup
	for i, c := range cells {
		if _, err := os.Stat(c.record(o.records)); err == nil {
			continue
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			if ctx.Err() != nil {
				return
			}
			began := time.Now()
			if err := c.run(ctx, o); err != nil {
				errs[i] = fmt.Errorf("%s: %w", c, err)
			}
			fmt.Fprintf(os.Stderr, "%s: %v, %s\n", c, time.Since(began).Round(time.Second), cmp.Or(errs[i], errors.New("done")))
		})
	}
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// run runs a cell on a cluster of its own.
func (c cell) run(ctx context.Context, o options) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, window+patience, errors.New("it is not over in time"))
	defer cancel()
	f, err := c.policy.start(ctx, o.programs)
	if f != nil {
		defer func() { err = errors.Join(err, f.Close()) }()
	}
	if err != nil {
		return err
	}
	stopEngine := func() error { return nil }
	if c.policy.engine != nil {
		if stopEngine, err = startEngine(ctx, f); err != nil {
			return err
		}
	}
	from := time.Now().Truncate(time.Second).Add(time.Second)
	jobs := c.scene.workload(c.seed)
	for _, j := range jobs {
		if err := sleepUntil(ctx, from.Add(j.at)); err != nil {
			return err
		}
		if _, err := f.RunSlurm(ctx, c.policy.submission(j)...); err != nil {
			return err
		}
	}
	if err := sleepUntil(ctx, from.Add(window)); err != nil {
		return err
	}
	if err := stopEngine(); err != nil {
		return err
	}
	lines, err := end(ctx, f, len(jobs))
	if err != nil {
		return err
	}
	version, err := f.RunSlurm(ctx, "sinfo", "--version")
	if err != nil {
		return err
	}
	return page.Write(c.record(o.records), func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "%d %s%s", from.Unix(), version, lines)
		return err
	})
}

// startEngine starts pba rebalance. stop reports whether it ran until then.
func startEngine(ctx context.Context, f *farm.Farm) (stop func() error, err error) {
	engine, err := f.Rebalance(ctx, cycle, 0) // as a site's service
	if err != nil {
		return nil, err
	}
	if err := engine.AwaitFirstCycle(ctx); err != nil {
		return nil, err
	}
	return func() error {
		for {
			select {
			case _, runs := <-engine.Reports:
				if !runs {
					return engine.Err()
				}
			default:
				engine.Stop()
				return nil
			}
		}
	}, nil
}

// end cancels all jobs, and returns what sacct prints once it has so many and the end of each.
func end(ctx context.Context, f *farm.Farm, jobs int) (lines string, err error) {
	// The waiting ones first, so that none of them starts.
	for _, which := range []string{"--state=PENDING", "--user=root"} {
		if _, err := f.RunSlurm(ctx, "scancel", "--quiet", which); err != nil {
			return "", err
		}
	}
	await.Every(ctx, time.Second, func() bool {
		lines, err = f.RunSlurm(ctx, "env", "SLURM_TIME_FORMAT=%s", "sacct", "--allusers", "--allocations", "--duplicates",
			"--starttime=now-1days", "--noheader", "--parsable2", "--format="+columns)
		return err != nil || ended(lines, jobs)
	})
	return lines, errors.Join(err, context.Cause(ctx))
}

// sleepUntil waits until a time.
func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-time.After(time.Until(at)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
