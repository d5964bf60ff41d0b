package split

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/split/task"
)

// resultTime bounds the delay of the result of a job that ended with status 0: over NFS
// it may show up later.
const resultTime = time.Minute

// collect ends the open tasks that have a result, or whose jobs ended without one.
func (r *runner) collect(ctx context.Context) (err error) {
	open := r.core.Open()
	if len(open) == 0 {
		return nil
	}
	var ended []*row
	for _, t := range open {
		if t.State != Open { // a copy's result was read before
			continue
		}
		var result bool
		if result, err = r.result(t); err != nil {
			break
		}
		if result {
			ended = append(ended, r.tasks[t.N])
		}
	}
	due := !r.queryAt.IsZero() && time.Now().After(r.queryAt)
	if err == nil && (!r.queried || due) && len(ended) < len(open) {
		var more []*row
		more, err = r.queryJobs(ctx)
		ended = append(ended, more...)
	}
	if len(ended) > 0 {
		err = errors.Join(err, r.save(ctx, ended...))
	}
	return err
}

// result ends a task if its result is there, and reports whether it is.
func (r *runner) result(t *Task) (bool, error) {
	result, err := task.OpenResult(task.File(r.dir.Path, t.N, task.KindResult), r.def.Input.Number(t.First), t.Count)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var executions []execution
	if r.core.Trial != nil {
		if executions, err = t.executions(result); err != nil {
			return false, errors.Join(fmt.Errorf("settings of task %d: %w", t.N, err), result.Close())
		}
	}
	r.core.Shorten(t.N, result.Count)
	w := r.tasks[t.N]
	w.Began, w.Ended = result.Began, result.Ended
	if err := r.joblog.add(t, result, r.source); err != nil {
		return false, errors.Join(err, result.Close())
	}
	if r.growing != nil {
		if err := r.growing.add(r.core, result); err != nil {
			return false, errors.Join(fmt.Errorf("items of task %d: %w", t.N, err), result.Close())
		}
	}
	for _, e := range executions {
		r.core.Trial.Record(e.cell, e.record.Took, e.failed)
	}
	r.runFailed += result.Failed
	r.end(w, Whole, result.Took())
	os.Remove(task.File(r.dir.Path, t.N, task.KindOrder))
	if w.Worker == 0 { // a job that stays says there why it ends
		os.Remove(task.File(r.dir.Path, t.N, task.KindLog))
	}
	return true, result.Close()
}

// end ends a task in the core and queues the results that are next.
func (r *runner) end(w *row, how Outcome, took time.Duration) {
	ended, lost, excluded := r.core.End(w.N, how, took)
	w.Task, w.Seen = *ended, time.Now()
	r.lose(lost)
	r.forget(w)
	r.lastSeen = w.Seen
	if excluded {
		r.hosts.excluded[w.Host] = true
		r.log(fmt.Sprintf("%s is left out: %d tasks in a row failed there", shown(w.Host), maxStrikes))
	}
	if ended.State == Killer {
		r.runFailed++
		r.joblogErr = errors.Join(r.joblogErr, r.joblog.addKiller(ended, r.source))
	}
	if ended.State == Done || ended.State == Killer {
		r.runItems += ended.Count
		r.delivery.add(r.sequencer.add(ended))
	}
	if how != Whole {
		signal(r.nudge)
	}
}

// forget forgets what is only remembered of a task while it is open.
func (r *runner) forget(w *row) {
	r.crew.freed(w)
	delete(r.fresh, w.N)
	delete(r.withdrawn, w.N)
	delete(r.late, w.N)
}

