package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/lease"
)

func topCommand(p process) *cli.Command {
	return &cli.Command{
		Name:        "top",
		Usage:       "list the workers, leases and waiting requests of asplit serve",
		Description: "Requests are listed in the order in which they are served. CORES are free and all, or those of each slot.",
		Flags:       append([]cli.Flag{nameFlag("ask the manager `NAME`; default: the one without a name")}, table.Flags()...),
		Action: func(c *cli.Context) error {
			format, err := table.FormatOf(c)
			if err != nil {
				return err
			}
			if c.NArg() > 0 {
				return shell.Usagef("top takes no arguments")
			}
			name, err := managerName(c)
			if err != nil {
				return err
			}
			v, err := askView(c.Context, name)
			if err != nil {
				return err
			}
			return printView(p.stdout, format, v)
		},
	}
}

const maxView = 256 << 20 // bytes

// askView asks this user's asplit serve of that name what it knows.
func askView(ctx context.Context, name string) (*lease.View, error) {
	paths, err := serveDir(os.Getenv, os.Getuid())
	if err != nil {
		return nil, err
	}
	socket, start := managerFiles(paths.Runtime, name)+".sock", "asplit serve"
	if name != "" {
		start += " --name " + name
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://asplit/v1/view", nil)
	if err != nil {
		return nil, err
	}
	answer, err := listen.Client(socket, 10*time.Second).Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask asplit serve on %s: %w: start it with %s", socket, err, start)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask asplit serve on %s: it answers %s", socket, answer.Status)
	}
	var v lease.View
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxView)).Decode(&v); err != nil {
		return nil, fmt.Errorf("read the answer of asplit serve on %s: %w", socket, err)
	}
	return &v, nil
}

// printView prints three tables, or one value.
func printView(out io.Writer, format table.Format, v *lease.View) error {
	if format == table.JSON {
		return table.Print(out, format, nil, v)
	}
	workers := table.New("host", "worker", "state", "leases", "cores", "memory")
	for _, w := range v.Workers {
		workers.Row(w.Host, w.Worker, w.State, w.Leases, cores(w.FreeMilli)+"/"+cores(w.Milli), memory(w.FreeMemory)+"/"+memory(w.Memory))
	}
	leases := table.New("lease", "host", "worker", "holder", "request", "job", "cores", "memory", "state")
	for _, l := range v.Leases {
		state := "held"
		if l.Locked {
			state = "locked"
		}
		leases.Row(l.Lease, l.Host, l.Worker, l.Holder, l.ID, l.Job, cores(l.Milli), memory(l.Memory), state)
	}
	waiting := table.New("request", "holder", "job", "priority", "slots", "cores", "memory", "state")
	for _, r := range v.Waiting {
		state := "waits"
		if r.Impossible {
			state = "no worker is large enough"
		}
		waiting.Row(r.ID, r.Holder, r.Job, r.Priority, r.Slots, cores(r.Milli), memory(r.Memory), state)
	}
	for i, t := range []*table.Table{workers, leases, waiting} {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := table.Print(out, format, t, nil); err != nil {
			return err
		}
	}
	return nil
}

// cores is a number of milli-cores in cores.
func cores(milli int64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%03d", milli/1000, milli%1000), "0"), ".")
}

func memory(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return unit.Size(bytes).Short()
}
