package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	sys "golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// Checkpoints on demand (R33). A job is signalled, saves its work and ends. A job that has
// ended can be requeued as long as Slurm knows it (MinJobAge), but its AdminComment can't be
// written any more (22.05). So its record is written before the signal, as for a requeue.
// Reconcile requeues the job once its run has ended, or has taken too long.

// askToSave asks those jobs of a requeue that can save themselves to do so, and returns
// them. The others are to be requeued at once: their checkpoints count as failed.
func (c *Client) askToSave(ctx context.Context, p *snapshot, b batch, acts []backends.Act) (asked map[*item]bool) {
	asked = map[*item]bool{}
	// Without ranks squeue does not show that a job is to save itself: see savingChanges.
	b = b.Where(func(it *item) bool { return p.rankErr == nil && sys.SignalNum(acts[it.Index].Save.Signal) != 0 })
	b = c.withoutDependents(ctx, p, b)
	c.write(ctx, b, func(it *item) []string {
		it.Job.announce(&acts[it.Index])
		it.Job.record.save = roundUp(p.at.Add(acts[it.Index].Save.Wait + time.Second))
		return it.Job.savingChanges(p)
	})
	b = c.confirmSaving(ctx, b.Open())
	b.Each(func(it *item) error {
		asked[it] = true
		_, err := c.run(ctx, nil, "scancel", "--quiet", "--full", "--signal="+strconv.Itoa(int(sys.SignalNum(acts[it.Index].Save.Signal))), name(it.ID))
		return err
	})
	if len(b) > 0 { // slurmctld may have died between the record and the signal, which waits until it is back
		if p, err := c.readSnapshot(ctx, b.IDs()); err == nil {
			c.rewriteSaves(ctx, p)
		}
	}
	return asked
}

// dependents are the users and numbers, or names, of jobs whose end others of their users wait
// for. Slurm takes the end of a run with another status than 0 for the job's, whatever becomes
// of it: a job that waits for the end starts, one that waits for success never does (22.05).
type dependents map[[2]string]bool

func (d dependents) await(j *listedJob) bool {
	return d[[2]string{j.User, strconv.FormatInt(j.ID.Job, 10)}] || d[[2]string{j.User, "=" + j.Name}]
}

func (c *Client) readDependents(ctx context.Context) (dependents, error) {
	nonce := newNonce()
	out, err := c.run(ctx, nil, "squeue", "--noheader", "--all", "--states=PENDING", "-O", format([]string{"UserName", "Name", "Dependency"}, nonce))
	if err != nil {
		return nil, err
	}
	lines, err := rows(out, nonce, 3)
	if err != nil {
		return nil, fmt.Errorf("squeue: %w", err)
	}
	all := dependents{}
	for _, f := range lines {
		numbers, named := parseDependency(f[2])
		for _, n := range numbers {
			all[[2]string{f[0], n}] = true
		}
		if named {
			all[[2]string{f[0], "=" + f[1]}] = true
		}
	}
	return all, nil
}

// markAwaited sets Awaited of the jobs of a snapshot of all. Where Slurm itself requeues a job
// that exits with ExitSaved, none is.
func (c *Client) markAwaited(ctx context.Context, p *snapshot) error {
	waits := func(j *listedJob) bool { return j.Wait == backends.WaitDependency }
	if p.requeuesSaved || !slices.ContainsFunc(p.jobs, waits) || !slices.ContainsFunc(p.jobs, (*listedJob).canBeAsked) {
		return nil
	}
	d, err := c.readDependents(ctx)
	for _, j := range p.jobs {
		j.Awaited = j.canBeAsked() && d.await(j)
	}
	return err
}

// canBeAsked reports whether a job runs that its owner says can be asked to save itself.
func (j *listedJob) canBeAsked() bool { return j.State == backends.Running && j.offers }

// withoutDependents returns the jobs that are not awaited.
func (c *Client) withoutDependents(ctx context.Context, p *snapshot, b batch) batch {
	if len(b) == 0 || p.requeuesSaved {
		return b
	}
	d, err := c.readDependents(ctx)
	if err != nil {
		b.Fail(err)
		return nil
	}
	return b.Where(func(it *item) bool { return !d.await(it.Job) })
}

