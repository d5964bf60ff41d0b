package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/metrics/qualify"
)

const (
	wordQualify = "__qualify" // [--fresh] DIRECTORY NUMBER: what a job runs that measures its host
	everyHost   = "all"
)

func qualifyCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "qualify", Usage: "measure how fast this host is for a job, or others",
		Description: "Measures interconnect, CPU, GPU, storage, memory and bus in less than ten seconds, within the limits that a job has. " +
			"Storage is that of the working directory. With --hosts a job on each host measures, and interconnect is the network from there to here. " +
			"The share is the part of the work that a host would get, by the influence factors of the profile (the weights of the six).",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "profile", Usage: "`PROFILE` of influence factors: " + strings.Join(metrics.Profiles(), ", ") + "; or factors by hand: C=70,M=30", Value: "balanced"},
			&cli.StringFlag{Name: "P", Usage: "project of these jobs, or its step: `PROJECT[:STEP]`"},
			&cli.StringFlag{Name: "hosts", Usage: "measure these `HOSTS`, such as a,b, by a job on each; " + everyHost + ": each one that is up"},
			&cli.IntFlag{Name: "slots", Usage: "slots of each job: `N` items side by side", Value: 1},
		}, table.Flags()...),
		Action: func(c *cli.Context) error {
			format, err := table.FormatOf(c)
			if err != nil {
				return err
			}
			factors, err := factorsOf(c.String("profile"))
			if err != nil {
				return shell.Usagef("--profile: %w", err)
			}
			if c.Int("slots") < 1 {
				return shell.Usagef("--slots %d: want 1 or more", c.Int("slots"))
			}
			var answers []qualify.Answer
			switch {
			case c.IsSet("hosts"):
				answers, err = qualifyHosts(c.Context, p, jobOptions(c, "P"), strings.Split(c.String("hosts"), ","), c.Int("slots"))
			case c.IsSet("slots"):
				err = shell.Usagef("--slots needs --hosts: it is the size of the jobs that measure")
			case c.IsSet("P"):
				err = shell.Usagef("-P needs --hosts: it is the project of the jobs that measure")
			default:
				answers, err = qualifyHere(c.Context)
			}
			if err != nil {
				return err
			}
			return printQualified(c.App.Writer, c.App.ErrWriter, format, factors, answers)
		},
	}
}

// qualifyJobCommand is the work of a job that measures its host.
func qualifyJobCommand(p process) *cli.Command {
	return &cli.Command{
		Name: wordQualify, Hidden: true, ArgsUsage: "DIRECTORY NUMBER",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "fresh", Usage: "ignore cached results"}},
		Action: func(c *cli.Context) error {
			number, err := strconv.Atoi(c.Args().Get(1))
			if err != nil || c.NArg() != 2 {
				return shell.Usagef("want DIRECTORY NUMBER; only asplit runs it")
			}
			config, err := p.load()
			if err != nil {
				return err
			}
			return qualify.Run(c.Context, c.Args().First(), number, qualify.CacheOf(config.Paths), c.Bool("fresh"))
		},
	}
}

// factorsOf reads the name of a profile, or factors.
func factorsOf(text string) (metrics.Factors, error) {
	if strings.Contains(text, "=") {
		return metrics.ParseFactors(text)
	}
	return metrics.Profile(text)
}

func qualifyHere(ctx context.Context) ([]qualify.Answer, error) {
	r, err := qualify.Measure(ctx, qualify.Options{Dir: "."})
	if err != nil {
		return nil, err
	}
	return []qualify.Answer{{Request: qualify.Request{Host: r.Machine.Host}, Result: r}}, nil
}

