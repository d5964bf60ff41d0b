package miniq

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/internal/home"
)

// ReadyFD is the descriptor on which a daemon that was started with
// ReadyArgument says how its start went: one of the lines below, or an error.
const (
	ReadyFD       = 3
	ReadyArgument = "--ready-fd=3"
	// UnlessStopped is the argument by which a client starts a daemon: one that was stopped on
	// purpose stays so.
	UnlessStopped = "--unless-stopped"
	ReadyLine     = "ready"
	RunningLine   = "running already"
)

// Start starts miniqd, unless it was stopped on purpose, and returns when it serves, or another
// one does.
func Start(ctx context.Context, paths home.Paths) error {
	program, err := command.Sibling("miniqd")
	if err != nil {
		return err
	}
	return Spawn(ctx, paths, program, "--foreground", ReadyArgument, UnlessStopped)
}

// Spawn starts a daemon apart from this process's session and returns when it
// serves, or another one does. Its standard output and error go to miniqd.log.
func Spawn(ctx context.Context, paths home.Paths, program string, args ...string) error {
	if err := paths.Prepare(); err != nil {
		return err
	}
	if err := os.MkdirAll(StateDir(paths), 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(StateDir(paths), "miniqd.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = ready.Close() }()
	cmd := exec.Command(program, args...) //nolint:noctx // it outlives this call
	cmd.Env = absolute(os.Environ(), paths)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/", log, log, []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return awaitReady(ctx, ready)
}

// absolute returns an environment that means the same from any directory.
func absolute(env []string, paths home.Paths) []string {
	if os.Getenv("ALLOTMENT_HOME") != "" {
		env = append(env, "ALLOTMENT_HOME="+paths.State)
	}
	if os.Getenv("ALLOTMENT_CONFIG") != "" {
		env = append(env, "ALLOTMENT_CONFIG="+paths.Config)
	}
	return env
}

// ErrEnded reports that the daemon ended before it served.
var ErrEnded = errors.New("it ended at once; see miniqd.log in its state directory")

func awaitReady(ctx context.Context, ready *os.File) error {
	const longest = 4096
	stop := context.AfterFunc(ctx, func() { _ = ready.Close() })
	defer stop()
	data, err := io.ReadAll(io.LimitReader(ready, longest))
	switch line := strings.TrimSpace(string(data)); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case line == ReadyLine, line == RunningLine:
		return nil
	case line == "":
		return ErrEnded
	default:
		return errors.New(line)
	}
}
