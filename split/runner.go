package split

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/split/task"
)

// runner runs one split.
type runner struct {
	Options
	def       *Definition
	dir       *Dir
	store     *store
	core      *Core
	sequencer *sequencer
	source    source
	growing   *growing // the same, with Adds; else nil
	hosts     *hosts
	delivery  *delivery
	crew      *crew
	inbox     *inbox
	settings  [][]string // that are tried, NAME=VALUE of each variable
	resident  *resident  // nil: it is no resident job

	tasks           map[int64]*row // of this round and those that are open
	inputEnded      bool           // the input's end is stored
	lostSince       time.Time      // since when the queue can't be reached; zero: it can
	fresh           map[int64]bool // tasks that can't have a job yet
	withdrawn       map[int64]bool // tasks whose jobs asplit kills
	late            map[int64]time.Time
	waitingSince    time.Time // since when all open jobs wait to begin; zero: not all do
	waitingNext     time.Time // no such line before
	waitingTold     string    // the last such line
	stuck           time.Time // since when all open jobs of the round wait to begin; zero: not all do
	workersOpen     bool      // the bus is
	unreachableTold bool      // that workers can't reach asplit
	stood           []*row    // tasks of an earlier run whose jobs may stand as workers
	lost            []*row    // tasks that were executed elsewhere, and whose jobs may go on
	slowAt          time.Time // when a task that runs may become a straggler; zero: none may
	unsaved         []*row    // that save could not store
	joblog          *joblog
	joblogErr       error
	haltedAt        time.Time // zero: not halted
	haltKilled      bool      // the jobs of a halted split were killed
	runFailed       int64     // items that failed in this run
	refused         error     // why the last submission failed; nil: it did not
	joined          bool      // a host took part
	trialTold       bool      // the user knows what the trial found
	measuringLogged bool      // the user knows that hosts are measured

	results, changed <-chan struct{}
	snapshots        <-chan snapshot
	nudge            chan struct{}
	queried          bool      // the jobs were queried since the queue changed
	queryAt          time.Time // when to query them though nothing changes; zero: no need
	lastSeen         time.Time
	gap              float64
	hasGap           bool
	runBegan         time.Time
	statusAt         time.Time // of the last status
	runItems         int64     // ended in this run

	reportMu sync.Mutex
	trickle  *trickle // of log, under reportMu; nil: it writes all lines
}

func run(ctx context.Context, d *Definition, dir *Dir, s *store, o Options) (err error) {
	defer func() { err = errors.Join(err, s.Close(), dir.Close()) }()
	r := &runner{
		Options: o, def: d, dir: dir, store: s, sequencer: newSequencer(d.Unordered), tasks: map[int64]*row{}, fresh: map[int64]bool{},
		withdrawn: map[int64]bool{}, late: map[int64]time.Time{}, nudge: make(chan struct{}, 1), runBegan: time.Now(),
		inbox: newInbox(),
	}
	if d.Resident != nil {
		r.trickle = new(trickle)
	}
	most := 0
	if o.Standing.Workers != nil {
		most = o.Standing.Most
	}
	r.crew = newCrew(most)
	if r.pace == (pace{}) {
		r.pace = defaultPace()
	}
	measureDir := ""
	if o.Measure != nil {
		if measureDir, err = os.MkdirTemp(dir.Path, "measure-"); err != nil {
			return fmt.Errorf("make a directory for the hosts' measures: %w", err)
		}
		defer func() { _ = os.RemoveAll(measureDir) }()
	}
	r.hosts = newHosts(d.Hosts, d.Slots, o.Measure, measureDir, r.pace.rest, r.log)
	before, err := s.Input(ctx)
	if err != nil {
		return err
	}
	r.inputEnded = before.Ended
	if err := os.Remove(dir.file(task.FileHalt)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("resume a split that was halted: %w", err)
	}
	if r.core, err = s.Core(ctx, d.Balance); err != nil {
		return err
	}
	r.core.Copies = d.Copies
	if err := r.beginTrial(); err != nil {
		return err
	}
	if r.source, err = openSource(d, dir, o.Stdin, before); err != nil {
		return err
	}
	if d.Adds {
		if r.growing, err = openGrowing(r.source, dir, r.core.Added); err != nil {
			return err
		}
		r.source = r.growing
	}
	to := &delivery{out: o.Stdout, errs: o.Stderr, dir: dir, source: r.source, input: d.Input, log: r.log, tag: o.Tag}
	if d.Resident != nil {
		to.gather = &gather{reduce: d.Resident.Reduce, stop: make(chan struct{}), news: make(chan struct{}, 1)}
	}
	r.delivery = startDelivery(to)
	if r.joblog, err = openJoblog(d); err != nil {
		return errors.Join(err, r.delivery.finish(true))
	}
	defer func() { err = errors.Join(err, r.joblog.close()) }()
	if err := r.restore(ctx); err != nil {
		return errors.Join(err, r.delivery.finish(true))
	}
	return r.main(ctx)
}

