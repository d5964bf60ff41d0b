package lsf

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// whyClosed returns the comments of administrators who closed hosts.
func (c *Client) whyClosed(ctx context.Context) (map[string]string, error) {
	text, err := c.ask(ctx, "bhosts", "-l")
	if err != nil {
		return nil, err
	}
	return parseComments([]byte(text)), nil
}

// signal sends a signal to all processes of running jobs.
func (c *Client) signal(ctx context.Context, ids []backends.ID, signal int) backends.Errors {
	_, b := c.newBatch(ctx, ids, reconcile.InRun[*job](make([]backends.Act, len(ids))))
	c.runBatch(ctx, b, "bkill", "-s", strconv.Itoa(signal))
	return b.Errors()
}

// reopen puts jobs that have ended back into the queue: brequeue has an option for each kind of end.
func (c *Client) reopen(ctx context.Context, ids []backends.ID) backends.Errors {
	_, b := c.newBatch(ctx, ids, reconcile.Ended)
	ended := func(as backends.State) batch {
		return b.Where(func(it *item) bool { return it.Job.listed.State == as })
	}
	exited, done := ended(backends.Exited), ended(backends.Done)
	c.runBatch(ctx, exited, "brequeue", "-e")
	c.runBatch(ctx, done, "brequeue", "-d")
	return b.Errors()
}

// killNow is bkill -r, which takes jobs off LSF's records without waiting for their hosts.
func (c *Client) killNow(ctx context.Context, ids []backends.ID) backends.Errors {
	_, b := c.newBatch(ctx, ids, reconcile.NotEnded)
	c.runBatch(ctx, b, "bkill", "-r")
	return b.Errors()
}

// inGroup asks which jobs are in a job group.
func (c *Client) inGroup(ctx context.Context, group string) (func(*backends.Job) bool, error) {
	return c.selected(ctx, "-g", group)
}

// ofProfile asks which jobs have an application profile.
func (c *Client) ofProfile(ctx context.Context, profile string) (func(*backends.Job) bool, error) {
	return c.selected(ctx, "-app", profile)
}

// selected returns a function that reports whether bjobs lists a job, or its array, under an option.
// What bjobs prints then is numbers alone.
func (c *Client) selected(ctx context.Context, option, value string) (func(*backends.Job) bool, error) {
	if len(value) == 0 || value[0] == '-' {
		return nil, fmt.Errorf("bjobs %s %q: no name", option, value)
	}
	facts, err := c.loadFacts(ctx)
	switch {
	case err != nil:
		return nil, err
	case facts.flavour == lava:
		return nil, fmt.Errorf("choose jobs by %s: %w: lava's bjobs does not know it", option, backends.ErrUnable)
	}
	printed, err := c.query(ctx, "bjobs", "-u", "all", "-a", "-noheader", "-o", "jobid", option, value)
	if none := strings.Contains(printed.stderr, "job found"); err != nil && (!none || errors.Is(err, backends.ErrUnreachable) || neverRan(err)) {
		return nil, fmt.Errorf("choose jobs by %s: %w", option, err)
	}
	jobs, err := parseNumbers(printed.stdout)
	if err != nil {
		return nil, fmt.Errorf("bjobs %s: %w", option, err)
	}
	return func(j *backends.Job) bool { return jobs[j.ID.Job] }, nil
}

// reorder moves pending jobs by btop or bbot, which take one job. LSF lets users move jobs among
// their own of the same priority. On lava btop prints the same where it moved none.
func (c *Client) reorder(ctx context.Context, ids []backends.ID, position int, bottom bool) backends.Errors {
	errs := make(backends.Errors, len(ids))
	for i := range ids {
		program, k := "btop", i
		if bottom {
			program, k = "bbot", len(ids)-1-i
		}
		printed, err := c.run(ctx, program, ids[k].String(), strconv.Itoa(position+i))
		errs[k] = parseMoved(printed.stdout, printed.stderr, ids[k])
		if errs[k] != nil && (errors.Is(err, backends.ErrUnreachable) || neverRan(err)) {
			errs[k] = err
		}
	}
	return errs
}

// wait waits until jobs have ended.
func (c *Client) wait(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	return reconcile.Wait(ctx, ids, c.Jobs)
}

