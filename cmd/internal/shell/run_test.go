package shell_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/command"
)

func TestAFullDiskIsAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	var stderr bytes.Buffer
	code := shell.Run("farm", full, &stderr, func(_ context.Context, out io.Writer) error {
		fmt.Fprintln(out, "text")
		return nil
	})
	if code != 1 || !strings.Contains(stderr.String(), "farm: write the output: ") {
		t.Errorf("got %d, %q", code, stderr.String())
	}
}

func TestSignalsEndTheContext(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		var stderr bytes.Buffer
		code := shell.Run("farm", io.Discard, &stderr, func(ctx context.Context, _ io.Writer) error {
			if err := syscall.Kill(os.Getpid(), signal); err != nil {
				return err
			}
			<-ctx.Done()
			return fmt.Errorf("wait for the job: %w", ctx.Err())
		})
		if code != 1 || stderr.String() != "farm: interrupted: wait for the job: context canceled\n" {
			t.Errorf("%v: got %d, %q", signal, code, stderr.String())
		}
	}
}

// The cause says which signal it was.
func TestSignalIsTheCause(t *testing.T) {
	var cause error
	shell.Run("farm", io.Discard, io.Discard, func(ctx context.Context, _ io.Writer) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-ctx.Done()
		cause = context.Cause(ctx)
		return nil
	})
	if cause == nil || !strings.Contains(cause.Error(), "terminated") {
		t.Errorf("the cause is %v, want the signal", cause)
	}
}

// Before a program of RunUncaught asks for signals, the first one kills it.
func TestUncaughtSignalKills(t *testing.T) {
	const variable = "ALLOTMENT_TEST_UNCAUGHT"
	if os.Getenv(variable) != "" {
		shell.RunUncaught("farm", io.Discard, io.Discard, func(context.Context, io.Writer) error {
			return syscall.Kill(os.Getpid(), syscall.SIGTERM)
		})
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestUncaughtSignalKills$")
	cmd.Env = append(os.Environ(), variable+"=1")
	err := cmd.Run()
	if cmd.ProcessState == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v, want SIGTERM", err)
	}
}

// The exit code of a command that fails is not the program's.
func TestExitCodeIgnoresCommandStatus(t *testing.T) {
	for _, script := range []string{"exit 255", "exit 75", "kill -SEGV $$"} {
		code := shell.Run("farm", io.Discard, io.Discard, func(ctx context.Context, _ io.Writer) error {
			_, err := command.Run(ctx, command.Command{Argv: []string{"sh", "-c", script}})
			return fmt.Errorf("list jobs: %w", err)
		})
		if code != shell.ExitFailure {
			t.Errorf("%s: exit code %d", script, code)
		}
	}
}
