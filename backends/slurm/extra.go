package slurm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// queues lists the partitions.
func (c *Client) queues(ctx context.Context) ([]backends.Queue, error) {
	var p snapshot
	err := c.readCluster(ctx, &p)
	return p.queues, err
}

// whyClosed returns why nodes take no jobs, which user closed them and when.
func (c *Client) whyClosed(ctx context.Context) (map[string]string, error) {
	nonce := newNonce()
	out, err := c.run(ctx, nil, "sinfo", "--noheader", "--all", "--Node", "-O", format(reasonFields, nonce))
	if err != nil {
		return nil, err
	}
	return parseReasons(out, nonce)
}

// signal sends a signal to all processes of running jobs.
func (c *Client) signal(ctx context.Context, ids []backends.ID, signal int) backends.Errors {
	_, b := c.newBatch(ctx, ids, func(it *item) error {
		if it.Job.State != backends.Running {
			return reconcile.WrongState(&it.Job.Job)
		}
		return nil
	})
	b.Each(func(it *item) error {
		_, err := c.run(ctx, nil, "scancel", "--quiet", "--full", "--signal="+strconv.Itoa(signal), name(it.ID))
		return err
	})
	return b.Errors()
}

// reopen puts jobs that have ended back into the queue, as long as slurmctld has them (MinJobAge).
// Slurm starts a requeued job no sooner than after two minutes.
func (c *Client) reopen(ctx context.Context, ids []backends.ID) backends.Errors {
	_, b := c.newBatch(ctx, ids, func(it *item) error {
		if it.Job.NoRequeue {
			return fmt.Errorf("job %v: %w: it can't be requeued", it.ID, backends.ErrWrongState)
		}
		return reconcile.Ended(it)
	})
	c.sendBatch(ctx, b, func(it *item) string { return "requeue " + name(it.ID) })
	return b.Errors()
}

// wait waits until jobs have ended.
func (c *Client) wait(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	return reconcile.Wait(ctx, ids, c.Jobs)
}

// modify changes pending jobs, and the run limit of others, all of a change in one request of Slurm's.
func (c *Client) modify(ctx context.Context, ids []backends.ID, change backends.Change) backends.Errors {
	p, b := c.newBatch(ctx, ids, reconcile.Changeable[*listedJob](&change))
	c.loadDetails(ctx, p, b)
	updates := make([][]string, len(b))
	b.Each(func(it *item) (err error) {
		updates[it.Index], err = c.changes(it.Job, &change, p)
		return err
	})
	c.write(ctx, b, func(it *item) []string { return updates[it.Index] })
	for _, it := range b {
		if it.Err != nil && strings.Contains(it.Err.Error(), invalidNodes) { // placeOn knows the hosts
			it.Err = fmt.Errorf("job %v: %w: it has started", it.ID, backends.ErrWrongState)
		}
	}
	return b.Errors()
}

