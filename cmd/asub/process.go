package main

import (
	"context"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
	"github.com/allotment-hpc/allotment/internal/account"
	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// process is all that asub uses of the process that it runs in.
type process struct {
	stdin         io.Reader
	stdout        io.Writer
	stderr        io.Writer
	stdinTerminal bool
	now           func() time.Time
	user          func() string // the name of the account that runs it; "": it has none
	submitContext func() (bsub.Context, error)
	open          func(ctx context.Context, toSubmit bool) (backends.Backend, error)
	submit        func(context.Context, backends.Backend, []backends.Spec, io.Writer) []submit.Result
	exec          func(argv, env []string) error // replaces this process; returns only if that fails
}

func thisProcess() process {
	return process{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		stdinTerminal: term.IsTerminal(int(os.Stdin.Fd())),
		now:           time.Now, user: account.OwnName, submitContext: submit.Context,
		open: openConfigured, submit: submitThroughFilter, exec: command.Exec,
	}
}

func openConfigured(ctx context.Context, toSubmit bool) (backends.Backend, error) {
	return configfile.OpenConfigured(ctx, toSubmit, configfile.ConvertByProgram)
}

// run runs asub and returns its exit code.
func run(args []string, p process) int {
	return shell.RunUncaught("asub", p.stdout, p.stderr, func(ctx context.Context, out io.Writer) error {
		if hidden, err := shell.RunHidden(submitGrammar, args, out); hidden {
			return err
		}
		return runSubmit(ctx, p, args[min(1, len(args)):], out)
	})
}
