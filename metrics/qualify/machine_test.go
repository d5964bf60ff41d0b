package qualify

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// host holds the kernel's files of a host, by path.
type host map[string]string

// base is a host of 4 CPUs and 8 GiB without any limit, of which a process sees mounts
// and groups.
func base(mounts, groups string) host {
	return host{
		"proc/meminfo":              "MemTotal: 8388608 kB\nMemAvailable: 6291456 kB\n",
		"proc/cpuinfo":              "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Xeon 9\n",
		"proc/sys/kernel/hostname":  "node7\n",
		"proc/sys/kernel/osrelease": "6.1.0\n",
		"proc/42/status":            "Name:\tx\nCpus_allowed_list:\t0-2,5\n",
		"proc/42/mountinfo":         mounts,
		"proc/42/cgroup":            groups,
		"sys/devices/system/cpu/cpu0/cache/index0/size": "48K\n",
		"sys/devices/system/cpu/cpu0/cache/index3/size": "32768K\n",
	}
}

func (h host) with(files ...string) host {
	all := host{}
	for path, text := range h {
		all[path] = text
	}
	for i := 0; i < len(files); i += 2 {
		all[files[i]] = files[i+1]
	}
	return all
}

func (h host) write(t *testing.T) string {
	root := t.TempDir()
	for path, text := range h {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("42", filepath.Join(root, "proc/self")); err != nil {
		t.Fatal(err)
	}
	return root
}

const (
	rootMount = "20 1 254:0 / / rw - ext4 /dev/vda rw\n21 20 0:50 / /home rw - nfs4 server:/home rw\n"
	v1Mounts  = rootMount +
		"30 20 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"31 20 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
		"32 20 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	v1Groups = "4:memory:/slurm/job_7\n3:cpu,cpuacct:/slurm/job_7\n0::/other\n"
	v2Mounts = rootMount + "30 20 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	v2Groups = "0::/user.slice/job\n"

	cpu1, memory1, unified2 = "sys/fs/cgroup/cpu,cpuacct/", "sys/fs/cgroup/memory/", "sys/fs/cgroup/"
)

func TestInspect(t *testing.T) {
	v1 := base(v1Mounts, v1Groups).with(
		cpu1+"cpu.cfs_quota_us", "-1\n", cpu1+"cpu.cfs_period_us", "100000\n",
		cpu1+"slurm/job_7/cpu.cfs_quota_us", "-1\n", cpu1+"slurm/job_7/cpu.cfs_period_us", "100000\n",
		memory1+"memory.limit_in_bytes", "9223372036854771712\n", memory1+"memory.usage_in_bytes", "1000\n",
	)
	v2 := base(v2Mounts, v2Groups).with(unified2+"user.slice/job/cpu.max", "max 100000\n", unified2+"user.slice/job/memory.max", "max\n")
	for _, c := range []struct {
		name    string
		host    host
		quota   float64
		workers int
		limit   uint64
		free    uint64
	}{
		{name: "no groups at all", host: base(rootMount, ""), workers: 4, free: 6 << 30},
		{name: "version 1 without limits", host: v1, workers: 4, free: 6 << 30},
		{name: "version 1: a tenth of a core", host: v1.with(cpu1+"slurm/job_7/cpu.cfs_quota_us", "10000\n"), quota: 0.1, workers: 1, free: 6 << 30},
		{
			name: "version 1: the outer group has less",
			host: v1.with(
				cpu1+"slurm/job_7/cpu.cfs_quota_us", "300000\n", cpu1+"slurm/cpu.cfs_quota_us", "75000\n", cpu1+"slurm/cpu.cfs_period_us", "50000\n",
				memory1+"slurm/job_7/memory.limit_in_bytes", "4294967296\n", memory1+"slurm/memory.limit_in_bytes", "2147483648\n", memory1+"slurm/memory.usage_in_bytes", "1073741824\n"),
			quota: 1.5, workers: 2, limit: 2 << 30, free: 1 << 30,
		},
		{name: "more quota than CPUs", host: v1.with(cpu1+"slurm/job_7/cpu.cfs_quota_us", "800000\n"), quota: 8, workers: 4, free: 6 << 30},
		{name: "version 2 without limits", host: v2, workers: 4, free: 6 << 30},
		{
			name: "version 2",
			host: v2.with(
				unified2+"user.slice/job/cpu.max", "max 100000\n", unified2+"user.slice/cpu.max", "20000 100000\n",
				unified2+"user.slice/job/memory.max", "1073741824\n", unified2+"user.slice/job/memory.current", "2147483648\n"),
			quota: 0.2, workers: 1, limit: 1 << 30, free: 0,
		},
		{
			name:  "a container sees its own group as the topmost",
			host:  base(rootMount+"30 20 0:30 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/docker/abc/x\n").with(unified2+"x/cpu.max", "50000 100000"),
			quota: 0.5, workers: 1, free: 6 << 30,
		},
		{
			name:    "an invisible group has no limits",
			host:    base(rootMount+"30 20 0:30 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/elsewhere\n").with(unified2+"cpu.max", "50000 100000"),
			workers: 4, free: 6 << 30,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := inspect(c.host.write(t), "/home/alice")
			if err != nil {
				t.Fatal(err)
			}
			if m.Quota != c.quota || m.workers() != c.workers || m.Limit != c.limit || m.free != c.free {
				t.Errorf("quota %v, %d workers, limit %d, free %d; want %v, %d, %d, %d", m.Quota, m.workers(), m.Limit, m.free, c.quota, c.workers, c.limit, c.free)
			}
			if m.Host != "node7" || m.Kernel != "6.1.0" || m.Model != "Xeon 9" || m.CPUs != "0-2,5" || m.Memory != 8<<30 || m.Cache != 32<<20 || m.Storage != "server:/home nfs4 /home" {
				t.Errorf("%+v", m)
			}
		})
	}
}

