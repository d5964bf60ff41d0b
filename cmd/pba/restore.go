package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/pba"
)

func restoreCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "restore", Usage: "put everything back that pba did to the queue, and pause",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "forget", Usage: "take what the submit filter wrote out of the jobs, too: before pba is removed", DisableDefaultText: true},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "print each action", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			return withSite(c.Context, p, p.open, func(s *site) error {
				if c.Bool("forget") && s.backend.Abilities().Forget == nil {
					return shell.Usagef("--forget: this queue's jobs keep what the submit filter wrote into their descriptions; leave it out")
				}
				if err := restore(c.Context, s, c.Bool("verbose"), c.App.Writer); err != nil || !c.Bool("forget") {
					return err
				}
				return forget(c.Context, s, c.App.Writer)
			})
		},
	}
}

// restore pauses first: the next cycle would do it all again.
func restore(ctx context.Context, s *site, verbose bool, out io.Writer) error {
	if err := s.mustBeAdmin("put everything back"); err != nil {
		return err
	}
	var r pba.Result
	err := s.locked(ctx, s.Paths.State, func() error {
		if _, err := s.ledger.SetPaused(ctx, s.editor(), true); err != nil {
			return err
		}
		var err error
		r, err = s.engine(false).Restore(ctx, s.now)
		return err
	})
	if err != nil {
		return fmt.Errorf("put everything back: %w (cycles are paused; try again)", err)
	}
	if err := printCycle(out, &r, rebalanceOptions{verbose: verbose}); err != nil {
		return err
	}
	if err := r.Failed(); err != nil {
		return fmt.Errorf("put everything back: %w (cycles are paused; try again)", err)
	}
	if err := s.checkRestored(ctx, &r); err != nil {
		return err
	}
	waiting, err := s.resuming(ctx)
	if err != nil {
		return fmt.Errorf("put everything back: %w (cycles are paused; try again)", err)
	}
	if waiting > 0 {
		return shell.TryAgain(fmt.Errorf("put everything back: %s for slots that others hold now: all else is put back and cycles are paused; try again later",
			counted(waiting, "suspended job waits", "suspended jobs wait")))
	}
	fmt.Fprintln(out, "Everything is put back. Cycles are paused: `pba resume` lets them go on.")
	return nil
}

// shownAfter is how long a queue may take to show all that was put back: dummy jobs end
// by signals.
const shownAfter = 30 * time.Second

// checkRestored looks at the queue again, until nothing is left that was to be put back.
func (s *site) checkRestored(ctx context.Context, r *pba.Result) error {
	for deadline := time.Now().Add(shownAfter); ; {
		left, err := s.engine(false).Left(ctx, r, s.now)
		if err != nil {
			return fmt.Errorf("put everything back: look whether all of it is: %w (cycles are paused; try again)", err)
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return shell.TryAgain(fmt.Errorf("put everything back: %s: it was told, and does not show it: %s of job %v is still to be done (cycles are paused; try again)",
				counted(len(left), "one thing is left at the queue", "things are left at the queue"), left[0].Verb, left[0].Job))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// resuming is how many suspended jobs go on once they fit, on a queue that must be
// tended for it.
func (s *site) resuming(ctx context.Context) (int, error) {
	if s.backend.Abilities().Tend == nil {
		return 0, nil
	}
	farm, err := s.backend.Farm(ctx, s.now())
	if err != nil {
		return 0, err
	}
	n := 0
	for i := range farm.Jobs {
		if farm.Jobs[i].Resuming {
			n++
		}
	}
	return n, nil
}

// forget takes the last traces out of the queue's jobs.
func forget(ctx context.Context, s *site, out io.Writer) error {
	n, err := s.backend.Abilities().Forget(ctx)
	if err != nil {
		return fmt.Errorf("take what is ours out of the jobs: %w (try again)", err)
	}
	fmt.Fprintf(out, "%s of ours any more.\n", counted(n, "job had a tag or a rank, and has nothing", "jobs had a tag or a rank, and have nothing"))
	return nil
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
