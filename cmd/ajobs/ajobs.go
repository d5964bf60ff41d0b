package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/unit"
)

// endedFor is how long ended jobs are listed by -a and -d, as LSF's CLEAN_PERIOD.
const endedFor = time.Hour

// jobsOptions are the options of ajobs.
type jobsOptions struct {
	choice
	args                             []bsub.JobArg
	all                              bool
	running, pending, stopped, ended bool
	wide, json                       bool
	long, watch                      bool
	unfolded                         bool // with long: whatever the terminal's width
	arrays, summary                  bool
	each, noHeader                   bool
	since                            time.Duration // how long ended jobs are listed
	group                            string        // "": any
	layout
}

// layout is what is printed of each job, and in which order.
type layout struct {
	format *bsub.Format // nil: the usual columns
	order  bsub.Order
}

// read reads -o and --sort.
func (l *layout) read(c *cli.Context) (err error) {
	if c.IsSet("o") {
		f, err := bsub.ParseFormat(c.String("o"))
		if err != nil {
			return shell.Usagef("option -o: %w", err)
		}
		l.format = &f
	}
	if c.IsSet("sort") {
		if l.order, err = bsub.ParseOrder(c.String("sort")); err != nil {
			return shell.Usagef("option --sort: %w", err)
		}
	}
	return nil
}

// readSince reads --since into a duration; without the option it stays as it is.
func readSince(c *cli.Context, since *time.Duration) (err error) {
	if c.IsSet("since") {
		if *since, err = unit.ParseAgo(c.String("since")); err != nil {
			return shell.Usagef("option --since: %w", err)
		}
	}
	return nil
}

func jobsApp(p process) *cli.App {
	return &cli.App{
		Name: "ajobs", Usage: "list jobs", ArgsUsage: "[JOB...]",
		Description: "Lists your own unfinished jobs, or the JOBs that are named (12, 12[3], 12[1-3], or by a name), also after their\n" +
			"end, while the queue has them. Pending jobs are in the order in which they will start. Dummy jobs, which\n" +
			"only hold slots for jobs that need much memory, are listed last, and only with -u.",
		Metadata: map[string]any{
			commands.Clusters: true,
			commands.OneDash:  []string{"noheader", "sum", "UF"},
			commands.Examples: []grammar.Example{
				{Line: "ajobs -o 'jobid stat job_name:20 pend_reason:40' -p", Does: "these columns of pending jobs, two of them so wide"},
				{Line: "ajobs -u all -o \"jobid user slots delimiter='^'\" -noheader", Does: "for a script: columns between ^, no heading"},
				{Line: "ajobs -d --since 2d --sort -cpu_used", Does: "jobs that ended within two days, the most processor time first"},
				{Line: "ajobs -A", Does: "a line for each array"},
			},
		},
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "a", Usage: "jobs that ended within the last hour too", DisableDefaultText: true},
			&cli.BoolFlag{Name: "r", Usage: "running jobs", DisableDefaultText: true},
			&cli.BoolFlag{Name: "p", Usage: "pending and held jobs, and what they wait for", DisableDefaultText: true},
			&cli.BoolFlag{Name: "s", Usage: "suspended jobs", DisableDefaultText: true},
			&cli.BoolFlag{Name: "d", Usage: "jobs that ended within the last hour", DisableDefaultText: true},
			&cli.StringFlag{Name: "since", Usage: "with -a or -d, or alone as -d: jobs that ended within `TIME` such as 12h, 2d or 1w, while the queue has them"},
			&cli.BoolFlag{Name: "w", Usage: "don't shorten columns", DisableDefaultText: true},
			&cli.BoolFlag{Name: "W", Usage: "as -w, with project, processor time, memory, start, end and slots", DisableDefaultText: true},
			&cli.BoolFlag{Name: "X", Usage: "name a job's host once for each of its slots there", DisableDefaultText: true},
			&cli.StringFlag{Name: "o", Usage: "print the columns of `FORMAT`: 'FIELD[:[-][WIDTH]]... [delimiter='C']' by LSF's names: " + strings.Join(bsub.FieldNames(), ", ")},
			&cli.BoolFlag{Name: "noheader", Usage: "print no heading", DisableDefaultText: true},
			&cli.StringFlag{Name: "sort", Usage: "sort by `FIELDS` of -o, between commas; -FIELD: the highest first"},
			&cli.BoolFlag{Name: "A", Usage: "a line for each array, with the number of its elements in each state", DisableDefaultText: true},
			&cli.BoolFlag{Name: "sum", Usage: "only the numbers of slots of running, suspended and pending jobs", DisableDefaultText: true},
			&cli.BoolFlag{Name: "l", Usage: "everything about each job, with its history; lines are as wide as the terminal, and not broken in a pipe", DisableDefaultText: true},
			&cli.BoolFlag{Name: "UF", Usage: "as -l, with lines that are never broken", DisableDefaultText: true},
			&cli.BoolFlag{Name: "watch", Usage: "keep the list on the screen up to date", DisableDefaultText: true},
			&cli.StringFlag{Name: "m", Usage: "jobs on `HOST`"},
			&cli.StringFlag{Name: "g", Usage: "jobs in the job group `PATH` itself (asub -g)"},
			&cli.StringFlag{Name: "app", Usage: "jobs with the application profile `NAME`, on LSF"},
			&cli.StringFlag{Name: "G", Usage: "jobs of all users in the group of a project, or in a `GROUP` of the system"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true},
		}, choiceFlags()...),
		Action: func(c *cli.Context) error {
			o, err := jobsOptionsOf(c, p)
			if err != nil {
				return err
			}
			if o.watch {
				return watchJobs(c.Context, p, o)
			}
			return runJobs(c.Context, p, o, c.App.Writer)
		},
	}
}

