package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// input is one thing for the loop: an event, or something to do between events.
type input struct {
	event   manager.Event
	bodies  []body // of a Submit
	end     *keeper.End
	content []byte // of the entry; nil: the loop makes it
	// reply is called in the loop when the event is on disk and stepped, or when
	// it could not be written. Without one the event can't be refused: it is
	// written when that is possible again.
	reply func(manager.Result, error)
	after func() // called in the loop after an event that can't be refused
	do    func() // instead of an event
}

const (
	maxBatch    = 1024          // inputs that share one sync
	keptLines   = 1 << 20       // bytes of a batch whose memory the next one uses
	retryPause  = time.Second   // after a failed write, while something must be written
	compactSize = 32 << 20      // bytes of journal beyond those of the state, after which that is written anew
	forgetPause = 1 * time.Hour // how often ended jobs are looked through, while there are any
	bodyMemory  = 40 << 20      // bytes of bodies in memory; further ones are read from their state objects
	farFuture   = 365 * 24 * time.Hour
)

// loop works until ctx ends or a client stops the daemon. It returns that client's
// connection.
func (d *daemon) loop(ctx context.Context) *connection {
	batch := make([]input, 0, maxBatch)
	for {
		if d.stopping != nil && d.stopping.ready(d) {
			return d.stopping.asked
		}
		batch = append(batch[:0], d.soon...)
		d.soon = d.soon[:0]
		if len(batch) == 0 {
			in, ok := d.next(ctx)
			if !ok {
				return nil
			}
			batch = append(batch, in)
		}
		d.process(d.gather(batch))
		for _, h := range d.hosts {
			if h.link != nil {
				d.flush(h.link)
			}
		}
		d.setAlarm()
	}
}

// gather adds pending inputs to a batch, and those that runnable goroutines are about
// to post: it amortizes the sync.
func (d *daemon) gather(batch []input) []input {
	for n := 0; n < len(batch); {
		n = len(batch)
		runtime.Gosched()
		for more := true; more && len(batch) < maxBatch; {
			select {
			case in := <-d.inputs:
				batch = append(batch, in)
			default:
				more = false
			}
		}
	}
	return batch
}

// next waits for something to do; false: the daemon is to stop.
func (d *daemon) next(ctx context.Context) (input, bool) {
	select {
	case in := <-d.inputs:
		return in, true
	case <-d.timer.C:
		d.alarm = time.Time{}
		if w := d.m.Wake(); !w.IsZero() && !time.Now().Before(w) {
			return input{event: manager.Tick{}}, true
		}
		return input{do: func() {}}, true
	case <-ctx.Done():
		return input{}, false
	}
}

// process works through a batch, then shortens the journal if that is due.
func (d *daemon) process(batch []input) {
	d.stepThrough(batch)
	d.shorten()
}

// appendContent appends the content of the event's line in the journal.
func (in *input) appendContent(to []byte) ([]byte, error) {
	event, err := manager.EncodeEvent(in.event)
	if err != nil {
		return nil, err
	}
	return (&entry{Event: event, Bodies: in.bodies, End: in.end}).appendContent(to)
}

// stepThrough writes the events of a batch with one sync, then applies them in order.
func (d *daemon) stepThrough(batch []input) {
	work := d.unsaved
	if read, news := d.readClocks(); news {
		work = append(work, read)
	}
	work = append(work, batch...)
	d.unsaved = nil
	entries := make([]*entry, len(work))
	lines := d.lines[:0]
	seq, now := d.seq, d.clock.Wall
	for i := range work {
		if work[i].event == nil {
			continue
		}
		content, err := work[i].content, error(nil)
		if content == nil {
			content, err = work[i].appendContent(nil)
		}
		if err != nil {
			d.refuse(&work[i], err)
			work[i].event = nil
			continue
		}
		seq++
		entries[i] = &entry{Seq: seq, At: now.UnixNano(), Bodies: work[i].bodies, End: work[i].end}
		lines = appendLine(lines, seq, now.UnixNano(), content)
	}
	if cap(lines) <= keptLines {
		d.lines = lines
	}
	if len(lines) > 0 {
		err := d.lost()
		if err == nil {
			err = d.journal.write(lines)
		}
		if err != nil {
			d.failed(work, err)
			return
		}
		if d.failing {
			d.log.Info("the journal can be written again")
		}
		d.failing = false
	}
	for i := range work {
		if entries[i] != nil {
			d.step(&work[i], entries[i])
		} else if work[i].do != nil {
			work[i].do()
		}
	}
}

func (d *daemon) refuse(in *input, err error) {
	if in.reply != nil {
		in.reply(manager.Result{}, err)
		return
	}
	d.log.Error("an event can't be written", "event", fmt.Sprintf("%T", in.event), "error", err)
}

