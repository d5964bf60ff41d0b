package node

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/internal/proc"
	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// adopt compares one run that the daemon believes alive with its record, and reports
// what is true.
func (n *node) adopt(e Expected) error {
	r, err := n.openRun(e.Run)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (e.Confirmed || e.Doubtful):
		return n.report(Report{Kind: Lost, Run: e.Run, Text: "the restarted node found no record of it"})
	case errors.Is(err, fs.ErrNotExist):
		return n.report(Report{Kind: Absent, Run: e.Run})
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return err // another node, which has room for it, will adopt the run
	case err != nil:
		return n.report(Report{Kind: Lost, Run: e.Run, Text: "read its record: " + err.Error()})
	}
	r.earlierBoot = e.Doubtful
	n.runs[e.Run] = r
	free, err := r.lock()
	switch {
	case err != nil:
		return err
	case free && !r.begun() && e.Doubtful:
		return n.report(Report{Kind: Lost, Run: e.Run, Text: "the machine went down when it was about to begin"})
	case free && !r.begun(): // claimed, but no keeper ever came to be: start will take the record
		delete(n.runs, e.Run)
		return errors.Join(n.report(Report{Kind: Absent, Run: e.Run}), r.record.Close())
	case free:
		return n.finish(r)
	}
	if err := n.watch(r); err != nil {
		return err
	}
	if !r.begun() { // its keeper is gone, which is reported next
		return nil
	}
	switch {
	case e.Stopped:
		n.wish(r, keeper.Want{Verb: keeper.Stop})
	case r.job.Stopped(): // it was resumed, but no node passed that on
		n.wish(r, keeper.Want{Verb: keeper.Continue})
	}
	if e.Confirmed {
		return nil
	}
	return n.report(Report{Kind: Started, Run: e.Run})
}

func (n *node) openRun(id RunID) (*run, error) {
	f, err := keeper.OpenFile(n.path(id, recordSuffix), os.O_RDWR|os.O_APPEND)
	if err != nil {
		return nil, err
	}
	r := &run{id: id, record: f, pidfd: -1, filed: true}
	return r, r.reread()
}

func (r *run) reread() error {
	if err := r.log.Read(r.record); err != nil {
		return err
	}
	if r.job = r.log.Record; r.job.Run != "" && r.job.Run != r.id.String() {
		r.job = keeper.Record{} // the machine went down when the file had got its name, and not yet lost its lines
	}
	return nil
}

// lock reports whether the record could be locked, so that no keeper is alive nor ever
// will be; then it is read anew.
func (r *run) lock() (bool, error) {
	free, err := r.flock()
	if free {
		err = r.reread()
	}
	return free, err
}

func (r *run) flock() (bool, error) {
	err := flock.Try(r.record)
	if errors.Is(err, flock.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// watch reports to the loop, by over, when the keeper of an adopted run is gone.
func (n *node) watch(r *run) error {
	for began := time.Now(); r.job.Keeper.PID == 0; { // its keeper is about to write its first line, or to die
		if time.Since(began) > firstLine {
			n.Log.Error("a record is damaged: its run goes on, but it can't be stopped, signalled or killed", "run", r.id, "file", r.record.Name())
			go n.awaitLock(r)
			return nil
		}
		time.Sleep(time.Millisecond)
		if free, err := r.lock(); err != nil || free {
			go n.keeperGone(r)
			return err
		}
		if err := r.reread(); err != nil {
			return err
		}
	}
	r.keeper = r.job.Keeper.PID
	fd, err := unix.PidfdOpen(r.keeper, unix.PIDFD_NONBLOCK)
	if err == nil && proc.StartTime(r.keeper) != r.job.Keeper.Start {
		err = errors.Join(unix.ESRCH, unix.Close(fd))
	}
	if errors.Is(err, unix.ESRCH) { // gone meanwhile
		go n.keeperGone(r)
		return nil
	}
	if err != nil {
		return err
	}
	r.pidfd = fd
	go n.awaitKeeper(r, fd)
	return nil
}

// firstLine is how long a keeper that lives may take to write its first line.
const firstLine = time.Second

// awaitLock waits for the end of a keeper of which nothing but its lock is known.
func (n *node) awaitLock(r *run) {
	if f, err := os.OpenFile(r.record.Name(), os.O_RDWR, 0); err == nil {
		_ = flock.Wait(f)
		_ = f.Close()
	}
	n.keeperGone(r)
}

// awaitKeeper waits on a descriptor of its own: the loop may close the run's.
func (n *node) awaitKeeper(r *run, fd int) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		f := os.NewFile(uintptr(own), "keeper")
		waitReadable(f)
		_ = f.Close()
	}
	n.keeperGone(r)
}

// waitReadable parks the goroutine until a process behind a pidfd is gone.
func waitReadable(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}

func (n *node) keeperGone(r *run) {
	select {
	case n.done <- r:
	case <-n.quit:
	}
}

// finish reports the end of a run whose keeper is gone. The record stays until
// the daemon has recorded the end.
func (n *node) finish(r *run) error {
	if r.over {
		return nil
	}
	r.over = true
	if r.pidfd >= 0 {
		_ = unix.Close(r.pidfd)
		r.pidfd = -1
	}
	if err := r.reread(); err != nil {
		return err
	}
	switch {
	case r.job.End != nil:
		return n.report(Report{Kind: Ended, Run: r.id, End: r.job.End})
	case r.job.Keeper.PID == 0:
		// It was killed, or had no room to write its first line: no fault of the job's.
		return n.report(Report{Kind: Failed, Run: r.id, Text: "its keeper ended before the job began", Again: true})
	}
	go n.killLeftovers(r)
	return nil
}

// killLeftovers kills what a killed keeper left; then the loop reports the run as lost. Its
// slots are not given out while processes live that are known to be of it.
func (n *node) killLeftovers(r *run) {
	job := r.job.Job
	if r.earlierBoot { // that number is another process's by now
		job = proc.Process{}
	}
	keeper.KillLeftovers(job, r.job.User, mark(n.path(r.id, recordSuffix)))
	if !r.earlierBoot {
		keeper.ClearGroup(r.job.Keeper.PID)
	}
	if n.alone {
		n.killOrphans()
	}
	select {
	case n.cleared <- r:
	case <-n.quit:
	}
}

// killUnknown kills a run that the daemon does not know, or no longer. Its end is reported like
// any other; the daemon answers with Forget.
func (n *node) killUnknown(id RunID, earlierBoot bool) error {
	r, err := n.openRun(id)
	if err != nil {
		n.Log.Warn("a record that can't be read", "run", id, "error", err)
		return nil
	}
	r.earlierBoot = earlierBoot
	n.runs[id] = r
	free, err := r.lock()
	switch {
	case err != nil:
		return err
	case free:
		return n.finish(r)
	}
	n.Log.Warn("killing a run that the queue does not know", "run", id)
	if err := n.watch(r); err != nil {
		return err
	}
	n.wish(r, keeper.Want{Verb: keeper.Kill})
	return nil
}
