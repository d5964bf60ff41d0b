package keeper

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func FuzzKills(f *testing.F) {
	f.Add([]byte("low 0\nhigh 0\nmax 5\noom 1\noom_kill 2\noom_group_kill 0\n"))
	f.Add([]byte("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if n := parseKills(data); n < 0 || n > 0 && !strings.Contains(string(data), "oom_kill ") {
			t.Errorf("%q counts as %d", data, n)
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
	k := &supervisor{group: g, grouped: true, output: output}
	if end := k.addReason(End{}); end.Code != 143 || end.Text != "over its memory limit: it needed more than 64 MiB" {
		t.Errorf("ended as %+v", end)
	}
	// The output has the reason, although watchMemory saw nothing before the end.
	if got, err := os.ReadFile(output.Name()); string(got) != "allotment: killed: over its memory limit: it needed more than 64 MiB\n" {
		t.Errorf("its output is %q, %v", got, err)
	}
}

// Groups of jobs may have limits once the one that holds them all says so.
func TestPrepareGroups(t *testing.T) {
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
