package slurm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	Config Config
	// Exclusions is a file that keeps which hosts owners exclude, so that one process need
	// not ask what another has asked. "": the answers last as long as the client.
	Exclusions string
}

// Client is a Slurm cluster as a backends.Backend. It keeps nothing open between
// two calls.
type Client struct {
	config Config

	latest        reconcile.Latest[snapshot]
	managesMemory atomic.Pointer[bool] // in the last snapshot; nil: none yet

	mu           sync.Mutex
	known        map[run]runFacts
	excluded     exclusions
	pins         pins           // of the last snapshot of all jobs
	saves        map[run]record // of jobs that this process asked to save themselves
	refused      map[run]bool   // jobs that have saved themselves, and that Slurm did not requeue
	limits       map[int64]int  // how many elements may run at a time, by the number of a split array
	merges       atomic.Bool    // squeue has no --array-unique
	lastSnapshot *snapshot      // that Farm gave
	accounting   *accounting    // see readAccounting
	accountingAt time.Time      // when it was read, by our clock; zero: never
}

// run is one run of a job.
type run struct {
	id      backends.ID
	started time.Time
}

// runFacts is what squeue does not show of a run, once it was found out.
type runFacts struct {
	hosts  []backends.Placement // of a job on several hosts
	memory int64                // that it asks for
	sized  bool                 // memory is known
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
	return &Client{config: o.Config, known: map[run]runFacts{}, saves: map[run]record{}, refused: map[run]bool{}, limits: map[int64]int{}, excluded: exclusions{path: o.Exclusions}}
}

// Close has nothing to give back.
func (c *Client) Close() error { return nil }

// Abilities is what Slurm can do. Nothing is reserved: Slurm's scheduler by itself
// keeps the hosts of the highest pending job.
func (c *Client) Abilities() backends.Abilities {
	return backends.Abilities{
		ForEngine: backends.ForEngine{
			SuspendFrees: true, ManagesMemory: c.memory(), Considers: true, CountsFixed: true, SavesBySignal: true,
			FoldsProjects: c.config.ProjectFrom != FromComment, // accounts and wckeys, 22.05
			Pin:           c.pin, HoldUntil: c.holdUntil, Move: c.move, Reconcile: c.reconcile, Enlarge: backends.EnlargeBy(c.modify), Place: c.submitDummies, Standbys: true,
		},
		ForWrappers: backends.ForWrappers{
			Filters: true, Resources: true, Options: options,
			Queues: c.queues, Modify: c.modify, Reopen: c.reopen, Record: c.record, History: c.history, Output: c.output, Wait: c.wait, Part: c.part, Signal: c.signal, WhyClosed: c.whyClosed,
		},
		ForFilter: backends.ForFilter{HookRank: c.HookRank, Fixed: c.fixed, Accounts: c.accounts, Marks: true},
		ForDoctor: backends.ForDoctor{Examine: c.Examine, ExamineFixed: c.examineFixed, Forget: c.Forget},
	}
}

// memory reports whether the cluster managed memory in the last snapshot. It runs no
// command, since asub runs only one. Before the first snapshot memory counts as managed.
func (c *Client) memory() bool {
	manages := c.managesMemory.Load()
	return manages == nil || *manages
}

// managesMemory reports whether jobs are given memory as well as CPUs.
func managesMemory(settings map[string]string) bool {
	return strings.Contains(strings.ToUpper(settings["SelectTypeParameters"]), "MEMORY")
}

// Snapshot takes a snapshot of the queue: the clock first, so that nothing in it is older
// than its time (R8).
func (c *Client) Snapshot(ctx context.Context, endedSince time.Time) (*backends.Snapshot, error) {
	p := c.latest.Pop()
	if p == nil {
		var err error
		if p, err = c.readSnapshot(ctx, nil); err != nil {
			return nil, err
		}
	}
	farm := &backends.Snapshot{At: p.at, Hosts: p.hosts, Jobs: make([]backends.Job, 0, len(p.jobs)), Preempting: p.preempting}
	for _, j := range p.jobs {
		switch {
		case j.holdsFor != (backends.ID{}) && j.State != backends.Running:
		case !j.State.Ended():
			farm.Jobs = append(farm.Jobs, j.Job)
		case !j.Ended.Before(endedSince):
			farm.Ended = append(farm.Ended, j.Job)
		}
	}
	c.dropRuns(p)
	c.mu.Lock()
	c.lastSnapshot = p
	c.mu.Unlock()
	return farm, nil
}

