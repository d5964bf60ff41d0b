package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/pba/desk"
)

func pauseCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "pause", Usage: "stop acting until `pba resume`: cycles do nothing",
		Action: func(c *cli.Context) error { return setPaused(c, p, true) },
	}
}

func resumeCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "resume", Usage: "continue after `pba pause` or `pba restore`",
		Action: func(c *cli.Context) error { return setPaused(c, p, false) },
	}
}

func setPaused(c *cli.Context, p process, paused bool) error {
	return p.withDesk(c, func(ctx context.Context, d *desk.Desk) error {
		changed, err := d.SetPaused(ctx, paused)
		if err != nil {
			return err
		}
		text := "It was not paused."
		switch {
		case paused && changed:
			text = "Paused: cycles do nothing until `pba resume`. Holds end by themselves within " + d.PBA.HoldLimit.String() + "; `pba restore` undoes all changes at once."
		case paused:
			text = "It was paused already."
		case changed:
			text = "Resumed: the next cycle acts again."
		}
		fmt.Fprintln(c.App.Writer, text)
		return nil
	})
}
