package keeper

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/proc"
)

// Limits are resource limits of a process (setrlimit(2)) as text: nofile=1024:4096
// and so on, parted by spaces, soft before hard; "-" is unlimited.
type Limits string

// limitNames are the names that the text has for Linux's resources, by number,
// and those of /proc/PID/limits.
func limitNames() [][2]string {
	return [][2]string{
		{"cpu", "Max cpu time"},
		{"fsize", "Max file size"},
		{"data", "Max data size"},
		{"stack", "Max stack size"},
		{"core", "Max core file size"},
		{"rss", "Max resident set"},
		{"nproc", "Max processes"},
		{"nofile", "Max open files"},
		{"memlock", "Max locked memory"},
		{"as", "Max address space"},
		{"locks", "Max file locks"},
		{"sigpending", "Max pending signals"},
		{"msgqueue", "Max msgqueue size"},
		{"nice", "Max nice priority"},
		{"rtprio", "Max realtime priority"},
		{"rttime", "Max realtime timeout"},
	}
}

// defaultFiles is the soft limit of open files that every Linux begins with.
const defaultFiles = 1024

// LimitsOf returns the limits of a running process. A program in Go raises its own
// soft limit of open files when it starts, to the hard one less one: then its parent's
// is returned instead, if that is the same user's, else the usual 1024.
func LimitsOf(pid int) (Limits, error) {
	limits, err := parseLimits(proc.Limits(pid))
	if err != nil {
		return "", fmt.Errorf("read the resource limits of process %d: %w", pid, err)
	}
	if files := &limits[unix.RLIMIT_NOFILE]; files.Cur == files.Max-1 {
		files.Cur = min(files.Max, filesOfParent(pid))
	}
	var b strings.Builder
	for i, r := range limits {
		if r.Cur == unix.RLIM_INFINITY && r.Max == unix.RLIM_INFINITY {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(limitNames()[i][0] + "=" + limitText(r.Cur) + ":" + limitText(r.Max))
	}
	return Limits(b.String()), nil
}

func filesOfParent(pid int) uint64 {
	s, ok := proc.ReadStat(pid)
	if !ok || s.Parent < 2 || proc.RealUser(s.Parent) != proc.RealUser(pid) {
		return defaultFiles
	}
	limits, err := parseLimits(proc.Limits(s.Parent))
	if err != nil {
		return defaultFiles
	}
	return limits[unix.RLIMIT_NOFILE].Cur
}

func parseLimits(text string) ([]unix.Rlimit, error) {
	names := limitNames()
	all := make([]unix.Rlimit, len(names))
	for i, name := range names {
		_, rest, ok := strings.Cut(text, name[1]+" ")
		line, _, _ := strings.Cut(rest, "\n")
		fields := strings.Fields(line)
		if !ok || len(fields) < 2 {
			return nil, fmt.Errorf("no %q in it", name[1])
		}
		for j, to := range []*uint64{&all[i].Cur, &all[i].Max} {
			if *to = unix.RLIM_INFINITY; fields[j] == "unlimited" {
				continue
			}
			var err error
			if *to, err = strconv.ParseUint(fields[j], 10, 64); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func limitText(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// parse returns all resources' limits; what the text leaves out is unlimited. A
// malformed field is an error: no job runs with fewer limits than it should.
func (l Limits) parse() ([]unix.Rlimit, error) {
	names := limitNames()
	all := make([]unix.Rlimit, len(names))
	for i := range all {
		all[i] = unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	}
	for field := range strings.FieldsSeq(string(l)) {
		name, value, _ := strings.Cut(field, "=")
		soft, hard, ok := strings.Cut(value, ":")
		i := 0
		for i < len(names) && names[i][0] != name {
			i++
		}
		cur, err := parseLimit(soft)
		maximum, err2 := parseLimit(hard)
		if !ok || i == len(names) || err != nil || err2 != nil || cur > maximum {
			return nil, fmt.Errorf("resource limit %q: %w", field, errOrder)
		}
		all[i] = unix.Rlimit{Cur: cur, Max: maximum}
	}
	return all, nil
}

func parseLimit(s string) (uint64, error) {
	if s == "-" {
		return unix.RLIM_INFINITY, nil
	}
	return strconv.ParseUint(s, 10, 64)
}

// capSysResource lets a process raise its hard limits (capabilities(7)).
const capSysResource = 24

func maySetLimits() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<capSysResource) != 0
}

// runUnder calls do while the keeper itself is under these limits: a process forked
// then inherits them. Nothing else can give a process its limits before it runs. A
// keeper that may not raise its hard limits again (root in most containers) keeps
// those, and sets the soft ones only. It reports whether the keeper has its own limits
// again.
func (l Limits) runUnder(do func() error) (bool, error) {
	if l == "" {
		return true, do()
	}
	limits, err := l.parse()
	if err != nil {
		return true, err
	}
	hard := maySetLimits()
	own := make([]unix.Rlimit, len(limits))
	if limits[unix.RLIMIT_AS].Cur != unix.RLIM_INFINITY || limits[unix.RLIMIT_DATA].Cur != unix.RLIM_INFINITY {
		reserveMemory()
	}
	for i := range limits {
		if err := unix.Prlimit(0, i, nil, &own[i]); err != nil {
			return restoreLimits(own[:i]), err
		}
		limit := limits[i]
		if !hard {
			limit = unix.Rlimit{Cur: min(limit.Cur, own[i].Max), Max: own[i].Max}
		}
		if err := unix.Prlimit(0, i, &limit, nil); err != nil {
			return restoreLimits(own[:i]), fmt.Errorf("set resource limit %s to %s:%s: %w", limitNames()[i][0], limitText(limit.Cur), limitText(limit.Max), err)
		}
	}
	err = do()
	return restoreLimits(own), err
}

// restoreLimits restores the keeper's own limits, the last first, and reports whether it
// could.
func restoreLimits(own []unix.Rlimit) bool {
	all := true
	for i := len(own) - 1; i >= 0; i-- {
		all = unix.Prlimit(0, i, &own[i], nil) == nil && all
	}
	return all
}

// reserveMemory gets the memory that starting a process takes from the kernel beforehand:
// under the job's limit of address space the kernel might refuse it.
func reserveMemory() {
	const plenty = 16 << 20
	b := make([]byte, plenty)
	runtime.KeepAlive(b)
	b = nil
	debug.SetGCPercent(100)
	runtime.GC()
	debug.SetGCPercent(-1)
}
