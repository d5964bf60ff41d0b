package lsf

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// signal sends a signal to all processes of running jobs.
func (c *Client) signal(ctx context.Context, ids []backends.ID, signal int) backends.Errors {
	p, jobs, errs := c.looked(ctx, ids, func(_ int, j *job) error {
		if j.State != backends.Running || j.Ending {
			return errNot(j)
		}
		return nil
	})
	if p == nil {
		return errs
	}
	c.order(ctx, jobs, errs, "bkill", "-s", strconv.Itoa(signal))
	return errs
}

// wait waits until jobs have ended. Nothing tells: it looks, less and less often.
func (c *Client) wait(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		jobs, err := c.Jobs(ctx, ids)
		if err != nil {
			return nil, err
		}
		ended := true
		for i := range jobs {
			ended = ended && jobs[i].State.Ended()
		}
		if ended {
			return jobs, nil
		}
		if !rest(ctx, pause) {
			return nil, fmt.Errorf("wait for jobs: %w", context.Cause(ctx))
		}
	}
}

// modify changes pending jobs, all of a change in one bmod, but for a begin time that is
// taken back (see begin). It may be repeated.
func (c *Client) modify(ctx context.Context, ids []backends.ID, change backends.Change) backends.Errors {
	p, jobs, errs := c.looked(ctx, ids, waiting)
	if p == nil {
		return errs
	}
	c.mu.Lock()
	unit := c.site.limitUnit
	c.mu.Unlock()
	noBegin := change.BeginTime != nil && !change.BeginTime.After(time.Now())
	if noBegin {
		change.BeginTime = nil
	}
	for i, j := range jobs {
		if errs[i] != nil {
			continue
		}
		var options []string
		if options, errs[i] = changes(&change, p.scale, unit, time.Now()); errs[i] == nil && len(options) > 0 {
			errs[i] = c.bmod(ctx, j.ID, options...)
		}
	}
	c.until(ctx, ids, errs, showing, func(_ int, j *job) error {
		if j.waits() && !is(j, &change) {
			return fmt.Errorf("job %v is not what bmod was told to make of it", j.ID)
		}
		return nil
	})
	if noBegin {
		for i, j := range jobs {
			if errs[i] == nil {
				j.BeginTime = time.Time{}
			}
		}
		c.begin(ctx, p, jobs, errs)
	}
	return errs
}

// is tells of what bjobs shows without a doubt whether it is as a change has it.
func is(j *job, change *backends.Change) bool {
	project := backends.JoinProject(j.Project, j.Step)
	return (change.Queue == nil || j.Queue == *change.Queue) && (change.Slots == nil || j.Slots == *change.Slots) &&
		(change.Project == nil || project == *change.Project) && (change.Name == nil || j.ID.Index != 0 || j.Name == *change.Name)
}

// changes is a Change as bmod's options.
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
	if change.Memory != nil || change.OneHost != nil {
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
		unset(*change.RunLimit > 0, "-W", minutes(*change.RunLimit))
	}
	if change.BeginTime != nil {
		begin := beginAt(*change.BeginTime, now)
		unset(!begin.IsZero(), "-b", clock(begin))
	}
	if change.After != nil {
		spec.After = *change.After
		unset(spec.After != "", "-w", spec.After)
	}
	return o.argv, checkTexts(&spec)
}
