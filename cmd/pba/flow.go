package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

func flowCommand(p process) *cli.Command {
	steps := func() []cli.Flag {
		return []cli.Flag{&cli.StringFlag{Name: "steps", Usage: "`STEPS` in their order, parted by commas"}}
	}
	return &cli.Command{
		Name: "flow", Usage: "name the steps that jobs of a project may name",
		Subcommands: []*cli.Command{
			{
				Name: "add", Usage: "add a flow", ArgsUsage: "NAME --steps STEP,STEP…", Flags: steps(),
				Action: func(c *cli.Context) error { return withFlow(c, p, addFlow) },
			},
			{
				Name: "set", Usage: "replace a flow's steps", ArgsUsage: "NAME --steps STEP,STEP…", Flags: steps(),
				Action: func(c *cli.Context) error { return withFlow(c, p, setFlow) },
			},
			{
				Name: "remove", Usage: "remove a flow that no project uses", ArgsUsage: "NAME",
				Action: func(c *cli.Context) error { return withFlow(c, p, removeFlow) },
			},
			{
				Name: "list", Usage: "list the flows", Flags: table.Flags(),
				Action: func(c *cli.Context) error {
					format, err := table.FormatOf(c)
					if err != nil {
						return err
					}
					return withSite(c.Context, p, p.open, func(s *site) error { return listFlows(c.Context, s, format, c.App.Writer) })
				},
			},
		},
	}
}

// withFlow reads what the commands that change a flow have in common.
func withFlow(c *cli.Context, p process, run func(context.Context, *site, string, []string, io.Writer) error) error {
	args, err := commands.Args(c, 1, 1)
	if err != nil {
		return err
	}
	var steps []string
	if c.Command.Name != "remove" {
		if steps, err = readSteps(c.String("steps")); err != nil {
			return err
		}
	}
	return withSite(c.Context, p, p.open, func(s *site) error {
		if err := s.mustBeAdmin("change a flow"); err != nil {
			return err
		}
		return run(c.Context, s, args[0], steps, c.App.Writer)
	})
}

func readSteps(text string) ([]string, error) {
	if text == "" {
		return nil, shell.Usagef("a flow needs steps: add --steps STEP,STEP…")
	}
	steps := strings.Split(text, ",")
	for i, step := range steps {
		if err := checkName("step", step); err != nil {
			return nil, err
		}
		if slices.Contains(steps[:i], step) {
			return nil, shell.Usagef("--steps: %s is given twice", step)
		}
	}
	return steps, nil
}

func addFlow(ctx context.Context, s *site, name string, steps []string, out io.Writer) error {
	if err := checkName("flow", name); err != nil {
		return err
	}
	if err := s.edit(ctx, func() error { return s.ledger.AddFlow(ctx, s.editor(), name, steps) }); err != nil {
		return err
	}
	fmt.Fprintf(out, "Flow %s is added. Next: pba project set PROJECT --flow %s\n", name, name)
	return nil
}

func setFlow(ctx context.Context, s *site, name string, steps []string, out io.Writer) error {
	err := s.edit(ctx, func() error { return s.ledger.SetFlow(ctx, s.editor(), name, steps, s.thisWeek()) })
	if err != nil {
		return knownFlows(err)
	}
	fmt.Fprintf(out, "Flow %s is changed.\n", shell.Printable(name))
	return nil
}

func removeFlow(ctx context.Context, s *site, name string, _ []string, out io.Writer) error {
	if err := s.edit(ctx, func() error { return s.ledger.RemoveFlow(ctx, s.editor(), name) }); err != nil {
		return knownFlows(err)
	}
	fmt.Fprintf(out, "Flow %s is removed.\n", shell.Printable(name))
	return nil
}

func listFlows(ctx context.Context, s *site, format table.Format, out io.Writer) error {
	all, err := s.ledger.Flows(ctx)
	if err != nil {
		return err
	}
	t := table.New("name", "steps", "projects")
	for _, f := range all {
		t.Row(f.Name, strings.Join(f.Steps, ","), strings.Join(f.Projects, " "))
	}
	if all == nil {
		all = []ledger.Flow{}
	}
	return table.Print(out, format, t, all)
}
