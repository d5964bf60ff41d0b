package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"
)

func pauseCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "pause", Usage: "let cycles do nothing until `pba resume`",
		Action: func(c *cli.Context) error {
			return withSite(c.Context, p, p.open, func(s *site) error { return setPaused(c.Context, s, true, c.App.Writer) })
		},
	}
}

func resumeCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "resume", Usage: "let cycles go on after `pba pause` or `pba restore`",
		Action: func(c *cli.Context) error {
			return withSite(c.Context, p, p.open, func(s *site) error { return setPaused(c.Context, s, false, c.App.Writer) })
		},
	}
}

func setPaused(ctx context.Context, s *site, paused bool, out io.Writer) error {
	if err := s.mustBeAdmin("pause or resume the engine"); err != nil {
		return err
	}
	changed := false
	err := s.edit(ctx, func() (err error) {
		changed, err = s.ledger.SetPaused(ctx, s.editor(), paused)
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case paused && changed:
		fmt.Fprintln(out, "Paused: cycles do nothing until `pba resume`. Holds of ours end by themselves within "+s.PBA.HoldLimit.String()+"; `pba restore` puts everything back at once.")
	case paused:
		fmt.Fprintln(out, "It was paused already.")
	case changed:
		fmt.Fprintln(out, "The next cycle goes on.")
	default:
		fmt.Fprintln(out, "It was not paused.")
	}
	return nil
}
