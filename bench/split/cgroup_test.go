package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestFindController(t *testing.T) {
	const (
		v1     = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
		cpuset = "34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
		v2     = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
		proc   = "25 1 0:23 / /proc rw - proc proc rw\n"
	)
	with := func(string) bool { return true }
	without := func(string) bool { return false }
	for _, c := range []struct {
		name, mounts string
		has          func(string) bool
		want         controller
		err          error
	}{
		{"v1", proc + cpuset + v1, without, controller{"/sys/fs/cgroup/cpu,cpuacct", false}, nil},
		{"v2", proc + v2, with, controller{"/sys/fs/cgroup/unified", true}, nil},
		{"v1 has it, v2 is there too", v2 + v1, without, controller{"/sys/fs/cgroup/cpu,cpuacct", false}, nil},
		{"v2 without it", cpuset + v2, without, controller{}, errNoController},
		{"none", proc + "short - line\n", with, controller{}, errNoController},
	} {
		if got, err := findController(c.mounts, c.has); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, got, err, c.want, c.err)
		}
	}
}

func TestLimitOfEachVersion(t *testing.T) {
	for name, c := range map[string]struct {
		v2    bool
		files map[string]string
	}{
		"v1": {false, map[string]string{"cpu.cfs_period_us": "20000", "cpu.cfs_quota_us": "8000", "cpu.shares": "262144", "cgroup.procs": "7"}},
		"v2": {true, map[string]string{"cpu.max": "8000 20000", "cpu.weight": "10000", "cgroup.procs": "7"}},
	} {
		g := group{t.TempDir(), c.v2}
		for file := range c.files {
			if err := os.WriteFile(filepath.Join(g.dir, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(g.setMaxWeight(), g.limit(0.4), g.add(7)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for file, want := range c.files {
			if got, err := os.ReadFile(filepath.Join(g.dir, file)); string(got) != want {
				t.Errorf("%s: %s is %q, want %q: %v", name, file, got, want, err)
			}
		}
	}
}

func TestV2GroupEnablesController(t *testing.T) {
	c := controller{t.TempDir(), true}
	control := filepath.Join(c.dir, "cgroup.subtree_control")
	if err := os.WriteFile(control, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := c.group("one")
	if !errors.Is(err, fs.ErrNotExist) { // the kernel would have made cpu.weight
		t.Errorf("a group that no kernel made: %v", err)
	}
	if got, err := os.ReadFile(control); string(got) != "+cpu" {
		t.Errorf("subtree_control is %q: %v", got, err)
	}
	if want := filepath.Join(c.dir, "one", "cgroup.procs"); g.joinFile() != want {
		t.Errorf("the join file is %s, want %s", g.joinFile(), want)
	}
	if err := g.close(t.Context()); err != nil {
		t.Error(err)
	}
}
