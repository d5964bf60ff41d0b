package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/command"
)

// execBsub replaces this process by the queue's own bsub, which runs the site's filter
// itself, so that waiting, terminal and exit code are bsub's. The lines of a batch are
// submitted one by one.
func (p process) execBsub(ctx context.Context, native backends.Bsub, line bsub.Line, out io.Writer) error {
	submitContext, err := p.submitContext()
	if err != nil {
		return err
	}
	p.warn(native.Warnings)
	env := withEnv(submitContext.Env, native.Env)
	if file, given := line.Batch(); given {
		return p.runBsubBatch(ctx, native, line, file, env, submitContext.Now, out)
	}
	if len(line.Command) == 0 && p.stdinTerminal {
		return noCommand()
	}
	call, warnings, err := line.Call(native.Options, submitContext.Now)
	if err != nil {
		return usageError(err)
	}
	p.warn(warnings)
	return p.exec(append([]string{native.Program}, call.Words...), withEnv(env, call.Env))
}

func (p process) runBsubBatch(ctx context.Context, native backends.Bsub, line bsub.Line, file string, env []string, now time.Time, out io.Writer) error {
	text, err := p.readBatch(file)
	if err != nil {
		return err
	}
	jobs, warnings, err := line.BatchCalls(text, native.Options, now)
	if err != nil {
		return usageError(fmt.Errorf("%s: %w", file, err))
	}
	p.warn(warnings)
	var failed error
	for _, call := range jobs {
		_, err := command.Run(ctx, command.Command{Argv: append([]string{native.Program}, call.Words...), Env: withEnv(env, call.Env), ExactEnv: true, Stdout: out, Stderr: p.stderr})
		var end *command.Error
		switch {
		case err == nil:
		case ctx.Err() != nil, !errors.As(err, &end), end.Status < 0:
			return err
		default: // bsub has printed why
			failed = batchExit(failed, err)
		}
	}
	return failed
}

func (p process) warn(warnings []string) {
	for _, warning := range warnings {
		fmt.Fprintf(p.stderr, "asub: warning: %s\n", warning)
	}
}

// withEnv returns an environment with some variables set.
func withEnv(env, set []string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.ContainsFunc(set, func(e string) bool { return strings.HasPrefix(e, name+"=") })
	})
	return append(out, set...)
}

// readBatch reads a file of submissions; - is standard input.
func (p process) readBatch(file string) ([]byte, error) {
	in := p.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, usageError(fmt.Errorf("read the jobs of a batch: %w", err))
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	return readAtMost(in, "batch "+file)
}

func noCommand() error {
	return shell.Usagef("no command: write one after the options, or give a script on standard input; see asub --help")
}
