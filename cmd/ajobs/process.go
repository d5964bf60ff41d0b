package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
	"github.com/allotment-hpc/allotment/internal/account"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// process is all that the commands use of the process that they run in.
type process struct {
	stdout        io.Writer
	stderr        io.Writer
	user          func() string // of this process, by the user database
	host          func() string
	now           func() time.Time
	submitContext func() (bsub.Context, error)
	// group returns what tells the users of a project's group, or of a group of the system.
	group func(name string) (func(user string) bool, error)
	open  func(ctx context.Context, toSubmit bool) (backends.Backend, error)
	// outlook returns what pba foresees of the first jobs that wait.
	outlook func(ctx context.Context, jobs []backends.Job) map[backends.ID]string
	// explained returns what pba knows of jobs.
	explained func(ctx context.Context, ids []backends.ID, past bool) map[backends.ID]story
	// allotd asks an allotd of this machine at an address of its API.
	allotd func(ctx context.Context, route string, query url.Values, answer any) error
	// uses returns what jobs use, of those that the user may read.
	uses func(ctx context.Context, jobs []backends.Job) (map[backends.ID]*bsub.Use, error)
	// stateOf returns what a job's hosts keep of it.
	stateOf func(ctx context.Context, id backends.ID) (*backends.Record, error)
	filter  func(ctx context.Context, now submit.Pending, c backends.Change, stderr io.Writer) (backends.Change, error)
}

func thisProcess() process {
	return process{
		stdout: os.Stdout, stderr: os.Stderr,
		user: account.OwnName, host: hostName, now: time.Now, submitContext: submit.Context,
		group: groupOf, open: openConfigured, filter: changeThroughFilter, outlook: outlook, explained: explained,
		allotd: askAllotd, uses: usesOf, stateOf: stateOf,
	}
}

// run runs the command that args[0] names, ajobs if there is no such command.
func run(args []string, p process) int {
	name := ""
	if len(args) > 0 {
		name = filepath.Base(args[0])
	}
	if slices.Equal(args[min(1, len(args)):], []string{configfile.ConverterRequest}) {
		return convert(os.Stdin, p.stdout, p.stderr)
	}
	if name == "amod" {
		return shell.Run(name, p.stdout, p.stderr, func(ctx context.Context, out io.Writer) error {
			if hidden, err := shell.RunHidden(modifyGrammar, args, out); hidden {
				return err
			}
			return runModify(ctx, p, args[1:], out)
		})
	}
	all := apps(p)
	app := all[0]
	for _, a := range all {
		if a.Name == name {
			app = a
		}
	}
	app.Writer, app.ErrWriter = p.stdout, p.stderr
	return commands.Main(app, args)
}

// apps are the commands beside amod, whose grammar is LSF's own.
func apps(p process) []*cli.App {
	return []*cli.App{jobsApp(p), hostsApp(p), queuesApp(p), killApp(p), stopApp(p), resumeApp(p), requeueApp(p), peekApp(p), switchApp(p), pastApp(p), reorderApp(p, "atop", false), reorderApp(p, "abot", true)}
}

func openConfigured(ctx context.Context, toSubmit bool) (backends.Backend, error) {
	return configfile.OpenConfigured(ctx, toSubmit, yamlplain.Convert)
}

// convert writes a config file for configfile.ConvertByProgram.
func convert(in io.Reader, out, stderr io.Writer) int {
	text, err := io.ReadAll(in)
	if err == nil {
		text, err = yamlplain.Convert(text)
	}
	if err == nil {
		_, err = out.Write(text)
	}
	if err != nil {
		fmt.Fprint(stderr, err)
		return shell.ExitFailure
	}
	return shell.ExitOK
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
func changeThroughFilter(ctx context.Context, now submit.Pending, c backends.Change, stderr io.Writer) (backends.Change, error) {
	return submit.Change(ctx, now, c, submit.Options{Stderr: stderr})
}