// modify changes pending jobs, and the run limit of others, each by one bmod, but for a begin time that is cleared
// (see begin). It may be repeated.
func (c *Client) modify(ctx context.Context, ids []backends.ID, change backends.Change) backends.Errors {
	p, b := c.newBatch(ctx, ids, reconcile.Changeable[*job](&change))
	noBegin := change.BeginTime != nil && !change.BeginTime.After(time.Now())
	if noBegin {
		change.BeginTime = nil
	}
	b.Each(func(it *item) error {
		options, err := changes(&change, p.scale, p.limitUnit, time.Now())
		if err == nil && len(options) > 0 {
			err = c.bmod(ctx, it.ID, options...)
		}
		return err
	})
	c.awaitEffect(ctx, b, func(it *item, now *job) error {
		if now.waits() && !matches(now, &change) {
			return fmt.Errorf("job %v does not show the change, though bmod succeeded", it.ID)
		}
		return nil
	})
	if noBegin {
		b.Each(func(it *item) error {
			it.Job.BeginTime = time.Time{}
			return nil
		})
		c.setBeginTimes(ctx, p, b)
	}
	return b.Errors()
}

// matches reports whether a job is as a change has it, by what bjobs shows without doubt.
func matches(j *job, change *backends.Change) bool {
	project := backends.JoinProject(j.Project, j.Step)
	return (change.Queue == nil || j.Queue == *change.Queue) && (change.Slots == nil || j.Slots == *change.Slots) &&
		(change.Project == nil || project == *change.Project) && (change.Name == nil || j.ID.Index != 0 || j.Name == *change.Name)
}

// changes returns a Change as bmod's options.
func changes(change *backends.Change, s scale, limitUnit int64, now time.Time) ([]string, error) {
	var o arguments
	unset := func(set bool, option, value string) {
		if set {
			o.add(option, value)
		} else {
			o.argv = append(o.argv, option+"n")
		}
	}
	spec := backends.Spec{}
	if change.Name != nil {
		if *change.Name == "" {
			return nil, errors.New("an empty name")
		}
		spec.Name = *change.Name
		o.add("-J", spec.Name)
	}
	if change.Project != nil {
		spec.Project = *change.Project
		unset(spec.Project != "", "-P", spec.Project)
	}
	if change.Queue != nil {
		spec.Queue = *change.Queue
		unset(spec.Queue != "", "-q", spec.Queue)
	}
	if change.Description != nil {
		spec.Description = *change.Description
		unset(spec.Description != "", "-Jd", spec.Description)
	}
	if change.Priority != nil {
		if err := s.unable(); err != nil {
			return nil, err
		}
		o.add("-sp", strconv.FormatInt(s.number(*change.Priority), 10))
	}
	if change.QueuePriority != nil {
		o.add("-sp", strconv.FormatInt(*change.QueuePriority, 10))
	}
	if change.Slots != nil {
		if *change.Slots < 1 {
			return nil, fmt.Errorf("%d slots", *change.Slots)
		}
		o.add("-n", strconv.Itoa(*change.Slots))
	}
	if change.Memory != nil || change.OneHost != nil || change.PerHost != nil {
		return nil, fmt.Errorf("%w: LSF changes a resource requirement only as a whole: use bmod -R", backends.ErrUnable)
	}
	if change.MemoryLimit != nil {
		unset(*change.MemoryLimit > 0, "-M", strconv.FormatInt((*change.MemoryLimit+limitUnit-1)/limitUnit, 10))
	}
	if change.Hosts != nil {
		spec.Hosts = *change.Hosts
		unset(len(spec.Hosts) > 0, "-m", strings.Join(spec.Hosts, " "))
	}
	if change.RunLimit != nil {
		unset(*change.RunLimit > 0, "-W", bsub.FormatMinutes(*change.RunLimit))
	}
	if change.BeginTime != nil {
		begin := roundBegin(*change.BeginTime, now)
		unset(!begin.IsZero(), "-b", formatBegin(begin))
	}
	if change.After != nil {
		spec.After = *change.After
		unset(spec.After != "", "-w", spec.After)
	}
	return o.argv, checkTexts(&spec)
}
