package node

import (
	"io"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// wishes are those of one run that were not passed to its keeper yet, and when they may
// be. To pass some writes lines into the record, and costs the keeper a search of the
// machine's processes: so they are gathered for a moment, which is the longer the longer
// the record has become. A kill waits for nothing.
type wishes struct {
	keeper.Wishes
	next   time.Time // when others than kills may be passed
	killBy time.Time // when the grace of the soonest kill that was passed ends; zero: none was
	full   bool      // the record is too long for signals, which was logged
}

const (
	wishPause = 100 * time.Millisecond // between two writes, of a short record
	longWish  = 1 << 20                // bytes of a record that add another such pause
	againWish = time.Second            // after the record could not be written
)

// want adds a command's wish to those of its run.
func (n *node) want(w *Want) error {
	r := n.runs[w.Run]
	if r == nil || r.over {
		return nil // its end is on the way to the daemon
	}
	n.wish(r, keeper.Want{Verb: w.Verb, Grace: w.Grace, Text: backends.Unescape(w.Text), Signal: w.Signal, Requeue: w.Requeue})
	return nil
}

func (n *node) wish(r *run, w keeper.Want) {
	r.wishes.Add(w)
	n.sendWishes(r)
}

// sendAllWishes passes the wishes of every run that may be passed now.
func (n *node) sendAllWishes() {
	for _, r := range n.runs {
		if !r.over && !r.wishes.Empty() {
			n.sendWishes(r)
		}
	}
}

// sendWishes writes the wishes that may be passed now into the record, and wakes the keeper.
// One that has not written its first line reads the record when it has.
func (n *node) sendWishes(r *run) {
	now := time.Now()
	size, err := r.record.Seek(0, io.SeekEnd)
	wants, dropped := r.wishes.pop(now, size)
	if !r.wishes.Empty() {
		n.sendWishesAt(r.wishes.next)
	}
	if dropped && !r.wishes.full {
		r.wishes.full = true
		n.Log.Warn("a run was sent so many signals that it gets no more; it can be killed, stopped and continued", "run", r.id, "record_bytes", size)
	}
	if len(wants) == 0 {
		return
	}
	var lines strings.Builder
	lines.WriteByte('\n')
	for _, w := range wants {
		lines.WriteString(w.Line())
	}
	if err == nil {
		_, err = r.record.WriteString(lines.String())
	}
	if err != nil { // no space, perhaps: it is tried again later
		n.Log.Error("write what is wanted into a keeper's record", "run", r.id, "verb", wants[0].Verb, "error", err)
		r.wishes.putBack(wants, now)
		n.sendWishesAt(r.wishes.next)
		return
	}
	n.wake(r)
	for _, w := range wants {
		n.awaitStop(r, w.Verb)
	}
}

func (n *node) sendWishesAt(at time.Time) {
	if n.wishTime.IsZero() || at.Before(n.wishTime) {
		n.wishTime = at
		n.wishTimer.Reset(time.Until(at))
	}
}

// stopAsked is a stop that was passed to a keeper, which writes into the record when it has
// stopped the job. The node looks there after a pause, which doubles up to longestLook.
type stopAsked struct {
	pause time.Duration // 0: none was passed
	look  time.Time
}

const (
	firstLook   = time.Millisecond
	longestLook = 250 * time.Millisecond
)

// awaitStop notes what was passed to a run's keeper.
func (n *node) awaitStop(r *run, verb keeper.Verb) {
	switch verb {
	case keeper.Stop:
		r.asked = stopAsked{pause: firstLook, look: time.Now().Add(firstLook)}
		n.sendWishesAt(r.asked.look)
	case keeper.Continue:
		r.asked = stopAsked{}
	case keeper.Kill, keeper.Note, keeper.Signal:
	}
}

// reportStopped reports the runs that have stopped.
func (n *node) reportStopped() error {
	now := time.Now()
	for _, r := range n.runs {
		switch {
		case r.asked.pause == 0 || r.over:
			continue
		case r.asked.look.After(now):
		case r.reread() == nil && r.job.Halted:
			r.asked = stopAsked{}
			if err := n.report(Report{Kind: Stopped, Run: r.id}); err != nil {
				return err
			}
			continue
		default:
			r.asked.pause = min(2*r.asked.pause, longestLook)
			r.asked.look = now.Add(r.asked.pause)
		}
		n.sendWishesAt(r.asked.look)
	}
	return nil
}

// pop removes and returns the wishes that may be passed now, for a record of size bytes. Past
// MaxRecord it drops those that could make the record longer for ever.
func (w *wishes) pop(now time.Time, size int64) (wants []keeper.Want, dropped bool) {
	if first := w.PopKill(); first != nil {
		notes, kill := first[:len(first)-1], first[len(first)-1]
		if size >= keeper.MaxRecord {
			dropped, notes = len(notes) > 0, nil
		}
		if by := now.Add(kill.Grace); w.killBy.IsZero() || by.Before(w.killBy) {
			wants = append(notes, kill)
			w.killBy = by
			w.next = now // what came with it is passed at once
		} else {
			for _, note := range notes {
				w.Add(note)
			}
		}
	}
	if w.Empty() || now.Before(w.next) {
		return wants, dropped
	}
	for _, want := range w.PopAll() {
		if size >= keeper.MaxRecord && want.Verb != keeper.Stop && want.Verb != keeper.Continue {
			dropped = true
			continue
		}
		wants = append(wants, want)
	}
	w.next = now.Add(wishPause + time.Duration(min(size, keeper.MaxRecord))*wishPause/longWish)
	return wants, dropped
}

// putBack puts back wishes that could not be written into the record.
func (w *wishes) putBack(wants []keeper.Want, now time.Time) {
	later := w.PopAll()
	for _, want := range append(wants, later...) {
		w.Add(want)
	}
	w.next, w.killBy = now.Add(againWish), time.Time{}
}

// wake makes a keeper read its record, by SIGUSR1.
func (n *node) wake(r *run) {
	if r.job.Keeper.PID == 0 && (r.reread() != nil || r.job.Keeper.PID == 0) {
		return
	}
	if h := n.children[r.keeper]; h != nil && h.run == r { // not reaped yet, so its ID is its own
		_ = syscall.Kill(r.keeper, syscall.SIGUSR1)
		return
	}
	if r.pidfd >= 0 {
		_ = unix.PidfdSendSignal(r.pidfd, unix.SIGUSR1, nil, 0)
	}
}