// queryJobs queries the jobs of open tasks, and ends tasks whose jobs have ended
// without a result.
func (r *runner) queryJobs(ctx context.Context) (ended []*row, err error) {
	var ids []backends.ID
	for _, t := range r.core.Open() {
		if job := r.tasks[t.N].Job; job != 0 {
			ids = append(ids, backends.ID{Job: job})
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	jobs, err := r.Queue.Jobs(ctx, ids)
	if err != nil {
		return nil, err
	}
	r.queried, r.lostSince, r.queryAt = true, time.Time{}, time.Time{}
	known := map[int64]*backends.Job{}
	for i := range jobs {
		known[jobs[i].ID.Job] = &jobs[i]
	}
	var waiting []*row
	var first *backends.Job // of those
	for _, t := range r.core.Open() {
		w := r.tasks[t.N]
		job := known[w.Job]
		switch {
		case w.Job == 0 || t.State != Open:
		case job != nil && !job.State.Ended():
			r.jobRuns(w, job)
			w.waits = job.State != backends.Running
			if !w.waits && w.ran.IsZero() {
				w.ran = time.Now()
			}
			if w.waits {
				if waiting = append(waiting, w); first == nil {
					first = job
				}
			}
		default:
			r.jobEnded(w)
			over, err := r.endWithoutResult(t, job)
			if err != nil {
				return ended, err
			}
			if over || w.Job == 0 {
				ended = append(ended, w)
			}
		}
	}
	r.reportWaiting(waiting, first)
	r.withdraw(ctx, waiting)
	return ended, nil
}

// waitingEvery is the interval at least between two messages that jobs wait.
const waitingEvery = 30 * time.Second

// reportWaiting logs which job waits, and why, if all open jobs have done so for a while;
// again when the reason is another one. first is the job of the first of them.
func (r *runner) reportWaiting(waiting []*row, first *backends.Job) {
	now := time.Now()
	switch {
	case len(waiting) == 0 || len(waiting) < len(r.core.Open()):
		r.waitingSince = time.Time{}
		return
	case r.waitingSince.IsZero():
		r.waitingSince = now
	}
	if now.Sub(r.waitingSince) < r.pace.waiting {
		r.querySoon()
		return
	}
	text := waitingText(waiting, first)
	if text == r.waitingTold || now.Before(r.waitingNext) {
		return
	}
	r.waitingTold, r.waitingNext = text, now.Add(waitingEvery)
	r.log(text)
}

// waitingText says that the split's jobs wait in the queue, with the reason of the first.
func waitingText(waiting []*row, first *backends.Job) string {
	reason := oneLine(first.Reason)
	if reason == "" {
		reason = "the queue gives no reason: see ajobs -l"
	}
	more := ""
	if n := len(waiting) - 1; n > 0 {
		more = fmt.Sprintf(" (%d more wait)", n)
	}
	return fmt.Sprintf("job %v waits for %s on %s: %s%s", first.ID, slotsText(max(waiting[0].Slots, 1)), shown(waiting[0].Host), reason, more)
}

func slotsText(n int) string {
	if n == 1 {
		return "a slot"
	}
	return fmt.Sprintf("%d slots", n)
}

// endWithoutResult ends a task that seems to have no result though its job has ended. job is nil
// if the queue no longer knows it. over reports whether the task has ended.
func (r *runner) endWithoutResult(t *Task, job *backends.Job) (over bool, err error) {
	if late, err := r.result(t); late || err != nil { // the result came meanwhile
		return late, err
	}
	w := r.tasks[t.N]
	switch unbegun := r.notBegun(w); {
	case unbegun && r.withdrawn[t.N]:
		r.end(w, Withdrawn, 0)
		return true, nil
	case unbegun || job != nil && job.State == backends.Done && r.leftUndone(w): // the next submission submits it
		r.takeAway(w)
		return false, nil
	}
	if job != nil && job.State == backends.Done {
		if r.late[t.N].IsZero() {
			r.late[t.N] = time.Now()
		}
		if time.Since(r.late[t.N]) < resultTime {
			r.querySoon()
			return false, nil
		}
		r.log(fmt.Sprintf("task %d ended on %s and left no result: is %s on a file system that all hosts share?", t.N, shown(t.Host), shown(r.dir.Path)))
		r.end(w, Failed, 0)
		return true, nil
	}
	if r.withdrawn[t.N] {
		r.end(w, Withdrawn, 0)
		return true, nil
	}
	how, what := Failed, "failed"
	if _, err := os.Lstat(task.File(r.dir.Path, t.N, task.KindNew)); err == nil {
		how, what = Died, "was killed"
	}
	r.log(fmt.Sprintf("task %d (%s) %s on %s%s%s", t.N, r.itemsText(t), what, shown(t.Host), status(job), r.logTail(w.log())))
	r.end(w, how, 0)
	return true, nil
}

// log returns the number of the task whose log is that of this one's job.
func (w *row) log() int64 {
	if w.Worker != 0 {
		return w.Worker
	}
	return w.N
}

func status(job *backends.Job) string {
	if job == nil {
		return ": the queue no longer knows its job"
	}
	return fmt.Sprintf(": job %v, exit status %d", job.ID, job.ExitCode)
}

// logTail returns the end of a task's log as one line, after a colon; "" if it is empty.
func (r *runner) logTail(n int64) string {
	const most = 500
	f, err := os.OpenFile(task.File(r.dir.Path, n, task.KindLog), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return ""
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(info.Size()-most, 0), most))
	if err != nil {
		return ""
	}
	return ": " + oneLine(string(text))
}

// querySoon has the jobs queried again within a second, though the queue may not change.
func (r *runner) querySoon() { r.queryAt = time.Now().Add(min(time.Second, r.pace.start)) }

// withdraw kills jobs whose items should go to another host: those that have not begun when
// the rest of their round has ended, and those on hosts that are down.
func (r *runner) withdraw(ctx context.Context, waiting []*row) {
	var targets []*row
	if len(waiting) > 0 && len(waiting) == len(r.core.Open()) && len(waiting) < len(r.tasks) {
		if r.stuck.IsZero() {
			r.stuck = time.Now()
		}
		if time.Since(r.stuck) >= r.pace.start {
			targets = waiting
		}
		r.querySoon()
	} else {
		r.stuck = time.Time{}
	}
	for _, t := range r.core.Open() {
		if w := r.tasks[t.N]; w.Job != 0 && r.hosts.down[t.Host] && !slices.Contains(targets, w) {
			targets = append(targets, w)
		}
	}
	var ids []backends.ID
	for _, w := range targets {
		ids = append(ids, backends.ID{Job: w.Job})
		if !r.withdrawn[w.N] {
			r.log(fmt.Sprintf("task %d waits for %s, which is down or has no free slots: its job is killed, and its items go to other hosts", w.N, shown(w.Host)))
			r.hosts.rest(w.Host, time.Now())
		}
		r.withdrawn[w.N] = true
	}
	if len(ids) > 0 {
		r.Queue.Kill(ctx, ids) // what fails is tried again
		r.querySoon()
	}
}

// submit submits jobs for the open tasks that have none, and whose items are known.
func (r *runner) submit(ctx context.Context, have int64, ended bool) error {
	if err := r.restoreWorkers(ctx); err != nil {
		return err
	}
	var need, unsure []*row
	for _, t := range r.core.Open() {
		if w := r.tasks[t.N]; w.Job == 0 && t.First+t.Count <= have {
			need = append(need, w)
			if !r.fresh[t.N] {
				unsure = append(unsure, w)
			}
		}
	}
	if len(need) == 0 {
		return nil
	}
	if err := r.adopt(ctx, unsure); err != nil {
		return err
	}
	more := !ended || r.core.Waiting(have) > 0
	if more {
		r.openWorkers(ctx)
	}
	var specs []backends.Spec
	var rows, given []*row
	for _, w := range need {
		if w.Job != 0 { // adopt found it
			continue
		}
		if r.place(w, more) {
			given = append(given, w)
		}
		if err := r.writeOrder(w); err != nil {
			return err
		}
		if w.Job != 0 {
			continue
		}
		specs, rows = append(specs, r.spec(w)), append(rows, w)
	}
	if len(specs)+len(given) == 0 {
		return nil
	}
	if err := disk.OS().SyncDir(r.dir.Path); err != nil {
		return fmt.Errorf("write the tasks: %w", err)
	}
	if err := r.giveAll(ctx, given); err != nil || len(specs) == 0 {
		return err
	}
	for _, w := range rows {
		delete(r.fresh, w.N)
	}
	at := time.Now()
	return r.recordSubmitted(ctx, rows, at, r.Queue.Submit(ctx, specs))
}

// recordSubmitted records the results of a submission.
func (r *runner) recordSubmitted(ctx context.Context, rows []*row, at time.Time, results []backends.Submitted) (err error) {
	accepted := false
	for i, w := range rows {
		switch result := results[i]; {
		case result.Err == nil:
			w.Job, w.Submitted, accepted = result.ID.Job, at, true
			if w.Worker == w.N {
				r.crew.add(w, w.Host, r.Spec.RunLimit)
			}
		case errors.Is(result.Err, backends.ErrUnreachable) || ctx.Err() != nil:
			err = result.Err // the job may exist: adopt looks for it
		case errors.Is(result.Err, backends.ErrHostAway):
			r.log(fmt.Sprintf("task %d has no job: %s; its items go elsewhere, or there later", w.N, oneLine(result.Err.Error())))
			r.hosts.rest(w.Host, at)
			r.end(w, Withdrawn, 0)
		default:
			r.refused = fmt.Errorf("the queue accepts no job of the split: %w", result.Err)
			r.log(fmt.Sprintf("the queue rejected a task for %s: %s", shown(w.Host), oneLine(result.Err.Error())))
			r.end(w, Failed, 0)
		}
	}
	if accepted {
		r.refused, r.lostSince, r.queried = nil, time.Time{}, false
	}
	return errors.Join(err, r.save(ctx, rows...))
}

// adoptUnsure finds the jobs of open tasks that may have one.
func (r *runner) adoptUnsure(ctx context.Context) error {
	var unsure []*row
	for _, t := range r.core.Open() {
		if w := r.tasks[t.N]; w.Job == 0 && !r.fresh[t.N] {
			unsure = append(unsure, w)
		}
	}
	return r.adopt(ctx, unsure)
}

// adopt finds the jobs of tasks that may have been submitted already, by their names.
func (r *runner) adopt(ctx context.Context, unsure []*row) error {
	if len(unsure) == 0 {
		return nil
	}
	farm, err := queryFarm(ctx, r.Queue, r.def.jobPrefix(), r.def.Began.Add(-time.Hour)) // the queue's clock may be behind
	if err != nil {
		return err
	}
	for _, w := range unsure {
		if job, ok := farm.own[r.def.JobName(w.N)]; ok {
			w.Job, w.Submitted = job.ID.Job, job.Submitted
			if w.Worker == w.N {
				r.crew.add(w, w.Host, r.Spec.RunLimit)
			}
		}
	}
	r.lostSince, r.queried = time.Time{}, false
	return r.save(ctx, unsure...)
}

// spec returns the job of a task.
func (r *runner) spec(w *row) backends.Spec {
	s := r.Spec
	s.Name, s.Hosts = r.def.JobName(w.N), []string{w.Host}
	s.Slots, s.OneHost, s.PerHost = r.slots(w), true, 0
	program := r.Program
	if w.Worker == w.N {
		program = r.Standing.Program
	}
	s.Command = append(append([]string(nil), program...), r.dir.Path, strconv.FormatInt(w.N, 10))
	s.Dir = r.Work
	s.Stdin, s.Stdout = "", task.File(r.dir.Path, w.N, task.KindLog)
	s.Stderr = s.Stdout
	return s
}

// slots returns the number of slots of a task's job. A task that was stored before it had
// a number has that of its host.
func (r *runner) slots(w *row) int {
	if w.Slots > 0 {
		return w.Slots
	}
	return r.hosts.slotsOf(w.Host)
}

// writeOrder writes a task's order, unless it is there: its job may be running already.
func (r *runner) writeOrder(w *row) (err error) {
	path := task.File(r.dir.Path, w.N, task.KindOrder)
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write task %d: %w", w.N, err)
		}
	}()
	o := task.Order{
		Argv: r.def.Argv, Mode: r.def.Mode, First: r.def.Input.Number(w.First), Count: w.Count, Null: r.def.Input.Null,
		Numbers: r.def.Input.Kind == Range && r.def.Mode != task.Feed && r.growing == nil, Adds: r.def.Adds, Slots: r.slots(w),
		Number: r.def.Input.position(r.def.Input.Number(w.First)), Retries: r.def.Retries, Timeout: r.def.Timeout,
		Halt: r.def.Halt.When, Fails: r.def.Halt.Fails,
	}
	if r.def.States {
		o.States = r.def.Name
	}
	if r.core.Trial != nil {
		r.trySettings(w, &o)
	}
	if r.resident != nil {
		o.Period = r.core.Blocks.Period
		for i := range w.Count {
			block, err := r.resident.source.block(w.First + i)
			if err != nil {
				return err
			}
			o.Each = append(o.Each, block-r.def.Input.From+1)
		}
	}
	if r.def.Input.Kind == Again {
		for i := range w.Count {
			o.Each = append(o.Each, r.def.Input.position(r.def.Input.Number(w.First+i)))
		}
	}
	head, err := o.Encode()
	if err != nil {
		return err
	}
	d := disk.OS()
	f, err := d.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	to := bufio.NewWriterSize(f, 64<<10)
	_, err = to.Write(head)
	if err == nil && !o.Numbers && o.Mode != task.Whole {
		err = r.source.copy(to, w.First, w.Count)
	}
	if err == nil {
		err = to.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return d.Rename(f.Name(), path)
}

func shown(text string) string { return printable.Text(text) }
