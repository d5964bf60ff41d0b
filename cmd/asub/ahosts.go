package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// hostsOptions are the options of ahosts.
type hostsOptions struct {
	names      []string // empty: all
	wide, json bool
}

func hostsApp(s site) *cli.App {
	return &cli.App{
		Name: "ahosts", Usage: "list hosts and how their slots are used", ArgsUsage: "[HOST...]",
		UseShortOptionHandling: true,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "w", Usage: "cut nothing short; say why a host is closed", DisableDefaultText: true},
			&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			o := hostsOptions{names: c.Args().Slice(), wide: c.Bool("w"), json: c.Bool("json")}
			return runHosts(c.Context, s, o, c.App.Writer)
		},
	}
}

// runHosts is ahosts.
func runHosts(ctx context.Context, s site, o hostsOptions, out io.Writer) error {
	queue, err := s.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	farm, err := queue.Farm(ctx, s.now())
	if err != nil {
		return err
	}
	hosts := bsub.UseHosts(farm)
	var unknown []string
	if len(o.names) > 0 {
		named := func(name string) func(bsub.HostUse) bool {
			return func(h bsub.HostUse) bool { return h.Name == name }
		}
		for _, name := range o.names {
			if !slices.ContainsFunc(hosts, named(name)) {
				unknown = append(unknown, name)
			}
		}
		hosts = slices.DeleteFunc(hosts, func(h bsub.HostUse) bool { return !slices.Contains(o.names, h.Name) })
	}
	switch {
	case o.json:
		err = shell.PrintJSON(out, hostsJSON(hosts))
	case len(hosts) > 0:
		err = bsub.WriteHosts(out, hosts, o.wide, queue.Abilities().SuspendFrees)
	case len(unknown) == 0:
		fmt.Fprintln(s.stderr, "No host found: no node of the queue is up")
	}
	for _, name := range unknown {
		fmt.Fprintf(s.stderr, "%s: Bad host name\n", bsub.Visible(name))
	}
	if err == nil && len(unknown) > 0 {
		err = &shell.ExitError{Code: shell.ExitFailure}
	}
	return err
}
