package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

func hostsApp(p process) *cli.App {
	app := listApp(p, runHosts, "don't shorten columns; say why a host is closed, and what it has beside slots and memory", "all about each host: memory, resources, and the jobs on it", &cli.App{
		Name: "ahosts", Usage: "list hosts and how their slots are used, close and open them", ArgsUsage: "[HOST...]",
		UsageText: "ahosts [-w | -l] [--json] [HOST...]\nahosts --agents [-w | -o COLUMNS] [--json | --csv] [HOST...]\nahosts drain|close [--reason TEXT] HOST...\nahosts open HOST...",
		Description: "Closed hosts take no new jobs; what runs there runs on, and the host is drained when that has ended.\n" +
			"drain and close do the same, on the bundled queue, for its administrators. It lasts until open.",
		Commands: []*cli.Command{
			closeCommand(p, "drain", "close hosts for new jobs; what runs there runs to its end", false),
			closeCommand(p, "close", "the same", false),
			closeCommand(p, "open", "let hosts take jobs again", true),
		},
	})
	list := app.Action
	app.Flags = append(app.Flags, agentFlags()...)
	app.Action = func(c *cli.Context) error {
		o, asked, err := agentsOptionsOf(c)
		if err != nil {
			return err
		}
		if asked {
			return runAgents(c.Context, p, o, c.App.Writer)
		}
		return list(c)
	}
	return app
}

// errUnableToClose is for queues whose own commands close hosts.
var errUnableToClose = fmt.Errorf("close and open hosts: %w: use the queue's own command (badmin hclose, scontrol update NodeName=… State=DRAIN)", backends.ErrUnable)

// closeCommand is ahosts close, and the like.
func closeCommand(p process, name, usage string, open bool) *cli.Command {
	command := &cli.Command{Name: name, Usage: usage, ArgsUsage: "HOST..."}
	if !open {
		command.Flags = []cli.Flag{&cli.StringFlag{Name: "reason", Usage: "why, for others: a line of `TEXT`"}}
	}
	command.Action = func(c *cli.Context) error {
		hosts := c.Args().Slice()
		if len(hosts) == 0 {
			return shell.Usagef("no host named: see ahosts %s --help", name)
		}
		queue, err := p.open(c.Context, false)
		if err != nil {
			return err
		}
		defer func() { _ = queue.Close() }()
		closeHosts := queue.Abilities().CloseHosts
		if closeHosts == nil {
			return errUnableToClose
		}
		done := map[bool]string{false: "closed: what runs there runs on", true: "open"}[open]
		var failed error
		for i, err := range closeHosts(c.Context, hosts, open, c.String("reason")) {
			switch {
			case errors.Is(err, backends.ErrUnreachable):
				return err
			case err != nil:
				fmt.Fprintf(p.stderr, "ahosts: %s\n", shell.OneLine(err.Error()))
				failed = &shell.ExitError{Code: shell.ExitFailure}
			default:
				fmt.Fprintf(c.App.Writer, "Host <%s> is %s\n", bsub.Visible(hosts[i]), done)
			}
		}
		return failed
	}
	return command
}

// runHosts is ahosts.
func runHosts(ctx context.Context, p process, o listOptions, out io.Writer) error {
	queue, err := p.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	farm, err := queue.Snapshot(ctx, p.now())
	if err != nil {
		return err
	}
	if o.long || o.wide || o.json {
		addReasons(ctx, p, queue, farm)
	}
	hosts, unknown := selectNamed(bsub.UseHosts(farm), o.names, func(h bsub.HostUse) string { return h.Name })
	switch {
	case o.json:
		err = shell.PrintJSON(out, hostsJSON(hosts))
	case o.long && len(hosts) > 0:
		if err = bsub.WriteHostDetails(out, hosts, farm.Jobs, queue.Abilities().SuspendFrees); err == nil {
			err = writeMeasured(ctx, p, hosts, out)
		}
	case len(hosts) > 0:
		err = bsub.WriteHosts(out, hosts, o.wide, queue.Abilities().SuspendFrees)
	case len(unknown) == 0:
		fmt.Fprintln(p.stderr, "No host found: no node of the queue is up")
	}
	return cmp.Or(err, reportUnknown(p, "%s: Bad host name\n", unknown))
}

// addReasons adds why hosts are closed, where the queue has to be asked for that.
func addReasons(ctx context.Context, p process, queue backends.Backend, farm *backends.Snapshot) {
	ask := queue.Abilities().WhyClosed
	isClosed := func(h backends.Host) bool { return h.State != backends.HostUp && h.Reason == "" }
	if ask == nil || !slices.ContainsFunc(farm.Hosts, isClosed) {
		return
	}
	reasons, err := ask(ctx)
	if err != nil {
		fmt.Fprintf(p.stderr, "ahosts: why hosts are closed can't be read: %s\n", shell.OneLine(err.Error()))
	}
	for i := range farm.Hosts {
		if h := &farm.Hosts[i]; isClosed(*h) {
			h.Reason = reasons[h.Name]
		}
	}
}
