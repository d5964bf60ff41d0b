package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/internal/bus"
	"github.com/allotment-hpc/allotment/split"
	"github.com/allotment-hpc/allotment/split/task"
	"github.com/allotment-hpc/allotment/test/await"
)

// directory is a split's directory with tasks from 1 on, of a line of sh each.
func directory(t *testing.T, scripts ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, script := range scripts {
		o := task.Order{Argv: []string{"sh", "-c", script, "sh", "{}"}, Mode: task.Each, First: 1, Count: 1, Numbers: true, Slots: 1}
		text, err := o.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(task.File(dir, int64(i+1), task.KindOrder), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// heard has what the workers of a bus said.
type heard struct {
	mu   sync.Mutex
	all  map[int64]split.WorkerState
	news chan struct{}
}

// open opens a bus that ends with the test, and answers what workers say.
func open(t *testing.T, dir string) (*Bus, *heard) {
	t.Helper()
	b, h := new(Bus), &heard{all: map[int64]split.WorkerState{}, news: make(chan struct{}, 1)}
	err := b.Open(t.Context(), dir, func(n int64, s split.WorkerState) {
		h.mu.Lock()
		h.all[n] = s
		h.mu.Unlock()
		_ = b.Send(n, split.WorkerOrder{Run: s.Run, Seq: s.Seq})
		select {
		case h.news <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return b, h
}

// await waits until a worker has said something.
func (h *heard) await(t *testing.T, n int64, is func(split.WorkerState) bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		h.mu.Lock()
		s := h.all[n]
		h.mu.Unlock()
		if is(s) {
			return
		}
		select {
		case <-h.news:
		case <-limit:
			t.Fatalf("the worker says %+v", s)
		}
	}
}

func done(n int64) func(split.WorkerState) bool {
	return func(s split.WorkerState) bool { return s.Done == n && s.Running == 0 }
}

// start starts a worker.
func start(ctx context.Context, dir string, idle time.Duration) (ended chan error, log *strings.Builder) {
	ended, log = make(chan error, 1), new(strings.Builder)
	go func() {
		ended <- Run(ctx, Options{Dir: dir, N: 1, Idle: idle, Log: func(text string) { log.WriteString(text) }})
	}()
	return ended, log
}

func hasResult(dir string, n int64) bool {
	_, err := os.Stat(task.File(dir, n, task.KindResult))
	return err == nil
}

// A worker executes what it is given, finds a bus that is opened anew, and ends by order.
func TestWorker(t *testing.T) {
	dir := directory(t, "true", "true", "true")
	b, h := open(t, dir)
	ended, log := start(t.Context(), dir, time.Hour)
	h.await(t, 1, done(1))
	if err := b.Send(1, split.WorkerOrder{Take: 2}); err != nil {
		t.Fatal(err)
	}
	h.await(t, 1, done(2))
	b.hub.Close() // as when asplit is killed
	b, h = open(t, dir)
	defer b.Close()
	h.await(t, 1, done(2))
	if err := b.Send(1, split.WorkerOrder{Take: 3}); err != nil {
		t.Fatal(err)
	}
	h.await(t, 1, done(3))
	for n := range int64(3) {
		if !hasResult(dir, n+1) {
			t.Errorf("task %d has no result", n+1)
		}
	}
	if err := b.Send(1, split.WorkerOrder{End: true}); err != nil {
		t.Fatal(err)
	}
	h.await(t, 1, func(s split.WorkerState) bool { return s.Leaving == split.LeaveTold })
	if err := <-ended; err != nil || log.Len() > 0 {
		t.Errorf("%v, %q", err, log)
	}
}

// A worker whose job the queue ends hands back what runs.
func TestSignal(t *testing.T) {
	dir := directory(t, "true", "touch began; sleep 300")
	t.Chdir(dir)
	b, h := open(t, dir)
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended, _ := start(ctx, dir, time.Hour)
	h.await(t, 1, done(1))
	if err := b.Send(1, split.WorkerOrder{Take: 2}); err != nil {
		t.Fatal(err)
	}
	if !await.Soon(func() bool { _, err := os.Stat("began"); return err == nil }) {
		t.Fatal("the task did not begin")
	}
	cancel()
	h.await(t, 1, func(s split.WorkerState) bool { return s.Leaving == split.LeaveKill && s.Done == 1 && s.Running == 0 })
	if err := <-ended; !errors.Is(err, ErrSignal) || hasResult(dir, 2) {
		t.Errorf("error is %v", err)
	}
}

// A worker ends a task that was executed elsewhere, whether it is at work or its order is gone already,
// and takes the next one.
func TestDroppedTask(t *testing.T) {
	dir := directory(t, "touch began; sleep 300", "true", "true")
	t.Chdir(dir)
	b, h := open(t, dir)
	defer b.Close()
	ended, _ := start(t.Context(), dir, time.Hour)
	if !await.Soon(func() bool { _, err := os.Stat("began"); return err == nil }) {
		t.Fatal("the task did not begin")
	}
	h.await(t, 1, func(s split.WorkerState) bool { return s.Running == 1 })
	if err := os.Remove(task.File(dir, 2, task.KindOrder)); err != nil {
		t.Fatal(err)
	}
	for _, o := range []split.WorkerOrder{{Drop: 1}, {Take: 2, Drop: 1}, {Take: 3}} {
		if err := b.Send(1, o); err != nil {
			t.Fatal(err)
		}
		h.await(t, 1, done(max(o.Take, 1)))
	}
	if hasResult(dir, 1) || hasResult(dir, 2) || !hasResult(dir, 3) {
		t.Error("not exactly the last task has a result")
	}
	if err := b.Send(1, split.WorkerOrder{End: true}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A worker without work ends, and so does one of a split that is over.
func TestNothingToDo(t *testing.T) {
	dir := directory(t, "true")
	b, h := open(t, dir)
	ended, _ := start(t.Context(), dir, 50*time.Millisecond)
	h.await(t, 1, func(s split.WorkerState) bool { return s.Leaving == split.LeaveIdle })
	if err := <-ended; err != nil {
		t.Error(err)
	}
	ended, _ = start(t.Context(), dir, time.Hour)
	h.await(t, 1, func(s split.WorkerState) bool { return s.Leaving == "" && s.Done == 1 })
	b.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A job that runs again, and does not reach asplit, fails: what its last run had may have no result.
func TestAway(t *testing.T) {
	dir := directory(t, "true")
	b, _ := open(t, dir)
	b.hub.Close() // workers can't know that this is for good
	for _, first := range []bool{true, false} {
		err := Run(t.Context(), Options{Dir: dir, N: 1, Idle: time.Hour, Log: func(string) {}, joinTime: time.Millisecond})
		if first != (err == nil) || !first && !errors.Is(err, ErrAway) {
			t.Errorf("the first run: %v: %v", first, err)
		}
		if err := os.Remove(task.File(dir, 1, task.KindOrder)); first && err != nil {
			t.Fatal(err)
		}
	}
}

// A first task that fails ends its worker, as it ends any job.
func TestFirstTaskFails(t *testing.T) {
	dir := directory(t, "true")
	if err := os.WriteFile(task.File(dir, 1, task.KindOrder), []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, _ := open(t, dir)
	defer b.Close()
	ended, _ := start(t.Context(), dir, time.Hour)
	if err := <-ended; err == nil {
		t.Error("no error")
	}
}

// Where another user could have written how asplit is reached, or read it, the worker does its
// first task alone.
func TestNotTrusted(t *testing.T) {
	for name, mode := range map[string]os.FileMode{folder: 0o777, filepath.Join(folder, filePlaces): 0o644} {
		dir := directory(t, "true")
		b, h := open(t, dir)
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
		w := &worker{o: Options{Dir: dir, N: 1}, over: make(chan struct{})}
		err := w.join()
		if err == nil {
			_, err = w.find(filepath.Join(dir, folder, filePlaces))
		}
		if err == nil || len(h.all) > 0 {
			t.Errorf("%s: error is %v, it said %v", name, err, h.all)
		}
		b.Close()
	}
	dir := directory(t, "true")
	if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, folder), 0o777); err != nil {
		t.Fatal(err)
	}
	ended, log := start(t.Context(), dir, time.Hour)
	if err := <-ended; err != nil || !hasResult(dir, 1) || !strings.Contains(log.String(), "can't stay as a worker") {
		t.Errorf("%v, %q", err, log)
	}
}

// A stranger without the secret, or with one of an earlier run, is not admitted, and no other
// worker takes the place of one that is there.
func TestStranger(t *testing.T) {
	dir := directory(t, "true")
	b, _ := open(t, dir)
	text, err := os.ReadFile(b.file)
	if err != nil {
		t.Fatal(err)
	}
	old, err := parsePlaces(string(text))
	if err != nil {
		t.Fatal(err)
	}
	b.hub.Close()
	b, h := open(t, dir)
	defer b.Close()
	if text, err = os.ReadFile(b.file); err != nil {
		t.Fatal(err)
	}
	now, err := parsePlaces(string(text))
	if err != nil {
		t.Fatal(err)
	}
	ended, _ := start(t.Context(), dir, time.Hour)
	h.await(t, 1, done(1))
	place := now[len(now)-1] // loopback
	without, earlier := place, place
	without.Secret, earlier.Secret = "", old[0].Secret
	for name, x := range map[string]struct {
		host string
		e    bus.Enrolment
	}{"no secret": {"task-2", without}, "an earlier secret": {"task-3", earlier}, "the name of another": {"task-1", place}} {
		link, err := bus.NewLink(bus.LinkOptions{
			Dir: t.TempDir(), Host: x.host, Log: slog.New(slog.DiscardHandler), Enrolment: func() (bus.Enrolment, error) { return x.e, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go link.Run(ctx)
		if !await.Soon(func() bool { s := link.State(); return s.Connected || strings.Contains(s.Why, "waits") }) || link.State().Connected {
			t.Errorf("%s: %+v", name, link.State())
		}
		cancel()
	}
	if err := b.Send(1, split.WorkerOrder{End: true}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// An order that comes again, or out of turn, has no task executed twice, nor two at a time.
func TestReplayedOrders(t *testing.T) {
	for _, x := range []struct {
		done, running int64
		take          []int64
	}{
		{done: 2, take: []int64{0, 1, 2}},
		{done: 2, running: 3, take: []int64{0, 1, 2, 3, 4}},
	} {
		for _, take := range x.take {
			w := &worker{state: split.WorkerState{Done: x.done, Running: x.running}, order: split.WorkerOrder{Take: take}}
			if end := w.obey(t.Context()); end || w.state.Running != x.running || w.state.Done != x.done {
				t.Errorf("with task %d done and task %d running, an order to take %d: it ends: %v, %+v", x.done, x.running, take, end, w.state)
			}
		}
	}
}