// failed refuses what can be refused and keeps the rest for later, except ticks.
func (d *daemon) failed(work []input, err error) {
	done := "so it was not done"
	if d.journal.torn {
		done = "nor take it back: if miniqd ends before it can, the request may be done after all"
	}
	remedy := fmt.Sprintf("free some space in %s and try again", d.state)
	if errors.As(err, new(*lostError)) {
		remedy = fmt.Sprintf("put it back or, to begin anew with what is there, stop this daemon (miniqd stop, process %d)", os.Getpid())
	}
	err = fmt.Errorf("miniqd can't write the request down, %s: %w: %s", done, err, remedy)
	if !d.failing {
		d.log.Error("the journal can't be written", "error", err)
	}
	d.failing = true
	d.openSocket() // they get the error
	for i := range work {
		switch {
		case work[i].do != nil:
			work[i].do()
		case work[i].event == nil:
		case work[i].reply != nil:
			work[i].reply(manager.Result{}, err)
		default:
			if _, tick := work[i].event.(manager.Tick); !tick {
				d.unsaved = append(d.unsaved, work[i])
			}
		}
	}
}

// step applies one event that is on disk.
func (d *daemon) step(in *input, e *entry) {
	d.seq = e.Seq
	if read, ok := in.event.(manager.ClockRead); ok {
		d.moveHookMarks(read)
	}
	effects, result := d.m.Step(time.Unix(0, e.At), in.event)
	d.recordEntry(e, in.event, effects, result)
	for _, effect := range effects {
		d.carryOut(effect)
	}
	d.tellOwners(in.event, effects, result)
	if _, tick := in.event.(manager.Tick); !tick || len(effects) > 0 {
		d.changed()
	}
	if in.reply != nil {
		in.reply(result, nil)
	}
	if in.after != nil {
		in.after()
	}
}

// setAlarm has the loop woken at the one next instant that matters.
func (d *daemon) setAlarm() {
	at := d.m.Wake()
	if d.failing && (len(d.unsaved) > 0 || !at.IsZero()) {
		at = time.Now().Add(retryPause)
	}
	if at.Equal(d.alarm) {
		return
	}
	d.alarm = at
	if at.IsZero() {
		d.timer.Stop()
		return
	}
	d.timer.Reset(min(time.Until(at), clockPause))
}

// carryOut does what the manager decided.
func (d *daemon) carryOut(effect manager.Effect) {
	switch e := effect.(type) {
	case manager.StartRun:
		d.orderRun(&e)
	case manager.KillRun:
		d.sendWant(e.ID, e.Run, killWant(e.Grace, e.Save, e.Requeue))
	case manager.StopRun:
		d.sendWant(e.ID, e.Run, keeper.Want{Verb: keeper.Stop})
	case manager.ContinueRun:
		d.sendWant(e.ID, e.Run, keeper.Want{Verb: keeper.Continue})
	case manager.Notice:
		if e.Run > 0 {
			d.sendWant(e.ID, e.Run, keeper.Want{Verb: keeper.Note, Text: e.Text})
		}
	case manager.Finished:
		d.finished(e.Job.ID)
		d.scheduleForget()
		d.queueHook()
	case manager.Forgotten, manager.WakeAt:
	}
}

// post hands something to the loop; it is dropped when the loop has ended.
func (d *daemon) post(in input) {
	select {
	case d.inputs <- in:
	case <-d.conns.closed():
	}
}

// changed counts a change and answers the waiters whose wait is over.
func (d *daemon) changed() {
	d.changes++
	for w := range d.waiters {
		d.tellIfOver(w)
	}
}

// waiter is a request that waits for jobs to end or, where it names none, for a change.
type waiter struct {
	pending map[backends.ID]int // how many jobs of each ID have not ended; an array's stands for its elements
	after   uint64
	reply   func()
}

// tellIfOver answers a waiter whose wait is over, and reports whether it is.
func (d *daemon) tellIfOver(w *waiter) bool {
	if w.pending == nil && d.changes <= w.after || len(w.pending) > 0 {
		return false
	}
	delete(d.waiters, w)
	w.reply()
	return true
}

// unended returns a waiter's set for these jobs.
func (d *daemon) unended(ids []backends.ID) map[backends.ID]int {
	pending := make(map[backends.ID]int)
	for _, id := range ids {
		if n := d.m.Unended(id); n > 0 {
			pending[id] = n
		}
	}
	return pending
}

func (d *daemon) finished(id backends.ID) {
	for w := range d.waiters {
		w.finished(id)
		if id.Index > 0 {
			w.finished(backends.ID{Job: id.Job})
		}
	}
}

func (w *waiter) finished(id backends.ID) {
	switch n := w.pending[id]; n {
	case 0:
	case 1:
		delete(w.pending, id)
	default:
		w.pending[id] = n - 1
	}
}
