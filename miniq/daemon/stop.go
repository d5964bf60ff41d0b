package daemon

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// stopping is a stop that was asked for.
type stopping struct {
	asked *connection   // answered when all resources have been released
	left  chan struct{} // closed then
	kill  bool
	over  bool
}

// ready reports whether the daemon may end now.
func (s *stopping) ready(d *daemon) bool {
	s.over = !s.kill || len(d.m.Runs()) == 0 && len(d.soon) == 0 && len(d.unsaved) == 0 || d.lost() != nil
	return s.over
}

// stop ends the daemon. Jobs that run go on, unless they are to be killed; then
// the nodes take no new ones first.
func (d *daemon) stop(c *connection, req *miniq.Request) error {
	if !c.by.Admin {
		return c.answer(miniq.Response{Error: miniq.ToError(fmt.Errorf("%w: only an administrator can stop miniqd", backends.ErrDenied))})
	}
	if err := disk.Replace(d.Disk, filepath.Join(d.state, miniq.StoppedName), 0o600, miniq.StoppedText(c.by.User, time.Now())); err != nil {
		d.log.Warn("the next asub may start miniqd again: that it is stopped can't be written down", "error", err)
	}
	s := &stopping{asked: c, left: make(chan struct{}), kill: req.KillJobs}
	first := false
	ok := d.inLoop(func() {
		if d.stopping != nil {
			return
		}
		d.stopping, first = s, true
		d.log.Info("asked to stop", "kill_jobs", s.kill)
		if s.kill {
			d.killAll()
		}
	})
	if !ok || !first {
		return c.answerStopping()
	}
	<-s.left
	return errors.Join(c.answer(miniq.Response{}), net.ErrClosed) // nothing follows
}

func (d *daemon) killAll() {
	if d.lost() != nil { // nothing can be written down, nor awaited
		for _, r := range d.m.Runs() {
			d.sendWant(r.ID, r.Run, keeper.Want{Verb: keeper.Kill})
		}
		return
	}
	for _, h := range d.hosts {
		d.enqueue(input{event: h.up(true)})
	}
	var ids []backends.ID
	for _, r := range d.m.Runs() {
		ids = append(ids, r.ID)
	}
	if len(ids) > 0 {
		d.enqueue(input{event: manager.Kill{By: manager.By{User: d.user, Admin: true}, IDs: ids}})
	}
}

// scheduleForget has ended jobs forgotten in time; nothing is searched while
// there are none.
func (d *daemon) scheduleForget() {
	if d.forget != nil {
		return
	}
	pause := min(time.Duration(d.Config.KeepFinished), forgetPause)
	d.forget = time.AfterFunc(max(pause, time.Minute), func() {
		d.post(input{do: func() {
			d.forget = nil
			d.forgetEnded()
		}})
	})
}

func (d *daemon) forgetEnded() {
	before := forgetCutoff(time.Now(), time.Duration(d.Config.KeepFinished), d.m.Ahead())
	if d.m.EndedBefore(before) > 0 {
		d.enqueue(input{event: manager.Forget{EndedBefore: before}})
	}
	if d.m.Ended() > 0 {
		d.scheduleForget()
	}
	if d.collecting {
		return
	}
	d.collecting = true
	d.conns.tasks.Go(func() {
		c, err := d.collect(before, d.notPastInLoop)
		if err != nil && !errors.Is(err, errStopping) {
			d.log.Warn("state objects of jobs that ended long ago can't be removed", "error", err)
		}
		d.post(input{do: func() {
			d.collecting = false
			if c.left > 0 || err != nil {
				d.scheduleForget()
			}
		}})
	})
}
