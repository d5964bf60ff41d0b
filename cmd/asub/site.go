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
	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// site is all that asub uses of the process that it runs in.
type site struct {
	stdin         io.Reader
	stdout        io.Writer
	stderr        io.Writer
	stdinTerminal bool
	now           func() time.Time
	around        func() (bsub.Context, error)
	open          func(ctx context.Context, toSubmit bool) (backends.Backend, error)
	submit        func(context.Context, backends.Backend, []backends.Spec, io.Writer) []submit.Result
	become        func(argv, env []string) error // replaces this process; returns only if that fails
}

func thisProcess() site {
	return site{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		stdinTerminal: term.IsTerminal(int(os.Stdin.Fd())),
		now:           time.Now, around: submit.Around,
		open: configfile.OpenConfigured, submit: submitThroughFilter, become: command.Become,
	}
}

// run runs asub and returns its exit code.
func run(args []string, s site) int {
	return shell.RunUncaught("asub", s.stdout, s.stderr, func(ctx context.Context, out io.Writer) error {
		if own, err := shell.Own(submitGrammar, args, out); own {
			return err
		}
		return runSubmit(ctx, s, args[min(1, len(args)):], out)
	})
}
