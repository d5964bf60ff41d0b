package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Options say which cluster is meant.
type Options struct {
	Config Config
}

// Client is a Slurm cluster as a backends.Backend. It keeps nothing open between
// two calls.
type Client struct {
	config Config

	mu     sync.Mutex
	placed map[run][]backends.Placement // of running jobs on several hosts, which squeue doesn't tell
	fresh  *picture                     // that Tend took, with nothing to do about it; for the Farm that follows
	last   *picture                     // that Farm gave
}

// run is one run of a job.
type run struct {
	id      backends.ID
	started time.Time
}

var _ backends.Backend = (*Client)(nil)

// Open gives a client. Nothing is asked of the cluster yet.
func Open(o Options) *Client {
	if o.Config.Timeout == 0 {
		o.Config.Timeout = DefaultConfig().Timeout
	}
	if o.Config.ProjectFrom == "" {
		o.Config.ProjectFrom = DefaultConfig().ProjectFrom
	}
	return &Client{config: o.Config, placed: map[run][]backends.Placement{}}
}

// Close has nothing to give back.
func (c *Client) Close() error { return nil }

// Abilities is what Slurm can do. It reserves nothing: its scheduler keeps the
// hosts of the highest job that waits by itself.
func (c *Client) Abilities() backends.Abilities {
	return backends.Abilities{
		SuspendFrees: true, ResumesFirst: true,
		FoldsProjects: c.config.ProjectFrom != FromComment, // accounts and wckeys, 22.05
		Pin:           c.pin, HoldUntil: c.holdUntil, Move: c.move, Tend: c.tend,
		Queues: c.queues, Modify: c.modify, Record: c.record, Wait: c.wait, Signal: c.signal,
		Examine: c.Examine, Forget: c.Forget, Filters: true, Options: options, HookRank: c.HookRank,
	}
}

// Farm takes a picture of the queue: the clock first, so that nothing in it is
// older than it says (R8).
func (c *Client) Farm(ctx context.Context, endedSince time.Time) (*backends.Farm, error) {
	p := c.tended()
	if p == nil {
		var err error
		if p, err = c.look(ctx, nil); err != nil {
			return nil, err
		}
	}
	farm := &backends.Farm{At: p.at, Hosts: p.hosts}
	for i := range p.jobs {
		switch j := &p.jobs[i]; {
		case j.holdsFor != (backends.ID{}) && j.State != backends.Running:
		case !j.State.Ended():
			farm.Jobs = append(farm.Jobs, j.Job)
		case !j.Ended.Before(endedSince):
			farm.Ended = append(farm.Ended, j.Job)
		}
	}
	c.forgetPlaces(p)
	c.mu.Lock()
	c.last = p
	c.mu.Unlock()
	return farm, nil
}

// freshness is for how long a picture that Tend took serves for Farm, too.
const freshness = 2 * time.Second

// tended is the picture that Tend has just taken, once; nil: there is none.
func (c *Client) tended() *picture {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.fresh
	c.fresh = nil
	if p == nil || time.Since(p.taken) > freshness {
		return nil
	}
	return p
}

// Jobs looks at some jobs.
func (c *Client) Jobs(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	p, err := c.look(ctx, ids)
	if err != nil {
		return nil, err
	}
	var jobs []backends.Job
	for _, id := range ids {
		for _, j := range p.of(id) {
			jobs = append(jobs, j.Job)
		}
	}
	return jobs, nil
}

// picture is what one look gave.
type picture struct {
	cluster
	taken    time.Time // began to be, by our clock
	hosts    []backends.Host
	queues   []backends.Queue
	unranked error  // why jobs can't be ranked
	jobs     []seen // in order of their IDs
}

