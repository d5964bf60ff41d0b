// Package command runs other programs. Every program that Allotment runs for
// itself goes through Run: without a shell, with a time limit, in the C locale,
// with its argv, exit status and stderr in the error.
package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Command is a program to run.
type Command struct {
	Argv     []string // the program, looked up in PATH if it has no slash, and its arguments
	Stdin    io.Reader
	Stdout   io.Writer     // nil: its output is returned
	Stderr   io.Writer     // gets its stderr at once, besides the error; nil: the error alone
	Env      []string      // the whole environment, KEY=value; nil: ours. LC_ALL=C is added, unless ExactEnv
	Dir      string        // working directory; "": ours
	Timeout  time.Duration // 0: none but the context's
	ExactEnv bool          // it hands its environment on, to a job: nothing is added
	Notice   time.Duration // when the context is done it gets SIGTERM, and so much later its group is killed; 0: at once
}

// Error is a program that could not be run, or that failed.
type Error struct {
	Argv   []string
	Status int    // exit status; 128 + signal if one killed it; -1 if it never ran
	Killed bool   // a signal ended it
	Stderr string // what it said, at most 64 KiB
	Err    error  // the cause: the context's, or os/exec's
}

func (e *Error) Error() string {
	var b strings.Builder
	for i, arg := range e.Argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if b.Len() > maxShown {
			b.WriteString("...")
			break
		}
		b.WriteString(shortened(quoted(arg)))
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	if text := strings.TrimSpace(e.Stderr); text != "" {
		b.WriteString(": ")
		b.WriteString(text)
	}
	return b.String()
}

// Unwrap returns the cause: context.DeadlineExceeded after the time limit,
// exec.ErrNotFound for a program that is not there, an *exec.ExitError.
func (e *Error) Unwrap() error { return e.Err }

// An error is to be one line of a terminal, or two.
const (
	maxShown    = 160 // bytes of a command's arguments, about
	maxArgument = 100 // bytes of one of them
)

// shortened returns the beginning of an argument that is long.
func shortened(arg string) string {
	if len(arg) <= maxArgument {
		return arg
	}
	return strings.ToValidUTF8(arg[:maxArgument], "") + "..."
}

// timeoutError is the cause of an end by a command's own time limit.
type timeoutError struct{ limit time.Duration }

func (e timeoutError) Error() string { return fmt.Sprintf("timed out after %v", e.limit) }
func (timeoutError) Unwrap() error   { return context.DeadlineExceeded }

// quoted shows an argument so that its ends can be seen.
func quoted(arg string) string {
	if arg == "" || strings.ContainsFunc(arg, func(r rune) bool { return r <= ' ' || r == '"' || r == '\'' || !strconv.IsPrint(r) }) {
		return strconv.Quote(arg)
	}
	return arg
}

const (
	maxStderr = 64 << 10
	// drainTime is how long output is awaited after a program's end: of what it left
	// behind, or its own, if a busy machine has not read it yet.
	drainTime = 10 * time.Second
)

// Run runs a program to its end and returns what it wrote on stdout. Its whole
// process group is killed when the time is up or the context done. Every error
// is an *Error; what was written until then is returned with it.
func Run(ctx context.Context, c Command) ([]byte, error) {
	if len(c.Argv) == 0 {
		return nil, &Error{Status: -1, Err: errors.New("no program to run")}
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, timeoutError{c.Timeout})
		defer cancel()
	}
	var stdout bytes.Buffer
	stderr := limited{left: maxStderr}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, &stdout, &stderr
	if c.Stdout != nil {
		cmd.Stdout = c.Stdout
	}
	if c.Stderr != nil {
		cmd.Stderr = io.MultiWriter(&stderr, c.Stderr)
	}
	cmd.Dir = c.Dir
	cmd.Env = environment(c.Env)
	if !c.ExactEnv {
		cmd.Env = append(cmd.Env, "LC_ALL=C")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var late *time.Timer
	cmd.Cancel = func() error {
		if c.Notice == 0 {
			return kill()
		}
		late = time.AfterFunc(c.Notice, func() { _ = kill() })
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	cmd.WaitDelay = drainTime
	err := cmd.Run()
	if late != nil && late.Stop() {
		_ = kill() // what it left behind: later the number may be another group's
	}
	if err == nil {
		return stdout.Bytes(), nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	exit, killed := status(cmd.ProcessState)
	return stdout.Bytes(), &Error{Argv: c.Argv, Status: exit, Killed: killed, Stderr: stderr.kept.String(), Err: err}
}

// environment is a copy: the caller's slice must not grow behind its back.
func environment(env []string) []string {
	if env == nil {
		return os.Environ()
	}
	return append(make([]string, 0, len(env)+1), env...)
}

func status(state *os.ProcessState) (exit int, killed bool) {
	if state == nil {
		return -1, false
	}
	if wait, ok := state.Sys().(syscall.WaitStatus); ok && wait.Signaled() {
		return 128 + int(wait.Signal()), true
	}
	return state.ExitCode(), false
}

// limited keeps the first bytes that are written to it and swallows the rest.
type limited struct {
	kept bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.kept.Write(p[:n])
	l.left -= n
	return len(p), nil
}

// Exec makes this process another program, with all of its files, its terminal and
// the given environment. It returns only if that fails.
func Exec(argv, env []string) error {
	if len(argv) == 0 {
		return &Error{Status: -1, Err: errors.New("no program to run")}
	}
	program, err := exec.LookPath(argv[0])
	if err == nil {
		err = syscall.Exec(program, argv, env)
	}
	return &Error{Argv: argv, Status: -1, Err: err}
}
