package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/node"
)

// bareRate returns the runs a second that keepers complete on this machine, as many at a
// time as there are slots, without a queue and with a prepared order.
// Keepers are used again, as a node does.
func bareRate(ctx context.Context, o *options) (float64, error) {
	dir, err := os.MkdirTemp(o.below, "allotment-bare-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program, err := filepath.Abs(filepath.Join(o.programs, "miniq-keeper"))
	if err != nil {
		return 0, err
	}
	order := keeper.Order{Argv: []string{"true"}, Env: os.Environ(), Dir: dir, Umask: 0o22, Stdout: os.DevNull, More: true}
	text, err := order.Encode()
	if err != nil {
		return 0, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = null.Close() }()
	var next atomic.Int64
	began := time.Now()
	err = inParallel(slots, func(int) error {
		k := bareKeeper{program: program, null: null, order: text}
		defer k.end()
		for i := next.Add(1) - 1; i < int64(o.jobs); i = next.Add(1) - 1 {
			if err := k.completeRun(filepath.Join(dir, strconv.FormatInt(i, 10))); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return 0, err
	}
	return float64(o.jobs) / time.Since(began).Seconds(), nil
}

// orderFile returns a file with an order, as a keeper reads it.
func orderFile(text []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("order", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "order")
	if _, err = f.Write(text); err == nil {
		_, err = f.Seek(0, 0)
	}
	return f, err
}

// bareKeeper is a keeper that executes one run after another.
type bareKeeper struct {
	program string
	null    *os.File
	order   []byte
	process *os.Process // nil: there is none
	next    *os.File
}

// completeRun has a keeper complete a run. It is an error if the run fails.
func (k *bareKeeper) completeRun(path string) error {
	record, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := flock.Try(record); err != nil {
		return err
	}
	if k.process == nil {
		err = k.start(record)
	} else {
		err = keeper.SendOrder(k.next, record, k.order)
	}
	_ = record.Close()
	if err != nil {
		return err
	}
	if keeper.AwaitIdle(k.next) != nil { // it takes no more runs
		k.end()
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if end := keeper.ParseRecord(data).End; end == nil || end.Code != 0 {
		return fmt.Errorf("a keeper left the record %q", data)
	}
	return nil
}

func (k *bareKeeper) start(record *os.File) error {
	order, err := orderFile(k.order)
	if err != nil {
		return err
	}
	defer func() { _ = order.Close() }()
	ours, theirs, err := keeper.NewNextSocket()
	if err != nil {
		return err
	}
	defer func() { _ = theirs.Close() }()
	process, err := os.StartProcess(k.program, []string{"miniq-keeper", "bare"}, &os.ProcAttr{
		Dir: "/", Env: node.KeeperEnv(), Files: []*os.File{k.null, k.null, k.null, record, order, theirs}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = ours.Close()
		return err
	}
	k.process, k.next = process, ours
	return nil
}

// end closes the keeper's socket and waits until it is gone.
func (k *bareKeeper) end() {
	if k.process != nil {
		_ = k.next.Close()
		_, _ = k.process.Wait()
		k.process = nil
	}
}
