package lsf

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
	"github.com/allotment-hpc/allotment/internal/command"
)

// Options say which cluster is used.
type Options struct {
	Config   Config
	Record   string // file of what must be remembered of jobs (see record); "": only the process remembers it
	LowQueue string // queue of the jobs at LevelLow; "": there is none
}

// Client is an LSF cluster as a backends.Backend. It keeps nothing open between calls.
type Client struct {
	config   Config
	lowQueue string
	record   record

	latest     reconcile.Latest[snapshot]
	keepsBegin atomic.Bool // bmod -bn does not clear a begin time here

	mu           sync.Mutex
	clusterFacts *clusterFacts // nil: not asked yet
	farmFacts    *farmFacts    // nil: not asked yet
}

// clusterFacts is what hardly ever changes of a cluster.
type clusterFacts struct {
	flavour              flavour
	limitUnit, usageUnit int64
	params               params // of the last snapshot of all
}

var _ backends.Backend = (*Client)(nil)

// Open returns a client. It asks nothing of the cluster yet.
func Open(o Options) *Client {
	if o.Config.Timeout == 0 {
		o.Config.Timeout = DefaultConfig().Timeout
	}
	return &Client{config: o.Config, lowQueue: o.LowQueue, record: record{path: o.Record}}
}

// Close does nothing: no call leaves anything open.
func (c *Client) Close() error { return nil }

// Abilities returns what LSF can do. A suspended job keeps its slots in LSF's own count
// (lava; LSF 10.1 without preemptive scheduling): only brun (Start), which ignores that
// count, starts jobs there. So its slots are free for jobs that the engine starts, and
// kept for it from all others.
func (c *Client) Abilities() backends.Abilities {
	return backends.Abilities{
		ForEngine: backends.ForEngine{
			SuspendFrees: true, SavesBySignal: true,
			Pin: c.pin, HoldUntil: c.holdUntil, Move: c.move, Reconcile: c.reconcile, Enlarge: backends.EnlargeBy(c.modify), Start: c.startOn, Place: c.submitDummies,
		},
		ForWrappers: backends.ForWrappers{
			CountsPriorities: true, Filters: true,
			Queues: c.queues, Modify: c.modify, Reorder: c.reorder, Reopen: c.reopen, KillNow: c.killNow, InGroup: c.inGroup, OfProfile: c.ofProfile, History: c.history, Wait: c.wait, Signal: c.signal, WhyClosed: c.whyClosed, Bsub: c.Bsub,
		},
		ForFilter: backends.ForFilter{FilterFacts: c.FilterFacts},
		ForDoctor: backends.ForDoctor{Examine: c.Examine},
	}
}

// Snapshot takes a snapshot of the queue. It reads the clock first, so that nothing in the
// snapshot is older than it says (R8).
func (c *Client) Snapshot(ctx context.Context, endedSince time.Time) (*backends.Snapshot, error) {
	p := c.latest.Pop()
	if p == nil {
		var err error
		if p, err = c.readAll(ctx); err != nil {
			return nil, err
		}
	}
	farm := &backends.Snapshot{At: p.at, Jobs: make([]backends.Job, 0, len(p.jobs))}
	for _, h := range p.hosts {
		if h.Slots > 0 {
			farm.Hosts = append(farm.Hosts, h.Host)
		}
	}
	for _, j := range p.jobs {
		switch {
		case !j.State.Ended():
			farm.Jobs = append(farm.Jobs, j.Job)
		case !j.leftAt().Before(endedSince):
			farm.Ended = append(farm.Ended, j.Job)
		}
	}
	lost, err := c.forgotten(p, endedSince)
	farm.Ended = append(farm.Ended, lost...)
	return farm, err
}

// Jobs looks up jobs by their IDs.
func (c *Client) Jobs(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	p, err := c.readSnapshot(ctx, ids)
	if err != nil {
		return nil, err
	}
	return reconcile.Shown(p.jobs, ids), nil
}

// snapshot is a snapshot of the cluster, or of some jobs.
type snapshot struct {
	at          time.Time // by our clock, before the first command; LSF shows none
	flavour     flavour
	params      params
	limitUnit   int64 // bytes; what a plain number of -M counts in
	usageUnit   int64 // bytes; what a plain number of mem in rusage[] counts in
	scale       scale
	engineUsers []string           // users whose dummy jobs count
	commands    uint64             // commands that were run until it was complete
	static      map[string]statics // of all machines, in a snapshot of all
	hosts       []listedHost       // in a snapshot of all
	jobs        []*job             // in order of their IDs, which is that of submission
	misses      bool               // a job that was asked to save itself is not among them
}

