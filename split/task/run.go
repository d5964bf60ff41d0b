package task

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

// Run executes a task: this process is its job. When it returns nil the result is
// there, whole and on the disk. A job that is run twice, even side by side, executes
// its items once. N.new exists while items are executed; it stays if the process is
// killed then, and an error then removes it.
func Run(dir string, n int64) error { return RunUntil(dir, n, nil) }

// ErrStopped is wrapped where a task was stopped. What had ended before the first item without a result has
// one; the others wait.
var ErrStopped = errors.New("stopped before all items had ended")

// RunUntil is Run, but stops when stop closes: items that run are ended, and have no result.
// The error wraps ErrStopped then.
func RunUntil(dir string, n int64, stop <-chan struct{}) error {
	if err := CheckDir(dir); err != nil {
		return err
	}
	path := File(dir, n, KindOrder)
	if err := trusted.File(path); err != nil {
		return fmt.Errorf("read task %d: %w", n, err)
	}
	lock, err := os.OpenFile(path, os.O_RDWR, 0) // a lock over NFS needs write access
	if err != nil {
		return fmt.Errorf("read task %d: %w", n, err)
	}
	defer func() { _ = lock.Close() }()
	order, length, err := ReadOrder(lock)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := flock.Wait(lock); err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	done, err := OpenResult(File(dir, n, KindResult), order.First, order.Count)
	if err == nil {
		return done.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Items that are added here are this split's, not those of one that this job is itself an item of.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, EnvAdd+"=") })
	e := &execution{
		order: &order, env: order.Environ(env), dir: dir, n: n, begins: length, until: stop, stop: make(chan struct{}),
	}
	for _, setting := range order.Try {
		e.tried = append(e.tried, Tried(e.env, setting))
	}
	if err := e.findProgram(); err != nil {
		return fmt.Errorf("run task %d: %w", n, err)
	}
	if err := e.open(path, length); err != nil {
		return fmt.Errorf("run task %d: %w", n, err)
	}
	defer e.close()
	return write(disk.OS(), dir, n, e)
}

// CheckDir returns an error for a directory that another user could have made, or can
// write: what stands in it is executed.
func CheckDir(dir string) error {
	err := trusted.Dir(dir)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("check the split's directory: %w", err)
	}
	return fmt.Errorf("%s: %w: %w", dir, trusted.ErrNotTrusted, err)
}

// write has the items executed and their result written: all of it or nothing.
func write(d disk.Disk, dir string, n int64, e *execution) error {
	f, err := d.OpenFile(File(dir, n, KindNew), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write the result of task %d: %w", n, err)
	}
	e.to = newWriter(f, e.order.First, e.order.Count)
	began := time.Now()
	ended, unwatched, said := e.watchHalt(), e.watchStop(), e.watchProgress()
	err = e.executeAll()
	said()
	ended()
	unwatched()
	var stopped error
	if e.stopped() && e.to.cut() < e.order.Count {
		stopped = fmt.Errorf("run task %d: %w", n, ErrStopped)
	}
	switch {
	case err != nil || e.to.ended > 0:
	case stopped != nil:
		return errors.Join(stopped, f.Close(), d.Remove(f.Name()))
	default:
		err = errHalted
	}
	if err != nil {
		return errors.Join(fmt.Errorf("run task %d: %w", n, err), f.Close(), d.Remove(f.Name()))
	}
	err = e.to.finish(began, time.Now())
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.Rename(f.Name(), File(dir, n, KindResult))
	}
	if err == nil {
		err = d.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("write the result of task %d: %w", n, err)
	}
	return stopped
}

// execution is the work on one order.
type execution struct {
	order   *Order
	program string // looked up; "": each item has its own
	env     []string
	tried   [][]string // the same with each setting that is tried
	null    *os.File
	input   *os.File        // behind the order's first line
	begins  int64           // where that is
	dir     string          // of the split
	n       int64           // of the task
	until   <-chan struct{} // closed by who stops the task; nil: it is not stopped
	stop    chan struct{}   // closed by HaltNow, and when until is

	mu    sync.Mutex // of what follows
	items items
	to    *writer
	err   error // why no further item is executed
	halt  Halt  // "": no
}

// errHalted: no item began. The task has no result, and its items wait.
var errHalted = errors.New("the split was halted")

// findProgram looks the command up before anything has begun: a host without it can
// execute no item.
func (e *execution) findProgram() (err error) {
	if e.order.Mode == Each && HasMark(e.order.Argv[0]) {
		return nil
	}
	e.program, err = exec.LookPath(e.order.Arguments("", 0)[0])
	return err
}

func (e *execution) open(path string, length int64) (err error) {
	if e.null, err = os.Open(os.DevNull); err != nil {
		return err
	}
	if e.input, err = openItems(path, length); err != nil {
		return errors.Join(err, e.null.Close())
	}
	e.items = items{order: e.order}
	if e.order.Mode == Each && !e.order.Numbers {
		e.items.text = bufio.NewReader(e.input)
	}
	return nil
}

