package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func loginCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "login", Usage: "print a link that opens the management page, once and within a minute",
		Description: "allotd must be running on this machine. The link signs the browser in as you.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true}},
		Action: func(c *cli.Context) error {
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

func logoutCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "logout", Usage: "sign all your browsers out of the management page",
		Action: func(c *cli.Context) error {
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