// restore loads the stored state.
func (r *runner) restore(ctx context.Context) (err error) {
	r.restoreResident()
	return r.store.Tasks(ctx, func(t row) error {
		task := &t.Task
		lost := r.core.restore(task)
		if t.State == Open || t.Round == r.core.Round {
			r.tasks[t.N] = &t
		}
		if t.Worker == t.N && t.Job != 0 {
			r.stood = append(r.stood, &t)
		}
		r.lose(lost)
		if (t.State == Done || t.State == Killer) && !r.written(task) {
			if err := r.mendJoblog(task); err != nil {
				return err
			}
			r.delivery.add(r.sequencer.add(task))
		}
		return nil
	})
}

// mendJoblog adds what is missing in the joblog of a task that ended in an earlier run.
func (r *runner) mendJoblog(t *Task) error {
	if r.joblog == nil {
		return nil
	}
	if t.State == Killer {
		return r.joblog.addKiller(t, r.source)
	}
	result, err := task.OpenResult(task.File(r.dir.Path, t.N, task.KindResult), r.def.Input.Number(t.First), t.Count)
	if err != nil {
		return err
	}
	return errors.Join(r.joblog.add(t, result, r.source), result.Close())
}

// main runs until all is done, or ctx ends.
func (r *runner) main(ctx context.Context) error {
	watching, cancel := context.WithCancel(ctx)
	defer func() { cancel(); r.hosts.measurements.Wait() }()
	r.results = watchDir(watching, r.dir.Path)
	r.changed = WatchQueue(watching, r.Queue)
	r.snapshots = snapshots(watching, r.Queue, r.def.jobPrefix(), r.pace.snapshot, r.nudge)
	var err error
	for over := false; err == nil && !over; {
		if over, err = r.step(ctx); err == nil && !over {
			err = r.wait(watching)
		}
	}
	if ctx.Err() != nil {
		cancel()
		err = r.stop()
		r.endWorkers(true)
		return err
	}
	if errors.Is(err, ErrHalted) {
		cancel()
		r.endWorkers(true)
		r.hosts.measurements.Wait()
		return r.finishHalted(err)
	}
	if err != nil {
		cancel()
		_ = r.delivery.finish(true)
		if !errors.Is(err, backends.ErrUnreachable) {
			err = errors.Join(err, r.endJobs())
		}
		r.endWorkers(true)
		return r.withResumeHint(err)
	}
	cancel()
	r.endWorkers(false)
	r.hosts.measurements.Wait() // measurements write into what finish removes
	return r.finish()
}

// withResumeHint adds to an error that ended the run the command that resumes it.
func (r *runner) withResumeHint(err error) error {
	return fmt.Errorf("%w; nothing is lost: %s continues it", err, r.resumeLine())
}

func (r *runner) resumeLine() string { return "asplit --resume " + r.def.Name }

// step ends what has ended and begins what is due. over reports whether all is done.
func (r *runner) step(ctx context.Context) (over bool, err error) {
	select {
	case <-r.delivery.done:
		return false, r.delivery.err
	default:
	}
	if err := r.ignoreUnreachable(r.collect(ctx)); err != nil {
		return false, err
	}
	if err := r.ignoreUnreachable(r.tend(ctx)); err != nil {
		return false, err
	}
	if err := r.endLost(ctx); err != nil {
		return false, err
	}
	if r.joblogErr != nil {
		return false, r.joblogErr
	}
	if halting, err := r.halt(ctx); halting || err != nil {
		return false, err
	}
	have, ended, err := r.source.count()
	if err != nil {
		return false, err
	}
	if ended && !r.inputEnded {
		if err := errors.Join(r.source.sync(), r.store.InputEnded(ctx, have-r.growing.items())); err != nil {
			return false, err
		}
		r.inputEnded = true
	}
	if r.growing != nil && (!r.core.Idle() || r.core.Waiting(have) > 0) { // they may add items
		ended = false
	}
	r.releaseWorkers(!ended || r.core.Waiting(have) > 0 || (r.def.Speculate || r.def.Copies > 1) && !r.core.Idle())
	if r.core.Idle() {
		if over, err = r.nextRound(ctx, have, ended); over || err != nil {
			return over, err
		}
		if r.resident != nil { // a period may have begun
			if have, ended, err = r.source.count(); err != nil {
				return false, err
			}
		}
	}
	if r.hosts.up != nil { // there was a snapshot
		if err := r.speculate(ctx); err != nil {
			return false, err
		}
		err = r.ignoreUnreachable(r.submit(ctx, have, ended))
	}
	r.progress(have, ended)
	return false, err
}