func TestInspectRejectsInvalidFiles(t *testing.T) {
	for path, text := range map[string]string{
		unified2 + "user.slice/job/cpu.max":    "lots 100000",
		unified2 + "user.slice/job/memory.max": "-5",
		"proc/42/status":                       "Name:\tx\n",
		"proc/42/mountinfo":                    "nothing of the kind\n",
	} {
		if m, err := inspect(base(v2Mounts, v2Groups).with(path, text).write(t), "/"); err == nil {
			t.Errorf("%s %q: no error, %+v", path, text, m)
		}
	}
}

func TestParseQuota(t *testing.T) {
	for text, want := range map[string]float64{
		"max 100000": math.Inf(1), "-1 100000": math.Inf(1), "10000 100000": 0.1, "250000 100000": 2.5,
		"": 0, "10000": 0, "10000 0": 0, "0 100000": 0, "x 100000": 0, "10000 -1": 0, "1 2 3": 0, // 0: an error
	} {
		got, err := parseQuota(text)
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestCountCPUs(t *testing.T) {
	for list, want := range map[string][2]int{"": {}, "3": {3, 1}, "0-3": {0, 4}, "1-2,5,7-8": {1, 5}, "3-1": {}, "x": {}, "1,": {}, "0-99999999": {}} {
		if first, count := countCPUs(list); first != want[0] || count != want[1] {
			t.Errorf("%q: from %d on, %d of them, want %v", list, first, count, want)
		}
	}
}

// All that a measurement depends on changes the fingerprint; what changes from moment to
// moment does not.
func TestFingerprint(t *testing.T) {
	m, err := inspect(base(v2Mounts, v2Groups).write(t), "/home")
	if err != nil {
		t.Fatal(err)
	}
	same := m
	same.free = 7
	if m.Fingerprint("a") != same.Fingerprint("a") {
		t.Error("free memory changes the fingerprint")
	}
	seen := map[string]string{m.Fingerprint("a"): "itself", m.Fingerprint("b"): "another peer"}
	for name, change := range map[string]func(*Machine){
		"host": func(m *Machine) { m.Host = "b" }, "kernel": func(m *Machine) { m.Kernel = "b" }, "model": func(m *Machine) { m.Model = "b" },
		"CPUs": func(m *Machine) { m.CPUs = "0" }, "quota": func(m *Machine) { m.Quota = 0.2 }, "cache": func(m *Machine) { m.Cache++ },
		"memory": func(m *Machine) { m.Memory++ }, "limit": func(m *Machine) { m.Limit = 1 }, "storage": func(m *Machine) { m.Storage = "b" },
	} {
		other := m
		change(&other)
		seen[other.Fingerprint("a")] = name
	}
	if len(seen) != 11 {
		t.Errorf("some changes are not seen: %v", seen)
	}
}

// The limits of a real control group, of version 1, are read where one can be made.
func TestRealGroup(t *testing.T) {
	const cpu = "/sys/fs/cgroup/cpu"
	dir := filepath.Join(cpu, "allotment-test-"+strconv.Itoa(os.Getpid()))
	if os.Geteuid() != 0 || readText(cpu, "cpu.cfs_quota_us") == "" {
		t.Skip("skip: a control group with a CPU quota needs root and version 1 at " + cpu)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("skip: a control group with a CPU quota can't be made here:", err)
	}
	own := ""
	for line := range strings.Lines(readText("/proc/self", "cgroup")) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); fields[1] == "cpu" || fields[1] == "cpu,cpuacct" {
			own = filepath.Join(cpu, fields[2])
		}
	}
	move := func(to string) {
		if err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			t.Error(err)
		}
	}
	defer func() {
		move(own)
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte("40000"), 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := Inspect(".")
	if err != nil {
		t.Fatal(err)
	}
	move(dir)
	m, err := Inspect(".")
	if err != nil {
		t.Fatal(err)
	}
	if m.Quota != 0.4 || m.workers() != 1 || m.Fingerprint("") == before.Fingerprint("") {
		t.Errorf("in a group of 0.4 cores: %+v; before: %+v", m, before)
	}
}
