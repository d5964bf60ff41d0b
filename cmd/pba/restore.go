package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/pba"
)

func restoreCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "restore", Usage: "put everything back that pba did to the queue, and pause",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "print each action", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			return withSite(c.Context, p, p.open, func(s *site) error { return restore(c.Context, s, c.Bool("verbose"), c.App.Writer) })
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
	fmt.Fprintln(out, "Everything is put back. Cycles are paused: `pba resume` lets them go on.")
	return nil
}
