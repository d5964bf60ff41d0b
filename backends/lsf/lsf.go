package lsf

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
	"github.com/allotment-hpc/allotment/internal/command"
)

// Options say which cluster is meant.
type Options struct {
	Config   Config
	Record   string // file of what must be remembered of jobs (see record); "": it is forgotten with the process
	LowQueue string // queue of the jobs at LevelLow; "": there is none
}

// Client is an LSF cluster as a backends.Backend. It keeps nothing open between two
// calls.
type Client struct {
	config   Config
	lowQueue string
	record   record

	latest     reconcile.Latest[picture]
	keepsBegin atomic.Bool // bmod -bn takes no begin time back here

	mu   sync.Mutex
	site *site // nil: not asked yet
}

// site is what hardly ever changes of a cluster.
type site struct {
	flavour              flavour
	limitUnit, usageUnit int64
	params               params // of the last look at all of it
}

var _ backends.Backend = (*Client)(nil)

// Open gives a client. Nothing is asked of the cluster yet.
func Open(o Options) *Client {
	if o.Config.Timeout == 0 {
		o.Config.Timeout = DefaultConfig().Timeout
	}
	return &Client{config: o.Config, lowQueue: o.LowQueue, record: record{path: o.Record}}
}

// Close has nothing to give back.
func (c *Client) Close() error { return nil }

// Abilities is what LSF can do. A suspended job keeps its slots in LSF's own count
// (lava; LSF 10.1 without preemptive scheduling): nobody gets in there but by brun
// (Start), which heeds no count at all, so that what is suspended is as good as free
// for those who are put there, and is kept for its owner from everybody else.
func (c *Client) Abilities() backends.Abilities {
	return backends.Abilities{
		ForEngine: backends.ForEngine{
			SuspendFrees: true,
			Pin:          c.pin, HoldUntil: c.holdUntil, Move: c.move, Tend: c.tend, Start: c.startOn, Place: c.place,
		},
		ForWrappers: backends.ForWrappers{
			CountsPriorities: true, Filters: true,
			Queues: c.queues, Modify: c.modify, Wait: c.wait, Signal: c.signal, Bsub: c.Bsub,
		},
		ForFilter: backends.ForFilter{FilterFacts: c.FilterFacts},
		ForDoctor: backends.ForDoctor{Examine: c.Examine},
	}
}

// Farm takes a picture of the queue: the clock first, so that nothing in it is older
// than it says (R8).
func (c *Client) Farm(ctx context.Context, endedSince time.Time) (*backends.Farm, error) {
	p := c.latest.Take()
	if p == nil {
		var err error
		if p, err = c.lookAtAll(ctx); err != nil {
			return nil, err
		}
	}
	farm := &backends.Farm{At: p.at, Jobs: make([]backends.Job, 0, len(p.jobs))}
	for _, h := range p.hosts {
		if h.Slots > 0 {
			farm.Hosts = append(farm.Hosts, h.Host)
		}
	}
	for _, j := range p.jobs {
		switch {
		case !j.State.Ended():
			farm.Jobs = append(farm.Jobs, j.Job)
		case !j.left().Before(endedSince):
			farm.Ended = append(farm.Ended, j.Job)
		}
	}
	return farm, nil
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
	return reconcile.Shown(p.jobs, ids), nil
}

// picture is what one look gave.
type picture struct {
	at        time.Time // by our clock, before anything was asked; LSF tells none
	flavour   flavour
	params    params
	limitUnit int64 // bytes; what a plain number of -M counts in
	scale     scale
	engines   []string   // users whose dummy jobs are ones
	asked     uint64     // commands that were run until it was complete
	hosts     []hostSeen // of a look at all of it
	jobs      []*job     // in order of their IDs, which is that of submission
}

// mostAtOnce is how many jobs are asked for by their IDs; more are picked out of all.
const mostAtOnce = 1000