// of is the job of an ID, or the elements of an array.
func (p *picture) of(id backends.ID) []*seen {
	i, _ := slices.BinarySearchFunc(p.jobs, backends.ID{Job: id.Job, Index: backends.ZeroIndex}, func(j seen, id backends.ID) int { return j.ID.Compare(id) })
	var found []*seen
	for ; i < len(p.jobs) && p.jobs[i].ID.Job == id.Job; i++ {
		if id.Index == 0 || p.jobs[i].ID == id {
			found = append(found, &p.jobs[i])
		}
	}
	return found
}

// one is the job of an ID that is no array, or why there is none.
func (p *picture) one(id backends.ID) (*seen, error) {
	switch found := p.of(id); {
	case len(found) == 0:
		return nil, fmt.Errorf("job %v: %w", id, backends.ErrUnknownJob)
	case found[0].ID != id:
		return nil, fmt.Errorf("job %v: %w: it is an array", id, backends.ErrWrongState)
	default:
		return found[0], nil
	}
}

// mostAtOnce is how many jobs are asked for by their IDs; more are picked out of all.
const mostAtOnce = 1000

// look takes a picture of all jobs, or of some.
func (c *Client) look(ctx context.Context, ids []backends.ID) (*picture, error) {
	var p picture
	if err := c.lookAtCluster(ctx, &p); err != nil {
		return nil, err
	}
	nonce := newNonce()
	argv := []string{"squeue", "--noheader", "--all", "--array", "--noconvert", "--states=all", "-O", format(squeueFields[:], nonce)}
	if ids != nil && len(ids) <= mostAtOnce {
		some := names(ids)
		if len(some) == 0 {
			return &p, nil
		}
		argv = append(argv, "--jobs="+strings.Join(some, ","))
	}
	out, err := c.run(ctx, nil, argv...)
	if errors.Is(err, backends.ErrUnknownJob) {
		err = nil // the one that was asked for; squeue says nothing of one among several
	}
	if err != nil {
		return nil, err
	}
	if p.jobs, err = parseJobs(out, nonce, &p.cluster); err != nil {
		return nil, err
	}
	slices.SortFunc(p.jobs, func(a, b seen) int { return a.ID.Compare(b.ID) })
	return &p, c.complete(ctx, &p)
}

// lookAtCluster asks for all but the jobs.
func (c *Client) lookAtCluster(ctx context.Context, p *picture) error {
	began := time.Now()
	p.taken = began
	config, err := c.run(ctx, nil, "scontrol", "show", "config")
	if err != nil {
		return err
	}
	if p.at, err = parseAt(config); err != nil {
		return err
	}
	// The queue tells whole seconds. Where its clock may be ours, ours is finer.
	if latest := p.at.Add(time.Second - 1); began.After(p.at) {
		p.at = began.UTC()
		if p.at.After(latest) {
			p.at = latest
		}
	}
	settings := parseConfig(config)
	p.scale, p.unranked = NewScale(config)
	p.memory = strings.Contains(strings.ToUpper(settings["SelectTypeParameters"]), "MEMORY")
	slurmUser, _, _ := strings.Cut(settings["SlurmUser"], "(")
	p.trusted = map[string]bool{"root": true, slurmUser: true}
	p.from = c.config.ProjectFrom
	nonce := newNonce()
	out, err := c.run(ctx, nil, "sinfo", "--noheader", "--all", "--Node", "-O", format(sinfoFields[:], nonce))
	if err != nil {
		return err
	}
	if p.hosts, p.queues, err = parseNodes(out, nonce, p.memory); err != nil {
		return err
	}
	p.slots, p.low = map[string]int{}, map[string]bool{}
	for _, h := range p.hosts {
		p.slots[h.Name] = h.Slots
	}
	for _, q := range p.queues {
		p.low[q.Name] = q.Level == backends.LevelLow
	}
	return nil
}

