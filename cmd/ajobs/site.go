package main

import (
	"context"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// site is all that the commands use of the process that they run in.
type site struct {
	stdout io.Writer
	stderr io.Writer
	user   func() string // of this process, by the user database
	host   func() string
	now    func() time.Time
	around func() (bsub.Context, error)
	open   func(ctx context.Context, toSubmit bool) (backends.Backend, error)
	filter func(context.Context, backends.Change, io.Writer) (backends.Change, error)
}

func thisProcess() site {
	return site{
		stdout: os.Stdout, stderr: os.Stderr,
		user: userName, host: hostName, now: time.Now, around: submit.Around,
		open: configfile.OpenConfigured, filter: changeThroughFilter,
	}
}

// run runs the command that args[0] names, ajobs if there is no such command.
func run(args []string, s site) int {
	name := ""
	if len(args) > 0 {
		name = filepath.Base(args[0])
	}
	if name == "amod" {
		return shell.Run(name, s.stdout, s.stderr, func(ctx context.Context, out io.Writer) error {
			if own, err := shell.Own(modifyGrammar, args, out); own {
				return err
			}
			return runModify(ctx, s, args[1:], out)
		})
	}
	all := apps(s)
	app := all[0]
	for _, a := range all {
		if a.Name == name {
			app = a
		}
	}
	app.Writer, app.ErrWriter = s.stdout, s.stderr
	return commands.Main(app, args)
}

// apps are the commands beside amod, whose grammar is LSF's own.
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

// changeThroughFilter runs the submit filter on a change of a pending job.
func changeThroughFilter(ctx context.Context, c backends.Change, stderr io.Writer) (backends.Change, error) {
	return submit.Change(ctx, c, submit.Options{Stderr: stderr})
}