// nextRound ends a round and begins the next one.
func (r *runner) nextRound(ctx context.Context, have int64, ended bool) (over bool, err error) {
	if r.core.Closed < r.core.Round {
		if err := r.closeRound(ctx); err != nil {
			return false, err
		}
	}
	if r.resident == nil && ended && r.core.Finished(have) {
		if r.core.Trial != nil {
			r.core.Trial.End()
			r.tellTrial(have)
		}
		return true, nil
	}
	if err := r.refused; err != nil {
		return false, err
	}
	if r.core.Round == 0 && r.hosts.measuring() && time.Since(r.hosts.began) < r.pace.measure {
		if !r.measuringLogged && time.Since(r.hosts.began) > time.Second { // known measures arrive at once
			r.measuringLogged = true
			r.log("measuring the hosts, which takes some seconds; later runs reuse the result")
		}
		return false, nil // the first round waits for all hosts
	}
	if err := r.changeHosts(ctx); err != nil {
		return false, err
	}
	var round []*Task
	if r.resident != nil && r.core.Finished(have) {
		if round, over, err = r.nextPeriod(ctx, ended); over || err != nil {
			return over, err
		}
	} else {
		r.fitTrial()
		round = r.core.Begin(have, !ended || r.resident != nil)
		r.tellTrial(have)
	}
	if len(round) == 0 {
		return false, r.checkStalled(have)
	}
	rows := make([]*row, len(round))
	clear(r.tasks)
	for i, t := range round {
		rows[i] = &row{Task: *t, Slots: r.slotsOn(t.Host)}
		r.tasks[t.N], r.fresh[t.N] = rows[i], true
	}
	r.stuck = time.Time{}
	return false, errors.Join(r.source.sync(), r.save(ctx, rows...))
}

func (r *runner) closeRound(ctx context.Context) error {
	e := endedRound{N: r.core.Round, Verdict: r.core.Close()}
	for _, t := range r.tasks {
		if !t.Submitted.IsZero() && (e.Began.IsZero() || t.Submitted.Before(e.Began)) {
			e.Began = t.Submitted
		}
		if t.Seen.After(e.Ended) {
			e.Ended = t.Seen
		}
	}
	if e.Began.IsZero() { // no job was accepted
		e.Began = e.Ended
	}
	r.gap, r.hasGap = e.Gap, true
	if err := r.store.CloseRound(ctx, r.core, e); err != nil {
		return err
	}
	if r.resident != nil { // a line a period, for weeks
		return nil
	}
	report := r.roundReport(e)
	for _, t := range r.tasks {
		report.Tasks = append(report.Tasks, r.taskReport(t))
	}
	slices.SortFunc(report.Tasks, func(a, b TaskReport) int { return int(a.Task - b.Task) })
	r.notify(func(to Reporter) { to.Round(report) })
	return nil
}

// changeHosts lets hosts leave and join, between rounds.
func (r *runner) changeHosts(ctx context.Context) error {
	if r.hosts.up == nil { // no snapshot yet
		return nil
	}
	if r.def.Slots == FreeSlots {
		for _, name := range r.core.Hosts {
			r.core.Balance.Resize(name, r.slotsOn(name))
		}
	}
	leave, join := r.hosts.membership(r.core.Hosts, time.Now())
	for _, name := range leave {
		r.core.Leave(name)
		r.log(shown(name) + " no longer takes part")
	}
	for _, name := range join {
		slots := r.hosts.slotsOf(name)
		r.core.Join(name, r.hosts.measured[name], slots)
		if err := r.store.SaveHost(ctx, name, slots, r.hosts.measured[name]); err != nil {
			return err
		}
		if r.joined && r.core.Round > 0 {
			r.log(shown(name) + " takes part from now on")
		}
	}
	r.joined = r.joined || len(join) > 0
	if n := len(r.core.Hosts); len(leave)+len(join) > 0 && n < r.def.Copies {
		r.log(fmt.Sprintf("hosts that take part: %d; each task is executed on as many, not on %d", n, r.def.Copies))
	}
	if len(leave)+len(join) == 0 {
		return nil
	}
	return r.store.Save(ctx, r.core, true) // now: the next round may be far off
}

