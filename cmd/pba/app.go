package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// process is all that the commands use of the process that they run in.
type process struct {
	desk.System
	args           []string
	stdout, stderr io.Writer
}

func thisProcess() process {
	return process{desk.ThisSystem(), os.Args, os.Stdout, os.Stderr}
}

func newApp(p process) *cli.App {
	return &cli.App{
		Name:      "pba",
		Usage:     "plan job slots for projects, and free them when the projects' jobs need them",
		UsageText: "pba [--server URL] COMMAND [OPTION]… [ARGUMENT]…",
		Description: "A project is a name that jobs give, a UNIX group and its managers. An allocation guarantees it\n" +
			"slots for a week; one that is in force now is a pool. A cycle reads the queue: if a job within\n" +
			"its pool has waited too long, jobs beyond their projects' guarantees (victims) are preempted\n" +
			"for it (a reclaim). A flow names the steps of a project's work. The ledger is the file with\n" +
			"the plan and its history.",
		Writer: p.stdout, ErrWriter: p.stderr,
		Flags: []cli.Flag{serverOption()},
		Commands: forServers([]*cli.Command{
			initCommand(p), flowCommand(p), projectCommand(p), allocCommand(p),
			rebalanceCommand(p), statusCommand(p), explainCommand(p), reportCommand(p), simulateCommand(p), metricsCommand(p), doctorCommand(p),
			pauseCommand(p), resumeCommand(p), restoreCommand(p), dummiesCommand(p), backupCommand(p),
			loginCommand(p), logoutCommand(p),
		}),
	}
}

// withDesk opens a desk for one command.
func (p process) withDesk(c *cli.Context, do func(context.Context, *desk.Desk) error) error {
	return p.openDesk(c.Context, false, do)
}

// withDeskAndQueue is with, and starts the bundled queue where it does not run.
func (p process) withDeskAndQueue(c *cli.Context, do func(context.Context, *desk.Desk) error) error {
	return p.openDesk(c.Context, true, do)
}

func (p process) openDesk(ctx context.Context, start bool, do func(context.Context, *desk.Desk) error) error {
	d, err := desk.Open(ctx, p.System, start)
	if err != nil {
		return withExitCode(err)
	}
	defer d.Close()
	return withExitCode(do(ctx, d))
}

// tableAction returns the action of a command that prints the table that list makes of what
// open opens.
func tableAction[D any](open func(*cli.Context, func(context.Context, D) error) error, list func(context.Context, D, *cli.Context) (*table.Table, any, error)) cli.ActionFunc {
	return func(c *cli.Context) error {
		format, err := table.FormatOf(c)
		if err != nil {
			return err
		}
		return open(c, func(ctx context.Context, d D) error {
			t, all, err := list(ctx, d, c)
			if err != nil {
				return err
			}
			return table.Print(c.App.Writer, format, t, all)
		})
	}
}

// withExitCode returns an error of the desk with its exit code.
func withExitCode(err error) error {
	switch {
	case errors.Is(err, desk.ErrInvalid):
		return &shell.ExitError{Code: shell.ExitUsage, Err: err}
	case desk.Temporary(err):
		return shell.TryAgain(err)
	}
	return err
}

// duration is the option of a time above zero.
type duration struct{ value unit.Duration }

// Set reads the option's text.
func (d *duration) Set(text string) error {
	var parsed unit.Duration
	if err := parsed.UnmarshalText([]byte(text)); err != nil {
		return err
	}
	if parsed == 0 {
		return fmt.Errorf("%q is not a duration above zero", text)
	}
	d.value = parsed
	return nil
}

func (d *duration) String() string {
	if d == nil || d.value == 0 {
		return ""
	}
	return d.value.String()
}

// durationOrZero is the option of a time; below zero: not given.
type durationOrZero struct{ value unit.Duration }

// Set reads the option's text.
func (d *durationOrZero) Set(text string) error { return d.value.UnmarshalText([]byte(text)) }

func (d *durationOrZero) String() string {
	if d == nil || d.value < 0 {
		return ""
	}
	return d.value.String()
}