// Jobs reads some jobs.
func (c *Client) Jobs(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	p, err := c.readSnapshot(ctx, ids)
	if err != nil {
		return nil, err
	}
	if whole := wholeArrays(p.jobs, ids); len(whole) > 0 {
		if p, err = c.readSnapshot(ctx, whole); err != nil {
			return nil, err
		}
	}
	return reconcile.Shown(p.jobs, ids), nil
}

// snapshot is a snapshot of the cluster, or of some jobs.
type snapshot struct {
	cluster
	taken    time.Time // when reading began, by our clock
	commands uint64    // commands that were run until it was complete
	layout
	rankErr error // why jobs can't be ranked
	fixed   backends.FixedShare
	jobs    []*listedJob // in order of their IDs

	associations bool     // jobs without an association are refused
	preempting   []string // partitions in which Slurm preempts by itself
	enforced     bool     // limits of associations and QOS are heeded

	requeuesSaved bool // Slurm itself requeues jobs that exit with backends.ExitSaved
}

// mostAtOnce is how many jobs are asked for by their IDs; more are picked out of all.
const mostAtOnce = 1000

// readSnapshot takes a snapshot of all jobs, or of some.
func (c *Client) readSnapshot(ctx context.Context, ids []backends.ID) (*snapshot, error) {
	var p snapshot
	some := names(ids)
	if ids != nil && len(some) == 0 {
		return &p, c.readCluster(ctx, &p)
	}
	if len(ids) > mostAtOnce {
		some = nil
	}
	known, listed, wanted := make(chan struct{}), make(chan struct{}), make(chan struct{})
	want := sync.OnceFunc(func() { close(wanted) })
	c.excluded.prepare(time.Now())
	unknown := 0
	var excluded map[int64][]string
	err := command.RunAll(ctx, func(ctx context.Context) error {
		defer close(known)
		return c.readCluster(ctx, &p)
	}, func(ctx context.Context) error {
		defer close(listed)
		return c.readJobs(ctx, some, &p, known, func(j *listedJob) {
			if ids == nil && j.needsExclusions() && !c.excluded.knows(j) {
				if unknown++; unknown > fewExclusions {
					want()
				}
			}
		})
	}, func(ctx context.Context) (err error) { // while squeue still prints the jobs
		select {
		case <-wanted:
			excluded, err = c.readExclusions(ctx)
			return err
		case <-listed:
			return nil // addDetails asks for those of a few jobs
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(p.jobs, func(a, b *listedJob) int { return a.ID.Compare(b.ID) })
	c.excluded.add(p.jobs, excluded, time.Now())
	if err = c.addDetails(ctx, &p, ids == nil); err == nil {
		if ids == nil {
			c.excluded.keep(p.jobs)
		}
		c.addPlaces(&p, ids == nil)
	}
	if err == nil && ids == nil {
		err = c.markAwaited(ctx, &p)
	}
	if err == nil && ids == nil && p.enforced { // what runs of some jobs alone is not all that counts
		c.readAccounting(ctx).limitJobs(p.jobs)
	}
	p.commands = c.latest.Commands()
	return &p, err
}

// readJobs asks for jobs; no names: for all. They are read while squeue prints them,
// once the cluster is known, and seen is called with one job of each line.
func (c *Client) readJobs(ctx context.Context, some []string, p *snapshot, cluster <-chan struct{}, seen func(*listedJob)) error {
	elements := c.elements()
	err := c.readJobLines(ctx, elements, some, p, cluster, seen)
	if err != nil && elements == unmerged && strings.Contains(err.Error(), "unrecognized option '"+unmerged+"'") {
		c.merges.Store(true)
		err = c.readJobLines(ctx, c.elements(), some, p, cluster, seen)
	}
	return err
}

// unmerged is squeue's option that keeps the lines of elements apart that differ.
const unmerged = "--array-unique"

// elements is unmerged, or what does the same where squeue does not have it (24.11): each
// waiting element has a line then.
func (c *Client) elements() string {
	if c.merges.Load() {
		return "--array"
	}
	return unmerged
}

func (c *Client) readJobLines(ctx context.Context, elements string, some []string, p *snapshot, cluster <-chan struct{}, seen func(*listedJob)) error {
	nonce := newNonce()
	argv := []string{"squeue", "--noheader", "--all", elements, "--noconvert", "--states=all", "-O", format(squeueFields[:], nonce)}
	if len(some) > 0 {
		argv = append(argv, "--jobs="+strings.Join(some, ","))
	}
	l := jobLines(nonce, &p.cluster, &p.jobs)
	take := l.handle
	l.handle = func(fields []string) error {
		if err := take(fields); err != nil {
			return err
		}
		if n := len(p.jobs); n > 0 {
			seen(p.jobs[n-1])
		}
		return nil
	}
	r := reader{lines: l, known: cluster}
	cmd := c.command(nil, argv)
	cmd.Stdout = &r
	_, err := command.Run(ctx, cmd)
	if err = reconcile.Classify(err, failure); errors.Is(err, backends.ErrUnknownJob) {
		err = nil // the one that was asked for; squeue says nothing of one among several
	}
	if err != nil {
		return err
	}
	if err := r.end(); err != nil {
		return fmt.Errorf("squeue: %w", err)
	}
	return nil
}

// reader reads lines as they come, once something is known that they need.
type reader struct {
	lines *lines
	known <-chan struct{}

	early []byte // came before
	err   error  // the first
}

// Write never fails: squeue's output is read to its end.
func (r *reader) Write(text []byte) (int, error) {
	select {
	case <-r.known:
		r.read(text)
	default:
		r.early = append(r.early, text...)
	}
	return len(text), nil
}

func (r *reader) read(text []byte) {
	for _, part := range [][]byte{r.early, text} {
		if r.err == nil {
			r.err = r.lines.feed(part)
		}
	}
	r.early = nil
}

func (r *reader) end() error {
	<-r.known
	r.read(nil)
	if r.err != nil {
		return r.err
	}
	return r.lines.end()
}

// readCluster asks for all but the jobs.
func (c *Client) readCluster(ctx context.Context, p *snapshot) error {
	began := time.Now()
	p.taken = began
	nonce := newNonce()
	var config, nodes []byte
	var took time.Duration
	err := command.RunAll(ctx, func(ctx context.Context) (err error) {
		config, err = c.run(ctx, nil, "scontrol", "show", "config")
		took = time.Since(began)
		return err
	}, func(ctx context.Context) (err error) {
		nodes, err = c.run(ctx, nil, "sinfo", "--noheader", "--all", "--Node", "-O", format(sinfoFields[:], nonce))
		return err
	})
	if err != nil {
		return err
	}
	reported, err := parseAt(config)
	if err != nil {
		return err
	}
	p.at = clockAt(began, took, reported)
	settings := parseConfig(config)
	p.scale, p.rankErr = NewScale(config)
	p.memory = managesMemory(settings)
	p.trusted = trustedUsers(settings)
	p.from = c.config.ProjectFrom
	c.managesMemory.Store(&p.memory)
	p.array, _ = strconv.Atoi(settings["MaxArraySize"]) // missing: no arrays
	l, err := parseNodes(nodes, nonce)
	if err != nil {
		return err
	}
	p.layout = *l
	p.requeuesSaved = parseRequeueExit(settings["RequeueExit"], backends.ExitSaved)
	p.fixed = parseFixed(settings, l.hosts)
	if p.preempting, err = c.readPreempting(ctx, settings); err != nil {
		return err
	}
	p.associations, p.enforced = enforces(settings)
	p.slots, p.low = map[string]int{}, map[string]bool{}
	for _, h := range p.hosts {
		p.slots[h.Name] = h.Slots
	}
	for _, q := range p.queues {
		p.low[q.Name] = q.Level == backends.LevelLow
	}
	return nil
}

// readPreempting returns the partitions in which Slurm preempts by itself. Only where
// slurm.conf has a PreemptType are they asked for.
func (c *Client) readPreempting(ctx context.Context, settings map[string]string) ([]string, error) {
	if !preempts(settings) {
		return nil, nil
	}
	out, err := c.run(ctx, nil, "scontrol", "-o", "show", "partition")
	if err != nil {
		return nil, err
	}
	partitions, err := parsePartitions(out)
	var names []string
	for _, p := range partitions {
		if p.preempt != "OFF" {
			names = append(names, p.name)
		}
	}
	return names, err
}

// preempts reports whether Slurm preempts jobs by itself, in some partition.
func preempts(settings map[string]string) bool {
	kind := settings["PreemptType"]
	return isSet(kind) && kind != "preempt/none"
}

// trustedUsers are the users whose jobs can be placeholders and dummy jobs.
func trustedUsers(settings map[string]string) map[string]bool {
	slurmUser, _, _ := strings.Cut(settings["SlurmUser"], "(")
	return map[string]bool{"root": true, slurmUser: true}
}

// addDetails adds what squeue's lines leave out. excluded: which hosts owners exclude, too.
func (c *Client) addDetails(ctx context.Context, p *snapshot, excluded bool) error {
	var unclear []backends.ID
	if excluded {
		unclear = c.excluded.unknown(p.jobs)
	}
	all := false
	for _, j := range p.jobs {
		if j.touched(p.at) || c.asked(j) {
			unclear = append(unclear, j.ID)
		}
		all = c.setHosts(j, p.slots) || all
		if c.needsMemory(j) {
			unclear = append(unclear, j.ID)
		}
	}
	unclear = append(unclear, c.unlimited(p)...)
	all = all || len(unclear) > mostAtOnce
	if len(unclear) == 0 && !all {
		return nil
	}
	read := func(ctx context.Context) (map[backends.ID]detail, error) { return c.details(ctx, unclear) }
	if all {
		read = c.allDetails
	}
	details, err := read(ctx)
	if err != nil {
		return err
	}
	for _, j := range p.jobs {
		d, ok := details[j.ID]
		if !ok {
			continue
		}
		if len(j.Hosts) == 0 && len(d.hosts) > 1 && !j.State.Ended() {
			j.Hosts = d.hosts
			c.recordRun(j, func(k *runFacts) { k.hosts = d.hosts })
		}
		if j.each > 0 && d.perSlot {
			j.Memory = j.each * int64(j.Slots)
		}
		if j.each > 0 && !j.State.Ended() {
			c.recordRun(j, func(k *runFacts) { k.memory, k.sized = j.Memory, true })
		}
		c.addDetail(j, d, p.at)
		if excluded && j.needsExclusions() {
			c.excluded.set(j, j.excluded, time.Now())
		}
		c.recordLimit(j, d.limit)
	}
	for _, j := range p.jobs {
		if len(j.Hosts) == 0 && len(j.nodes) > 0 && j.State != backends.Pending {
			j.Hosts = spread(j.nodes, j.Slots, p.slots) // it left its hosts between the two commands
		}
	}
	return nil
}

// addPlaces adds where jobs may run.
func (c *Client) addPlaces(p *snapshot, all bool) {
	c.mu.Lock()
	limits := maps.Clone(c.limits)
	c.mu.Unlock()
	placeJobs(p, c.excluded.hosts(), limits, c.pinsNow(p, all))
}

// pinsNow returns the jobs that must have a host: those of a snapshot of all jobs, or of the
// last one that was.
func (c *Client) pinsNow(p *snapshot, all bool) pins {
	c.mu.Lock()
	defer c.mu.Unlock()
	if all {
		c.pins = p.pins()
	}
	return c.pins
}

// setHosts sets where a job runs. unclear: squeue does not show it.
func (c *Client) setHosts(j *listedJob, slots map[string]int) (unclear bool) {
	if len(j.nodes) == 0 || j.State == backends.Pending || j.State == backends.Held {
		return false
	}
	whole := 0
	for _, h := range j.nodes {
		whole += slots[h]
	}
	before := c.knownRun(j).hosts
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

// needsMemory sets the memory that a job was seen to ask for before, or reports that it
// must still be looked up.
func (c *Client) needsMemory(j *listedJob) bool {
	if j.each == 0 || j.State.Ended() {
		return false
	}
	before := c.knownRun(j)
	if before.sized {
		j.Memory, j.each = before.memory, 0
	}
	return !before.sized
}

// knownRun is what is known of a job's run.
func (c *Client) knownRun(j *listedJob) runFacts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[run{j.ID, j.start}]
}

// recordRun adds to that.
func (c *Client) recordRun(j *listedJob, f func(*runFacts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[run{j.ID, j.start}]
	f(&k)
	c.known[run{j.ID, j.start}] = k
}

// dropRuns drops the runs that a snapshot of all jobs doesn't show any more.
func (c *Client) dropRuns(p *snapshot) {
	there, arrays := map[run]bool{}, map[int64]bool{}
	for _, j := range p.jobs {
		there[run{j.ID, j.start}] = true
		arrays[j.ID.Job] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(r run, _ runFacts) bool { return !there[r] })
	maps.DeleteFunc(c.saves, func(r run, _ record) bool { return !there[r] })
	maps.DeleteFunc(c.refused, func(r run, _ bool) bool { return !there[r] })
	maps.DeleteFunc(c.limits, func(array int64, _ int) bool { return !arrays[array] })
}

// details asks for jobs one by one, in one scontrol; where a user's text makes an answer
// unclear, for all jobs.
func (c *Client) details(ctx context.Context, ids []backends.ID) (map[backends.ID]detail, error) {
	answers, err := c.show(ctx, ids)
	if err != nil {
		return nil, err
	}
	found := make(map[backends.ID]detail, len(answers))
	for id, answer := range answers {
		d, ok := parseDetail(answer)
		if !ok {
			return c.allDetails(ctx)
		}
		found[id] = d
	}
	return found, nil
}
