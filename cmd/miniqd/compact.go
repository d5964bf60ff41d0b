package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/urfave/cli/v2"

	client "github.com/allotment-hpc/allotment/backends/miniq"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/daemon"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

func compactCommand() *cli.Command {
	return &cli.Command{
		Name:  "compact",
		Usage: "forget jobs that ended long ago, shorten the journal, and print what that freed; the daemon may run",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "keep", Usage: "keep jobs that ended less than `DURATION` ago, such as 24h (default: miniq: keep_finished: in the config)"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			compacted, err := compact(c)
			switch {
			case err != nil:
				return err
			case c.Bool("json"):
				return shell.PrintJSON(c.App.Writer, compacted)
			}
			return printCompacted(c.App.Writer, compacted)
		},
	}
}

func compact(c *cli.Context) (*miniq.Compacted, error) {
	config, err := configfile.Load(yamlplain.Convert)
	if err != nil {
		return nil, err
	}
	var keep *time.Duration
	if c.IsSet("keep") {
		d := c.Duration("keep")
		if d < 0 {
			return nil, shell.Usagef("option --keep: %s is negative", d)
		}
		keep = &d
	}
	compacted, err := daemon.Compact(daemon.Options{
		Paths: config.Paths, Config: config.Miniq, Log: slog.New(slog.NewTextHandler(c.App.ErrWriter, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}, keep)
	if !errors.Is(err, daemon.ErrServing) {
		return compacted, err
	}
	q := client.Open(client.Options{Paths: config.Paths, Config: config.Miniq, Timeout: compactTime})
	defer func() { _ = q.Close() }()
	return q.Compact(c.Context, keep)
}

// compactTime bounds a compaction: a hundred thousand files may have to go.
const compactTime = 10 * time.Minute

func printCompacted(out io.Writer, c *miniq.Compacted) error {
	_, err := fmt.Fprintf(out, "Forgot %d jobs (%s of state objects), shortened the journal by %s; the state takes %s.\n",
		c.Forgotten, kib(c.Objects), kib(c.Journal), kib(c.Left))
	return err
}

// kib is a size in whole KiB, rounded up.
func kib(bytes int64) string { return unit.Size((bytes + 1023) &^ 1023).String() }
