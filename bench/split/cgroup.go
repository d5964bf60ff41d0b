package main

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/internal/proc"
	"github.com/allotment-hpc/allotment/test/await"
)

// controller is a cgroup hierarchy in which groups share processor time.
type controller struct {
	dir string // the top of the hierarchy
	v2  bool
}

var errNoController = errors.New("this machine has no cpu controller for cgroups")

// findController reads /proc/self/mountinfo. has reports whether a cgroup v2 hierarchy
// offers the cpu controller; there can be one without beside a v1 hierarchy with it.
func findController(mountinfo string, has func(dir string) bool) (controller, error) {
	for _, m := range proc.Mounts(mountinfo) {
		switch {
		case m.Type == "cgroup" && slices.Contains(m.Options, "cpu"):
			return controller{m.Point, false}, nil
		case m.Type == "cgroup2" && has(m.Point):
			return controller{m.Point, true}, nil
		}
	}
	return controller{}, errNoController
}

// thisController returns this machine's controller.
func thisController() (controller, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return controller{}, err
	}
	return findController(string(text), func(dir string) bool {
		names, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		return err == nil && slices.Contains(strings.Fields(string(names)), "cpu")
	})
}

// group is a cgroup that the bench made.
type group struct {
	dir string
	v2  bool
}

// group makes a group without a limit that has priority over everything else on this
// machine, so that hosts get their quotas on a busy one, too.
func (c controller) group(name string) (group, error) {
	if c.v2 {
		if err := proc.SetGroup(c.dir, "cgroup.subtree_control", "+cpu"); err != nil {
			return group{}, err
		}
	}
	g := group{filepath.Join(c.dir, name), c.v2}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return g, err
	}
	return g, g.setMaxWeight()
}

// setMaxWeight sets the group's weight to the maximum.
func (g group) setMaxWeight() error {
	if g.v2 {
		return proc.SetGroup(g.dir, "cpu.weight", "10000")
	}
	return proc.SetGroup(g.dir, "cpu.shares", "262144")
}

// period is the interval at which a group's quota is refilled. The kernel's default is 100 ms; this is
// half an item on the slowest host, so that the host behaves like a slow processor.
const period = 20 * time.Millisecond

// limit gives the group so many cores' worth of time, from now on.
func (g group) limit(cores float64) error {
	quota := strconv.FormatInt(int64(math.Round(cores*float64(period.Microseconds()))), 10)
	every := strconv.FormatInt(period.Microseconds(), 10)
	if g.v2 {
		return proc.SetGroup(g.dir, "cpu.max", quota+" "+every)
	}
	return errors.Join(proc.SetGroup(g.dir, "cpu.cfs_period_us", every), proc.SetGroup(g.dir, "cpu.cfs_quota_us", quota))
}

// add moves a process into the group, and with it all that it will start.
func (g group) add(pid int) error {
	return proc.SetGroup(g.dir, "cgroup.procs", strconv.Itoa(pid))
}

// joinFile returns the path of the file by which a thread joins the group.
func (g group) joinFile() string {
	if g.v2 {
		return filepath.Join(g.dir, "cgroup.procs") // there, all threads of a process are in one group
	}
	return filepath.Join(g.dir, "tasks")
}

// close removes the group, if it was made, as soon as its killed processes are gone.
func (g group) close(ctx context.Context) error {
	if g.dir == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var err error
	await.Until(ctx, func() bool { err = os.Remove(g.dir); return !errors.Is(err, syscall.EBUSY) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