// qualifyHosts measures by jobs, in the order of names.
func qualifyHosts(ctx context.Context, p process, options, names []string, slots int) ([]qualify.Answer, error) {
	config, err := p.load()
	if err != nil {
		return nil, err
	}
	queue, err := p.open(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = queue.Close() }()
	farm, err := queue.Snapshot(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	asks, err := asksFor(farm.Hosts, names, slots)
	if err != nil {
		return nil, err
	}
	submitContext, err := submit.Context()
	if err != nil {
		return nil, err
	}
	job, err := template(options, submitContext)
	if err != nil {
		return nil, err
	}
	self, err := p.executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(submitContext.Dir, ".asplit-qualify-*")
	if err != nil {
		return nil, fmt.Errorf("make a directory that the hosts see: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := qualify.Serve(ctx, qualify.LinkFile(dir))
	if err != nil {
		return nil, err
	}
	defer server.Close()
	hosts := qualify.Hosts{
		Queue: withFilter(queue, p.stderr), Dir: dir, Argv: []string{self, wordQualify, "--fresh"},
		Job: job,
	}
	var answers []qualify.Answer
	hosts.Measure(ctx, asks, func(a qualify.Answer) { answers = append(answers, a) })
	if ctx.Err() != nil {
		return nil, fmt.Errorf("measure the hosts: %w", context.Cause(ctx))
	}
	at := map[string]int{}
	for i, ask := range asks {
		at[ask.Host] = i
	}
	slices.SortFunc(answers, func(a, b qualify.Answer) int { return at[a.Host] - at[b.Host] })
	return answers, nil
}

// asksFor returns the hosts of the given names. A job on a host that is missing or down
// would wait for ever.
func asksFor(hosts []backends.Host, names []string, slots int) ([]qualify.Request, error) {
	var asks []qualify.Request
	if slices.Equal(names, []string{everyHost}) {
		names = nil
		for _, h := range hosts {
			if h.State == backends.HostUp && h.Slots > 0 {
				names = append(names, h.Name)
			}
		}
		if len(names) == 0 {
			return nil, errors.New("no host is up: see ahosts")
		}
	}
	for _, name := range names {
		i := slices.IndexFunc(hosts, func(h backends.Host) bool { return h.Name == name })
		switch {
		case i < 0:
			return nil, shell.Usagef("--hosts: the queue has no host %q: see ahosts", name)
		case hosts[i].State != backends.HostUp:
			return nil, fmt.Errorf("host %q is not up: see ahosts", name)
		case hosts[i].Slots < slots:
			return nil, shell.Usagef("--slots %d: host %q has %d", slots, name, hosts[i].Slots)
		case slices.ContainsFunc(asks, func(a qualify.Request) bool { return a.Host == name }):
			return nil, shell.Usagef("--hosts: %q is listed twice", name)
		}
		asks = append(asks, qualify.Request{Host: name, Slots: slots})
	}
	return asks, nil
}

// qualified is a host of the answer.
type qualified struct {
	Host     string             `json:"host"`
	Error    string             `json:"error,omitempty"`
	Measures map[string]float64 `json:"measures,omitempty"`
	Share    float64            `json:"share_percent"`
	Result   *qualify.Result    `json:"result,omitempty"`
}

// printQualified prints hosts in their order; those that could not be measured are
// failures.
func printQualified(out, stderr io.Writer, format table.Format, factors metrics.Factors, answers []qualify.Answer) error {
	balance := metrics.New(metrics.Options{Factors: factors})
	for _, a := range answers {
		if a.Err == nil {
			balance.Join(a.Host, a.Result.Measures(a.Slots), a.Slots)
		}
	}
	shares := map[string]float64{}
	for _, s := range balance.Shares() {
		shares[s.Host] = s.Percent
	}
	columns := []string{"host"}
	for _, e := range metrics.Elements() {
		columns = append(columns, e.String())
	}
	t := table.New(append(columns, "share")...)
	all := make([]qualified, 0, len(answers))
	failed := 0
	for _, a := range answers {
		q := qualified{Host: a.Host}
		if a.Err != nil {
			q.Error = a.Err.Error()
			failed++
			fmt.Fprintf(stderr, "asplit: measure host %s: %s\n", shell.Printable(a.Host), shell.OneLine(q.Error))
		} else {
			q.Share, q.Result, q.Measures = shares[a.Host], &a.Result, map[string]float64{}
			t.Row(rowOf(a, q)...)
			for _, note := range a.Result.Notes {
				fmt.Fprintf(stderr, "asplit: note: host %s: %s\n", shell.Printable(a.Host), shell.OneLine(note))
			}
		}
		all = append(all, q)
	}
	err := table.Print(out, format, t, struct {
		Factors string      `json:"factors"`
		Hosts   []qualified `json:"hosts"`
	}{factors.String(), all})
	if err == nil && failed > 0 {
		return &shell.ExitError{Code: shell.ExitFailure}
	}
	return err
}

// rowOf is a host's row of the table; it fills in the measures by name.
func rowOf(a qualify.Answer, q qualified) []any {
	row := []any{a.Host}
	for e, v := range a.Result.Measures(a.Slots) {
		q.Measures[metrics.Element(e).String()] = v
		cell := "-"
		if v > 0 {
			cell = strconv.FormatFloat(v, 'f', -1, 64)
		}
		row = append(row, cell)
	}
	return append(row, fmt.Sprintf("%.1f%%", q.Share))
}
