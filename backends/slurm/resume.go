package slurm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Slurm resumes a job onto full hosts (22.05). So a placeholder goes first, one on
// each host of the job, of its slots there: when all of them run, the job is
// resumed and they end. What Slurm starts meanwhile finds the slots taken.
const (
	placeholderName   = "allotment-placeholder"
	placeholderLimit  = 5 // minutes; should nobody end it
	placeholderScript = "#!/bin/sh\nexec sleep 600\n"
	// resuming is how long Resume waits for free slots; the rest is left to Tend.
	resuming = 3 * time.Second
)

// Resume lets suspended jobs go on: at once where their slots are free, else when
// they are.
func (c *Client) Resume(ctx context.Context, ids []backends.ID) backends.Errors {
	p, jobs, errs := c.looked(ctx, ids, func(_ int, j *seen) error {
		if j.State != backends.Suspended && j.State != backends.Running {
			return errNot(j)
		}
		return nil
	})
	if p == nil {
		return errs
	}
	c.write(ctx, jobs, errs, func(_ int, j *seen) []string {
		if j.State == backends.Running || j.Resuming {
			return nil
		}
		j.record.resumed, j.record.until = p.at, time.Time{}
		return []string{j.keep()}
	})
	waits := false
	for i, j := range jobs {
		waits = waits || errs[i] == nil && j.State == backends.Suspended
	}
	if !waits {
		return errs
	}
	deadline := time.Now().Add(resuming)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 300*time.Millisecond) {
		left, err := c.resume(ctx)
		if err != nil {
			for i := range errs {
				if errs[i] == nil && jobs[i].State == backends.Suspended {
					errs[i] = err
				}
			}
			return errs
		}
		if left == 0 || time.Now().Add(pause).After(deadline) {
			return errs
		}
		select {
		case <-ctx.Done():
			return errs // Tend goes on with it
		case <-time.After(pause):
		}
	}
}

// tend does what is due by itself: requeued jobs get their begin times, suspended
// ones whose time has come are resumed, and so are those whose placeholders run.
func (c *Client) tend(ctx context.Context) error {
	p, err := c.look(ctx, nil)
	if err != nil {
		return err
	}
	c.undelay(ctx, p)
	var due []*seen
	for i := range p.jobs {
		j := &p.jobs[i]
		if j.State == backends.Suspended && !j.Resuming && !j.record.until.IsZero() && !j.record.until.After(p.at) {
			j.record.resumed = p.at
			due = append(due, j)
		}
	}
	c.write(ctx, due, make(backends.Errors, len(due)), func(_ int, j *seen) []string { return []string{j.keep()} })
	_, err = c.resume(ctx)
	return err
}

// resume takes every suspended job that is to go on one step further, and returns
// how many wait for slots that may be free.
func (c *Client) resume(ctx context.Context) (left int, err error) {
	p, err := c.look(ctx, nil)
	if err != nil {
		return 0, err
	}
	if p.unranked != nil {
		return 0, nil // without ranks a placeholder would keep nothing from anybody
	}
	places := map[backends.ID]map[string]*seen{}
	var useless []backends.ID
	for i := range p.jobs {
		j := &p.jobs[i]
		if j.holdsFor == (backends.ID{}) || j.State.Ended() || j.Ending {
			continue
		}
		held, err := p.one(j.holdsFor)
		if err != nil || held.State != backends.Suspended || !held.Resuming || len(j.hosts()) != 1 || places[held.ID][j.hosts()[0]] != nil {
			useless = append(useless, j.ID)
			continue
		}
		if places[held.ID] == nil {
			places[held.ID] = map[string]*seen{}
		}
		places[held.ID][j.hosts()[0]] = j
	}
	var ready []*seen
	free := p.free()
	for i := range p.jobs {
		j := &p.jobs[i]
		if j.State != backends.Suspended || !j.Resuming {
			continue
		}
		run, fits := 0, true
		for _, at := range j.Hosts {
			place := places[j.ID][at.Host]
			switch {
			case place == nil:
				fits = fits && free[at.Host] >= at.Slots
				c.keepPlace(ctx, p, j, at)
			case place.State == backends.Running:
				run++
			default:
				fits = fits && free[at.Host] >= at.Slots
			}
		}
		if run == len(j.Hosts) {
			ready = append(ready, j)
		} else if fits {
			left++
		}
	}
	errs := make(backends.Errors, len(ready))
	c.orderSome(ctx, errs, func(i int) string { return "resume " + name(ready[i].ID) })
	for i, j := range ready {
		if errs[i] != nil {
			continue // in the next cycle: its placeholders keep its place
		}
		for _, place := range places[j.ID] {
			useless = append(useless, place.ID)
		}
	}
	if len(useless) > 0 {
		_, _ = c.run(ctx, nil, append([]string{"scancel", "--quiet"}, names(useless)...)...) // one that is left is found again
	}
	c.write(ctx, ready, errs, func(_ int, j *seen) []string {
		j.record.resumed, j.record.ranked = time.Time{}, false
		return []string{j.keep()}
	})
	return left, nil
}

// hosts is where a placeholder is, or is to be.
func (j *seen) hosts() []string {
	if len(j.nodes) > 0 {
		return j.nodes
	}
	if len(j.Pinned) > 0 {
		return j.Pinned
	}
	return j.Asked
}

// free are the slots of each host that nobody uses.
func (p *picture) free() map[string]int {
	free := map[string]int{}
	for _, h := range p.hosts {
		if h.State == backends.HostUp {
			free[h.Name] = h.Slots
		}
	}
	for i := range p.jobs {
		if j := &p.jobs[i]; j.State == backends.Running {
			for _, at := range j.Hosts {
				free[at.Host] -= at.Slots
			}
		}
	}
	return free
}

// keepPlace submits a placeholder. What fails is tried again in the next cycle.
func (c *Client) keepPlace(ctx context.Context, p *picture, j *seen, at backends.Placement) {
	out, err := c.run(ctx, strings.NewReader(placeholderScript), "sbatch", "--parsable", "--hold",
		"--job-name="+placeholderName, "--comment="+placeholderComment(j.ID), "--partition="+j.Queue, "--nodelist="+at.Host,
		"--nodes=1-1", "--ntasks=1", "--cpus-per-task="+strconv.Itoa(at.Slots), "--mem=1M", "--time="+strconv.Itoa(placeholderLimit),
		"--no-requeue", "--export=NONE", "--chdir=/", "--output=/dev/null")
	if err != nil {
		return
	}
	id, err := parseSubmitted(out)
	if err != nil {
		return
	}
	n := name(id)
	c.order(ctx, []string{
		fmt.Sprintf("update JobId=%s SiteFactor=%d", n, p.scale.SiteFactor(backends.At(backends.LevelPlaceholder, backends.DefaultValue))),
		"release " + n,
	})
}