// parseDependency reads the numbers of the jobs whose ends a dependency waits for, as squeue
// shows it: "afterok:12(unfulfilled),afterany:13_4(failed)". named: it waits for all jobs of
// its job's name.
func parseDependency(s string) (numbers []string, named bool) {
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == '?' }) {
		kind, rest, _ := strings.Cut(part, ":")
		if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
			rest = rest[:end]
		}
		switch {
		case strings.HasPrefix(kind, "singleton"):
			named = true
		case kind != "after" && rest != "": // that waits for a start
			numbers = append(numbers, rest)
		}
	}
	return numbers, named
}

// parseRequeueExit reports whether Slurm itself requeues jobs that exit with a status, by its
// list such as "1,80-90".
func parseRequeueExit(list string, status int) bool {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if !isRange {
			to, err2 = from, nil
		}
		if err1 == nil && err2 == nil && from <= status && status <= to {
			return true
		}
	}
	return false
}

// announce makes the record what it is to be from the job's next requeue on.
func (j *listedJob) announce(act *backends.Act) {
	r := &j.record
	r.run, r.mark, r.until, r.started, r.delayed = j.Requeues+1, act.Mark, roundUp(act.Until), j.Started, true
	r.stop, r.resumed, r.ranked, r.rest = false, time.Time{}, false, time.Time{}
	r.save, r.failed, r.saved = time.Time{}, j.FailedSaves, 0
	if r.submitted.IsZero() {
		r.submitted = j.Submitted
	}
}

// savingChanges are the updates of a job that is to save itself. Its rank is that of a victim
// from now on: squeue shows that of a job that has ended, too (22.05), so that only such jobs'
// records need to be read. See touched.
func (j *listedJob) savingChanges(p *snapshot) []string {
	rank := backends.At(backends.LevelVictim, j.Priority.Value())
	return []string{"SiteFactor=" + strconv.FormatInt(p.scale.SiteFactor(rank), 10), j.recordChange()}
}

// confirmSaving reads the records back, and returns the jobs that show theirs. A job whose
// owner set its priority does not.
func (c *Client) confirmSaving(ctx context.Context, b batch) batch {
	if len(b) == 0 {
		return nil
	}
	p, err := c.readSnapshot(ctx, b.IDs())
	if err != nil {
		b.Fail(err)
		return nil
	}
	return b.Where(func(it *item) bool {
		j, err := reconcile.One(p.jobs, it.ID)
		switch {
		case err != nil:
			it.Err = err
		case j.State.Ended():
			it.Err = reconcile.WrongState(&j.Job)
		case j.saving() && j.Priority.Level() == backends.LevelVictim: // also squeue shows it
			c.mu.Lock()
			c.saves[run{it.ID, it.Job.start}] = it.Job.record
			c.mu.Unlock()
			return true
		}
		return false
	})
}

// saving reports whether the job was asked to save itself in the run that it is, or was, in.
func (j *listedJob) saving() bool { return !j.record.save.IsZero() && j.Requeues < j.record.run }

// late reports whether a job has not ended in the time that it had to save itself.
func (j *listedJob) late(at time.Time) bool {
	return j.saving() && j.State == backends.Running && j.state != completing && at.After(j.record.save)
}

// comesBack reports whether a job that was asked to save itself is to run again: not if it
// finished, was cancelled, or came to its own time limit.
func comesBack(state string) bool {
	switch state {
	case "F", "NF", "BF", "OOM", "LF":
		return true
	}
	return false
}

// failedSaves returns how many checkpoints failed in a row. Slurm shows how a run ended
// until the next one starts. A save whose outcome was not written down by then counts
// as failed.
func (j *listedJob) failedSaves() int {
	switch {
	case j.record.save.IsZero() || j.saving() && !j.returning:
		return j.record.failed
	case j.exited == backends.ExitSaved && j.State != backends.Running && j.State != backends.Suspended:
		return 0
	}
	return j.record.failed + 1
}

