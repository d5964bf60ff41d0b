package keeper

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/proc"
)

// A job with a memory limit gets a control group (cgroups(7)) of its own where
// its keeper may make one: then the kernel itself holds it to its limit, for all
// its processes together, whatever they do. Elsewhere the keeper measures what they
// use (watchMemory).
//
// Of version 1 a keeper makes it below its own memory group. Of version 2 a group
// has either processes or groups with limits below it: so the queue has to be in
// a group "queue", and jobs get theirs beside that. systemd puts it there with
// DelegateSubgroup=queue. If the daemon moved itself there, systemd could not start
// the service a second time while jobs run on.

// hierarchy is where groups can be made.
type hierarchy struct {
	own string // folder of this process's own group
	v2  bool
}

const (
	queueGroup  = "queue"
	groupPrefix = "allotment-"
)

// findHierarchy finds this process's group that limits memory: of version 1, or else of
// version 2 (whether memory can be limited there is seen when it is tried).
func findHierarchy() (hierarchy, bool) {
	g, ok := proc.OwnGroup("memory")
	return hierarchy{own: g.Dir(), v2: g.V2}, ok
}

// PrepareGroups lets the kernel hold the jobs of this process's queue to their memory
// limits, and returns the folder of their groups. The error says why it can't.
func PrepareGroups() (string, error) {
	h, ok := findHierarchy()
	if !ok {
		return "", errors.New("no control group limits memory here")
	}
	if err := h.prepare(); err != nil {
		return "", err
	}
	g, err := h.newGroup(1<<30, "probe-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		return "", err
	}
	return filepath.Dir(g.dir), g.remove()
}

// prepare lets the groups beside this process's own one have limits.
func (h hierarchy) prepare() error {
	if !h.v2 {
		return nil
	}
	if filepath.Base(h.own) != queueGroup {
		return errors.New("this process is not in a control group " + queueGroup + " of one that was given to it (systemd: Delegate=memory, DelegateSubgroup=" + queueGroup + ")")
	}
	return proc.SetGroup(filepath.Dir(h.own), "cgroup.subtree_control", "+memory")
}

// group is the control group of a job.
type group struct {
	hierarchy
	dir   string
	limit int64
}

// newGroup makes a group with a limit in bytes, of memory and swap together; 0:
// none.
func (h hierarchy) newGroup(limit int64, name string) (*group, error) {
	g := &group{hierarchy: h, limit: limit, dir: h.path(name)}
	clearGroup(g.dir, clearTries) // a keeper that was killed had the same process ID
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, err
	}
	if err := g.set(); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return g, nil
}

// set writes the limit into the group's files.
func (g *group) set() error {
	if g.limit == 0 {
		return nil
	}
	bytes := strconv.FormatInt(g.limit, 10)
	if g.v2 {
		return errors.Join(proc.SetGroup(g.dir, "memory.max", bytes), ifThere(proc.SetGroup(g.dir, "memory.swap.max", "0")), ifThere(proc.SetGroup(g.dir, "memory.oom.group", "1")))
	}
	return errors.Join(proc.SetGroup(g.dir, "memory.limit_in_bytes", bytes), ifThere(proc.SetGroup(g.dir, "memory.memsw.limit_in_bytes", bytes)))
}

func (h hierarchy) path(name string) string {
	dir := h.own
	if h.v2 {
		dir = filepath.Dir(dir)
	}
	return filepath.Join(dir, groupPrefix+name)
}

func ifThere(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// groupFor makes a group for this keeper's job; nil: it can't.
func groupFor(limit int64) *group {
	h, ok := findHierarchy()
	if !ok || h.v2 && filepath.Base(h.own) != queueGroup {
		return nil
	}
	g, err := h.newGroup(limit, strconv.Itoa(os.Getpid()))
	if err != nil {
		return nil
	}
	return g
}

// start forks a process into the group or, where that fails, without it. It reports
// whether the process is in the group.
func (g *group) start(sys *syscall.SysProcAttr, fork func() error) (bool, error) {
	switch {
	case g == nil:
		return false, fork()
	case g.v2:
		fd, err := unix.Open(g.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return false, fork()
		}
		defer func() { _ = unix.Close(fd) }()
		sys.UseCgroupFD, sys.CgroupFD = true, fd
		if fork() == nil {
			return true, nil
		}
		sys.UseCgroupFD = false
		return false, fork()
	}
	// What a thread forks is in the thread's group. It is back in its own before
	// anything else is done.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if proc.SetGroup(g.dir, "tasks", "0") != nil {
		return false, fork()
	}
	err := fork()
	_ = proc.SetGroup(g.own, "tasks", "0") // else this thread counts for the job, too
	return err == nil, err
}

// overLimit returns how often the kernel killed a process of the group for lack of
// memory.
func (g *group) overLimit() int {
	if g == nil {
		return 0
	}
	file := "memory.oom_control"
	if g.v2 {
		file = "memory.events"
	}
	data, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0
	}
	return parseKills(data)
}

// parseKills reads memory.events, or memory.oom_control: lines of NAME NUMBER.
func parseKills(data []byte) int {
	for line := range bytes.Lines(data) {
		if number, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			n, err := strconv.Atoi(string(bytes.TrimSpace(number)))
			if err == nil && n > 0 {
				return n
			}
		}
	}
	return 0
}

// remove removes a group without processes.
func (g *group) remove() error {
	if g == nil {
		return nil
	}
	err := unix.Rmdir(g.dir)
	for range 100 { // a process that was reaped is gone a moment later
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(time.Millisecond)
		err = unix.Rmdir(g.dir)
	}
	return err
}

// moveProcesses moves the job's processes into the group, and what they have started
// meanwhile: what they start from then on is in it.
func (g *group) moveProcesses() {
	eachBelow(os.Getpid(), func(p proc.Process) {
		if proc.StartTime(p.PID) == p.Start {
			_ = proc.SetGroup(g.dir, "cgroup.procs", strconv.Itoa(p.PID))
		}
	})
}

// groupRunning makes a group for a job that runs already; nil: it can't.
func groupRunning() *group {
	g := groupFor(0)
	if g != nil {
		g.moveProcesses()
	}
	return g
}

// ClearGroup kills what a keeper that was killed left in its group.
func ClearGroup(keeper int) {
	if h, ok := findHierarchy(); ok && keeper > 1 {
		clearGroup(h.path(strconv.Itoa(keeper)), math.MaxInt)
	}
}

// clearTries bounds the passes over a group that may hold processes by accident, and
// over any group without processes that can't be removed: a job of root's may have
// made groups in it.
const clearTries = 20

// clearGroup kills what is in a group, and removes that.
func clearGroup(dir string, tries int) {
	for empty := 0; tries > 0 && empty < clearTries; tries-- {
		pids, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return
		}
		if len(pids) == 0 {
			if !errors.Is(unix.Rmdir(dir), unix.EBUSY) {
				return
			}
			empty++
		}
		for text := range strings.FieldsSeq(string(pids)) {
			if pid, err := strconv.Atoi(text); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		pause()
	}
}
