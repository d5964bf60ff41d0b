// Package commands is the frame around command lines with options and commands of
// the usual kind, made of urfave's package. That takes its time to start: asub,
// whose grammar is LSF's, does without.
package commands

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// Main runs a command line made of urfave commands and returns the exit code.
// It adds to the app what all programs share: --version, the exit codes in
// --help, options anywhere on the line (`alloc set chipA 100 --week W`), one
// clear line for a wrong option, command or number of arguments. A command
// without ArgsUsage takes no arguments; one with it checks them itself (see
// Args). Commands write to c.App.Writer.
func Main(app *cli.App, args []string) int {
	stdout, stderr := app.Writer, app.ErrWriter
	if stdout == nil {
		stdout = os.Stdout
	}
	if stderr == nil {
		stderr = os.Stderr
	}
	return shell.Run(app.Name, stdout, stderr, func(ctx context.Context, out io.Writer) error {
		app.Writer, app.ErrWriter = out, stderr
		prepare(app)
		if hidden, err := shell.RunHidden(func() *grammar.Command { return Grammar(app) }, args, out); hidden {
			return err
		}
		ordered, err := optionsFirst(app, args)
		if err != nil {
			return err
		}
		err = app.RunContext(ctx, ordered)
		if errors.Is(err, errVersionShown) {
			return nil
		}
		return err
	})
}
