package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/printable"
)

// Bounds of what ahist lists.
const (
	pastFor     = 7 * 24 * time.Hour
	defaultPast = 1000
	maxPast     = 100_000
)

// pastOptions are the options of ahist.
type pastOptions struct {
	choice
	args                 []bsub.JobArg
	since                time.Duration
	within               string // since, as it was typed
	most                 int
	long, json           bool
	wide, noHeader, only bool // only: the columns of -o, without totals
	layout
}

func pastApp(p process) *cli.App {
	return &cli.App{
		Name: "ahist", Usage: "show what became of jobs", ArgsUsage: "[JOB...]",
		Description: "Lists your own jobs that have ended or were requeued within the last 7 days, the latest one last, with\n" +
			"how they ended and why, how long they waited and ran, the processor time and memory that they used,\n" +
			"their hosts, and how often they were requeued; then their sum. Named JOBs (12, 12[3], or by a name) are\n" +
			"listed whenever they ended. It reads what the queue keeps: miniq its jobs' state objects, Slurm its\n" +
			"accounting (sacct), LSF its files lsb.acct and lsb.events. For which job pba requeued a run there, pba's ledger says.\n" +
			"With -l it shows what the hosts of jobs of Slurm and LSF keep of them, too, where allotd runs.",
		Metadata: map[string]any{
			commands.Clusters: true,
			commands.OneDash:  []string{"noheader"},
			commands.Examples: []grammar.Example{
				{Line: "ahist --since 2d", Does: "what became of your jobs in the last two days"},
				{Line: "ahist -l 12", Does: "the whole story of job 12: each run, why it ended, and what was lost"},
				{Line: "ahist -u all -q night --sort -lost", Does: "all users' jobs in the queue night, those that lost the most run time first"},
				{Line: "ahist -noheader -o \"job stat exit_code cpu delimiter='^'\"", Does: "for a script: columns between ^, no heading, no sum"},
			},
		},
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "since", Usage: "jobs that ended or were requeued within `TIME` such as 12h, 2d or 1w (default: 7d)"},
			&cli.IntFlag{Name: "limit", Usage: "at most the last `N` jobs", Value: defaultPast},
			&cli.BoolFlag{Name: "l", Usage: "the whole story of each job: its runs, why each of them ended, and what was lost", DisableDefaultText: true},
			&cli.BoolFlag{Name: "w", Usage: "don't shorten columns", DisableDefaultText: true},
			&cli.StringFlag{Name: "o", Usage: "print the columns of `FORMAT`, as ajobs -o, and no sum"},
			&cli.BoolFlag{Name: "noheader", Usage: "print no heading and no sum", DisableDefaultText: true},
			&cli.StringFlag{Name: "sort", Usage: "sort by `FIELDS` of -o, between commas; -FIELD: the highest first"},
			&cli.StringFlag{Name: "m", Usage: "jobs whose last run was on `HOST`"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true},
		}, choiceFlags()...),
		Action: func(c *cli.Context) error {
			o, err := pastOptionsOf(c, p)
			if err != nil {
				return err
			}
			return runPast(c.Context, p, o, c.App.Writer)
		},
	}
}

func pastOptionsOf(c *cli.Context, p process) (pastOptions, error) {
	chosen, args, err := listedBy(c, p)
	if err != nil {
		return pastOptions{}, err
	}
	chosen.dummies = len(args) > 0
	o := pastOptions{
		choice: chosen, args: args, since: pastFor, within: "7d", most: c.Int("limit"), long: c.Bool("l"), json: c.Bool("json"),
		wide: c.Bool("w"), noHeader: c.Bool("noheader"), only: c.IsSet("o"),
	}
	switch {
	case o.long && (o.json || o.only || o.wide || o.noHeader):
		return o, shell.Usagef("-l prints all of each job: it can't be combined with -o, -w, -noheader or --json")
	case o.json && o.only:
		return o, shell.Usagef("--json has all fields: it can't be combined with -o")
	case o.most < 1 || o.most > maxPast:
		return o, shell.Usagef("option --limit: %d: want a number from 1 to %d", o.most, maxPast)
	}
	if err := readSince(c, &o.since); err != nil {
		return o, err
	}
	if c.IsSet("since") {
		o.within = c.String("since")
	}
	return o, o.layout.read(c)
}