// mostAtOnce is how many jobs are asked for by their IDs; for more, all are listed.
const mostAtOnce = 1000

// readAll takes a snapshot of hosts and jobs.
func (c *Client) readAll(ctx context.Context) (*snapshot, error) {
	s, err := c.loadFacts(ctx)
	if err != nil {
		return nil, err
	}
	p := &snapshot{at: time.Now(), flavour: s.flavour}
	var listed listing
	var bhosts, lshosts answer
	err = command.RunAll(ctx, func(ctx context.Context) (err error) {
		s.params, err = c.readParams(ctx)
		return err
	}, func(ctx context.Context) (err error) {
		bhosts, err = c.query(ctx, "bhosts", "-w")
		return err
	}, func(ctx context.Context) (err error) {
		lshosts, err = c.query(ctx, "lshosts", "-w")
		return err
	}, func(ctx context.Context) (err error) {
		listed, err = c.list(ctx, s.flavour, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.clusterFacts = &s
	c.mu.Unlock()
	if p.static, err = parseStatics([]byte(lshosts.stdout)); err != nil {
		return nil, fmt.Errorf("lshosts: %w", err)
	}
	if p.hosts, err = parseHosts([]byte(bhosts.stdout), p.static); err != nil {
		return nil, err
	}
	if err = c.fillSnapshot(ctx, p, &s, listed); err == nil {
		p.correctExclusive()
		err = c.readWhere(ctx, p)
	}
	p.commands = c.latest.Commands()
	return p, err
}

// correctExclusive corrects Exclusive of lava's running jobs by their hosts: the word in a
// job's lines may be its owner's own, and would spare the job for ever. Of a host that a
// job has for itself bhosts says closed_Excl, and neither ok nor closed_Full.
func (p *snapshot) correctExclusive() {
	if p.flavour != lava {
		return
	}
	shared := map[string]bool{}
	for _, h := range p.hosts {
		shared[h.Name] = h.status == "ok" || h.status == "closed_Full"
	}
	for _, j := range p.jobs {
		if j.Exclusive && j.State == backends.Running && slices.ContainsFunc(j.Hosts, func(at backends.Placement) bool { return shared[at.Host] }) {
			j.Exclusive = false
		}
	}
}

// readSnapshot takes a snapshot of some jobs, mostly without hosts.
func (c *Client) readSnapshot(ctx context.Context, ids []backends.ID) (*snapshot, error) {
	if len(ids) > mostAtOnce {
		return c.readAll(ctx)
	}
	s, err := c.loadFacts(ctx)
	if err != nil {
		return nil, err
	}
	p := &snapshot{at: time.Now(), flavour: s.flavour}
	some := names(ids)
	if len(some) == 0 {
		// Without names bjobs would list all jobs; bparams shows whether the queue is there.
		p.params, err = c.readParams(ctx)
		p.scale = newScale(p.params)
		return p, err
	}
	listed, err := c.list(ctx, s.flavour, some)
	if err != nil {
		return nil, err
	}
	return p, c.fillSnapshot(ctx, p, &s, listed)
}

func (c *Client) readParams(ctx context.Context) (params, error) {
	printed, err := c.query(ctx, "bparams", "-l")
	if err != nil {
		return params{}, err
	}
	return parseParams([]byte(printed.stdout))
}

// loadFacts returns which queue it is, and how it counts. It asks once.
func (c *Client) loadFacts(ctx context.Context) (clusterFacts, error) {
	c.mu.Lock()
	known := c.clusterFacts
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	var s clusterFacts
	var err error
	if s.flavour, _, err = queryVersion(ctx, c.combinedOutput); err != nil { // Examine reports a doubt
		return clusterFacts{}, err
	}
	unit := ""
	if s.flavour == lsf10 {
		if unit, err = c.unitForLimits(); err != nil {
			return clusterFacts{}, err
		}
	}
	if s.limitUnit, s.usageUnit, err = units(s.flavour, unit); err != nil {
		return clusterFacts{}, err
	}
	if s.params, err = c.readParams(ctx); err != nil {
		return clusterFacts{}, err
	}
	c.mu.Lock()
	c.clusterFacts = &s
	c.mu.Unlock()
	return s, nil
}

// unitForLimits reads lsf.conf where the commands find it: in LSF_ENVDIR, else in /etc
// (IBM Spectrum LSF 10.1, configuration reference, lsf.conf).
func (c *Client) unitForLimits() (string, error) {
	text, err := os.ReadFile(filepath.Join(c.surroundings().directory(), confName))
	if err != nil {
		return "", fmt.Errorf("find the unit of memory limits: %w", err)
	}
	return parseConf(string(text))["LSF_UNIT_FOR_LIMITS"], nil
}
