package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func allocCommand(p process) *cli.Command {
	flags := func(more ...cli.Flag) []cli.Flag {
		all := append(weekFlags("1"),
			&cli.StringFlag{Name: "user", Usage: "only for jobs of this `USER`"},
			&cli.StringFlag{Name: "step", Usage: "only for jobs of this `STEP` of the project"},
			&cli.StringFlag{Name: "hosts", Usage: "on the hosts of this `SET` of the config (pba.host_sets); without it on those in no set"},
			commentFlag())
		return append(all, more...)
	}
	return &cli.Command{
		Name: "alloc", Usage: "plan slots for projects and weeks",
		Subcommands: append([]*cli.Command{
			{
				Name: "set", Usage: "allocate slots to a project", Description: weekForms,
				ArgsUsage: "PROJECT SLOTS [--week WEEK] [--weeks WEEKS] [--user USER] [--step STEP] [--hosts SET] [--sla throughput --jobs NUMBER]",
				Flags: flags(
					&cli.StringFlag{Name: "sla", Value: desk.DefaultSLA, Usage: "`WHAT` is guaranteed: velocity, all slots at any time; or throughput, a number of jobs in the week, for which fewer slots may suffice"},
					&cli.IntFlag{Name: "jobs", Usage: "`NUMBER` of jobs to be done in each week, for --sla throughput"}),
				Action: func(c *cli.Context) error { return changeAlloc(c, p, true) },
			},
			{
				Name: "unset", Usage: "remove a project's allocation", Description: weekForms, ArgsUsage: "PROJECT [--week WEEK] [--weeks WEEKS] [--user USER] [--step STEP] [--hosts SET]", Flags: flags(),
				Action: func(c *cli.Context) error { return changeAlloc(c, p, false) },
			},
			{
				Name: "list", Usage: "list what is planned: from this week on, unless weeks are given", Description: weekForms,
				Flags:  slices.Concat([]cli.Flag{&cli.StringFlag{Name: "project", Usage: "only those of this `PROJECT`"}}, weekFlags(""), gridFlags(), table.Flags()),
				Action: listAction(p),
			},
			copyCommand(p), exportCommand(p), importCommand(p),
			logCommand(p), undoCommand(p),
		}, requestCommands(p, flags)...),
	}
}

// changeAlloc runs alloc set, or alloc unset.
func changeAlloc(c *cli.Context, p process, set bool) error {
	number := 1
	if set {
		number = 2
	}
	args, err := commands.Args(c, number, number)
	if err != nil {
		return err
	}
	pool, err := poolOf(c, args[0])
	if err != nil {
		return err
	}
	var terms desk.Terms // none: the slots are removed
	open := p.ask
	if set {
		if terms, err = readTerms(c, args[1]); err != nil {
			return err
		}
		open = p.askWithQueue
	}
	return open(c, func(ctx context.Context, d answers) error {
		weeks, err := d.SetAllocation(ctx, pool, terms, when(c), c.String("comment"))
		if err != nil {
			return err
		}
		has := "no slots of its own"
		if set {
			has = desk.InWords(terms)
		}
		fmt.Fprintf(c.App.Writer, "%s has %s %s.\n", shell.Printable(pool.String()), has, inWeeks(weeks))
		return nil
	})
}

// poolOf returns the pool that a project and the options --user, --step and --hosts name.
func poolOf(c *cli.Context, project string) (desk.Pool, error) {
	pool := desk.Pool{Project: project, User: c.String("user"), Step: c.String("step"), Hosts: c.String("hosts")}
	if c.IsSet("user") && pool.User == "" || c.IsSet("step") && pool.Step == "" || c.IsSet("hosts") && pool.Hosts == "" {
		return pool, shell.Usagef("--user, --step and --hosts need a name")
	}
	return pool, nil
}

func readTerms(c *cli.Context, number string) (desk.Terms, error) {
	slots, err := strconv.Atoi(number)
	if err != nil || slots > math.MaxInt32 {
		return desk.Terms{}, shell.Usagef("%q is not a number of slots", number)
	}
	if slots < 1 {
		return desk.Terms{}, shell.Usagef("%d slots: want one or more; `pba alloc unset` removes slots", slots)
	}
	terms, err := desk.NewTerms(slots, c.String("sla"), c.Int("jobs"))
	if err != nil {
		return terms, shell.Usagef("--sla, --jobs: %w", err)
	}
	return terms, nil
}

func listAllocs(ctx context.Context, d answers, c *cli.Context) (*table.Table, any, error) {
	all, err := d.Allocations(ctx, c.String("project"), when(c))
	t := table.New("week", "project", "user", "step", "slots", "sla", "jobs", "hosts")
	for _, a := range all {
		jobs := "-"
		if a.Jobs > 0 {
			jobs = strconv.Itoa(a.Jobs)
		}
		t.Row(a.Week, a.Project, dash(a.User), dash(a.Step), a.Slots, a.SLA, jobs, dash(a.Hosts))
	}
	return t, all, err
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