// runPast is ahist.
func runPast(ctx context.Context, p process, o pastOptions, out io.Writer) error {
	queue, err := p.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	found, unknown, err := o.find(ctx, queue, p)
	if err != nil {
		return err
	}
	if found.Note != "" {
		fmt.Fprintf(p.stderr, "ahist: %s\n", shell.OneLine(found.Note))
	}
	p.explainRequeues(ctx, found.Jobs)
	all := o.sorted(p, found.Jobs)
	switch {
	case o.json:
		err = shell.PrintJSON(out, newPastJSON(all, p.now()))
	case len(all) == 0 && len(unknown) == 0:
		fmt.Fprintf(p.stderr, "No job is found that ended or was requeued within %s: --since takes a longer time\n", o.within)
	case len(all) == 0:
	case o.long:
		if queue.Abilities().Set == nil {
			addPastStates(ctx, p, all)
		}
		err = o.printStories(p, all, out)
	default:
		err = o.print(p, all, out)
	}
	if err == nil && found.Older > 0 {
		fmt.Fprintf(p.stderr, "ahist: %s before these are not shown: see --limit and --since\n", printable.Count(found.Older, "job"))
	}
	return cmp.Or(err, reportUnknown(p, "Job <%s> is not found: no job of this ID or name has ended or was requeued, as far as the queue keeps it\n", unknown))
}

// find asks for the jobs, and returns the arguments that name none.
func (o pastOptions) find(ctx context.Context, queue backends.Backend, p process) (found backends.PastJobs, unknown []string, err error) {
	history := queue.Abilities().History
	if history == nil {
		return found, nil, fmt.Errorf("show what became of jobs: %w", backends.ErrUnable)
	}
	ask := func(q backends.PastQuery) error {
		more, err := history(ctx, q)
		all := append(found.Jobs, more.Jobs...)
		older, note := found.Older+more.Older, cmp.Or(more.Note, found.Note)
		found = backends.Newest(all, o.most)
		found.Older += older
		found.Note = note
		return err
	}
	q := backends.PastQuery{Since: p.now().Add(-o.since), User: o.user, Keep: o.includes, Most: o.most}
	if len(o.args) == 0 {
		return found, nil, cmp.Or(ask(q), err)
	}
	var ids []backends.ID
	var names []string
	for _, arg := range o.args {
		if arg.Name != "" {
			names = append(names, arg.Name)
			continue
		}
		named, err := idsOf(ctx, queue, p, []bsub.JobArg{arg})
		if err != nil {
			return found, nil, err
		}
		ids = append(ids, named...)
	}
	if len(ids) > 0 {
		q.IDs = ids
		if err := ask(q); err != nil {
			return found, nil, err
		}
	}
	if len(names) > 0 {
		q.IDs, q.User = nil, cmp.Or(o.user, p.user())
		q.Keep = func(j *backends.Job) bool {
			return o.includes(j) && (slices.Contains(names, j.Name) || slices.Contains(names, bsub.JobName(j)) || slices.Contains(names, bsub.ArrayName(j)))
		}
		if err := ask(q); err != nil {
			return found, nil, err
		}
	}
	return found, o.missing(found, ids, names), nil
}

// missing returns the IDs and names of which nothing was found.
func (o pastOptions) missing(found backends.PastJobs, ids []backends.ID, names []string) []string {
	known, named := map[backends.ID]bool{}, map[string]bool{}
	for i := range found.Jobs {
		j := &found.Jobs[i].Job
		known[j.ID], known[backends.ID{Job: j.ID.Job}] = true, true
		named[j.Name], named[bsub.JobName(j)], named[bsub.ArrayName(j)] = true, true, true
	}
	var missing []string
	for _, id := range ids {
		if !known[id] && found.Older == 0 {
			missing = append(missing, id.String())
		}
	}
	for _, name := range names {
		if !named[name] && found.Older == 0 {
			missing = append(missing, name)
		}
	}
	return missing
}

func pastRows(all []backends.Past) []bsub.Row {
	rows := make([]bsub.Row, len(all))
	for i := range all {
		rows[i] = bsub.Row{Job: &all[i].Job, Record: all[i].Record}
	}
	return rows
}

func (o pastOptions) sorted(p process, all []backends.Past) []backends.Past {
	if o.order.IsZero() {
		return all
	}
	rows := pastRows(all)
	o.order.Sort(rows, p.host(), p.now().Location(), p.now())
	sorted := make([]backends.Past, len(rows))
	for i, r := range rows {
		sorted[i] = backends.Past{Job: *r.Job, Record: r.Record}
	}
	return sorted
}

func (o pastOptions) print(p process, all []backends.Past, out io.Writer) error {
	format := o.format
	if format == nil {
		usual := bsub.PastFormat(o.user != p.user())
		format = &usual
	}
	t := bsub.FormatTable{Format: *format, Wide: o.wide, NoHeader: o.noHeader, FromHost: p.host(), Zone: p.now().Location(), Now: p.now()}
	if err := t.Write(out, pastRows(all)); err != nil || o.only || o.noHeader {
		return err
	}
	return bsub.TotalPast(all, p.now()).Write(out)
}

func (o pastOptions) printStories(p process, all []backends.Past, out io.Writer) error {
	detail := bsub.Detail{FromHost: p.host(), Zone: p.now().Location(), Width: shell.Width(out)}
	for i := range all {
		if i > 0 {
			if _, err := io.WriteString(out, bsub.Separator); err != nil {
				return err
			}
		}
		if err := detail.WritePast(out, &all[i], p.now()); err != nil {
			return err
		}
	}
	return nil
}