func jobsOptionsOf(c *cli.Context, p process) (jobsOptions, error) {
	chosen, args, err := listedBy(c, p)
	if err != nil {
		return jobsOptions{}, err
	}
	chosen.dummies = chosen.dummies || len(args) > 0
	o := jobsOptions{
		choice: chosen, args: args, all: c.Bool("a"),
		running: c.Bool("r"), pending: c.Bool("p"), stopped: c.Bool("s"), ended: c.Bool("d"),
		wide: c.Bool("w") || c.Bool("W"), json: c.Bool("json"), long: c.Bool("l") || c.Bool("UF"), unfolded: c.Bool("UF"),
		watch: c.Bool("watch"), arrays: c.Bool("A"), summary: c.Bool("sum"), each: c.Bool("X"), noHeader: c.Bool("noheader"),
		since: endedFor, group: c.String("G"),
	}
	if c.IsSet("G") {
		if o.group == "" || c.IsSet("u") {
			return o, shell.Usagef("-G names a group, whose users' jobs are listed: give one, and no -u")
		}
		o.user = ""
	}
	return o, o.addLayout(c)
}

// addLayout reads the options that say what is printed of the jobs, and in which order.
func (o *jobsOptions) addLayout(c *cli.Context) error {
	var layouts []string
	for _, name := range []string{"l", "UF", "W", "o", "A", "sum"} {
		if c.IsSet(name) {
			layouts = append(layouts, "-"+name)
		}
	}
	switch {
	case o.watch && (o.long || o.json):
		return shell.Usagef("--watch can't be combined with -l or --json")
	case o.watch && (o.arrays || o.summary):
		return shell.Usagef("--watch can't be combined with -A or -sum")
	case len(layouts) > 1 && !slices.Equal(layouts, []string{"-l", "-UF"}):
		return shell.Usagef("%s exclude each other", strings.Join(layouts, " and "))
	case o.json && (c.IsSet("o") || c.IsSet("W")):
		return shell.Usagef("--json has all fields: it can't be combined with -o or -W")
	}
	if c.IsSet("W") {
		f := bsub.WideFormat()
		o.format = &f
	}
	if err := o.layout.read(c); err != nil {
		return err
	}
	if err := readSince(c, &o.since); err != nil {
		return err
	}
	if c.IsSet("since") {
		o.ended = o.ended || !o.all && !o.running && !o.pending && !o.stopped
		if !o.all && !o.ended {
			return shell.Usagef("--since says how long ended jobs are listed: add -a or -d")
		}
	}
	return nil
}

