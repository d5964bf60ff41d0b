package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/lease"
	"github.com/allotment-hpc/allotment/split"
)

func topCommand(p process) *cli.Command {
	return &cli.Command{
		Name:  "top",
		Usage: "list the splits of this directory and their tasks, and the workers, leases and waiting requests of asplit serve",
		Description: "Of a split that runs the tasks that have not ended are listed. Requests are listed in the order in which they are served.\n" +
			"CORES are free and all, or those of each slot.",
		Flags: append([]cli.Flag{nameFlag("ask the manager `NAME`; default: the one without a name")}, table.Flags()...),
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
			all := new(overview)
			if all.Splits, err = split.Statuses("."); err != nil { // of this directory alone
				fmt.Fprintln(p.stderr, "asplit:", shell.Printable(err.Error()))
			}
			if all.Splits == nil {
				all.Splits = []split.Status{} // in JSON, too
			}
			all.View, err = askView(c.Context, name)
			if len(all.Splits) > 0 && name == "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)) {
				all.View, err = nil, nil // no asplit serve runs
			}
			if err != nil {
				return err
			}
			return printOverview(p.stdout, format, all)
		},
	}
}

// overview is what top shows.
type overview struct {
	Splits      []split.Status `json:"splits"`
	*lease.View                // nil: no asplit serve runs
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

// printOverview prints the tables of the splits, if there are any, and of asplit serve, or one value.
func printOverview(out io.Writer, format table.Format, all *overview) error {
	if format == table.JSON {
		return table.Print(out, format, nil, all)
	}
	var tables []*table.Table
	if len(all.Splits) > 0 {
		splits, tasks := splitTables(all.Splits)
		tables = append(tables, splits, tasks)
	}
	if all.View != nil {
		tables = append(tables, viewTables(all.View)...)
	}
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := table.Print(out, format, t, nil); err != nil {
			return err
		}
	}
	return nil
}

// splitTables returns the splits, and the tasks of those that run.
func splitTables(all []split.Status) (splits, tasks *table.Table) {
	splits = table.New("split", "state", "items", "total", "failed", "items_per_second", "left", "round", "workers")
	tasks = table.New("split", "task", "host", "first", "items", "by", "copy_of")
	for i := range all {
		s := &all[i]
		total, round := "-", strconv.Itoa(s.Round)
		if s.Total >= 0 {
			total = strconv.FormatInt(s.Total, 10)
		}
		if s.Period > 0 {
			round = "period " + strconv.FormatInt(s.Period, 10)
		}
		rate, left := "-", "-"
		if s.State == split.StateRuns && s.Rate > 0 {
			rate = fmt.Sprintf("%.3g", s.Rate)
		}
		if s.State == split.StateRuns && s.Left > 0 {
			left = seconds(time.Duration(s.Left * float64(time.Second)))
		}
		splits.Row(s.Name, s.State, s.Items, total, s.Failed, rate, left, round, s.Workers)
		if s.State != split.StateRuns {
			continue
		}
		for j := range s.Tasks {
			t := &s.Tasks[j]
			copied := "-"
			if t.CopyOf != 0 {
				copied = strconv.FormatInt(t.CopyOf, 10)
			}
			tasks.Row(s.Name, t.Task, t.Host, t.First, t.Items, executedBy(t), copied)
		}
	}
	return splits, tasks
}

// viewTables returns what asplit serve knows.
func viewTables(v *lease.View) []*table.Table {
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
	return []*table.Table{workers, leases, waiting}
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
