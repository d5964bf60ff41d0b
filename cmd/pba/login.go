package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/remote"
)

func loginCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "login", Usage: "print a link that opens the management page, once and within a minute", ArgsUsage: "[LINK]",
		Description: "allotd must be running on this machine. The link signs the browser in as you.\n" +
			"With --server URL it takes such a LINK, signs this machine's pba in to that server as you, and\n" +
			"keeps the session below ~/.config/allotment, readable by you alone.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true}},
		Action: func(c *cli.Context) error {
			if server := c.String("server"); server != "" {
				return loginTo(c, server)
			}
			if _, err := commands.Args(c, 0, 0); err != nil {
				return err
			}
			d, err := desk.New(p.System)
			if err != nil {
				return withExitCode(err)
			}
			link, err := d.Login(c.Context)
			if err != nil {
				return withExitCode(err)
			}
			if c.Bool("json") {
				return shell.PrintJSON(c.App.Writer, link)
			}
			fmt.Fprintln(c.App.Writer, shell.Printable(link.URL))
			return nil
		},
	}
}

// loginTo signs this machine's pba in to a server.
func loginTo(c *cli.Context, server string) error {
	args, err := commands.Args(c, 1, 1)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return shell.Usagef("--json does not go with --server: there is nothing to print")
	}
	client, err := remote.Open(server)
	if err == nil {
		err = client.Login(c.Context, args[0])
	}
	if err != nil {
		return withExitCode(err)
	}
	fmt.Fprintf(c.App.Writer, "Signed in. To sign out: pba --server %s logout\n", shell.Printable(server))
	return nil
}

func logoutCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "logout", Usage: "sign all your browsers out of the management page",
		Description: "With --server URL it signs this machine's pba out of that server, and no browser.",
		Action: func(c *cli.Context) error {
			if server := c.String("server"); server != "" {
				return logoutFrom(c, server)
			}
			d, err := desk.New(p.System)
			if err != nil {
				return withExitCode(err)
			}
			out, err := d.Logout(c.Context)
			if err != nil {
				return withExitCode(err)
			}
			fmt.Fprintf(c.App.Writer, "%s signed out.\n", printable.Count(out.Sessions, "browser"))
			return nil
		},
	}
}

func logoutFrom(c *cli.Context, server string) error {
	client, err := remote.Open(server)
	if err == nil {
		err = client.Logout(c.Context)
	}
	if err != nil {
		return withExitCode(err)
	}
	fmt.Fprintln(c.App.Writer, "Signed out.")
	return nil
}
