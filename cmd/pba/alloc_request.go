package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// requestCommands are the commands of members who ask for slots, and of managers who
// answer; poolFlags are the options that name weeks and a pool.
func requestCommands(p process, poolFlags func(...cli.Flag) []cli.Flag) []*cli.Command {
	return []*cli.Command{
		{
			Name: "request", Usage: "ask the project's managers for slots",
			ArgsUsage: "PROJECT SLOTS --why TEXT [--week WEEK] [--weeks WEEKS] [--user USER] [--step STEP] [--hosts SET]",
			Description: "SLOTS is what the project, user or step shall have in each week, with what it has already. Each\n" +
				"member of the project's group may ask. Its managers and admins see the request with\n" +
				"`pba alloc requests`, and grant or decline it. It expires when its last week is over.\n\n" + weekForms,
			Flags:  poolFlags(&cli.StringFlag{Name: "why", Usage: "the reason: one line of `TEXT`, which every user may read"}),
			Action: func(c *cli.Context) error { return askForSlots(c, p) },
		},
		{
			Name: "requests", Usage: "list open requests for slots, what is free in their weeks, and what granting them would do",
			Flags: append([]cli.Flag{
				&cli.BoolFlag{Name: "all", Usage: "also those that are answered, withdrawn or expired", DisableDefaultText: true},
				&cli.StringFlag{Name: "project", Usage: "only those for this `PROJECT`"},
			}, table.Flags()...),
			Action: tableAction(p.ask, listRequests),
		},
		{
			Name: "grant", Usage: "allocate the slots that a request asks for, in all of its weeks or in none", ArgsUsage: "ID",
			Flags: []cli.Flag{commentFlag()},
			Action: func(c *cli.Context) error {
				id, err := requestID(c)
				if err != nil {
					return err
				}
				return p.askWithQueue(c, func(ctx context.Context, d answers) error { return grant(ctx, d, id, c) })
			},
		},
		{
			Name: "decline", Usage: "decline a request for slots", ArgsUsage: "ID --why TEXT",
			Flags: []cli.Flag{&cli.StringFlag{Name: "why", Usage: "the reason: one line of `TEXT`, which every user may read"}},
			Action: func(c *cli.Context) error {
				id, err := requestID(c)
				if err != nil {
					return err
				}
				return p.ask(c, func(ctx context.Context, d answers) error {
					r, err := d.Decline(ctx, id, c.String("why"))
					if err == nil {
						fmt.Fprintf(c.App.Writer, "Request %d of %s is declined.\n", id, shell.Printable(r.By))
					}
					return err
				})
			},
		},
		{
			Name: "withdraw", Usage: "withdraw a request of your own", ArgsUsage: "ID",
			Action: func(c *cli.Context) error {
				id, err := requestID(c)
				if err != nil {
					return err
				}
				return p.ask(c, func(ctx context.Context, d answers) error {
					_, err := d.Withdraw(ctx, id)
					if err == nil {
						fmt.Fprintf(c.App.Writer, "Request %d is withdrawn.\n", id)
					}
					return err
				})
			},
		},
	}
}

func requestID(c *cli.Context) (int64, error) {
	args, err := commands.Args(c, 1, 1)
	if err != nil {
		return 0, err
	}
	return numberOf(args[0], "request", "requests")
}

// numberOf reads the number of a thing that a command of pba alloc lists.
func numberOf(text, thing, listedBy string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, shell.Usagef("%q is not the number of a %s: see `pba alloc %s`", text, thing, listedBy)
	}
	return id, nil
}

func askForSlots(c *cli.Context, p process) error {
	args, err := commands.Args(c, 2, 2)
	if err != nil {
		return err
	}
	pool, err := poolOf(c, args[0])
	if err != nil {
		return err
	}
	slots, err := strconv.Atoi(args[1])
	if err != nil || slots < 1 || slots > math.MaxInt32 {
		return shell.Usagef("%q is not a number of slots, one or more", args[1])
	}
	return p.ask(c, func(ctx context.Context, d answers) error {
		r, err := d.Ask(ctx, pool, slots, when(c), c.String("why"))
		if err != nil {
			return err
		}
		out := c.App.Writer
		fmt.Fprintf(out, "Request %d: %s for %s %s.\n", r.ID, printable.Count(r.Slots, "slot"), shell.Printable(r.Pool.String()), inRange(r.From, r.To))
		fmt.Fprintf(out, "Now: %s.\n", r.Granting())
		who := "an admin"
		if len(r.Managers) > 0 {
			who = "a manager (" + strings.Join(r.Managers, ", ") + ") or " + who
		}
		fmt.Fprintf(out, "It waits for %s.\n", shell.Printable(who))
		return nil
	})
}

func grant(ctx context.Context, d answers, id int64, c *cli.Context) error {
	r, changes, err := d.Grant(ctx, id, c.String("comment"))
	if err != nil {
		return err
	}
	out := c.App.Writer
	if len(changes) == 0 {
		fmt.Fprintf(out, "Request %d is granted: %s had as many slots already.\n", id, shell.Printable(r.Pool.String()))
		return nil
	}
	fmt.Fprintf(out, "Request %d is granted: %s has %s %s.\n", id, shell.Printable(r.Pool.String()), printable.Count(r.Slots, "slot"),
		inRange(changes[0].Week, changes[len(changes)-1].Week))
	return nil
}

func listRequests(ctx context.Context, d answers, c *cli.Context) (*table.Table, any, error) {
	all, err := d.Requests(ctx, c.String("project"), c.Bool("all"))
	t := table.New("id", "project", "user", "step", "hosts", "slots", "from", "to", "by", "has", "free", "granting", "why")
	for _, r := range all {
		has, free := "-", "-"
		if len(r.Weeks) > 0 {
			has, free = hasAndFree(r.Weeks)
		}
		t.Row(r.ID, r.Project, dash(r.User), dash(r.Step), dash(r.Hosts), r.Slots, r.From, r.To, r.By, has, free, r.Granting(), r.Why)
	}
	return t, all, err
}

// hasAndFree returns the fewest and the most slots that a pool has, and the fewest that
// are free.
func hasAndFree(weeks []desk.RequestWeek) (has, free string) {
	least, most := weeks[0].Has, weeks[0].Has
	room, known := math.MaxInt, true
	for _, w := range weeks {
		least, most = min(least, w.Has), max(most, w.Has)
		if w.Free == nil {
			known = false
		} else {
			room = min(room, *w.Free)
		}
	}
	has, free = strconv.Itoa(least), "-"
	if most > least {
		has += "-" + strconv.Itoa(most)
	}
	if known {
		free = strconv.Itoa(room)
	}
	return has, free
}

// waits returns how many requests wait.
func waits(n int) string {
	if n == 1 {
		return "1 request for slots waits"
	}
	return fmt.Sprintf("%d requests for slots wait", n)
}