func (e *execution) close() {
	_ = e.null.Close()
	_ = e.input.Close()
}

// executeAll executes all items.
func (e *execution) executeAll() error {
	if e.order.Mode != Each {
		stdin := e.null
		if e.order.Mode == Feed {
			stdin = e.input
		}
		return e.execute(item{}, e.order.Count, stdin)
	}
	var workers sync.WaitGroup
	for range min(int64(e.order.Slots), e.order.Count) {
		workers.Go(func() {
			for {
				next, more := e.nextItem()
				if !more {
					return
				}
				e.fail(e.execute(next, 1, e.null))
			}
		})
	}
	workers.Wait()
	return e.err
}

// nextItem returns a worker's next item.
func (e *execution) nextItem() (next item, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil || e.halt != "" || e.items.next >= e.order.Count {
		return item{}, false
	}
	next, e.err = e.items.readItem()
	return next, e.err == nil
}

func (e *execution) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = err
	}
}

// The exit statuses of commands that could not be executed, as in shells.
const (
	statusTimedOut      = 124 // as of timeout(1)
	statusCannotExecute = 126
	statusNotFound      = 127
)

// execute runs the command for one item or for all, again if it fails and the order says
// so, and records the outcome of the last try.
func (e *execution) execute(i item, count int64, stdin *os.File) error {
	record := Record{Item: i.at, Count: count, Began: time.Now(), Tries: 1}
	if i.wrong != nil {
		record.Status = statusCannotExecute
		return e.add(record, nil, nil, "asplit: "+i.wrong.Error()+"\n", nil)
	}
	for {
		again, err := e.try(&record, i, stdin)
		if !again || err != nil {
			return err
		}
		record.Tries++
		if stdin == e.input {
			if _, err := stdin.Seek(e.begins, io.SeekStart); err != nil {
				return err
			}
		}
	}
}

// try runs the command once. again reports that it failed and is to be tried again; else
// the outcome is recorded.
func (e *execution) try(record *Record, i item, stdin *os.File) (again bool, err error) {
	out, err := scratch()
	if err != nil {
		return false, err
	}
	defer func() { _ = out.Close() }()
	errs, err := scratch()
	if err != nil {
		return false, err
	}
	defer func() { _ = errs.Close() }()
	env := e.env
	if len(e.tried) > 0 {
		env = e.tried[e.order.setting(i.at, record.Tries)]
	}
	var added *os.File
	if e.order.Adds {
		variable := ""
		if added, variable, err = openAdded(e.order.Separator()); err != nil {
			return false, err
		}
		defer func() { _ = added.Close() }()
		env = append(slices.Clip(env), variable)
	}
	record.Began = time.Now()
	message := ""
	record.Status, message = e.run(i, env, stdin, out, errs)
	record.Took = time.Since(record.Began)
	if added != nil && record.Status == 0 {
		if err := e.checkAdded(added); err != nil {
			record.Status, message = statusCannotExecute, "asplit: "+err.Error()+"\n"
		}
	}
	if record.Status != 0 {
		added = nil
	}
	e.awaitStop(record.Status)
	if record.Status != 0 && record.Tries <= e.order.Retries && !e.halted() {
		return true, nil
	}
	return false, e.add(*record, out, errs, message, added)
}

// run runs the command once, and returns its exit status and a message of asplit's own.
func (e *execution) run(i item, env []string, stdin, out, errs *os.File) (status int, message string) {
	argv := e.order.Arguments(i.text, e.order.number(i.at))
	program, err := e.program, error(nil)
	if program == "" {
		program, err = exec.LookPath(argv[0])
	}
	if err != nil {
		return statusNotFound, "asplit: " + err.Error() + "\n"
	}
	timedOut := false
	if e.order.Timeout == 0 && e.order.Halt != HaltNow && e.until == nil {
		status, err = command.Attached(program, argv, env, stdin, out, errs)
	} else {
		status, timedOut, err = command.AttachedUntil(program, argv, env, stdin, out, errs, e.order.Timeout, e.stop)
	}
	switch {
	case err != nil:
		return statusCannotExecute, "asplit: " + err.Error() + "\n"
	case timedOut:
		return statusTimedOut, fmt.Sprintf("asplit: ended after %v (--timeout)\n", e.order.Timeout)
	}
	return status, ""
}

func (e *execution) add(record Record, out, errs *os.File, message string, added *os.File) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped() { // it was ended, or may have been
		return nil
	}
	err := e.to.add(record, out, errs, message, added)
	if e.order.Fails > 0 && e.to.failed >= e.order.Fails {
		e.haltBy(e.order.Halt)
	}
	return err
}

// scratch returns a file without a name, of one execution alone: a process that an item
// leaves behind writes into no other item's result.
func scratch() (*os.File, error) {
	dir := os.TempDir()
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_APPEND|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), dir), nil
	}
	f, err := os.CreateTemp(dir, "asplit-") // a file system without O_TMPFILE
	if err != nil {
		return nil, fmt.Errorf("make room for an item's output: %w", err)
	}
	return f, os.Remove(f.Name())
}