// checkStalled returns an error if items wait and no host can ever run them.
func (r *runner) checkStalled(have int64) error {
	if !r.waits(have) || r.hosts.up == nil || r.hosts.measuring() {
		return nil
	}
	if len(r.hosts.excluded) > 0 && !slices.ContainsFunc(slices.Collect(maps.Keys(r.hosts.up)), func(name string) bool { return !r.hosts.excluded[name] }) {
		return errors.New("no host is left that can run the tasks: see the messages above, or the .log files in " + r.dir.Path)
	}
	if len(r.hosts.up) == 0 && !r.joined {
		if missing := r.hosts.missing(); len(missing) > 0 {
			return fmt.Errorf("the farm has no such host, or it is down: %s: see ahosts", shown(strings.Join(missing, ", ")))
		}
		return errors.New("the farm has no host that is up: see ahosts")
	}
	return nil
}

// save stores the core with rows that have changed. The core counts what tasks have added once they have
// ended: so rows that could not be stored, and whose ends the core has, are stored with it the next time.
func (r *runner) save(ctx context.Context, rows ...*row) error {
	rows = append(slices.Clip(r.unsaved), rows...)
	if err := r.store.Save(ctx, r.core, false, rows...); err != nil {
		r.unsaved = rows
		return err
	}
	r.unsaved = nil
	return nil
}

// wait waits for the next event and handles it.
func (r *runner) wait(ctx context.Context) error {
	var poll <-chan time.Time
	// Work waits for results, or for hosts: those that rest, and those that are measured.
	if have, _, _ := r.source.count(); !r.core.Idle() || r.waits(have) {
		timer := time.NewTimer(pollInterval)
		defer timer.Stop()
		poll = timer.C
	}
	at := r.slowAt
	var due <-chan time.Time
	var written <-chan struct{}
	if r.resident != nil { // it has no stragglers
		written, at = r.delivery.gather.news, r.resident.due
	}
	if !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-due:
	case <-written:
	case <-r.results:
	case <-r.inbox.news:
	case <-poll:
	case <-r.changed:
		r.queried = false
	case <-r.source.changed():
	case <-r.delivery.done:
	case a := <-r.hosts.answers:
		r.hosts.addMeasures(a)
	case p := <-r.snapshots:
		if p.err == nil {
			r.lostSince = time.Time{}
			r.hosts.update(ctx, p.farm)
			r.queried = r.queried && len(r.hosts.down) == 0
		}
		return r.ignoreUnreachable(p.err)
	}
	return nil
}

// maxUnreachable bounds the time in which a run tries to reach the queue.
const maxUnreachable = 10 * time.Minute

// ignoreUnreachable returns err, or nil if the queue can't be reached, until maxUnreachable is over.
func (r *runner) ignoreUnreachable(err error) error {
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, backends.ErrUnreachable):
		return err
	case r.lostSince.IsZero():
		r.lostSince = time.Now()
		r.log("the queue can't be reached; still trying: " + oneLine(err.Error()))
	case time.Since(r.lostSince) > maxUnreachable:
		return err
	}
	return nil
}

// finish waits until all results are written, reports, and removes the directory.
func (r *runner) finish() error {
	if err := r.delivery.finish(false); err != nil {
		return r.withResumeHint(err)
	}
	if err := r.writeReport(); err != nil {
		return r.withResumeHint(err)
	}
	if err := r.source.close(); err != nil {
		return r.withResumeHint(err)
	}
	if r.Keep {
		p := r.progressNow(r.delivery.items, true)
		r.writeStatus(&p, StateEnded)
	} else if err := errors.Join(r.store.Close(), r.dir.Remove()); err != nil {
		return err
	}
	if n := r.delivery.failed; n > 0 {
		return fmt.Errorf("%w: %d of %d", ErrItems, n, r.delivery.items)
	}
	return nil
}

func (r *runner) writeReport() error {
	if r.Report == nil {
		return nil
	}
	report, err := r.report()
	if err != nil {
		return err
	}
	return r.Report(report)
}

func (r *runner) notify(do func(Reporter)) {
	r.reportMu.Lock()
	defer r.reportMu.Unlock()
	do(r.Reporter)
}

func (r *runner) log(text string) {
	r.notify(func(to Reporter) {
		if text := r.said(text); text != "" {
			to.Log(text)
		}
	})
}
