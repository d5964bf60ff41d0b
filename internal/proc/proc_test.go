package proc

import (
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

func TestGroup(t *testing.T) {
	for _, c := range []struct {
		name, groups, mounts string
		want                 string
		v2                   bool
		ok                   bool
	}{
		{"version 1", "9:cpu:/\n4:memory:/a/b\n0::/x\n", mountsV1, "/sys/fs/cgroup/memory/a/b", false, true},
		{"both", "0::/x\n4:cpuset,memory:/\n", mountsV1, "/sys/fs/cgroup/memory", false, true},
		{"version 2", "0::/system.slice/allotment-miniqd.service\n", mountsV2, "/sys/fs/cgroup/system.slice/allotment-miniqd.service", true, true},
		{"in a container", "0::/docker/abc/x\n", inside, "/sys/fs/cgroup/x", true, true},
		{"out of sight", "0::/elsewhere\n", inside, "", false, false},
		{"a colon in its name", "0::/a:b\n", mountsV2, "/sys/fs/cgroup/a:b", true, true},
		{"not mounted", "4:memory:/\n", mountsV2, "", false, false},
		{"none", "", mountsV1, "", false, false},
	} {
		if got, ok := FindGroup(c.groups, Mounts(c.mounts), "memory"); got.Dir() != c.want || got.V2 != c.v2 || ok != c.ok {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

// A group never lies outside of what is mounted.
func FuzzGroup(f *testing.F) {
	f.Add("4:memory:/a/b\n", mountsV1)
	f.Add("0::/../x\n", mountsV2)
	f.Add("0:://0/0/0", "0 0 0 / . - cgroup2 0 0")
	f.Fuzz(func(t *testing.T, groups, mounts string) {
		g, ok := FindGroup(groups, Mounts(mounts), "memory")
		if !ok {
			return
		}
		for line := range strings.Lines(mounts) {
			if fields := strings.Fields(line); len(fields) > 4 && (g.Dir() == filepath.Clean(fields[4]) || strings.HasPrefix(g.Dir(), strings.TrimSuffix(filepath.Clean(fields[4]), "/")+"/")) {
				return
			}
		}
		t.Errorf("%q in %q is at %+v", groups, mounts, g)
	})
}

// A program's name may hold anything, brackets and newlines too.
func FuzzStat(f *testing.F) {
	f.Add([]byte("12 (a) b) S 1 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 0 0"))
	f.Fuzz(func(_ *testing.T, data []byte) { ParseStat(data) })
}

func TestStat(t *testing.T) {
	s, ok := ParseStat([]byte("12 (a) S 9 (\nb) T 3 12 11 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 0 0"))
	if want := (Stat{Name: "a) S 9 (\nb", State: 'T', Parent: 3, Session: 11, Threads: 1, Start: 777}); !ok || s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
}
