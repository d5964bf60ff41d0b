package keeper

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	mountsV1 = "23 1 0:20 / / rw - ext4 /dev/root rw\n31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw\n" +
		"35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	mountsV2 = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
	inside   = "35 24 0:30 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup ro\n"
)

func TestHierarchy(t *testing.T) {
	for _, c := range []struct {
		name, groups, mounts string
		want                 hierarchy
		ok                   bool
	}{
		{"version 1", "9:cpu:/\n4:memory:/a/b\n0::/x\n", mountsV1, hierarchy{own: "/sys/fs/cgroup/memory/a/b"}, true},
		{"both", "0::/x\n4:cpuset,memory:/\n", mountsV1, hierarchy{own: "/sys/fs/cgroup/memory"}, true},
		{"version 2", "0::/system.slice/allotment-miniqd.service\n", mountsV2, hierarchy{own: "/sys/fs/cgroup/system.slice/allotment-miniqd.service", v2: true}, true},
		{"in a container", "0::/docker/abc/x\n", inside, hierarchy{own: "/sys/fs/cgroup/x", v2: true}, true},
		{"out of sight", "0::/elsewhere\n", inside, hierarchy{}, false},
		{"a colon in its name", "0::/a:b\n", mountsV2, hierarchy{own: "/sys/fs/cgroup/a:b", v2: true}, true},
		{"not mounted", "4:memory:/\n", mountsV2, hierarchy{}, false},
		{"none", "", mountsV1, hierarchy{}, false},
	} {
		if got, ok := parseHierarchy([]byte(c.groups), []byte(c.mounts)); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

// A group never lies outside of what is mounted.
func FuzzHierarchy(f *testing.F) {
	f.Add("4:memory:/a/b\n", mountsV1)
	f.Add("0::/../x\n", mountsV2)
	f.Add("0:://0/0/0", "0 0 0 / . - cgroup2 0 0")
	f.Fuzz(func(t *testing.T, groups, mounts string) {
		h, ok := parseHierarchy([]byte(groups), []byte(mounts))
		if !ok {
			return
		}
		for line := range strings.Lines(mounts) {
			if fields := strings.Fields(line); len(fields) > 4 && (h.own == filepath.Clean(fields[4]) || strings.HasPrefix(h.own, strings.TrimSuffix(filepath.Clean(fields[4]), "/")+"/")) {
				return
			}
		}
		t.Errorf("%q in %q is at %+v", groups, mounts, h)
	})
}

func FuzzKills(f *testing.F) {
	f.Add([]byte("low 0\nhigh 0\nmax 5\noom 1\noom_kill 2\noom_group_kill 0\n"))
	f.Add([]byte("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if n := parseKills(data); n < 0 || n > 0 && !strings.Contains(string(data), "oom_kill ") {
			t.Errorf("%q tells of %d", data, n)
		}
	})
}

// Where the kernel has no such groups, a directory with their files stands in for
// it: what is written there is what cgroups(7) wants, and what is read is heeded.
func TestGroupOfVersion2(t *testing.T) {
	root := t.TempDir()
	own := filepath.Join(root, queueGroup)
	dir := filepath.Join(root, "allotment-7")
	h := hierarchy{own: own, v2: true}
	if got := h.path("7"); got != dir {
		t.Errorf("the group is %s, want it beside the queue's own: %s", got, dir)
	}
	if _, err := h.newGroup(64<<20, "7"); err == nil {
		t.Error("a group whose memory can't be limited was taken")
	}
	g := &group{hierarchy: h, dir: dir, limit: 64 << 20}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"memory.max", "memory.swap.max", "memory.oom.group", "memory.events"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.set(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"memory.max": "67108864", "memory.swap.max": "0", "memory.oom.group": "1"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
		}
	}
	if n := g.overLimit(); n != 0 {
		t.Errorf("%d processes were killed before any was", n)
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte("low 0\nmax 9\noom 1\noom_kill 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	k := &keep{group: g, grouped: true, output: output}
	if end := k.explained(End{}); end.Code != 143 || end.Text != "over its memory limit: it needed more than 64 MiB" {
		t.Errorf("ended as %+v", end)
	}
	// Whoever reads the output is told, although nobody had looked before the end.
	if got, err := os.ReadFile(output.Name()); string(got) != "allotment: killed: over its memory limit: it needed more than 64 MiB\n" {
		t.Errorf("its output is %q, %v", got, err)
	}
}

// Groups of jobs may have limits once the one that holds them all says so.
func TestPrepare(t *testing.T) {
	all := t.TempDir()
	control := filepath.Join(all, "cgroup.subtree_control")
	if err := os.WriteFile(control, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (hierarchy{own: all, v2: true}).prepare(); err == nil || !strings.Contains(err.Error(), "DelegateSubgroup=queue") {
		t.Errorf("a group of any name: %v", err)
	}
	if err := (hierarchy{own: filepath.Join(all, queueGroup), v2: true}).prepare(); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(control); string(got) != "+memory" {
		t.Errorf("%s holds %q, %v", control, got, err)
	}
}
