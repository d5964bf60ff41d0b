package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends/joined"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

func joinDirFlag() cli.Flag {
	return &cli.StringFlag{Name: "join-dir", Usage: "machines join in `DIR`, which all of them share (default: ~/.asplit/joined)"}
}

// joinDir is where machines join.
func joinDir(c *cli.Context) (string, error) {
	dir := c.String("join-dir")
	if dir == "" {
		own, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the directory where machines join: %w: set --join-dir", err)
		}
		dir = filepath.Join(own, ".asplit", "joined")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find --join-dir: %w", err)
	}
	return dir, nil
}

// joinCommand offers this machine to splits.
func joinCommand(p process) *cli.Command {
	return &cli.Command{
		Name:  "worker",
		Usage: "offer this machine to your splits, where there is no queue",
		Description: "asplit worker --join runs on each machine, asplit --joined on one of them: the machines share the working\n" +
			"directory, and the one where they join. The machine's own miniqd runs the jobs, with its slots and its state in\n" +
			"a directory of the machine's own. Ctrl-C takes the machine out: splits do its work elsewhere.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "join", Usage: "join the machines of --join-dir", DisableDefaultText: true},
			joinDirFlag(),
			&cli.StringFlag{Name: "name", Usage: "`NAME` of this machine among them (default: its host name)"},
			&cli.StringFlag{Name: "slots", Usage: "offer `N` slots (default: one for each processor)"},
			&cli.StringFlag{Name: "state", Usage: "keep jobs' state in `DIR`, which no other machine has (default: /var/tmp/asplit-UID)"},
		},
		Action: func(c *cli.Context) error {
			if !c.Bool("join") {
				return shell.Usagef("want asplit worker --join; the workers of a split start by themselves")
			}
			if c.NArg() > 0 {
				return shell.Usagef("worker takes no arguments")
			}
			dir, err := joinDir(c)
			if err != nil {
				return err
			}
			slots := 0
			if c.IsSet("slots") {
				if slots, err = strconv.Atoi(c.String("slots")); err != nil || slots < 1 || slots > maxSlots {
					return shell.Usagef("--slots %q: want a number from 1 to %d", c.String("slots"), maxSlots)
				}
			}
			state := c.String("state")
			if state == "" {
				state = fmt.Sprintf("/var/tmp/asplit-%d", os.Getuid())
			}
			if state, err = filepath.Abs(state); err != nil {
				return fmt.Errorf("find --state: %w", err)
			}
			ctx, stop := signal.NotifyContext(c.Context, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
			defer stop()
			context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
			return joined.Offer(ctx, joined.Options{Dir: dir, State: state, Name: c.String("name"), Slots: slots, Log: func(text string) {
				fmt.Fprintln(p.stderr, "asplit:", shell.Printable(text))
			}})
		},
	}
}