// complete adds what squeue's lines leave out.
func (c *Client) complete(ctx context.Context, p *picture) error {
	var unclear []backends.ID
	all := false
	for i := range p.jobs {
		j := &p.jobs[i]
		if j.touched(p.at) {
			unclear = append(unclear, j.ID)
		}
		all = c.place(j, p.slots) || all
	}
	if len(unclear) == 0 && !all {
		return nil
	}
	var details map[backends.ID]detail
	var err error
	if !all {
		details, all, err = c.details(ctx, unclear)
	}
	if all && err == nil {
		details, err = c.allDetails(ctx)
	}
	if err != nil {
		return err
	}
	for i := range p.jobs {
		j := &p.jobs[i]
		d, ok := details[j.ID]
		if !ok {
			continue
		}
		if len(j.Hosts) == 0 && len(d.hosts) > 1 && !j.State.Ended() {
			j.Hosts = d.hosts
			c.mu.Lock()
			c.placed[run{j.ID, j.start}] = d.hosts
			c.mu.Unlock()
		}
		j.take(d, p.at)
	}
	for i := range p.jobs {
		if j := &p.jobs[i]; len(j.Hosts) == 0 && len(j.nodes) > 0 && j.State != backends.Pending {
			j.Hosts = spread(j.nodes, j.Slots, p.slots) // it has left its hosts between two looks
		}
	}
	return nil
}

// place tells where a job runs, or that squeue does not tell.
func (c *Client) place(j *seen, slots map[string]int) (unclear bool) {
	if len(j.nodes) == 0 || j.State == backends.Pending || j.State == backends.Held {
		return false
	}
	whole := 0
	for _, h := range j.nodes {
		whole += slots[h]
	}
	c.mu.Lock()
	before := c.placed[run{j.ID, j.start}]
	c.mu.Unlock()
	switch {
	case len(j.nodes) == 1:
		j.Hosts = []backends.Placement{{Host: j.nodes[0], Slots: j.Slots}}
	case before != nil:
		j.Hosts = before
	case whole == j.Slots || j.Slots == len(j.nodes) || j.State.Ended():
		j.Hosts = spread(j.nodes, j.Slots, slots)
	default:
		return true
	}
	return false
}

// forgetPlaces drops the runs that a picture of all jobs doesn't show any more.
func (c *Client) forgetPlaces(p *picture) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.placed) == 0 {
		return
	}
	there := map[run]bool{}
	for i := range p.jobs {
		there[run{p.jobs[i].ID, p.jobs[i].start}] = true
	}
	for r := range c.placed {
		if !there[r] {
			delete(c.placed, r)
		}
	}
}

// details asks for jobs one by one, in one scontrol. It tells where a user's text
// makes an answer unclear.
func (c *Client) details(ctx context.Context, ids []backends.ID) (found map[backends.ID]detail, unclear bool, err error) {
	answers, err := c.show(ctx, ids)
	if err != nil {
		return nil, false, err
	}
	found = make(map[backends.ID]detail, len(answers))
	for id, answer := range answers {
		d, ok := parseDetail(answer)
		if !ok {
			return nil, true, nil
		}
		found[id] = d
	}
	return found, false, nil
}

// show is what scontrol shows of jobs, one by one. Users' texts stand in it as they
// are; it is empty for a job that the queue has forgotten.
func (c *Client) show(ctx context.Context, ids []backends.ID) (map[backends.ID]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	nonce := newNonce()
	var lines bytes.Buffer
	for i, id := range ids {
		fmt.Fprintf(&lines, "show job %s\nshow hostlist %s%d\n", name(id), nonce, i)
	}
	out, err := c.run(ctx, &lines, "scontrol")
	if err != nil && !errors.Is(err, backends.ErrUnknownJob) { // of one that the queue has forgotten meanwhile
		return nil, err
	}
	answers := make(map[backends.ID]string, len(ids))
	text := string(out)
	for i, id := range ids {
		answer, rest, ok := strings.Cut(text, fmt.Sprintf("\n%s%d\n", nonce, i))
		if !ok {
			return nil, fmt.Errorf("scontrol show job %s: no answer in %s", name(id), shown(text))
		}
		answers[id], text = answer, rest
	}
	return answers, nil
}
