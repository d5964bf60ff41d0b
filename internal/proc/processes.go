// Package proc reads /proc (proc(5)) and finds control groups (cgroups(7)). It is
// written by hand since miniq's keeper uses it, which must start within a millisecond:
// the library for it compiles its patterns first.
package proc

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a process whose ID is not mistaken for a later one's.
type Process struct {
	PID   int
	Start uint64 // clock ticks since boot
}

// Signal sends signals to this very process, by a pidfd where the kernel has them: root's
// keeper must not hit another user's process that got the number since.
func (p Process) Signal(signals ...syscall.Signal) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.3
		for _, sig := range signals {
			_ = syscall.Kill(p.PID, sig)
		}
		return
	}
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if StartTime(p.PID) != p.Start {
		return
	}
	for _, sig := range signals {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

// Stat is what is needed of /proc/PID/stat.
type Stat struct {
	Name    string // of the program, at most 15 bytes: any but NUL
	State   byte
	Parent  int
	Session int
	Threads int
	Start   uint64

	User, System             time.Duration // processor time, its own
	ReapedUser, ReapedSystem time.Duration // and of the children that it waited for
}

// ReadStat reads a process's stat; false: the process is not there.
func ReadStat(pid int) (Stat, bool) { return ParseStat(read(pid, "stat")) }

// StartTime returns when a process was started, in clock ticks since boot; 0: it is
// not there.
func StartTime(pid int) uint64 {
	s, _ := ReadStat(pid)
	return s.Start
}

// ParseStat reads a stat. The program's name, in brackets, may hold anything.
func ParseStat(data []byte) (Stat, bool) {
	begin, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if begin < 0 || end < begin || end+2 >= len(data) {
		return Stat{}, false
	}
	fields, ok := firstFields(data[end+2:])
	if !ok {
		return Stat{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	session, err2 := strconv.Atoi(string(fields[3]))
	threads, err3 := strconv.Atoi(string(fields[17]))
	start, err4 := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil || err2 != nil || err3 != nil || err4 != nil {
		return Stat{}, false
	}
	return Stat{
		Name: string(data[begin+1 : end]), State: fields[0][0], Parent: parent, Session: session, Threads: threads, Start: start,
		User: ticks(fields[11]), System: ticks(fields[12]), ReapedUser: ticks(fields[13]), ReapedSystem: ticks(fields[14]),
	}, true
}

// firstFields returns the fields of a stat that are read here, without an allocation: all
// processes of a host are read each second.
func firstFields(text []byte) (fields [20][]byte, ok bool) {
	for i := range fields {
		text = bytes.TrimLeft(text, " \n")
		n := bytes.IndexAny(text, " \n")
		if n < 0 {
			n = len(text)
		}
		if n == 0 {
			return fields, false
		}
		fields[i], text = text[:n], text[n:]
	}
	return fields, true
}

// ticks reads a time in clock ticks, of which there are 100 in a second on every
// Linux that Go runs on (sysconf(3), _SC_CLK_TCK). What the kernel does not write is 0.
func ticks(field []byte) time.Duration {
	const tick = time.Second / 100
	n, err := strconv.ParseInt(string(field), 10, 64)
	if err != nil || n < 0 || n > int64(1<<62/tick) {
		return 0
	}
	return time.Duration(n) * tick
}

// All returns the processes of the machine, by their ID.
func All() map[int]Stat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	all := make(map[int]Stat, len(names))
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, ok := ReadStat(pid); ok {
			all[pid] = s
		}
	}
	return all
}

// Below returns the living processes below root.
func Below(all map[int]Stat, root int) []Process {
	children := make(map[int][]int, len(all))
	for pid, s := range all {
		children[s.Parent] = append(children[s.Parent], pid)
	}
	var found []Process
	for queue := children[root]; len(queue) > 0; queue = queue[1:] {
		pid := queue[0]
		queue = append(queue, children[pid]...)
		if all[pid].State != 'Z' {
			found = append(found, Process{pid, all[pid].Start})
		}
	}
	return found
}

// Families returns the living children of a process, each with what lives below it.
func Families(root int) map[Process][]Process {
	all := All()
	families := make(map[Process][]Process)
	for pid, s := range all {
		if s.Parent == root && s.State != 'Z' {
			families[Process{pid, s.Start}] = Below(all, pid)
		}
	}
	return families
}

// Resident returns what of a process is in memory, shared or not, in bytes.
func Resident(pid int) int64 {
	fields := bytes.Fields(read(pid, "statm"))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// Proportional is Resident with only the process's part of what it shares; where the
// kernel does not show that, with all of it.
func Proportional(pid int) int64 {
	if bytes, ok := Bytes(read(pid, "smaps_rollup"), "Pss"); ok {
		return bytes
	}
	return Resident(pid)
}

// RealUser returns the real user ID of a process, which a setuid program does not
// change; -1: it is not there.
func RealUser(pid int) int {
	fields := strings.Fields(Value(read(pid, "status"), "Uid"))
	if len(fields) == 4 {
		if uid, err := strconv.Atoi(fields[0]); err == nil {
			return uid
		}
	}
	return -1
}

// HasVariable reports whether a process was started with a variable in its environment.
func HasVariable(pid int, variable string) bool {
	for entry := range bytes.SplitSeq(read(pid, "environ"), []byte{0}) {
		if string(entry) == variable {
			return true
		}
	}
	return false
}

// Limits returns the text of /proc/PID/limits. Any user may read it; prlimit(2) would
// need a capability that root in a container does not have.
func Limits(pid int) string { return string(read(pid, "limits")) }

// Value returns what follows a name and a colon in lines such as those of
// /proc/PID/status; "": no line has the name.
func Value(text []byte, name string) string {
	for line := range bytes.Lines(text) {
		if key, value, ok := bytes.Cut(line, []byte{':'}); ok && string(bytes.TrimSpace(key)) == name {
			return string(bytes.TrimSpace(value))
		}
	}
	return ""
}

// Bytes returns a Value in kB, which is KiB here, in bytes; false: it is none.
func Bytes(text []byte, name string) (int64, bool) {
	number, ok := strings.CutSuffix(Value(text, name), " kB")
	n, err := strconv.ParseInt(number, 10, 64)
	return n << 10, ok && err == nil && n >= 0 && n < 1<<52
}

// read reads a file of a process; nil: it can't be read. It uses no os.File, which would
// start the runtime's poller.
func read(pid int, name string) []byte {
	fd, err := retryEINTR(func() (int, error) {
		return unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	var data []byte
	part := make([]byte, 4096)
	for {
		n, err := retryEINTR(func() (int, error) { return unix.Read(fd, part) })
		if err != nil {
			return nil
		}
		if n == 0 {
			return data
		}
		data = append(data, part[:n]...)
	}
}

func retryEINTR(do func() (int, error)) (int, error) {
	for {
		if n, err := do(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
