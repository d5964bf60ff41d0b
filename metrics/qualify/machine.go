package qualify

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/proc"
	"github.com/allotment-hpc/allotment/internal/unit"
)

// Machine is this host, and what of it a job may use. A measurement is valid until any of
// this changes.
type Machine struct {
	Host    string  `json:"host"`
	Kernel  string  `json:"kernel"`
	Model   string  `json:"model"`              // of the CPU
	CPUs    string  `json:"cpus"`               // that may be used: 0-3,7
	Quota   float64 `json:"quota_cores"`        // CPU time in a second of wall time; 0: no quota
	Cache   uint64  `json:"cache_bytes"`        // the largest one of the CPU
	Memory  uint64  `json:"memory_bytes"`       // of the host
	Limit   uint64  `json:"memory_limit_bytes"` // of the job; 0: none
	Storage string  `json:"storage"`            // the file system that is measured

	cores int
	free  uint64 // memory that may be allocated now
}

// Fingerprint returns a hash of all that a measurement depends on: the machine, its
// limits, and the host at the link's other end ("": none).
func (m Machine) Fingerprint(peer string) string {
	text, err := json.Marshal(struct {
		Machine
		Peer    string
		Version int
	}{m, peer, version})
	if err != nil {
		panic(err) // texts and finite numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// workers returns the number of threads that use all allowed CPU time.
func (m Machine) workers() int {
	if m.Quota > 0 {
		return max(1, min(m.cores, int(math.Ceil(m.Quota))))
	}
	return max(1, m.cores)
}

// usable returns the memory that the job may use, in bytes.
func (m Machine) usable() uint64 {
	if m.Limit > 0 {
		return min(m.Limit, m.Memory)
	}
	return m.Memory
}

// Inspect returns what this process may use of this host, for work in a directory.
func Inspect(dir string) (Machine, error) {
	m, err := inspect("/", dir)
	if err != nil {
		return Machine{}, fmt.Errorf("inspect this host: %w", err)
	}
	for _, resource := range []int{unix.RLIMIT_AS, unix.RLIMIT_DATA} {
		var limit unix.Rlimit
		if unix.Getrlimit(resource, &limit) == nil && limit.Cur < m.usable() {
			m.Limit, m.free = limit.Cur, min(m.free, limit.Cur)
		}
	}
	return m, nil
}

// inspect is Inspect below another root, without this process's resource limits.
func inspect(root, dir string) (Machine, error) {
	dir, err := filepath.Abs(dir)
	if err == nil && root == "/" {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return Machine{}, err
	}
	status, err := os.ReadFile(filepath.Join(root, "proc/self/status"))
	memory, err2 := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	mountinfo, err3 := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err := errors.Join(err, err2, err3); err != nil {
		return Machine{}, err
	}
	total, found := proc.Bytes(memory, "MemTotal")
	cpus := proc.Value(status, "Cpus_allowed_list")
	first, cores := countCPUs(cpus)
	mounts, groups := proc.Mounts(string(mountinfo)), readText(root, "proc/self/cgroup")
	if !found || cores == 0 || len(mounts) == 0 {
		return Machine{}, errors.New("/proc lacks this host's memory size, its allowed CPUs or its mounts")
	}
	m := Machine{
		Host: readText(root, "proc/sys/kernel/hostname"), Kernel: readText(root, "proc/sys/kernel/osrelease"),
		Model: model(readText(root, "proc/cpuinfo")), CPUs: cpus, Memory: uint64(total),
		Storage: storageOf(mounts, dir), Cache: largestCache(root, first),
		cores: cores, free: uint64(total),
	}
	if free, found := proc.Bytes(memory, "MemAvailable"); found {
		m.free = uint64(free)
	}
	cpu, _ := proc.FindGroup(groups, mounts, "cpu")
	if m.Quota, err = cpuQuota(root, cpu); err != nil {
		return Machine{}, err
	}
	ram, _ := proc.FindGroup(groups, mounts, "memory")
	limit, left, err := memoryLimit(root, ram)
	if limit < m.Memory {
		m.Limit = limit
	}
	m.free = min(m.free, left)
	return m, err
}

// readText returns the content of a small file, trimmed; "" if it can't be read.
func readText(root, path string) string {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// model returns the name of the first CPU, as far as the kernel knows it.
func model(cpuinfo string) string {
	value := func(name string) string { return proc.Value([]byte(cpuinfo), name) }
	return cmp.Or(value("model name"), strings.TrimSpace(strings.Join([]string{value("vendor_id"), value("cpu family"), value("model"), value("stepping")}, " ")), runtime.GOARCH)
}

// largestCache returns the size of a CPU's largest cache, in bytes; 0 if the kernel does
// not show it.
func largestCache(root string, cpu int) uint64 {
	largest := uint64(0)
	for index := range 8 {
		text := readText(root, fmt.Sprintf("sys/devices/system/cpu/cpu%d/cache/index%d/size", cpu, index))
		if size, err := unit.ParseSize(text); err == nil {
			largest = max(largest, uint64(size))
		}
	}
	return largest
}

// countCPUs reads a list as the kernel writes it, 0-3,7. It returns the first number and
// the count; 0 if it is not such a list.
func countCPUs(list string) (first, count int) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		low, err := strconv.Atoi(from)
		high := low
		if isRange && err == nil {
			high, err = strconv.Atoi(to)
		}
		if err != nil || low < 0 || high < low || high > maxCPU {
			return 0, 0
		}
		if count == 0 {
			first = low
		}
		count += high - low + 1
	}
	return first, count
}

// maxCPU is above the number of any CPU.
const maxCPU = 1 << 16

// storageOf names the file system of a directory: what is mounted, its type and where.
func storageOf(mounts []proc.Mount, dir string) string {
	found := proc.Mount{}
	for _, m := range mounts {
		if under(m.Point, dir) && len(m.Point) >= len(found.Point) {
			found = m // a later mount hides an earlier one at the same place
		}
	}
	if found.Point == "" {
		return ""
	}
	return found.Source + " " + found.Type + " " + found.Point
}

// under reports whether a path is a directory or below it.
func under(dir, path string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}
