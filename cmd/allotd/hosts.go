package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/internal/bus"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/web"
)

func hostCommands() []*cli.Command {
	return []*cli.Command{
		{
			Name: "enrol", Usage: "print the line by which hosts of other machines join",
			Description: "The line has allotd's address, the fingerprint of its authority and a secret. A host that has it\n" +
				"in /etc/allotment/enrolment, mode 600, is admitted at once: put it into the image, or onto hosts\n" +
				"by the site's own means. A host that has the secret can be enrolled by any name that is free.",
			Flags: append([]cli.Flag{
				&cli.DurationFlag{Name: "expires", Usage: "the secret ends after `DURATION`, such as 1h; hosts that it admitted stay"},
				&cli.BoolFlag{Name: "no-secret", Usage: "the line has no secret: hosts wait for allotd approve", DisableDefaultText: true},
				&cli.BoolFlag{Name: "list", Usage: "list the secrets, without what they are", DisableDefaultText: true},
				&cli.StringFlag{Name: "withdraw", Usage: "withdraw the secret `ID`; hosts that it admitted stay"},
				&cli.BoolFlag{Name: "nats-config", Usage: "print what the site's own NATS servers must have in their config", DisableDefaultText: true},
			}, table.Flags()...),
			Action: enrol,
		},
		{
			Name: "approve", Usage: "admit a host that waits, or list those that wait", ArgsUsage: "[HOST [KEY]]",
			Description: "A host waits if it has no secret, if its secret is withdrawn, or if another key is enrolled for its\n" +
				"name. Compare its key with what ahostd --identity prints there.",
			Flags:  table.Flags(),
			Action: approve,
		},
		{
			Name: "withdraw", Usage: "end a host's enrolment, or list the hosts that are enrolled", ArgsUsage: "[HOST]",
			Description: "The host is disconnected at once, and no secret brings it back: only allotd approve does.",
			Flags:       table.Flags(),
			Action:      withdraw,
		},
	}
}

// ask asks the allotd that runs.
func ask(c *cli.Context, what, name string, q web.BusQuestion, answer any) error {
	d, err := desk.New(desk.ThisSystem())
	if err != nil {
		return err
	}
	return d.AskAllotd(c.Context, what, "/bus/"+name, q, answer)
}

func enrol(c *cli.Context) error {
	n := 0
	for _, name := range []string{"list", "withdraw", "nats-config", "no-secret"} {
		if c.IsSet(name) {
			n++
		}
	}
	if n > 1 || n > 0 && c.IsSet("expires") {
		return shell.Usagef("--expires, --no-secret, --list, --withdraw and --nats-config exclude each other")
	}
	out := c.App.Writer
	switch {
	case c.Bool("list"):
		return listSecrets(c)
	case c.IsSet("withdraw"):
		id := c.String("withdraw")
		if err := ask(c, "withdraw a secret", "withdraw-secret", web.BusQuestion{ID: id}, &web.BusText{}); err != nil {
			return err
		}
		fmt.Fprintf(out, "Secret %s is withdrawn.\n", shell.Printable(id))
		return nil
	}
	lasts := c.Duration("expires")
	if c.IsSet("expires") && lasts < time.Second {
		return shell.Usagef("option --expires: %v: want at least 1s", lasts)
	}
	var text web.BusText
	name, question := "enrol", web.BusQuestion{Secret: !c.Bool("no-secret"), Lasts: lasts}
	if c.Bool("nats-config") {
		name = "site"
	}
	if err := ask(c, "enrol hosts", name, question, &text); err != nil {
		return err
	}
	if len(text.Text) > 0 && text.Text[len(text.Text)-1] != '\n' {
		text.Text += "\n"
	}
	fmt.Fprint(out, text.Text)
	return nil
}

// at is a time as tables show it.
func at(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04")
}

func listSecrets(c *cli.Context) error {
	format, err := table.FormatOf(c)
	if err != nil {
		return err
	}
	var s web.BusSecrets
	if err := ask(c, "list the secrets", "secrets", web.BusQuestion{}, &s); err != nil {
		return err
	}
	t := table.New("id", "made", "expires", "hosts")
	for _, one := range s.Secrets {
		t.Row(one.ID, at(one.Made), at(one.Expires), one.Hosts)
	}
	return table.Print(c.App.Writer, format, t, s)
}

func approve(c *cli.Context) error {
	format, err := table.FormatOf(c)
	if err != nil {
		return err
	}
	if _, err := commands.Args(c, 0, 2); err != nil {
		return err
	}
	if c.Args().Present() {
		var h bus.Host
		if err := ask(c, "approve a host", "approve", web.BusQuestion{Host: c.Args().Get(0), Key: c.Args().Get(1)}, &h); err != nil {
			return err
		}
		fmt.Fprintf(c.App.Writer, "Host %s is admitted, with key %s.\n", shell.Printable(h.Name), shell.Printable(h.Key))
		return nil
	}
	var all web.BusHosts
	if err := ask(c, "list the hosts that wait", "hosts", web.BusQuestion{}, &all); err != nil {
		return err
	}
	t := table.New("host", "since", "from", "why", "key")
	for _, w := range all.Waiting {
		t.Row(w.Name, at(w.Since), w.From, w.Why, w.Key)
	}
	return table.Print(c.App.Writer, format, t, all.Waiting)
}

func withdraw(c *cli.Context) error {
	format, err := table.FormatOf(c)
	if err != nil {
		return err
	}
	if _, err := commands.Args(c, 0, 1); err != nil {
		return err
	}
	if c.Args().Present() {
		var h bus.Host
		if err := ask(c, "withdraw a host", "withdraw", web.BusQuestion{Host: c.Args().First()}, &h); err != nil {
			return err
		}
		fmt.Fprintf(c.App.Writer, "Host %s is withdrawn.\n", shell.Printable(h.Name))
		return nil
	}
	var all web.BusHosts
	if err := ask(c, "list the hosts", "hosts", web.BusQuestion{}, &all); err != nil {
		return err
	}
	t := table.New("host", "since", "by", "withdrawn", "key")
	for _, h := range all.Hosts {
		t.Row(h.Name, at(h.Since), h.By, at(h.Withdrawn), h.Key)
	}
	return table.Print(c.App.Writer, format, t, all.Hosts)
}
