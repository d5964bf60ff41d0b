package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// listOptions are the options of the commands that list what is named, or all.
type listOptions struct {
	names      []string // empty: all
	wide, json bool
	long       bool // everything about each, with its jobs
}

// listApp makes app a command that lists what is named, or all; wide and long say what
// its -w and -l do.
func listApp(p process, run func(context.Context, process, listOptions, io.Writer) error, wide, long string, app *cli.App) *cli.App {
	if app.Metadata == nil {
		app.Metadata = map[string]any{}
	}
	app.Metadata[commands.Clusters] = true
	app.Flags = []cli.Flag{
		&cli.BoolFlag{Name: "w", Usage: wide, DisableDefaultText: true},
		&cli.BoolFlag{Name: "l", Usage: long, DisableDefaultText: true},
		&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true},
	}
	app.Action = func(c *cli.Context) error {
		o := listOptions{names: c.Args().Slice(), wide: c.Bool("w"), json: c.Bool("json"), long: c.Bool("l")}
		if o.long && (o.wide || o.json) {
			return shell.Usagef("-l can't be combined with -w or --json")
		}
		return run(c.Context, p, o, c.App.Writer)
	}
	return app
}

// selectNamed returns the elements of all that have one of the names (without names: all),
// and the names that no element has.
func selectNamed[T any](all []T, names []string, nameOf func(T) string) (chosen []T, unknown []string) {
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(x T) bool { return nameOf(x) == name }) {
			unknown = append(unknown, name)
		}
	}
	return slices.DeleteFunc(all, func(x T) bool { return !slices.Contains(names, nameOf(x)) }), unknown
}

// reportUnknown prints a line for each unknown name, and returns an error if there is one.
// The format is a line with one %s.
func reportUnknown[T any](p process, format string, unknown []T) error {
	for _, name := range unknown {
		fmt.Fprintf(p.stderr, format, bsub.Visible(fmt.Sprint(name)))
	}
	if len(unknown) > 0 {
		return &shell.ExitError{Code: shell.ExitFailure}
	}
	return nil
}