// changes is a Change in scontrol's terms.
func (c *Client) changes(j *listedJob, change *backends.Change, p *snapshot) ([]string, error) {
	unable := func(what string) ([]string, error) {
		return nil, fmt.Errorf("change job %v: %w: %s", j.ID, backends.ErrUnable, what)
	}
	var all []string
	set := func(key, value string) { all = append(all, key+"="+value) }
	if change.Name != nil {
		set("JobName", *change.Name)
	}
	if change.Project != nil {
		switch c.config.ProjectFrom {
		case FromAccount:
			set("Account", *change.Project)
		case FromWCKey:
			set("WCKey", *change.Project)
		case FromComment:
			return unable("the project stands in the job's comment")
		}
	}
	if change.Queue != nil {
		set("Partition", *change.Queue)
	}
	if change.Description != nil {
		set("Comment", *change.Description)
	}
	if change.Priority != nil {
		set("SiteFactor", strconv.FormatInt(p.scale.SiteFactor(*change.Priority), 10))
	}
	if change.Slots != nil {
		if j.OneHost && j.Slots > 1 || *change.Slots < 1 {
			return unable("a job of several slots on one host keeps their number")
		}
		set("NumCPUs", strconv.Itoa(*change.Slots))
		set("NumTasks", strconv.Itoa(*change.Slots))
	}
	if change.Memory != nil || change.MemoryLimit != nil {
		memory := int64(0)
		for _, m := range []*int64{change.Memory, change.MemoryLimit} {
			if m != nil {
				memory = max(memory, *m)
			}
		}
		slots := int64(j.Slots)
		if change.Slots != nil {
			slots = int64(*change.Slots)
		}
		each := max(slots, 1) << 20
		set("MinMemoryCPU", strconv.FormatInt((memory+each-1)/each, 10))
	}
	if change.OneHost != nil && *change.OneHost != j.OneHost {
		switch {
		case *change.OneHost:
			set("NumNodes", "1-1")
			if change.Hosts == nil { // with this, which is as it was, all is refused for a job that has started: it would shrink
				set("ExcNodeList", formatHosts(j.excludes(p)))
			}
		case j.Slots > 1:
			return unable("a job keeps its limit of one host")
		case change.Slots != nil: // it was on one for want of more slots
			set("NumNodes", "1-"+strconv.Itoa(*change.Slots))
		}
	}
	if what := j.keeps(change); what != "" {
		return unable(what)
	}
	if change.Hosts != nil {
		slots := j.Slots
		if change.Slots != nil {
			slots = max(slots, *change.Slots)
		}
		parts, err := j.placeOn(*change.Hosts, slots, p)
		if err != nil {
			return nil, fmt.Errorf("change job %v: %w", j.ID, err)
		}
		all = append(all, parts...)
	}
	if change.RunLimit != nil {
		limit := "UNLIMITED"
		if *change.RunLimit > 0 {
			limit = bsub.FormatMinutes(*change.RunLimit)
		}
		set("TimeLimit", limit)
	}
	if change.BeginTime != nil {
		begin := "now"
		if !change.BeginTime.IsZero() {
			begin = formatTime(*change.BeginTime)
		}
		set("StartTime", begin)
	}
	if change.After != nil {
		after := ""
		if *change.After != "" {
			var err error
			if after, err = dependency(*change.After); err != nil {
				return nil, err
			}
		}
		set("Dependency", after)
	}
	return all, nil
}

// excludes returns the hosts that a job must not run on, those of its pin too.
func (j *listedJob) excludes(p *snapshot) []string {
	if len(j.Pinned) > 0 {
		return p.othersThan(j.Pinned, j.excluded)
	}
	return j.excluded
}

// invalidNodes is Slurm's answer to an empty list of required nodes for a job that has started.
const invalidNodes = "Invalid node name"

// placeOn returns the parts of an update by which a pending job of so many slots runs on some
// hosts only, any of them; on all, if none are named. They replace what its owner required and
// excluded, and end a pin, whose record has both: the engine pins the job anew. Only a job of
// one slot gets a list of required nodes: Slurm gives a job all nodes of its list, and may take
// the list as a wish to shrink (see pin).
func (j *listedJob) placeOn(hosts []string, slots int, p *snapshot) ([]string, error) {
	for _, h := range hosts {
		if p.slots[h] == 0 {
			return nil, fmt.Errorf("host %q: no such host", h)
		}
	}
	required, excluded := "", ""
	switch {
	case len(hosts) == 1 && slots == 1 && j.least <= 1:
		required = hosts[0]
	case len(hosts) > 0:
		excluded = formatHosts(p.othersThan(hosts, nil))
	}
	var parts []string
	if required != "" || len(j.Asked) > 0 {
		parts = append(parts, "ReqNodeList="+required)
	}
	pinned := len(j.record.pin) > 0
	if excluded != "" || len(j.excluded) > 0 || pinned {
		parts = append(parts, "ExcNodeList="+excluded)
	}
	if pinned {
		j.record.pin, j.record.out, j.record.excluded = nil, nil, 0
		parts = append(parts, j.recordChange())
	}
	return parts, nil
}

// keeps returns what a change would make different that a pending job keeps; "": nothing. amod
// -R replaces all that an earlier one said.
func (j *listedJob) keeps(c *backends.Change) string {
	r := j.request
	if r == nil {
		r = &request{}
	}
	differ := func(given *[]string, has []string) bool {
		if given == nil {
			return false
		}
		names := slices.Sorted(slices.Values(*given))
		return !slices.Equal(names, has)
	}
	switch {
	case c.PerHost != nil && *c.PerHost != r.tasksPerNode:
		return "a job keeps its number of slots on each host"
	case c.Needs != nil && strings.TrimSpace(backends.FormatAmounts(*c.Needs)) != strings.TrimSpace(backends.FormatAmounts(r.onHost)):
		return "a job keeps its GPUs and other resources: use scontrol update TresPerNode"
	case differ(c.Features, r.features), c.Select != nil && *c.Select != "", c.Same != nil && len(*c.Same) > 0:
		return "a job keeps its features: use scontrol update Features"
	}
	return ""
}

