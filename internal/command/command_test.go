package command_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/internal/command"
)

func sh(script string) command.Command {
	return command.Command{Argv: []string{"/bin/sh", "-c", script}}
}

func TestRunReturnsOutput(t *testing.T) {
	c := sh(`cat; pwd; echo "$LC_ALL $A"`)
	c.Stdin, c.Dir, c.Env = strings.NewReader("in\n"), "/", []string{"LC_ALL=de_DE", "A=b c"}
	out, err := command.Run(t.Context(), c)
	if err != nil || string(out) != "in\n/\nC b c\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestRunUsesOurEnvironmentByDefault(t *testing.T) {
	t.Setenv("ALLOTMENT_TEST", "x")
	out, err := command.Run(t.Context(), sh(`echo "$LC_ALL $ALLOTMENT_TEST"`))
	if err != nil || string(out) != "C x\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestExactEnvAddsNothing(t *testing.T) {
	c := sh(`echo "$LC_ALL"`)
	c.Env, c.ExactEnv = []string{"LC_ALL=de_DE"}, true
	if out, err := command.Run(t.Context(), c); err != nil || string(out) != "de_DE\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

// asExec makes the test binary one that becomes a shell.
const asExec = "ALLOTMENT_TEST_AS_BECOME"

func TestMain(m *testing.M) {
	if os.Getenv(asExec) != "" {
		err := command.Exec([]string{"sh", "-c", `echo "$0 $A $$"; exit 3`}, []string{"A=b"})
		panic(err)
	}
	os.Exit(m.Run())
}

// What it becomes has its process, its files and the environment that is said.
func TestExec(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), asExec+"=1")
	out, err := cmd.Output()
	if want := "sh b " + strconv.Itoa(cmd.Process.Pid) + "\n"; string(out) != want || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("got %q, %v; want %q and exit status 3", out, err, want)
	}
	var failed *command.Error
	if err := command.Exec([]string{"allotment-no-such-program"}, nil); !errors.Is(err, exec.ErrNotFound) || !errors.As(err, &failed) {
		t.Errorf("got %v", err)
	}
	if err := command.Exec(nil, nil); !errors.As(err, &failed) {
		t.Errorf("no argv: got %v", err)
	}
}

func TestErrorCarriesArgvStatusAndStderr(t *testing.T) {
	out, err := command.Run(t.Context(), sh(`echo half; echo "bad thing" >&2; exit 3`))
	var failed *command.Error
	if !errors.As(err, &failed) || failed.Status != 3 || failed.Stderr != "bad thing\n" || failed.Argv[1] != "-c" {
		t.Fatalf("got %+v", err)
	}
	if string(out) != "half\n" {
		t.Errorf("output so far: %q", out)
	}
	want := `/bin/sh -c "echo half; echo \"bad thing\" >&2; exit 3": exit status 3: bad thing`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestErrorOfMissingProgram(t *testing.T) {
	_, err := command.Run(t.Context(), command.Command{Argv: []string{"allotment-no-such-program"}})
	var failed *command.Error
	if !errors.Is(err, exec.ErrNotFound) || !errors.As(err, &failed) || failed.Status != -1 {
		t.Errorf("got %v", err)
	}
	if _, err := command.Run(t.Context(), command.Command{}); !errors.As(err, &failed) {
		t.Errorf("no argv: got %v", err)
	}
}

func TestSignalIsAStatus(t *testing.T) {
	_, err := command.Run(t.Context(), sh(`kill -9 $$`))
	var failed *command.Error
	if !errors.As(err, &failed) || failed.Status != 137 {
		t.Errorf("got %+v", err)
	}
}

// A named pipe ends when the last process that holds it is gone.
func TestTimeoutKillsTheProcessGroup(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	c := sh(`exec 3>` + fifo + `; echo started >&3; sleep 60 & wait`)
	c.Timeout = 300 * time.Millisecond
	_, err = command.Run(t.Context(), c)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "timed out after 300ms") {
		t.Errorf("got %v", err)
	}
	if err := pipe.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(pipe); err != nil || string(text) != "started\n" {
		t.Errorf("a grandchild lives on: %q, %v", text, err)
	}
}

// What stands in an error is for people: thousands of job IDs are not.
func TestLongCommandsAreShortened(t *testing.T) {
	argv := []string{"sh", "-c", "exit 3", strings.Repeat("x", 5000)}
	for range 1000 {
		argv = append(argv, "123456")
	}
	_, err := command.Run(t.Context(), command.Command{Argv: argv})
	if err == nil || len(err.Error()) > 300 || !strings.HasPrefix(err.Error(), `sh -c "exit 3" xxx`) || !strings.HasSuffix(err.Error(), "...: exit status 3") {
		t.Errorf("got %v", err)
	}
}

func TestCancelStopsRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := command.Run(ctx, sh(`sleep 3600`)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestRunUsesOwnProcessGroup(t *testing.T) {
	out, err := command.Run(t.Context(), sh(`set -- $(cat /proc/self/stat); echo "$5"`))
	if err != nil {
		t.Fatal(err)
	}
	if ours := syscall.Getpgrp(); strings.TrimSpace(string(out)) == "" || strings.TrimSpace(string(out)) == strconv.Itoa(ours) {
		t.Errorf("process group %q, ours is %d", out, ours)
	}
}

func TestStderrIsLimited(t *testing.T) {
	_, err := command.Run(t.Context(), sh(`head -c 1000000 /dev/zero | tr '\0' x >&2; exit 1`))
	var failed *command.Error
	if !errors.As(err, &failed) || len(failed.Stderr) != 64<<10 || failed.Status != 1 {
		t.Errorf("got %d bytes", len(failed.Stderr))
	}
}

// With a notice a program may save itself before it is killed; one that does not end is killed then.
func TestNotice(t *testing.T) {
	for name, x := range map[string]struct {
		script string
		status int
	}{
		"it saves itself": {`trap 'echo saved; exit 3' TERM`, 3},
		"it ignores it":   {`trap 'echo saved' TERM`, 137},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			in, out := io.Pipe()
			go func() {
				_, _ = bufio.NewReader(in).ReadString('\n') // it is ready
				cancel()
				_, _ = io.Copy(io.Discard, in)
			}()
			var said bytes.Buffer
			_, err := command.Run(ctx, command.Command{
				Argv: []string{"sh", "-c", x.script + `; echo ready; while :; do sleep 0.05; done`}, Stdout: io.MultiWriter(&said, out), Notice: time.Second,
			})
			failed := new(command.Error)
			if !errors.As(err, &failed) || failed.Status != x.status || !errors.Is(err, context.Canceled) || said.String() != "ready\nsaved\n" {
				t.Errorf("%v, %q", err, said.String())
			}
		})
	}
}
