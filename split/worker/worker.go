package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allotment-hpc/allotment/internal/bus"
	"github.com/allotment-hpc/allotment/internal/reach"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/split"
	"github.com/allotment-hpc/allotment/split/task"
)

// Options are what a worker is made of.
type Options struct {
	Dir  string        // of the split
	N    int64         // the task that its job begins with
	Idle time.Duration // after which it ends with nothing to do
	Log  func(string)  // gets what its job's log should say

	joinTime time.Duration // 0: JoinTime
}

// JoinTime bounds the time in which a worker without work tries to reach asplit for the first time;
// BusyTime where asplit's machine answers: a thousand workers may join at once.
const (
	JoinTime = 10 * time.Second
	BusyTime = 30 * time.Second
)

// Intervals of messages.
const (
	repeatEvery = time.Second     // of a state that is not acknowledged
	beatEvery   = 5 * time.Second // of any: asplit may be another process
	answerTime  = 5 * time.Second // after which a worker that leaves waits for no answer
	byeTime     = 2 * time.Second // the same of one whose job the queue ends
)

// ErrSignal is wrapped where the queue ended the job.
var ErrSignal = errors.New("ended by a signal")

// ErrAway is wrapped where a job that the queue runs again did not reach asplit. The job must fail:
// the task that its last run had may have no result.
var ErrAway = errors.New("asplit was not reached")

// Run executes the task that its job begins with as task.Run does, and then those that asplit
// gives it, until asplit orders it to end, it has nothing to do for a while, or the split is over. When
// ctx ends, the queue ends the job: what runs is ended, what has a result stays, the rest goes back
// to asplit, and the error wraps ErrSignal. A task that fails for another reason than its items
// ends the worker with its error, as it ends a job of its own.
func Run(ctx context.Context, o Options) error {
	w := &worker{o: o, ended: make(chan error, 1), orders: make(chan struct{}, 1), over: make(chan struct{})}
	w.state.Run, w.state.Running = rand.Text(), o.N
	if err := w.join(); err != nil {
		o.Log("it can't stay as a worker: " + err.Error())
		return w.alone(ctx)
	}
	links, cancel := context.WithCancel(context.Background())
	defer cancel()
	go w.link.Run(links)
	return w.main(ctx)
}

// worker is a standing worker.
type worker struct {
	o    Options
	link *bus.Link

	state  split.WorkerState
	acked  bool // asplit knows the state
	said   time.Time
	joined bool // asplit has said something
	again  bool // an earlier run of its job had the first task
	ended  chan error
	drop   context.CancelFunc // ends the task at work

	mu     sync.Mutex
	order  split.WorkerOrder // the newest
	orders chan struct{}     // there is one
	over   chan struct{}     // closed when the bus is gone for good

	answered atomic.Bool // asplit's machine did, when it was last tried
	gone     sync.Once
}

// alone executes the first task alone.
func (w *worker) alone(ctx context.Context) error {
	err := task.RunUntil(w.o.Dir, w.o.N, ctx.Done())
	if errors.Is(err, task.ErrStopped) {
		err = errors.Join(ErrSignal, err)
	}
	return err
}

// join makes the link. It connects when it is run.
func (w *worker) join() (err error) {
	home := filepath.Join(w.o.Dir, folder)
	for _, dir := range []string{w.o.Dir, home} {
		if err := task.CheckDir(dir); err != nil {
			return err
		}
	}
	w.link, err = bus.NewLink(bus.LinkOptions{
		Dir: filepath.Join(home, folderKeys), Host: nameOf(w.o.N), Log: slog.New(slog.DiscardHandler),
		Enrolment: func() (bus.Enrolment, error) { return w.find(filepath.Join(home, filePlaces)) },
	})
	if err != nil {
		return err
	}
	w.link.Receive(kindOrder, func(text []byte) {
		o, err := parseOrder(text)
		if err != nil {
			return
		}
		w.mu.Lock()
		w.order = o
		w.mu.Unlock()
		select {
		case w.orders <- struct{}{}:
		default:
		}
	})
	return nil
}

// patience is how long a worker without work tries to reach asplit for the first time.
func (w *worker) patience() time.Duration {
	if w.answered.Load() {
		return cmp.Or(w.o.joinTime, BusyTime)
	}
	return cmp.Or(w.o.joinTime, JoinTime)
}

// find returns how the bus is reached. Its file is gone when the split is over, or asplit has ended it.
func (w *worker) find(path string) (bus.Enrolment, error) {
	text, err := trusted.ReadPrivate(path, maxFile, trusted.Others)
	if errors.Is(err, fs.ErrNotExist) {
		w.gone.Do(func() { close(w.over) })
	}
	var all []bus.Enrolment
	if err == nil {
		all, err = parsePlaces(string(text))
	}
	if err != nil {
		return bus.Enrolment{}, fmt.Errorf("read how asplit is reached, %s: %w", path, err)
	}
	e, err := reachable(all)
	w.answered.Store(err == nil)
	return e, err
}

