package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/command"
)

// handOver replaces this process by the queue's own bsub, which runs the site's filter
// itself, so that waiting, terminal and exit code are bsub's. The lines of a batch are
// submitted one by one.
func (s site) handOver(ctx context.Context, theirs backends.Bsub, line bsub.Line, out io.Writer) error {
	around, err := s.around()
	if err != nil {
		return err
	}
	s.warn(theirs.Warnings)
	env := withEnv(around.Env, theirs.Env)
	if file, given := line.Batch(); given {
		return s.handOverBatch(ctx, theirs, line, file, env, out)
	}
	if len(line.Command) == 0 && s.stdinTerminal {
		return noCommand()
	}
	words, warnings, err := line.Words(theirs.Options)
	if err != nil {
		return usage(err)
	}
	s.warn(warnings)
	return s.become(append([]string{theirs.Program}, words...), env)
}

func (s site) handOverBatch(ctx context.Context, theirs backends.Bsub, line bsub.Line, file string, env []string, out io.Writer) error {
	text, err := s.readBatch(file)
	if err != nil {
		return err
	}
	jobs, warnings, err := line.BatchWords(text, theirs.Options)
	if err != nil {
		return usage(fmt.Errorf("%s: %w", file, err))
	}
	s.warn(warnings)
	var failed error
	for _, words := range jobs {
		_, err := command.Run(ctx, command.Command{Argv: append([]string{theirs.Program}, words...), Env: env, HandsOn: true, Stdout: out, Stderr: s.stderr})
		var end *command.Error
		switch {
		case err == nil:
		case ctx.Err() != nil, !errors.As(err, &end), end.Status < 0:
			return err
		default: // bsub has printed why
			failed = worse(failed, err)
		}
	}
	return failed
}

func (s site) warn(warnings []string) {
	for _, warning := range warnings {
		fmt.Fprintf(s.stderr, "asub: warning: %s\n", warning)
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
func (s site) readBatch(file string) ([]byte, error) {
	in := s.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, usage(fmt.Errorf("read the jobs of a batch: %w", err))
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	return readAtMost(in, "batch "+file)
}

func noCommand() error {
	return shell.Usagef("no command: write one after the options, or give a script on standard input; see asub --help")
}