// runJobs is ajobs.
func runJobs(ctx context.Context, p process, o jobsOptions, out io.Writer) error {
	queue, err := p.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	jobs, unknown, err := o.list(ctx, queue, p)
	if err != nil {
		return err
	}
	switch {
	case o.summary:
		err = o.printSummary(jobs, out)
	case o.arrays:
		err = o.printArrays(ctx, p, queue, jobs, out)
	case o.long && (o.json || len(jobs) > 0):
		err = printDetails(ctx, p, o, queue, jobs, out)
	case o.json:
		addProgress(ctx, p, queue, jobs)
		err = shell.PrintJSON(out, jobsJSON(jobs))
	case len(jobs) > 0:
		err = o.print(ctx, p, queue, jobs, out)
	case len(unknown) == 0:
		fmt.Fprintln(p.stderr, o.emptyText())
	}
	return cmp.Or(err, reportUnknown(p, "Job <%s> is not found\n", unknown))
}

// list returns the selected jobs in the order in which they are printed, and the IDs that were
// named and are unknown.
func (o jobsOptions) list(ctx context.Context, queue backends.Backend, p process) (jobs []backends.Job, unknown []backends.ID, err error) {
	member := func(string) bool { return true }
	if o.group != "" {
		if member, err = p.group(o.group); err != nil {
			return nil, nil, err
		}
	}
	if err := o.ask(ctx, queue); err != nil {
		return nil, nil, err
	}
	jobs, unknown, err = o.find(ctx, queue, p, member)
	if err != nil {
		return nil, nil, err
	}
	if len(o.args) == 0 {
		sortJobs(jobs)
	}
	if o.order.IsZero() {
		return jobs, unknown, nil
	}
	rows := rowsOf(ctx, p, queue, jobs, &o.order)
	o.order.Sort(rows, p.host(), p.now().Location(), p.now())
	sorted := make([]backends.Job, len(rows))
	for i := range rows {
		sorted[i] = *rows[i].Job
	}
	return sorted, unknown, nil
}

// print prints the list.
func (o jobsOptions) print(ctx context.Context, p process, queue backends.Backend, jobs []backends.Job, out io.Writer) error {
	if o.format == nil {
		return o.table(p).Write(out, jobs)
	}
	t := bsub.FormatTable{Format: *o.format, Wide: o.wide, NoHeader: o.noHeader, FromHost: p.host(), Zone: p.now().Location(), Now: p.now()}
	return t.Write(out, rowsOf(ctx, p, queue, jobs, o.format))
}

// needs is what a format or an order needs beside the jobs.
type needs interface {
	NeedsRecords() bool
	NeedsUse() (needed, alone bool)
	NeedsProgress() bool
}

// rowsOf returns the jobs with their records and what they use, where these are needed.
func rowsOf(ctx context.Context, p process, queue backends.Backend, jobs []backends.Job, by needs) []bsub.Row {
	rows := make([]bsub.Row, len(jobs))
	for i := range jobs {
		rows[i].Job = &jobs[i]
	}
	if by.NeedsRecords() {
		for i, record := range readRecords(ctx, p, queue, jobs) {
			rows[i].Record = record
		}
	}
	needed, alone := by.NeedsUse()
	switch {
	case !needed && by.NeedsProgress():
		addProgress(ctx, p, queue, jobs)
		return rows
	case !needed:
		return rows
	}
	uses, err := p.uses(ctx, jobs)
	if err != nil && alone { // else what the queue has is shown
		fmt.Fprintf(p.stderr, "ajobs: what jobs use can't be read: %s\n", shell.OneLine(err.Error()))
	}
	for i := range rows {
		rows[i].Now, rows[i].Use = true, uses[jobs[i].ID]
	}
	setProgress(jobs, uses)
	return rows
}

func (o jobsOptions) printSummary(jobs []backends.Job, out io.Writer) error {
	s := bsub.Summarize(jobs)
	if o.json {
		return shell.PrintJSON(out, s)
	}
	return s.Write(out, o.noHeader)
}

