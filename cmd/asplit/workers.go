package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/split"
	"github.com/allotment-hpc/allotment/split/worker"
)

const wordWorker = "__worker" // --idle TIME DIRECTORY TASK: what a job runs that stays as a worker

// The bounds of --max-workers, and of --idle.
const (
	defaultWorkers = 1000
	mostWorkers    = 10_000
	mostIdle       = 24 * time.Hour
)

// standing returns how a split uses standing workers.
func (p process) standing(c *cli.Context, d *split.Definition) (s split.Standing, err error) {
	if d.Leased > 0 { // a task of a lease begins at once as it is
		return s, nil
	}
	var idle time.Duration
	if d.Resident != nil {
		idle = residentIdle(d.Resident)
	} else if idle, err = idleTime(c); err != nil {
		return s, err
	}
	s.Most = defaultWorkers
	if c.IsSet("max-workers") {
		if s.Most, err = strconv.Atoi(c.String("max-workers")); err != nil || s.Most < 1 || s.Most > mostWorkers {
			return s, shell.Usagef("--max-workers %q: want a number from 1 to %d, or --workers no", c.String("max-workers"), mostWorkers)
		}
	}
	switch c.String("workers") {
	case "no":
		return split.Standing{}, nil
	case "auto":
	default:
		return s, shell.Usagef("--workers %q: want auto or no", c.String("workers"))
	}
	self, err := p.executable()
	if err != nil {
		return s, fmt.Errorf("find this program, which stays on hosts: %w", err)
	}
	s.Workers, s.Program = new(worker.Bus), []string{self, wordWorker, "--idle", idle.String()}
	return s, nil
}

func idleTime(c *cli.Context) (time.Duration, error) {
	var idle unit.Duration
	if err := idle.UnmarshalText([]byte(c.String("idle"))); err != nil || idle <= 0 || time.Duration(idle) > mostIdle {
		return 0, shell.Usagef("--idle %q: want a time above 0 such as 30s, a day at most", c.String("idle"))
	}
	return time.Duration(idle), nil
}

// workerCommand is the work of a job that stays.
func workerCommand(p process) *cli.Command {
	return &cli.Command{
		Name: wordWorker, Hidden: true, ArgsUsage: "DIRECTORY TASK",
		Flags: []cli.Flag{&cli.StringFlag{Name: "idle", Value: "30s", Usage: "end after `TIME` without work"}},
		Action: func(c *cli.Context) error {
			n, err := strconv.ParseInt(c.Args().Get(1), 10, 64)
			if err != nil || n < 1 || c.NArg() != 2 {
				return shell.Usagef("want DIRECTORY TASK; only asplit runs it")
			}
			idle, err := idleTime(c)
			if err != nil {
				return err
			}
			return p.stand(c.Context, func(ctx context.Context, log func(string)) error {
				return worker.Run(ctx, worker.Options{Dir: c.Args().First(), N: n, Idle: idle, Log: log})
			})
		},
	}
}

// stand runs a worker, whose context the queue's signal ends. log writes to its job's log.
func (p process) stand(ctx context.Context, run func(ctx context.Context, log func(string)) error) error {
	ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := run(ctx, func(text string) { fmt.Fprintln(p.stderr, "asplit:", shell.Printable(text)) })
	if errors.Is(err, worker.ErrSignal) {
		return &shell.ExitError{Code: 128 + int(syscall.SIGTERM), Err: err}
	}
	return err
}
