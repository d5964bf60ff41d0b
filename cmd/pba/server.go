package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/remote"
)

const serverVariable = "ALLOTMENT_SERVER"

func serverOption() cli.Flag {
	return &cli.StringFlag{
		Name: "server", EnvVars: []string{serverVariable},
		Usage: "ask the allotd at `URL`, not this machine's ledger: unix:///PATH, https://HOST[:PORT], or http://HOST[:PORT] of this machine (default: $" + serverVariable + ")",
	}
}

// answers is what a desk of this machine and a server answer alike.
type answers interface {
	Projects(ctx context.Context) ([]desk.Project, error)
	Members(ctx context.Context) ([]desk.ProjectMembers, error)
	Allocations(ctx context.Context, project string, when desk.When) ([]desk.Allocation, error)
	Grid(ctx context.Context, q desk.GridQuery, when desk.When) (*desk.Grid, error)
	SetAllocation(ctx context.Context, pool desk.Pool, terms desk.Terms, when desk.When, comment string) ([]calendar.Week, error)
	Copy(ctx context.Context, week, weeks string, projects []string, comment string) (*desk.Proposal, error)
	Undo(ctx context.Context, change int64, comment string) (*desk.Proposal, error)
	Changes(ctx context.Context, q desk.LogQuery) ([]desk.Logged, error)
	Ask(ctx context.Context, pool desk.Pool, slots int, when desk.When, why string) (*desk.Request, error)
	Requests(ctx context.Context, project string, all bool) ([]desk.Request, error)
	Grant(ctx context.Context, id int64, comment string) (desk.Asked, []desk.Change, error)
	Decline(ctx context.Context, id int64, why string) (desk.Asked, error)
	Withdraw(ctx context.Context, id int64) (desk.Asked, error)
	Status(ctx context.Context) (*desk.Status, error)
	ExplainEach(ctx context.Context, ids []backends.ID, past bool) []desk.Explained
	JobNamed(ctx context.Context, text string) (backends.ID, error)
	Period(project string, s desk.Span) (desk.Period, error)
	Usage(ctx context.Context, p desk.Period) (*desk.Usage, error)
	UsageBy(ctx context.Context, p desk.Period, by []desk.By) (*desk.UsageBy, error)
	Waits(ctx context.Context, p desk.Period, by []desk.By) (*desk.Waits, error)
	Victims(ctx context.Context, p desk.Period, by []desk.By) (*desk.Victims, error)
}

// answered reports whether servers answer a command, too.
func answered(command string) bool {
	switch command {
	case "project list",
		"alloc set", "alloc unset", "alloc list", "alloc copy", "alloc log", "alloc undo",
		"alloc request", "alloc requests", "alloc grant", "alloc decline", "alloc withdraw",
		"status", "explain", "report usage", "report waits", "report victims", "login", "logout":
		return true
	}
	return false
}

// forServers has each command that no server answers refuse --server.
func forServers(all []*cli.Command, parents ...string) []*cli.Command {
	for _, command := range all {
		name := strings.Join(append(parents, command.Name), " ")
		forServers(command.Subcommands, append(parents, command.Name)...)
		if action := command.Action; action != nil && !answered(name) {
			command.Action = func(c *cli.Context) error {
				if c.String("server") != "" {
					return shell.Usagef("no server answers `pba %s` (--server, %s): type it on a machine of the farm", name, serverVariable)
				}
				return action(c)
			}
		}
	}
	return all
}

// ask opens a desk of this machine, or the server that is named, for one command.
func (p process) ask(c *cli.Context, do func(context.Context, answers) error) error {
	return p.askFor(c, p.withDesk, do)
}

// askWithQueue is ask, and starts the bundled queue where it does not run.
func (p process) askWithQueue(c *cli.Context, do func(context.Context, answers) error) error {
	return p.askFor(c, p.withDeskAndQueue, do)
}

func (p process) askFor(c *cli.Context, here func(*cli.Context, func(context.Context, *desk.Desk) error) error, do func(context.Context, answers) error) error {
	server := c.String("server")
	if server == "" {
		return here(c, func(ctx context.Context, d *desk.Desk) error { return do(ctx, d) })
	}
	client, err := remote.Open(server)
	if err != nil {
		return withExitCode(err)
	}
	c.App.Writer = visible{c.App.Writer}
	return withExitCode(do(c.Context, client))
}

// visible makes control characters visible: a server may send any text in place of those that
// a desk chooses from.
type visible struct{ out io.Writer }

// Write writes lines.
func (v visible) Write(text []byte) (int, error) {
	lines := strings.Split(string(text), "\n")
	for i := range lines {
		lines[i] = shell.Printable(lines[i])
	}
	if _, err := io.WriteString(v.out, strings.Join(lines, "\n")); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Unwrap returns what it writes to.
func (v visible) Unwrap() io.Writer { return v.out }

// onDesk returns a report that no server answers; forServers refuses it before.
func onDesk(run func(context.Context, *desk.Desk, reportOptions, io.Writer) error) func(context.Context, answers, reportOptions, io.Writer) error {
	return func(ctx context.Context, d answers, o reportOptions, out io.Writer) error {
		here, ok := d.(*desk.Desk)
		if !ok {
			return errors.New("no server answers this report")
		}
		return run(ctx, here, o, out)
	}
}