// record is what Slurm still knows of a job. It keeps no history.
func (c *Client) record(ctx context.Context, id backends.ID) (*backends.Record, error) {
	p, err := c.readSnapshot(ctx, []backends.ID{id})
	if err != nil {
		return nil, err
	}
	j, err := reconcile.One(p.jobs, id)
	if err != nil {
		return nil, err
	}
	r := backends.Record{Spec: backends.Spec{
		Name: j.Name, Project: backends.JoinProject(j.Project, j.Step), Queue: j.Queue, Description: j.Tag, Priority: j.Priority,
		Slots: j.Slots, Memory: j.Memory, OneHost: j.OneHost, Hosts: j.Asked, RunLimit: j.RunLimit, BeginTime: j.BeginTime,
		Hold: j.State == backends.Held, NoRequeue: j.NoRequeue, Interactive: j.Interactive, Exclusive: j.Exclusive,
	}}
	if !j.Started.IsZero() {
		run := backends.RunRecord{Run: j.Requeues, Started: j.start, Ended: j.Ended, ExitCode: j.ExitCode}
		if len(j.Hosts) > 0 {
			run.Host = j.Hosts[0].Host
		}
		r.Runs = []backends.RunRecord{run}
	}
	_, err = c.files(ctx, j, &r.Spec)
	return &r, err
}

// output returns the file of a job's standard output. Some versions print its name as a pattern.
func (c *Client) output(ctx context.Context, id backends.ID) (string, error) {
	p, err := c.readSnapshot(ctx, []backends.ID{id})
	if err != nil {
		return "", err
	}
	j, err := reconcile.One(p.jobs, id)
	if err != nil {
		return "", err
	}
	var s backends.Spec
	own, err := c.files(ctx, j, &s)
	if err != nil || s.Stdout == "" {
		return "", err
	}
	host := ""
	if len(j.Hosts) > 0 {
		host = j.Hosts[0].Host
	}
	path := expandFile(s.Stdout, fileFacts{own: own, id: j.ID, name: j.Name, user: j.User, host: host})
	if !strings.HasPrefix(path, "/") {
		path = strings.TrimSuffix(s.Dir, "/") + "/" + path
	}
	return path, nil
}

// files adds what a job executes, where, and its files, as its owner named them.
// It returns the number of the job's own that Slurm gives to each element of an array.
func (c *Client) files(ctx context.Context, j *listedJob, s *backends.Spec) (own string, err error) {
	nonce, fields := newNonce(), []string{"JobID", "WorkDir", "STDIN", "STDOUT", "STDERR", "Command"}
	out, err := c.run(ctx, nil, "squeue", "--noheader", "--all", "--array", "--states=all", "-O", format(fields, nonce), "--jobs="+name(j.ID))
	if err != nil {
		return "", err
	}
	all, err := rows(out, nonce, len(fields))
	if err != nil {
		return "", fmt.Errorf("squeue: %w", err)
	}
	if len(all) == 0 { // it was forgotten since
		return "", nil
	}
	own, command := all[0][0], absent(all[0][5])
	s.Dir, s.Stdin, s.Stdout, s.Stderr = absent(all[0][1]), absent(all[0][2]), absent(all[0][3]), absent(all[0][4])
	if s.Stderr == "" {
		s.Stderr = s.Stdout // 24.11 shows none where it was not named
	}
	// By default squeue gives an element's files a name of their own, which slurmd does not
	// (22.05), or shows the pattern (24.11).
	usual := []string{"/slurm-%j.out"}
	if j.ID.Index != 0 {
		usual = []string{"/slurm-%A_%a.out", "/slurm-" + own + ".out"}
	}
	for _, path := range []*string{&s.Stdout, &s.Stderr} {
		for _, suffix := range usual {
			if dir, ok := strings.CutSuffix(*path, suffix); ok {
				*path = dir + "/slurm-" + name(j.ID) + ".out"
			}
		}
	}
	if command != "" {
		s.Command = []string{command}
	}
	return own, nil
}