// reachable returns the first place that answers.
func reachable(all []bus.Enrolment) (bus.Enrolment, error) {
	addresses := make([]string, len(all))
	for i, e := range all {
		addresses[i] = e.Address
	}
	conn, at, err := reach.Any(context.Background(), addresses)
	if err != nil {
		return bus.Enrolment{}, fmt.Errorf("asplit is not reached: %w", err)
	}
	return all[at], conn.Close()
}

// say says the state, which has changed.
func (w *worker) say(change func(*split.WorkerState)) {
	change(&w.state)
	w.state.Seq++
	w.acked = false
	w.publish()
}

func (w *worker) publish() {
	w.said = time.Now()
	text, err := json.Marshal(w.state)
	if err == nil {
		err = w.link.Publish(kindState, text)
	}
	if err != nil {
		w.o.Log(err.Error())
	}
}

func (w *worker) begin(ctx context.Context, n int64) {
	ctx, w.drop = context.WithCancel(ctx)
	go func() { w.ended <- task.RunUntil(w.o.Dir, n, ctx.Done()) }()
}

// main runs tasks until the worker is to end.
func (w *worker) main(ctx context.Context) error {
	w.say(func(*split.WorkerState) {})
	w.begin(ctx, w.o.N)
	began := time.Now()
	repeat := time.NewTicker(repeatEvery)
	defer repeat.Stop()
	idle := time.NewTimer(w.o.Idle)
	defer idle.Stop()
	over, killed := w.over, ctx.Done()
	for {
		working := w.state.Running != 0
		select {
		case err := <-w.ended:
			w.drop()
			switch stopped := errors.Is(err, task.ErrStopped); {
			case stopped && ctx.Err() != nil:
				return w.leave(err)
			case err != nil && !stopped && !w.executed(w.state.Running, err):
				return err
			case ctx.Err() != nil:
				w.state.Done, w.state.Running = w.state.Running, 0
				return w.leave(ErrSignal)
			}
			w.again = w.again || err != nil && w.state.Running == w.o.N
			w.say(func(s *split.WorkerState) { s.Done, s.Running = s.Running, 0 })
			idle.Reset(w.o.Idle)
		case <-w.orders:
			if end := w.obey(ctx); end {
				w.say(func(s *split.WorkerState) { s.Leaving = split.LeaveTold })
				w.awaitAnswer(byeTime)
				return nil
			}
		case <-idle.C:
			switch {
			case working:
			case w.state.Leaving == "" && w.joined:
				w.say(func(s *split.WorkerState) { s.Leaving = split.LeaveIdle })
				idle.Reset(answerTime)
			default:
				return nil
			}
		case <-repeat.C:
			if !w.acked || time.Since(w.said) >= beatEvery {
				w.publish()
			}
			if !w.joined && !working && time.Since(began) > w.patience() {
				w.o.Log(fmt.Sprintf("it can't stay as a worker: %s", w.link.State().Why))
				if w.again {
					return ErrAway
				}
				return nil
			}
		case <-over:
			if over = nil; !working {
				return nil
			}
		case <-killed:
			if killed = nil; !working {
				return w.leave(ErrSignal)
			}
		}
		if over == nil && w.state.Running == 0 {
			return nil
		}
	}
}

// executed reports whether the error of a task is that asplit has its result already: from an earlier
// run of this job, which was requeued, or from another host.
func (w *worker) executed(n int64, err error) bool {
	_, gone := os.Lstat(task.File(w.o.Dir, n, task.KindOrder))
	return errors.Is(err, fs.ErrNotExist) && errors.Is(gone, fs.ErrNotExist) && task.CheckDir(w.o.Dir) == nil
}

// obey applies the newest order, and reports whether the worker is to end.
func (w *worker) obey(ctx context.Context) (end bool) {
	w.mu.Lock()
	o := w.order
	w.mu.Unlock()
	w.joined = true
	w.acked = w.acked || o.Run == w.state.Run && o.Seq == w.state.Seq
	if w.state.Running != 0 && o.Drop == w.state.Running {
		w.drop()
	}
	if w.state.Running != 0 || ctx.Err() != nil {
		return false
	}
	if o.Take > w.state.Done {
		w.say(func(s *split.WorkerState) { s.Running, s.Leaving = o.Take, "" })
		w.begin(ctx, o.Take)
		return false
	}
	return o.End
}

// leave hands back what has no result, since the queue ends the job.
func (w *worker) leave(err error) error {
	w.say(func(s *split.WorkerState) { s.Running, s.Leaving = 0, split.LeaveKill })
	w.awaitAnswer(byeTime)
	return errors.Join(ErrSignal, err)
}

// awaitAnswer waits until asplit knows the state, for a while.
func (w *worker) awaitAnswer(most time.Duration) {
	if !w.joined {
		return
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	for !w.acked {
		select {
		case <-w.orders:
			w.mu.Lock()
			w.acked = w.order.Run == w.state.Run && w.order.Seq == w.state.Seq
			w.mu.Unlock()
		case <-timer.C:
			return
		}
	}
}
