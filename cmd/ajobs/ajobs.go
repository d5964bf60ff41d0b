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
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
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
}

func jobsApp(p process) *cli.App {
	return &cli.App{
		Name: "ajobs", Usage: "list jobs", ArgsUsage: "[JOB...]",
		Description: "Lists your own unfinished jobs, or the JOBs that are named (12, 12[3], 12[1-3]), also after their\n" +
			"end, while the queue has them. Pending jobs are in the order in which they will start. Dummy jobs, which\n" +
			"only hold slots for jobs that need much memory, are listed last, and only with -u.",
		UseShortOptionHandling: true,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "a", Usage: "jobs that ended within the last hour too", DisableDefaultText: true},
			&cli.BoolFlag{Name: "r", Usage: "running jobs", DisableDefaultText: true},
			&cli.BoolFlag{Name: "p", Usage: "pending and held jobs, and what they wait for", DisableDefaultText: true},
			&cli.BoolFlag{Name: "s", Usage: "suspended jobs", DisableDefaultText: true},
			&cli.BoolFlag{Name: "d", Usage: "jobs that ended within the last hour", DisableDefaultText: true},
			&cli.BoolFlag{Name: "w", Usage: "don't shorten columns", DisableDefaultText: true},
			&cli.BoolFlag{Name: "l", Usage: "everything about each job, with its history", DisableDefaultText: true},
			&cli.BoolFlag{Name: "watch", Usage: "keep the list on the screen up to date", DisableDefaultText: true},
			&cli.StringFlag{Name: "m", Usage: "jobs on `HOST`"},
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
	args, err := jobArgs(c.Args().Slice())
	if err != nil {
		return jobsOptions{}, err
	}
	args = slices.DeleteFunc(args, func(a bsub.JobArg) bool { return a.All })
	own := ""
	if len(args) == 0 {
		own = p.user()
	}
	chosen, err := choiceOf(c, own)
	chosen.dummies = chosen.dummies || len(args) > 0
	if c.Bool("watch") && (c.Bool("l") || c.Bool("json")) {
		err = shell.Usagef("--watch can't be combined with -l or --json")
	}
	return jobsOptions{
		choice: chosen, args: args, all: c.Bool("a"),
		running: c.Bool("r"), pending: c.Bool("p"), stopped: c.Bool("s"), ended: c.Bool("d"),
		wide: c.Bool("w"), json: c.Bool("json"), long: c.Bool("l"), watch: c.Bool("watch"),
	}, err
}

// runJobs is ajobs.
func runJobs(ctx context.Context, p process, o jobsOptions, out io.Writer) error {
	queue, err := p.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	jobs, unknown, err := o.find(ctx, queue, p.now())
	if err != nil {
		return err
	}
	if len(o.args) == 0 {
		sortJobs(jobs)
	}
	switch {
	case o.long && (o.json || len(jobs) > 0):
		err = printDetails(ctx, p, o, queue, jobs, out)
	case o.json:
		err = shell.PrintJSON(out, jobsJSON(jobs))
	case len(jobs) > 0:
		err = o.table(p).Write(out, jobs)
	case len(unknown) == 0:
		fmt.Fprintln(p.stderr, o.emptyText())
	}
	return cmp.Or(err, reportUnknown(p, "Job <%s> is not found\n", unknown))
}

// table returns the layout of the list.
func (o jobsOptions) table(p process) bsub.JobTable {
	reasons := o.pending && !o.running && !o.stopped && !o.ended
	return bsub.JobTable{Wide: o.wide, Reasons: reasons, FromHost: p.host(), Zone: p.now().Location()}
}

// find returns the selected jobs, and the IDs that were named and are unknown.
func (o jobsOptions) find(ctx context.Context, queue backends.Backend, now time.Time) (jobs []backends.Job, unknown []backends.ID, err error) {
	if len(o.args) > 0 {
		ids, err := idsOf(ctx, queue, o.args)
		if err != nil {
			return nil, nil, err
		}
		if jobs, err = queue.Jobs(ctx, ids); err != nil {
			return nil, nil, err
		}
		found := byID(jobs)
		unknown = slices.DeleteFunc(ids, func(id backends.ID) bool { return len(found[id]) > 0 })
	} else {
		since := now
		if o.all || o.ended {
			since = now.Add(-endedFor)
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
	return slices.DeleteFunc(jobs, func(j backends.Job) bool { return !o.includes(&j) || !o.wants(j.State) }), unknown, nil
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
