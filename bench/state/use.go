package main

// long count_of_syncs(void);
import "C"

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/proc"
)

// Use is what was written.
type Use struct {
	Bytes int64 // handed to the kernel for files, by write(2) and its like
	Syncs int64
}

func (u Use) minus(o Use) Use { return Use{u.Bytes - o.Bytes, u.Syncs - o.Syncs} }
func (u Use) plus(o Use) Use  { return Use{u.Bytes + o.Bytes, u.Syncs + o.Syncs} }

// meter counts what is written.
type meter struct{ bytes, syncs atomic.Int64 }

func (m *meter) use() Use { return Use{m.bytes.Load(), m.syncs.Load()} }

// meteredWriter counts bytes.
type meteredWriter struct {
	io.Writer
	bytes *atomic.Int64
}

func (w meteredWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.bytes.Add(int64(n))
	return n, err
}

// written returns the bytes that a process, and those of its children that it has waited for, has
// handed to the kernel. PostgreSQL sends to its clients by send(2), which is not counted.
//
// /proc/PID/io also has write_bytes, what becomes dirty in memory. That is of no use here: Linux
// 6.18 counts all of a large folio for each byte that changes in it, 70 KB for a commit of 400 bytes.
func written(pid int) (int64, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "io"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "wchar: "); ok {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("/proc/%d/io has no wchar", pid)
}

// sqliteSyncs returns the number of SQLite's syncs in this process.
func sqliteSyncs() int64 { return int64(C.count_of_syncs()) }

// writtenBelow returns what a process and its children, which are there or have been, have written.
func writtenBelow(pid int) (int64, error) {
	sum, err := written(pid)
	if err != nil {
		return 0, err
	}
	children, err := childrenOf(pid)
	if err != nil {
		return 0, err
	}
	for _, c := range children {
		n, err := written(c)
		if err != nil {
			continue // it has ended: its parent has it
		}
		sum += n
	}
	return sum, nil
}

func childrenOf(pid int) (list []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, ok := proc.ReadStat(child); ok && s.Parent == pid {
			list = append(list, child)
		}
	}
	return list, nil
}

// deviceBytes returns what the whole machine has written to the disk of a directory, after all
// that is to be written.
func deviceBytes(dir string) (int64, error) {
	unix.Sync()
	var s syscall.Stat_t
	if err := syscall.Stat(dir, &s); err != nil {
		return 0, err
	}
	data, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(s.Dev), unix.Minor(s.Dev)))
	if err != nil {
		return 0, err
	}
	const sectorsWritten, sector = 6, 512
	fields := strings.Fields(string(data))
	if len(fields) <= sectorsWritten {
		return 0, fmt.Errorf("the statistics of the disk of %s have %d fields", dir, len(fields))
	}
	n, err := strconv.ParseInt(fields[sectorsWritten], 10, 64)
	return n * sector, err
}
