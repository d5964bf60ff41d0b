package task

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
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
func Run(dir string, n int64) error {
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
	e := &execution{order: &order, env: os.Environ()}
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
	if err := e.executeAll(); err != nil {
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
	return nil
}

// execution is the work on one order.
type execution struct {
	order   *Order
	program string // looked up; "": each item has its own
	env     []string
	null    *os.File
	input   *os.File // behind the order's first line

	mu    sync.Mutex // of what follows
	items items
	to    *writer
	err   error // why no further item is executed
}

// findProgram looks the command up before anything has begun: a host without it can
// execute no item.
func (e *execution) findProgram() (err error) {
	if e.order.Mode == Each && strings.Contains(e.order.Argv[0], markItem) {
		return nil
	}
	e.program, err = exec.LookPath(e.order.Arguments("")[0])
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
	if e.err != nil || e.items.next >= e.order.Count {
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
	statusCannotExecute = 126
	statusNotFound      = 127
)

// execute runs the command once, for one item or for all, and records the outcome.
func (e *execution) execute(i item, count int64, stdin *os.File) error {
	if i.wrong != nil {
		return e.add(i.at, count, statusCannotExecute, nil, nil, "asplit: "+i.wrong.Error()+"\n")
	}
	out, err := scratch()
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	errs, err := scratch()
	if err != nil {
		return err
	}
	defer func() { _ = errs.Close() }()
	argv := e.order.Arguments(i.text)
	program, err := e.program, error(nil)
	if program == "" {
		program, err = exec.LookPath(argv[0])
	}
	if err != nil {
		return e.add(i.at, count, statusNotFound, nil, nil, "asplit: "+err.Error()+"\n")
	}
	status, err := command.Attached(program, argv, e.env, stdin, out, errs)
	if err != nil {
		return e.add(i.at, count, statusCannotExecute, out, errs, "asplit: "+err.Error()+"\n")
	}
	return e.add(i.at, count, status, out, errs, "")
}

func (e *execution) add(at, count int64, status int, out, errs *os.File, message string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.to.add(at, count, status, out, errs, message)
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
