package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
)

// maxScript is the longest script that is taken from standard input, in bytes.
const maxScript = 16 << 20

// runSubmit is asub.
func runSubmit(ctx context.Context, p process, args []string, out io.Writer) error {
	line, err := bsub.Scan(args)
	switch {
	case err != nil:
		return usageError(err)
	case line.Help:
		_, err := io.WriteString(out, submitHelp(optionsHere(ctx, p)))
		return err
	case line.Version:
		_, err := fmt.Fprintln(out, "asub", shell.VersionText())
		return err
	}
	queue, err := p.open(ctx, true)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	if line.Advise {
		return p.advise(ctx, queue, line, out)
	}
	if find := queue.Abilities().Bsub; find != nil {
		shell.CatchSignals(ctx)
		native, err := find(ctx)
		if err != nil {
			return notSubmitted(err)
		}
		return p.execBsub(ctx, native, line, out)
	}
	requests, err := buildRequests(p, line, queue.Abilities().ForWrappers)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(requests, waits) {
		shell.CatchSignals(ctx)
	}
	if requests[0].Screen != bsub.NoScreen { // it is alone
		return p.submitJoined(ctx, queue, requests, out)
	}
	return p.submitBatch(ctx, queue, requests, out)
}

// submitJoined submits an interactive job, and waits for it at this terminal.
func (p process) submitJoined(ctx context.Context, queue backends.Backend, requests []bsub.Request, out io.Writer) error {
	if !queue.Abilities().Terminals {
		return fmt.Errorf("join a job to this terminal: %w: submit it as a batch job. Job not submitted.", backends.ErrUnable) //nolint:staticcheck,revive // the words that scripts look for
	}
	offer, err := p.offerTerminal(requests[0].Screen == bsub.JoinedByPTY)
	if err != nil {
		return fmt.Errorf("%w. Job not submitted.", err) //nolint:staticcheck,revive // the words that scripts look for
	}
	defer offer.close()
	requests[0].Spec.Terminal = offer.path
	ids, err := p.submitRequests(ctx, queue, requests, out)
	if err != nil {
		return err
	}
	quiet, err := p.open(ctx, false) // does not restart a daemon that is stopped meanwhile
	if err != nil {
		return err
	}
	defer func() { _ = quiet.Close() }()
	return p.waitInteractive(ctx, quiet, ids[0], offer)
}

// buildRequests returns the submissions of a command line, on a queue with abilities of
// its own.
func buildRequests(p process, line bsub.Line, able backends.ForWrappers) ([]bsub.Request, error) {
	submitContext, err := p.submitContext()
	if err != nil {
		return nil, err
	}
	if able.Options != nil {
		submitContext.Options = able.Options()
	}
	submitContext.Resources = able.Resources
	if file, given := line.Batch(); given {
		return batchRequests(p, line, file, submitContext)
	}
	script, err := readScript(p, line)
	if err != nil {
		return nil, err
	}
	request, err := line.Request(script, submitContext)
	if err != nil {
		return nil, usageError(err)
	}
	return []bsub.Request{request}, nil
}

// batchRequests returns the submissions of a file.
func batchRequests(p process, line bsub.Line, file string, submitContext bsub.Context) ([]bsub.Request, error) {
	text, err := p.readBatch(file)
	if err != nil {
		return nil, err
	}
	requests, err := line.BatchRequests(text, submitContext)
	if err != nil {
		return nil, usageError(fmt.Errorf("%s: %w", file, err))
	}
	return requests, nil
}

// submitBatch submits jobs, and waits for them where they ask for it.
func (p process) submitBatch(ctx context.Context, queue backends.Backend, requests []bsub.Request, out io.Writer) error {
	ids, failed := p.submitRequests(ctx, queue, requests, out)
	if slices.ContainsFunc(requests, waits) && len(ids) > 0 {
		return errors.Join(failed, p.waitFor(ctx, ids))
	}
	return failed
}

// waits reports whether the command goes on until the job has ended.
func waits(r bsub.Request) bool { return r.Wait || r.Screen != bsub.NoScreen }

