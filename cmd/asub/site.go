package main

import (
	"context"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// site is all that the commands take from the process that they run in.
type site struct {
	stdin         io.Reader
	stdout        io.Writer
	stderr        io.Writer
	stdinTerminal bool
	user          func() string // of this process, by the system's word
	host          func() string
	now           func() time.Time
	dir           func() (string, error)
	env           []string
	umask         func() uint32
	open          func(ctx context.Context, start bool) (backends.Backend, error)
	submit        func(context.Context, backends.Backend, []backends.Spec, io.Writer) []submission
	filter        func(context.Context, backends.Change, io.Writer) (backends.Change, error)
}

func thisProcess() site {
	return site{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		stdinTerminal: term.IsTerminal(int(os.Stdin.Fd())),
		user:          userName, host: hostName, now: time.Now, dir: os.Getwd, env: os.Environ(), umask: umask,
		open: openBackend, submit: submitThroughFilter, filter: changeThroughFilter,
	}
}

// run is the whole program: the command that args[0] names, asub for a name
// that is none.
func run(args []string, s site) int {
	name := "asub"
	if len(args) > 0 {
		name = filepath.Base(args[0])
	}
	for _, app := range apps(s) {
		if app.Name == name {
			app.Writer, app.ErrWriter = s.stdout, s.stderr
			return shell.Main(app, args)
		}
	}
	if name == "amod" {
		return shell.Run(name, s.stdout, s.stderr, func(ctx context.Context, out io.Writer) error {
			if own, err := shell.Own(modifyGrammar(), args, out); own {
				return err
			}
			return runModify(ctx, s, args[1:], out)
		})
	}
	return shell.Run("asub", s.stdout, s.stderr, func(ctx context.Context, out io.Writer) error {
		if own, err := shell.Own(submitGrammar(), args, out); own {
			return err
		}
		return runSubmit(ctx, s, args[min(1, len(args)):], out)
	})
}

// apps are the commands beside asub, whose grammar is LSF's own.
func apps(s site) []*cli.App {
	return []*cli.App{jobsApp(s), hostsApp(s), queuesApp(s), killApp(s), stopApp(s), resumeApp(s), requeueApp(s)}
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}

// hostName is this host's name without its domain.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "-"
	}
	name, _, _ = strings.Cut(name, ".")
	return name
}

// umask is this process's file mode mask, which can only be read by writing it.
func umask() uint32 {
	mask := syscall.Umask(0o77)
	syscall.Umask(mask)
	return uint32(mask)
}
