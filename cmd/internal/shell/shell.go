// Package shell is the one frame around every command line: its exit codes, how
// errors and help look, signals, and completion.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/allotment-hpc/allotment/backends"
)

// Version and Commit are set when a program is linked (-ldflags -X) and never
// after: the one exception from "no package variables", since the linker can
// set nothing else.
var (
	Version = "dev"
	Commit  = "unknown"
)

// VersionText is what --version prints after the program's name.
func VersionText() string { return Version + " (" + Commit + ")" }

// The exit codes of every program.
const (
	ExitOK       = 0
	ExitFailure  = 1
	ExitUsage    = 2
	ExitTryAgain = 75
)

// ExitCodes is the table of exit codes that every --help ends with.
const ExitCodes = `EXIT CODES:
   0   done
   1   failed; the reason is on stderr
   2   wrong usage: nothing was done
   75  try again later: the queue can't be reached, or another run holds the lock
`

// Indented is a text as it stands below a heading of --help.
func Indented(text string) string {
	return "   " + strings.ReplaceAll(text, "\n", "\n   ") + "\n"
}

// ExitError gives an error an exit code of its own.
type ExitError struct {
	Code int
	Err  error // nil: everything has been said
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Usagef returns a usage error: exit code 2.
func Usagef(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// TryAgain marks an error that may be gone later: exit code 75.
func TryAgain(err error) error { return &ExitError{Code: ExitTryAgain, Err: err} }

// Run runs a program's own function, for those whose grammar is not urfave's,
// and returns the exit code. The context ends at SIGINT and SIGTERM; a second
// signal kills. An error is printed once, as one line. What could not be written
// to out (a full disk) is a failure too.
func Run(program string, stdout, stderr io.Writer, f func(ctx context.Context, out io.Writer) error) int {
	return RunUncaught(program, stdout, stderr, func(ctx context.Context, out io.Writer) error {
		CatchSignals(ctx)
		return f(ctx, out)
	})
}

// RunUncaught is Run for a program that mostly ends within milliseconds: until f calls
// CatchSignals, SIGINT and SIGTERM kill it. To catch signals takes the Go runtime 0.4 ms.
func RunUncaught(program string, stdout, stderr io.Writer, f func(ctx context.Context, out io.Writer) error) int {
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	ctx = context.WithValue(ctx, catching{}, sync.OnceFunc(func() { endBySignal(ctx, end) }))
	out := &checkedWriter{w: stdout}
	err := f(ctx, out)
	if err == nil && out.err != nil {
		err = fmt.Errorf("write the output: %w", out.err)
	}
	if err == nil {
		return ExitOK
	}
	if text := errorLine(ctx, err); text != "" {
		fmt.Fprintf(stderr, "%s: %s\n", program, text)
	}
	return exitCode(err)
}

type catching struct{}

// CatchSignals has SIGINT and SIGTERM end the context of Run or RunUncaught, before a
// program waits or runs another one.
func CatchSignals(ctx context.Context) {
	if catch, ok := ctx.Value(catching{}).(func()); ok {
		catch()
	}
}

// endBySignal ends a context at the first SIGINT or SIGTERM, with the signal as the cause.
// The next one kills.
func endBySignal(ctx context.Context, end context.CancelCauseFunc) {
	caught, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(caught, func() {
		stop()
		end(context.Cause(caught))
	})
}

// exitCode is one of the table's, or what an ExitError says: never that of a program
// that was run and failed.
func exitCode(err error) int {
	var exit *ExitError
	switch {
	case errors.As(err, &exit):
		return exit.Code
	case errors.Is(err, backends.ErrUnreachable):
		return ExitTryAgain
	default:
		return ExitFailure
	}
}

// errorLine is the error as one printable line; "" if everything has been said.
func errorLine(ctx context.Context, err error) string {
	var exit *ExitError
	if errors.As(err, &exit) && exit.Err == nil {
		return ""
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return "interrupted: " + OneLine(err.Error())
	}
	return OneLine(err.Error())
}

// OneLine is a text of several lines as one, printable.
func OneLine(text string) string {
	var parts []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, line)
		}
	}
	return Printable(strings.Join(parts, "; "))
}

// checkedWriter remembers the first failure, so that no command must ask after
// each line that it prints.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.w.Write(p)
	c.err = err
	return n, err
}

// Unwrap returns the writer below, for Terminal.
func (c *checkedWriter) Unwrap() io.Writer { return c.w }