// lookAtAll takes a picture of hosts and jobs.
func (c *Client) lookAtAll(ctx context.Context) (*picture, error) {
	s, err := c.where(ctx)
	if err != nil {
		return nil, err
	}
	p := &picture{at: time.Now(), flavour: s.flavour}
	var told listing
	var bhosts, lshosts answer
	err = command.Together(ctx, func(ctx context.Context) (err error) {
		s.params, err = c.lookAtParams(ctx)
		return err
	}, func(ctx context.Context) (err error) {
		bhosts, err = c.ask(ctx, "bhosts", "-w")
		return err
	}, func(ctx context.Context) (err error) {
		lshosts, err = c.ask(ctx, "lshosts", "-w")
		return err
	}, func(ctx context.Context) (err error) {
		told, err = c.list(ctx, s.flavour, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.site = &s
	c.mu.Unlock()
	if p.hosts, err = parseHosts([]byte(bhosts.stdout), []byte(lshosts.stdout)); err != nil {
		return nil, err
	}
	err = c.fill(ctx, p, &s, told)
	p.doubtExclusive()
	p.asked = c.latest.Asked()
	return p, err
}

// doubtExclusive takes running jobs of lava for what they are by their hosts: the word
// in their lines can be their owners' own, and would spare them for ever. bhosts says
// closed_Excl rather than ok or closed_Full of a host that a job has for itself.
func (p *picture) doubtExclusive() {
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

// look takes a picture of some jobs. It says nothing of hosts.
func (c *Client) look(ctx context.Context, ids []backends.ID) (*picture, error) {
	if len(ids) > mostAtOnce {
		return c.lookAtAll(ctx)
	}
	s, err := c.where(ctx)
	if err != nil {
		return nil, err
	}
	p := &picture{at: time.Now(), flavour: s.flavour}
	some := names(ids)
	if len(some) == 0 {
		// Commands know no such jobs, and would list all; the queue is asked all the
		// same whether it is there.
		p.params, err = c.lookAtParams(ctx)
		p.scale = newScale(p.params)
		return p, err
	}
	told, err := c.list(ctx, s.flavour, some)
	if err != nil {
		return nil, err
	}
	return p, c.fill(ctx, p, &s, told)
}

func (c *Client) lookAtParams(ctx context.Context) (params, error) {
	said, err := c.ask(ctx, "bparams", "-l")
	if err != nil {
		return params{}, err
	}
	return parseParams([]byte(said.stdout))
}

// where asks once which queue it is, and how it counts.
func (c *Client) where(ctx context.Context) (site, error) {
	c.mu.Lock()
	known := c.site
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	var s site
	var err error
	if s.flavour, _, err = askVersion(ctx, c.said); err != nil { // Examine tells of a doubt
		return site{}, err
	}
	unit := ""
	if s.flavour == lsf10 {
		if unit, err = c.unitForLimits(); err != nil {
			return site{}, err
		}
	}
	if s.limitUnit, s.usageUnit, err = units(s.flavour, unit); err != nil {
		return site{}, err
	}
	if s.params, err = c.lookAtParams(ctx); err != nil {
		return site{}, err
	}
	c.mu.Lock()
	c.site = &s
	c.mu.Unlock()
	return s, nil
}

// unitForLimits reads lsf.conf, where the commands find it: in LSF_ENVDIR, else in
// /etc (IBM Spectrum LSF 10.1, configuration reference, lsf.conf).
func (c *Client) unitForLimits() (string, error) {
	text, err := os.ReadFile(filepath.Join(c.surroundings().directory(), confName))
	if err != nil {
		return "", fmt.Errorf("in which unit limits are: %w", err)
	}
	return parseConf(string(text))["LSF_UNIT_FOR_LIMITS"], nil
}

// listing is what was printed of jobs; both empty: there are none.
type listing struct {
	records string // bjobs -json
	details string // lava: bjobs -UF
	crashed bool   // that command did, and told nothing
}

// list asks for jobs; no names: for all. Ended ones are with them as long as the queue
// knows them (CLEAN_PERIOD).
func (c *Client) list(ctx context.Context, f flavour, some []string) (listing, error) {
	var l listing
	if f == lsf10 {
		var err error
		l.records, err = c.bjobs(ctx, some, "-json", "-o", lsf10Fields)
		return l, err
	}
	err := command.Together(ctx, func(ctx context.Context) (err error) {
		l.records, err = c.bjobs(ctx, some, "-json", "-o", lavaFields)
		return err
	}, func(ctx context.Context) (err error) {
		l.details, err = c.bjobs(ctx, some, "-UF")
		if l.crashed = crashed(err); l.crashed {
			return nil
		}
		return err
	})
	return l, err
}

// crashed tells of a command's error whether a signal ended it, ours excepted. lava's
// bjobs -UF dies of a text that is longer than its buffer, which any user can write.
func crashed(err error) bool {
	const signalled, last = 128, 128 + 31
	var failed *command.Error
	return errors.As(err, &failed) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) &&
		(failed.Killed || failed.Status > signalled && failed.Status <= last)
}

// anchored parses both halves of lava's listing. Where the second one crashed it is
// asked for again, each owner's jobs by themselves: nobody's texts hide another one's
// jobs, and the jobs of who wrote them are missing.
func (c *Client) anchored(ctx context.Context, told listing, counts *cluster) (*details, error) {
	anchors, err := parseAnchors([]byte(told.records))
	if err != nil {
		return nil, err
	}
	if told.crashed {
		of := map[string][]backends.ID{}
		for _, a := range anchors {
			of[a.user] = append(of[a.user], backends.ID{Job: a.id.Job})
		}
		for _, user := range slices.Sorted(maps.Keys(of)) {
			slices.SortFunc(of[user], backends.ID.Compare)
			for some := range slices.Chunk(slices.Compact(of[user]), atOnce) {
				out, err := c.bjobs(ctx, names(some), "-UF")
				if err != nil && !crashed(err) {
					return nil, err
				}
				told.details += out
			}
		}
	}
	return parseDetails(anchors, []byte(told.details), counts)
}

func (c *Client) bjobs(ctx context.Context, some []string, options ...string) (string, error) {
	said, err := c.ask(ctx, slices.Concat([]string{"bjobs", "-u", "all", "-a"}, options, some)...)
	if err != nil && !nobody(said, err) {
		return "", err
	}
	return said.stdout, nil
}

// nobody tells of a bjobs that failed whether all that is wrong is that there are no
// such jobs; it prints the others. With -json it says so in what it prints.
func nobody(said answer, err error) bool {
	if _, no := reconcile.SaidNo(err); !no || said == (answer{}) {
		return false
	}
	for line := range strings.Lines(said.stderr) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.Contains(line, "is not found") && !strings.Contains(line, "No matching job found") &&
			(!strings.HasPrefix(line, "No ") || !strings.HasSuffix(line, "job found")) {
			return false
		}
	}
	return true
}

// fill reads a listing, and adds what is remembered of its jobs.
func (c *Client) fill(ctx context.Context, p *picture, s *site, told listing) error {
	p.params, p.limitUnit, p.scale = s.params, s.limitUnit, newScale(s.params)
	counts := cluster{at: time.Now(), limitUnit: s.limitUnit, usageUnit: s.usageUnit, perTask: s.params.perTask}
	seen, err := c.readJobs(ctx, s.flavour, told, &counts)
	if err != nil {
		return err
	}
	remembered, err := c.record.read()
	if err != nil {
		return err
	}
	p.engines = c.engines()
	p.jobs = make([]*job, 0, len(seen))
	for _, j := range seen {
		p.jobs = append(p.jobs, newJob(j, remembered[j.ID], p, c.lowQueue))
	}
	slices.SortFunc(p.jobs, func(a, b *job) int { return a.ID.Compare(b.ID) })
	p.jobs = slices.CompactFunc(p.jobs, func(a, b *job) bool { return a.ID == b.ID })
	return nil
}

// readJobs reads a listing. Of jobs that are in one half of it only, or unclear there,
// it asks again.
func (c *Client) readJobs(ctx context.Context, f flavour, told listing, counts *cluster) ([]*seen, error) {
	if strings.TrimSpace(told.records) == "" {
		return nil, nil
	}
	if f == lsf10 {
		return parseJobs([]byte(told.records), counts)
	}
	d, err := c.anchored(ctx, told, counts)
	if err != nil {
		return nil, err
	}
	jobs := d.jobs
	again := func(some []anchor) error {
		late, still, err := c.askAgain(ctx, some, counts)
		if err != nil {
			return err
		}
		jobs = append(jobs, late.jobs...)
		maps.Copy(d.unclear, late.unclear)
		maps.Copy(d.anchors, late.anchors)
		for _, a := range still {
			d.unclear[a.id], d.anchors[a.id] = errUnclear, a
		}
		return nil
	}
	if err := again(d.missing); err != nil {
		return nil, err
	}
	for _, own := range owners(d.anchors) {
		for _, a := range own {
			delete(d.unclear, a.id)
			delete(d.anchors, a.id)
		}
		if err := again(own); err != nil {
			return nil, err
		}
	}
	doubtful, err := c.lookAtUnclear(ctx, d, counts)
	return append(jobs, doubtful...), err
}

// owners sorts unclear jobs by their owners, of whom each has several: asked for by
// themselves, no text of anybody else is among their lines, and one command does for
// all of them. So nobody makes another one's jobs dear to look at.
func owners(unclear map[backends.ID]anchor) [][]anchor {
	of := map[string][]anchor{}
	for _, a := range unclear {
		of[a.user] = append(of[a.user], a)
	}
	var several [][]anchor
	for _, user := range slices.Sorted(maps.Keys(of)) {
		if len(of[user]) > 1 {
			several = append(several, of[user])
		}
	}
	return several
}

// mostAlone is how many jobs of a picture are looked at alone. Those that come to that
// are unclear by their own texts, and may be as many as their owner likes.
const mostAlone = 20

// lookAtUnclear looks at jobs alone whose lines are unclear, the oldest first. Of those
// beyond mostAlone only what they hold is asked for, if they hold anything.
func (c *Client) lookAtUnclear(ctx context.Context, d *details, counts *cluster) ([]*seen, error) {
	var jobs []*seen
	for i, id := range slices.SortedFunc(maps.Keys(d.unclear), backends.ID.Compare) {
		look := c.lookAlone
		if i >= mostAlone {
			look = c.glance
		}
		j, err := look(ctx, d.anchors[id], d.unclear[id], counts)
		if err != nil {
			return nil, err
		}
		if j != nil {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// askAgain asks once more for jobs that were in one half of a listing only: somebody
// changed them between the two commands, or they were forgotten. still are those that
// are so again: a user's text may do that for ever.
func (c *Client) askAgain(ctx context.Context, missing []anchor, counts *cluster) (late *details, still []anchor, err error) {
	late = &details{unclear: map[backends.ID]error{}, anchors: map[backends.ID]anchor{}}
	for some := range slices.Chunk(missing, atOnce) {
		ids := reconcile.IDs(some, func(a anchor) backends.ID { return backends.ID{Job: a.id.Job} })
		slices.SortFunc(ids, backends.ID.Compare)
		told, err := c.list(ctx, lava, names(slices.Compact(ids)))
		if err != nil {
			return nil, nil, err
		}
		if strings.TrimSpace(told.records) == "" {
			continue // they are forgotten
		}
		d, err := c.anchored(ctx, told, counts)
		if err != nil {
			return nil, nil, err
		}
		late.jobs, still = append(late.jobs, d.jobs...), append(still, d.missing...)
		for id, why := range d.unclear {
			late.unclear[id], late.anchors[id] = why, d.anchors[id]
		}
	}
	return late, still, nil
}

// lookAlone asks for a job whose lines are unclear by itself, so that no other job's
// text is in them. nil: it is forgotten.
func (c *Client) lookAlone(ctx context.Context, a anchor, why error, counts *cluster) (*seen, error) {
	for _, id := range a.ids() {
		out, err := c.bjobs(ctx, []string{id.String()}, "-UF")
		if crashed(err) {
			why = fmt.Errorf("%w: bjobs -UF dies of one of its texts", errUnclear)
			continue
		}
		if err != nil {
			return nil, err
		}
		j, err := parseDetail(a, []byte(out), counts)
		if err == nil {
			return j, nil
		}
		if strings.TrimSpace(out) != "" {
			why = err
		}
	}
	return c.whereIs(ctx, a, why, counts)
}

// glance is what is certain of a job whose lines are unclear. One that has no slots is
// asked for nothing.
func (c *Client) glance(ctx context.Context, a anchor, why error, counts *cluster) (*seen, error) {
	switch a.stat {
	case "PEND", "PSUSP", "DONE", "EXIT", "ERROR", "WAIT":
		j, err := certain(a, a.stat, a.queue, nil, counts)
		if j != nil {
			j.why = why
		}
		return j, err
	}
	return c.whereIs(ctx, a, why, counts)
}

// whereIs asks for a job's hosts, and leaves the rest vague. nil: it is forgotten.
func (c *Client) whereIs(ctx context.Context, a anchor, why error, counts *cluster) (*seen, error) {
	for _, id := range a.ids() {
		out, err := c.bjobs(ctx, []string{id.String()}, "-w")
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(out) != "" {
			a.id = id
			j, err := vagueJob(a, []byte(out), counts)
			if j != nil {
				j.why = why
			}
			return j, err
		}
	}
	return nil, nil
}