// printArrays prints a line for each array that has one of the jobs. It counts all its elements
// that the queue still knows.
func (o jobsOptions) printArrays(ctx context.Context, p process, queue backends.Backend, jobs []backends.Job, out io.Writer) error {
	var ids []backends.ID
	seen := map[int64]bool{}
	for i := range jobs {
		if id := jobs[i].ID; id.Index != 0 && !seen[id.Job] {
			seen[id.Job] = true
			ids = append(ids, backends.ID{Job: id.Job})
		}
	}
	arrays := []bsub.ArrayUse{} // as JSON: []
	if len(ids) > 0 {
		elements, err := queue.Jobs(ctx, ids)
		if err != nil {
			return err
		}
		arrays = bsub.Arrays(elements)
	}
	switch {
	case o.json:
		return shell.PrintJSON(out, arrays)
	case len(arrays) == 0:
		fmt.Fprintln(p.stderr, "No array found")
		return nil
	}
	return bsub.WriteArrays(out, arrays, o.wide, o.noHeader)
}

// table returns the layout of the list.
func (o jobsOptions) table(p process) bsub.JobTable {
	reasons := o.pending && !o.running && !o.stopped && !o.ended
	return bsub.JobTable{Wide: o.wide, Each: o.each, NoHeader: o.noHeader, Reasons: reasons, FromHost: p.host(), Zone: p.now().Location()}
}

// find returns the selected jobs, and the IDs that were named and are unknown.
func (o jobsOptions) find(ctx context.Context, queue backends.Backend, p process, member func(user string) bool) (jobs []backends.Job, unknown []backends.ID, err error) {
	if len(o.args) > 0 {
		ids, err := idsOf(ctx, queue, p, o.args)
		if err != nil {
			return nil, nil, err
		}
		if jobs, err = queue.Jobs(ctx, ids); err != nil {
			return nil, nil, err
		}
		found := byID(jobs)
		unknown = slices.DeleteFunc(ids, func(id backends.ID) bool { return len(found[id]) > 0 })
	} else {
		since := p.now()
		if o.all || o.ended {
			since = since.Add(-o.since)
		}
		farm, err := queue.Snapshot(ctx, since)
		if err != nil {
			return nil, nil, err
		}
		jobs = farm.Jobs
		if o.all || o.ended {
			jobs = append(slices.Clip(jobs), farm.Ended...)
		}
	}
	return slices.DeleteFunc(jobs, func(j backends.Job) bool { return !o.includes(&j) || !o.wants(j.State) || !member(j.User) }), unknown, nil
}

// byID returns the jobs by the IDs that a user may type: each by its own ID, the
// elements of an array also by the array's.
func byID(jobs []backends.Job) map[backends.ID][]backends.Job {
	found := map[backends.ID][]backends.Job{}
	for _, j := range jobs {
		found[j.ID] = []backends.Job{j}
		if array := (backends.ID{Job: j.ID.Job}); j.ID.Index != 0 {
			found[array] = append(found[array], j)
		}
	}
	return found
}

// wants reports whether jobs in this state are asked for.
func (o jobsOptions) wants(state backends.State) bool {
	if o.all || !o.running && !o.pending && !o.stopped && !o.ended {
		return true
	}
	switch state {
	case backends.Running:
		return o.running
	case backends.Pending, backends.Held:
		return o.pending
	case backends.Suspended:
		return o.stopped
	case backends.Done, backends.Exited:
		return o.ended
	}
	return false
}

// emptyText returns LSF's text for an empty list.
func (o jobsOptions) emptyText() string {
	switch {
	case o.all:
		return "No job found"
	case o.ended:
		return "No DONE/EXIT job found"
	case o.running:
		return "No running job found"
	case o.pending:
		return "No pending job found"
	case o.stopped:
		return "No suspended job found"
	}
	return "No unfinished job found"
}

// sortJobs puts the jobs that have started first, then the others as the queue
// would start them (priority, then the order of submission that they come in),
// then those that ended. Dummy jobs come after all of them.
func sortJobs(jobs []backends.Job) {
	group := func(j *backends.Job) int {
		switch {
		case j.IsDummy():
			return 3
		case j.State.Ended():
			return 2
		case j.State == backends.Pending || j.State == backends.Held:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(jobs, func(a, b backends.Job) int {
		if c := cmp.Compare(group(&a), group(&b)); c != 0 || group(&a) != 1 {
			return c
		}
		return cmp.Compare(b.Priority, a.Priority)
	})
}