// settleSave writes into the record what became of a checkpoint, once the job is requeued.
func (j *listedJob) settleSave() {
	r := &j.record
	if r.save.IsZero() {
		return
	}
	if r.failed, r.saved = j.failedSaves(), 0; r.failed == 0 {
		r.saved = j.Requeues
	}
	r.save = time.Time{}
}

// showReturn shows a job that has ended and is to be requeued as a pending one: its slots
// are free.
func (j *listedJob) showReturn(at time.Time) {
	j.FailedSaves, j.Requeues = j.failedSaves(), j.record.run
	j.State, j.Wait, j.Reason = backends.Pending, backends.WaitTime, ""
	j.Started, j.Ended, j.ExitCode, j.RanFor, j.Hosts, j.nodes = time.Time{}, time.Time{}, 0, 0, nil, nil
	if j.record.until.After(at) {
		j.HeldUntil = j.record.until
	}
}

// asked reports whether this process asked the job to save itself in this run.
func (c *Client) asked(j *listedJob) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, asked := c.saves[run{j.ID, j.start}]
	return asked
}

// addDetail adds a job's details to it. A record that slurmctld lost is known to the process
// that wrote it: slurmctld saves its state every five seconds (22.05).
func (c *Client) addDetail(j *listedJob, d detail, at time.Time) {
	c.mu.Lock()
	r, asked := c.saves[run{j.ID, j.start}]
	refused := c.refused[run{j.ID, j.start}]
	c.mu.Unlock()
	if before, found, after := splitComment(d.comment); asked && found.save.IsZero() {
		d.comment, j.forgotten = r.comment(before, after), true
	}
	j.addDetail(d, at)
	switch {
	case j.returning && refused:
		j.Lost, j.returning = true, false
	case j.returning:
		j.showReturn(at)
	}
}

// rewriteSaves writes the records that slurmctld lost again.
func (c *Client) rewriteSaves(ctx context.Context, p *snapshot) {
	b := reconcile.Of(p.jobs).Where(func(it *item) bool { return it.Job.forgotten && it.Job.saving() && it.Job.State == backends.Running })
	c.write(ctx, b, func(it *item) []string { return it.Job.savingChanges(p) })
}

// requeueSaved requeues the jobs of a snapshot that have ended after they were asked to save
// themselves, and reports whether there were any.
func (c *Client) requeueSaved(ctx context.Context, p *snapshot) bool {
	b := reconcile.Of(p.jobs).Where(func(it *item) bool { return it.Job.returning })
	c.sendBatch(ctx, b, func(it *item) string { return "requeue " + name(it.ID) })
	c.write(ctx, b.Where(func(it *item) bool { return it.Job.forgotten }), func(it *item) []string { return it.Job.savingChanges(p) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, it := range b {
		if it.Err != nil && !errors.Is(it.Err, backends.ErrUnreachable) {
			c.refused[run{it.ID, it.Job.start}] = true // if it has not been requeued meanwhile
		}
	}
	return len(b) > 0
}

// finishSaves does what is due for jobs that were asked to save themselves, and reports
// whether that has changed any.
func (c *Client) finishSaves(ctx context.Context, p *snapshot) bool {
	c.rewriteSaves(ctx, p)
	changed := c.requeueSaved(ctx, p)
	late := reconcile.Of(p.jobs).Where(func(it *item) bool { return it.Job.late(p.at) })
	c.sendBatch(ctx, late, func(it *item) string { return "requeue Incomplete " + name(it.ID) }) // not one that has just finished
	return changed || len(late) > 0
}

// readToAct takes a snapshot of jobs that are to be changed. Those that have saved themselves
// are requeued first: Slurm changes no job that has ended.
func (c *Client) readToAct(ctx context.Context, ids []backends.ID) (*snapshot, error) {
	p, err := c.readSnapshot(ctx, ids)
	if err == nil && c.requeueSaved(ctx, p) {
		p, err = c.readSnapshot(ctx, ids)
	}
	return p, err
}
