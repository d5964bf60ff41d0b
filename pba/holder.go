package pba

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Holder returns the ID of the process that holds a lock now; 0 if none does, or it
// can't be found out.
func Holder(dir, name string) int {
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	return holderOf(locks, uint64(stat.Dev), stat.Ino)
}

// holderOf reads the kernel's list of locks, in lines such as
//
//	1: FLOCK  ADVISORY  WRITE 1234 fd:01:3417 0 EOF
//
// where a process that waits for a lock has "->" after the number.
func holderOf(locks []byte, dev, inode uint64) int {
	file := fmt.Sprintf("%02x:%02x:%d", dev>>8&0xfff, dev&0xff|dev>>12&^0xff, inode)
	for line := range bytes.Lines(locks) {
		fields := bytes.Fields(line)
		if len(fields) < 6 || string(fields[1]) != "FLOCK" || string(fields[5]) != file {
			continue
		}
		if pid, err := strconv.Atoi(string(fields[4])); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

// HearsMarks reports whether a process that runs cycles hears the submit filter's marks: it
// does unless it has a --for. One that can't be looked at counts as one that does.
func HearsMarks(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return true
	}
	return !slices.ContainsFunc(strings.Split(string(line), "\x00"), func(arg string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		return strings.HasPrefix(arg, "-") && name == "for"
	})
}
