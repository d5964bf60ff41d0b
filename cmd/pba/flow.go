package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func flowCommand(p process) *cli.Command {
	steps := func() []cli.Flag {
		return []cli.Flag{&cli.StringFlag{Name: "steps", Usage: "`STEPS` in their order, separated by commas"}}
	}
	return &cli.Command{
		Name: "flow", Usage: "define flows: the steps that jobs of a project may name",
		Subcommands: []*cli.Command{
			{
				Name: "add", Usage: "add a flow", ArgsUsage: "[NAME] (--steps STEP,STEP… | --preset PRESET)",
				Description: presets(),
				Flags:       append(steps(), &cli.StringFlag{Name: "preset", Usage: "the steps of this `PRESET`, which is the default of NAME, too"}),
				Action: func(c *cli.Context) error {
					return withFlow(c, p, (*desk.Desk).AddFlow, "Flow %s is added. Next: pba project set PROJECT --flow %[1]s\n")
				},
			},
			{
				Name: "set", Usage: "replace a flow's steps", ArgsUsage: "NAME --steps STEP,STEP…", Flags: steps(),
				Action: func(c *cli.Context) error { return withFlow(c, p, (*desk.Desk).SetFlow, "Flow %s is changed.\n") },
			},
			{
				Name: "remove", Usage: "remove a flow that no project uses", ArgsUsage: "NAME",
				Action: func(c *cli.Context) error {
					remove := func(d *desk.Desk, ctx context.Context, name string, _ []string) error { return d.RemoveFlow(ctx, name) }
					return withFlow(c, p, remove, "Flow %s is removed.\n")
				},
			},
			{
				Name: "list", Usage: "list the flows", Flags: table.Flags(),
				Action: tableAction(p.withDesk, listFlows),
			},
		},
	}
}

// presets lists the flows that can be added by their names.
func presets() string {
	var b strings.Builder
	b.WriteString("The presets, and their steps:")
	for _, p := range desk.FlowPresets() {
		fmt.Fprintf(&b, "\n%-13s %s", p.Name, strings.Join(p.Steps, ","))
	}
	return b.String()
}

// withFlow changes a flow, and says so.
func withFlow(c *cli.Context, p process, change func(*desk.Desk, context.Context, string, []string) error, done string) error {
	least := 1
	if c.IsSet("preset") {
		least = 0
	}
	args, err := commands.Args(c, least, 1)
	if err != nil {
		return err
	}
	name, steps, err := flowOf(c, args)
	if err != nil {
		return err
	}
	return p.withDesk(c, func(ctx context.Context, d *desk.Desk) error {
		if err := change(d, ctx, name, steps); err != nil {
			return err
		}
		fmt.Fprintf(c.App.Writer, done, shell.Printable(name))
		return nil
	})
}

// flowOf returns the name and the steps that a command line gives.
func flowOf(c *cli.Context, args []string) (name string, steps []string, err error) {
	if len(args) > 0 {
		name = args[0]
	}
	switch {
	case c.Command.Name == "remove":
		return name, nil, nil
	case c.IsSet("preset") && c.IsSet("steps"):
		return "", nil, shell.Usagef("--steps and --preset exclude each other")
	case c.IsSet("preset"):
		preset, err := desk.Preset(c.String("preset"))
		return cmp.Or(name, preset.Name), preset.Steps, withExitCode(err)
	case c.String("steps") == "":
		return "", nil, shell.Usagef("a flow needs steps: add --steps STEP,STEP…")
	}
	return name, strings.Split(c.String("steps"), ","), nil
}

func listFlows(ctx context.Context, d *desk.Desk, _ *cli.Context) (*table.Table, any, error) {
	all, err := d.Flows(ctx)
	t := table.New("name", "steps", "projects")
	for _, f := range all {
		t.Row(f.Name, strings.Join(f.Steps, ","), strings.Join(f.Projects, " "))
	}
	return t, all, err
}
