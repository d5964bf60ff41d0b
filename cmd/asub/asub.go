package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
)

// maxScript is the longest script that is taken from standard input, in bytes.
const maxScript = 16 << 20

// submission is what became of a job that was handed in.
type submission struct {
	ID        backends.ID
	Queue     string
	ByDefault bool // nobody named the queue
}

// runSubmit is asub.
func runSubmit(ctx context.Context, s site, args []string, out io.Writer) error {
	line, err := bsub.Scan(args)
	switch {
	case err != nil:
		return usage(err)
	case line.Help:
		_, err := io.WriteString(out, submitHelp())
		return err
	case line.Version:
		_, err := fmt.Fprintln(out, "asub", shell.VersionText())
		return err
	}
	script, err := readScript(s, line)
	if err != nil {
		return err
	}
	dir, err := s.dir()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	request, err := line.Request(script, bsub.Context{Now: s.now(), Dir: dir, Env: s.env, Umask: s.umask()})
	if err != nil {
		return usage(err)
	}
	for _, warning := range request.Warnings {
		fmt.Fprintf(s.stderr, "asub: warning: %s\n", warning)
	}
	queue, err := s.open(ctx, true)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	submitted, err := s.submit(ctx, queue, request.Spec, s.stderr)
	switch {
	case err == nil:
	case errors.Is(err, backends.ErrUnreachable), errors.Is(err, submit.ErrRejected):
		return err // of the one nothing is known, the other says so itself
	default:
		return fmt.Errorf("%w. Job not submitted.", err) //nolint:staticcheck,revive // the words that scripts look for
	}
	_, err = fmt.Fprintln(out, bsub.SubmittedLine(submitted.ID.Job, submitted.Queue, submitted.ByDefault))
	return err
}

// usage is a fault of who typed the line, in the words that LSF ends it with.
func usage(err error) error { return shell.Usagef("%w. Job not submitted.", err) }

// readScript reads the job from standard input, unless the line has a command.
func readScript(s site, line bsub.Line) ([]byte, error) {
	if len(line.Command) > 0 {
		return nil, nil
	}
	if s.stdinTerminal {
		return nil, shell.Usagef("no command: write one after the options, or give a script on standard input; see asub --help")
	}
	script, err := io.ReadAll(io.LimitReader(s.stdin, maxScript+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the script on standard input: %w", err)
	case len(script) > maxScript:
		return nil, shell.Usagef("the script on standard input is longer than %d MB. Job not submitted.", maxScript>>20)
	}
	return script, nil
}

// submitHelp is what asub --help prints.
func submitHelp() string {
	var b strings.Builder
	b.WriteString("NAME:\n   asub - " + submitBrief + "\n\nUSAGE:\n" + indented(submitSynopsis) +
		"\nDESCRIPTION:\n" + indented(submitDescription) + "\nOPTIONS:\n")
	var ignored, refused []string
	for _, o := range bsub.Options() {
		switch o.Miniq {
		case bsub.Honoured:
			fmt.Fprintf(&b, "   %-34s %s\n", strings.TrimSpace(o.Name+" "+o.Arg), o.Note)
		case bsub.Ignored:
			ignored = append(ignored, o.Name)
		case bsub.Refused:
			refused = append(refused, o.Name)
		}
	}
	fmt.Fprintf(&b, "   %-34s %s\n", "-h, --help", "print this")
	fmt.Fprintf(&b, "   %-34s %s\n", "-V, --version", "print version and commit")
	b.WriteString("\n   Ignored with a warning:\n" + wrapped(ignored) + "\n   Refused:\n" + wrapped(refused))
	return b.String() + "\n" + shell.ExitCodes
}

func indented(text string) string {
	return "   " + strings.ReplaceAll(text, "\n", "\n   ") + "\n"
}

// wrapped writes words in lines of at most 78 characters.
func wrapped(words []string) string {
	var b strings.Builder
	width := 0
	for _, word := range words {
		if width == 0 || width+1+len(word) > 78 {
			if width > 0 {
				b.WriteByte('\n')
			}
			b.WriteString("     ")
			width = 5
		}
		b.WriteString(" " + word)
		width += 1 + len(word)
	}
	return b.String() + "\n"
}
