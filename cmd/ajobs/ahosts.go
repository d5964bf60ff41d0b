package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

func hostsApp(p process) *cli.App {
	return listApp(p, runHosts, "don't shorten columns; say why a host is closed, and what it has beside slots and memory", "all about each host: memory, resources, and the jobs on it", &cli.App{
		Name: "ahosts", Usage: "list hosts and how their slots are used", ArgsUsage: "[HOST...]",
	})
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
	hosts, unknown := selectNamed(bsub.UseHosts(farm), o.names, func(h bsub.HostUse) string { return h.Name })
	switch {
	case o.json:
		err = shell.PrintJSON(out, hostsJSON(hosts))
	case o.long && len(hosts) > 0:
		err = bsub.WriteHostDetails(out, hosts, farm.Jobs, queue.Abilities().SuspendFrees)
	case len(hosts) > 0:
		err = bsub.WriteHosts(out, hosts, o.wide, queue.Abilities().SuspendFrees)
	case len(unknown) == 0:
		fmt.Fprintln(p.stderr, "No host found: no node of the queue is up")
	}
	return cmp.Or(err, reportUnknown(p, "%s: Bad host name\n", unknown))
}
