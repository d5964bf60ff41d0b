package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	client "github.com/allotment-hpc/allotment/backends/miniq"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

func newApp() *cli.App {
	return &cli.App{
		DisableSliceFlagSeparator: true, // a node has commas
		Name:                      "miniqd",
		Usage:                     "serve the bundled queue, show its state, check it, stop it",
		UsageText:                 "miniqd [--node NAME:SLOTS[:MEMORY[:RESOURCES]]]… [--foreground]\nminiqd status [--json | --csv]\nminiqd stop [--kill]\nminiqd check [--repair] [--json] [DIRECTORY]\nminiqd compact [--keep DURATION] [--json]",
		Description: "Without a command it serves the queue (of ALLOTMENT_HOME, or of the user's own directories)\n" +
			"in the background. asub starts it at the first submission. Jobs run on when it stops, and the\n" +
			"next one finds them. Its hosts are those of --node, else of the config file (miniq: nodes:),\n" +
			"else one: this machine.",
		Flags:  serveFlags(),
		Action: serve,
		Commands: []*cli.Command{
			statusCommand(), stopCommand(), checkCommand(), compactCommand(), nodeCommand(),
		},
	}
}

// openQueue opens this run's queue, which is not started.
func openQueue() (*client.Client, error) {
	c, err := configfile.Load(yamlplain.Convert)
	if err != nil {
		return nil, err
	}
	return client.Open(client.Options{Paths: c.Paths, Config: c.Miniq}), nil
}

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "show the daemon's hosts and jobs",
		Flags: table.Flags(),
		Action: func(c *cli.Context) error {
			format, err := table.FormatOf(c)
			if err != nil {
				return err
			}
			q, err := openQueue()
			if err != nil {
				return err
			}
			defer func() { _ = q.Close() }()
			status, err := q.Status(c.Context)
			if err != nil {
				return err
			}
			return printStatus(c, format, status)
		},
	}
}

func printStatus(c *cli.Context, format table.Format, s *miniq.Status) error {
	t := table.New("node", "state", "slots", "used", "memory")
	for _, h := range s.Hosts {
		t.Row(h.Name, h.State.String(), h.Slots, h.Used, sizeText(h.Memory))
	}
	if format == table.Text {
		fmt.Fprintf(c.App.Writer, "miniqd %s, process %d, since %s\nstate   %s\nsocket  %s\njobs    %d waiting, %d running, %d ended\n\n",
			shell.Printable(s.Version), s.PID, s.Since.Local().Format(time.DateTime), shell.Printable(s.State), shell.Printable(s.Socket), s.Pending, s.Running, s.Ended)
	}
	return table.Print(c.App.Writer, format, t, statusJSON(s))
}

// Snake-case names, as everywhere in --json.
type hostView struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Slots  int    `json:"slots"`
	Used   int    `json:"used"`
	Memory int64  `json:"memory_bytes"`
}

type statusView struct {
	*miniq.Status
	Hosts []hostView `json:"hosts"`
}

func statusJSON(s *miniq.Status) statusView {
	v := statusView{Status: s, Hosts: []hostView{}}
	for _, h := range s.Hosts {
		v.Hosts = append(v.Hosts, hostView{h.Name, h.State.String(), h.Slots, h.Used, h.Memory})
	}
	return v
}

func stopCommand() *cli.Command {
	return &cli.Command{
		Name:  "stop",
		Usage: "stop the daemon; jobs run on, and the next one finds them",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "kill", Usage: "kill the running jobs first", DisableDefaultText: true}},
		Action: func(c *cli.Context) error {
			q, err := openQueue()
			if err != nil {
				return err
			}
			defer func() { _ = q.Close() }()
			ctx, cancel := context.WithTimeout(c.Context, stopTime)
			defer cancel()
			return q.Stop(ctx, c.Bool("kill"))
		},
	}
}

// stopTime is longer than the time in which killed jobs must end.
const stopTime = time.Minute
