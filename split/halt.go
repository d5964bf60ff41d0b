package split

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/split/task"
)

// haltTime bounds the time that a task of a split that halts now has to end its items and
// write their results; then its job is killed.
const haltTime = 15 * time.Second

// halt halts the split if enough items have failed. halting reports that it does; the error
// is ErrHalted once no task is open any more.
func (r *runner) halt(ctx context.Context) (halting bool, err error) {
	if r.haltedAt.IsZero() {
		if !r.def.Halt.Due(r.counts()) {
			return false, nil
		}
		r.haltedAt = time.Now()
		if err := writeHalt(r.dir.Path, r.def.Halt.When); err != nil {
			return true, err
		}
		r.log(fmt.Sprintf("items failed (--halt): no further item begins%s", map[task.Halt]string{task.HaltNow: ", and those that run are ended"}[r.def.Halt.When]))
	}
	if err := r.ignoreUnreachable(r.adoptUnsure(ctx)); err != nil {
		return true, err
	}
	var waiting []backends.ID
	late := r.def.Halt.When == task.HaltNow && time.Since(r.haltedAt) > haltTime && !r.haltKilled
	r.haltKilled = r.haltKilled || late
	for _, t := range r.core.Open() {
		w := r.tasks[t.N]
		switch {
		case w.Job == 0 && !r.lostSince.IsZero(): // it may have one
		case w.Job == 0:
			r.end(w, Withdrawn, 0)
			err = errors.Join(err, r.save(ctx, w))
		case w.Job != 0 && (late || !r.withdrawn[t.N]):
			// A job that waits in the queue ends, and one that runs ends by itself.
			r.withdrawn[t.N] = true
			if late || !r.running(ctx, w.Job) {
				waiting = append(waiting, backends.ID{Job: w.Job})
			}
		}
	}
	if len(waiting) > 0 {
		r.Queue.Kill(ctx, waiting)
		r.querySoon()
	}
	if err == nil && r.core.Idle() {
		err = ErrHalted
	}
	return true, err
}

// running reports whether a job runs, as far as the queue says.
func (r *runner) running(ctx context.Context, job int64) bool {
	jobs, err := r.Queue.Jobs(ctx, []backends.ID{{Job: job}})
	return err != nil || len(jobs) == 0 || jobs[0].State != backends.Pending
}

// counts returns how many items have ended and failed in this run.
func (r *runner) counts() (ended, failed int64) {
	ended, failed = r.runItems, r.runFailed
	if r.def.Halt.When == "" {
		return ended, failed
	}
	for _, t := range r.core.Apart() {
		c := task.ReadCount(r.dir.Path, t.N)
		ended, failed = ended+c.Ended, failed+c.Failed
	}
	return ended, failed
}

func writeHalt(dir string, when task.Halt) error {
	d := disk.OS()
	path := filepath.Join(dir, task.FileHalt)
	f, err := d.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = f.Write([]byte(when))
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = d.Rename(path+".part", path)
	}
	if err != nil {
		return fmt.Errorf("halt the tasks: %w", err)
	}
	return nil
}

// finishHalted writes the results that there are, also where items before them are missing,
// and returns what halted the split. The directory stays.
func (r *runner) finishHalted(halted error) error {
	r.delivery.add(r.sequencer.flush())
	if err := r.delivery.finish(false); err != nil {
		return r.withResumeHint(err)
	}
	if err := r.writeReport(); err != nil {
		return r.withResumeHint(err)
	}
	return fmt.Errorf("%w: %d of %d items failed; %s runs the items that are left", halted, r.delivery.failed, r.delivery.items, r.resumeLine())
}
