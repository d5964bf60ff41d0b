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

	"github.com/allotment-hpc/allotment/backends/miniq/keeper"
	"github.com/allotment-hpc/allotment/backends/miniq/node"
)

// bare is how many keepers a second this machine runs to their ends, as many at
// a time as there are slots, with nothing around them: the orders are prepared,
// there is no queue.
func bare(ctx context.Context, o *options) (float64, error) {
	dir, err := os.MkdirTemp(o.below, "allotment-bare-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program, err := filepath.Abs(filepath.Join(o.programs, "miniq-keeper"))
	if err != nil {
		return 0, err
	}
	order := keeper.Order{Argv: []string{"true"}, Env: os.Environ(), Dir: dir, Umask: 0o22, Stdout: os.DevNull}
	text, err := order.Encode()
	if err != nil {
		return 0, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = null.Close() }()
	orders := make([]*os.File, o.jobs)
	for i := range orders {
		if orders[i], err = prepared(text); err != nil {
			return 0, err
		}
	}
	var next atomic.Int64
	began := time.Now()
	err = inParallel(slots, func(int) error {
		for i := next.Add(1) - 1; i < int64(o.jobs); i = next.Add(1) - 1 {
			if err := keep(program, filepath.Join(dir, strconv.FormatInt(i, 10)), null, orders[i]); err != nil {
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

// prepared is an order as a keeper reads it.
func prepared(text []byte) (*os.File, error) {
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

// keep runs one keeper to its end, which must be that of a job that succeeded.
func keep(program, path string, null, order *os.File) error {
	record, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(record.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	process, err := os.StartProcess(program, []string{"miniq-keeper", "bare"}, &os.ProcAttr{
		Dir: "/", Env: node.KeeperEnv(), Files: []*os.File{null, null, null, record, order}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	_, _ = record.Close(), order.Close()
	if err != nil {
		return err
	}
	if _, err := process.Wait(); err != nil {
		return err
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