// submitRequests submits jobs, prints a line for each, and returns the IDs of those that were
// accepted.
func (p process) submitRequests(ctx context.Context, queue backends.Backend, requests []bsub.Request, out io.Writer) (ids []backends.ID, failed error) {
	warned := map[string]bool{}
	specs := make([]backends.Spec, len(requests))
	for i, r := range requests {
		for _, warning := range r.Warnings {
			if !warned[warning] {
				warned[warning] = true
				fmt.Fprintf(p.stderr, "asub: warning: %s\n", warning)
			}
		}
		specs[i] = r.Spec
	}
	for _, submitted := range p.submit(ctx, queue, specs, p.stderr) {
		if err := notSubmitted(submitted.Err); err != nil {
			if len(requests) == 1 {
				return nil, err
			}
			fmt.Fprintf(p.stderr, "asub: %s\n", shell.OneLine(err.Error()))
			failed = batchExit(failed, err)
			continue
		}
		ids = append(ids, submitted.ID)
		fmt.Fprintln(out, bsub.SubmittedLine(submitted.ID.Job, cmp.Or(submitted.Queue, "default"), submitted.ByDefault))
	}
	return ids, failed
}

// notSubmitted adds the words that scripts look for to the error of a refused job.
func notSubmitted(err error) error {
	if err == nil || errors.Is(err, backends.ErrUnreachable) || errors.Is(err, submit.ErrRejected) {
		return err // the first leaves it open, the second has these words
	}
	return fmt.Errorf("%w. Job not submitted.", err) //nolint:staticcheck,revive // the words that scripts look for
}

// batchExit returns the exit code of a batch after one more of its jobs was refused.
func batchExit(so, err error) error {
	if errors.Is(err, backends.ErrUnreachable) {
		return &shell.ExitError{Code: shell.ExitTryAgain}
	}
	if so != nil {
		return so
	}
	return &shell.ExitError{Code: shell.ExitFailure}
}

// usageError returns a usage error that ends in LSF's words.
func usageError(err error) error { return shell.Usagef("%w. Job not submitted.", err) }

// readScript reads the job from standard input, unless the line has a command.
func readScript(p process, line bsub.Line) ([]byte, error) {
	if len(line.Command) > 0 {
		return nil, nil
	}
	if p.stdinTerminal {
		return nil, noCommand()
	}
	return readAtMost(p.stdin, "script on standard input")
}

// readAtMost reads a text of at most maxScript bytes.
func readAtMost(in io.Reader, what string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxScript+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the %s: %w", what, err)
	case len(text) > maxScript:
		return nil, shell.Usagef("the %s is longer than %d MB. Job not submitted.", what, maxScript>>20)
	}
	return text, nil
}

// optionsHere returns the options as the configured queue treats them.
func optionsHere(ctx context.Context, p process) []bsub.Option {
	queue, err := p.open(ctx, false)
	if err != nil {
		return bsub.Options()
	}
	defer func() { _ = queue.Close() }()
	if find := queue.Abilities().Bsub; find != nil {
		if native, err := find(ctx); err == nil {
			return bsub.OptionsOn(native.Options)
		}
	}
	if own := queue.Abilities().Options; own != nil {
		return bsub.OptionsOn(own())
	}
	return bsub.Options()
}

// submitHelp is what asub --help prints.
func submitHelp(options []bsub.Option) string {
	var b strings.Builder
	b.WriteString("NAME:\n   asub - " + submitBrief + "\n\nUSAGE:\n" + shell.Indented(submitSynopsis) +
		"\nDESCRIPTION:\n" + shell.Indented(submitDescription) + "\nOPTIONS:\n")
	var ignored, refused []string
	for _, o := range options {
		switch o.Treatment {
		case backends.Honoured:
			fmt.Fprintf(&b, "   %-34s %s\n", strings.TrimSpace(o.Name+" "+o.Arg), o.Note)
		case backends.Ignored:
			ignored = append(ignored, o.Name)
		case backends.Refused:
			refused = append(refused, o.Name)
		}
	}
	fmt.Fprintf(&b, "   %-34s %s\n", bsub.AdviseOption, adviseUsage)
	fmt.Fprintf(&b, "   %-34s %s\n", "-h, --help", "print this")
	fmt.Fprintf(&b, "   %-34s %s\n", "-V, --version", "print version and commit")
	b.WriteString("\n   Ignored with a warning:\n" + wrapped(ignored) + "\n   Refused:\n" + wrapped(refused))
	return b.String() + "\n" + shell.ExitCodes
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
