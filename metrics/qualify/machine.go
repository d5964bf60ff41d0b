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
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/unit"
)

// Machine is this host, and what of it a job may use. A measurement holds for as long
// as none of this changes.
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
	free  uint64 // memory that may be taken now
}

// Fingerprint changes with all that makes a measurement worthless: the machine, its
// limits, and which host the way leads to ("": none).
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

// workers is how many threads use all that may be used.
func (m Machine) workers() int {
	if m.Quota > 0 {
		return max(1, min(m.cores, int(math.Ceil(m.Quota))))
	}
	return max(1, m.cores)
}

// usable is the memory that the job may use, in bytes.
func (m Machine) usable() uint64 {
	if m.Limit > 0 {
		return min(m.Limit, m.Memory)
	}
	return m.Memory
}

// Look reads what this process may use of this host, for work in a directory.
func Look(dir string) (Machine, error) {
	m, err := look("/", dir)
	if err != nil {
		return Machine{}, fmt.Errorf("find out what may be used of this host: %w", err)
	}
	for _, resource := range []int{unix.RLIMIT_AS, unix.RLIMIT_DATA} {
		var limit unix.Rlimit
		if unix.Getrlimit(resource, &limit) == nil && limit.Cur < m.usable() {
			m.Limit, m.free = limit.Cur, min(m.free, limit.Cur)
		}
	}
	return m, nil
}

// look is Look below another root, without this process's resource limits.
func look(root, dir string) (Machine, error) {
	dir, err := filepath.Abs(dir)
	if err == nil && root == "/" {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return Machine{}, err
	}
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return Machine{}, err
	}
	self, err := proc.Self()
	if err != nil {
		return Machine{}, err
	}
	status, err := self.NewStatus()
	groups, err2 := self.Cgroups()
	mounts, err3 := self.MountInfo()
	memory, err4 := proc.Meminfo()
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return Machine{}, err
	}
	if memory.MemTotalBytes == nil || len(status.CpusAllowedList) == 0 {
		return Machine{}, errors.New("/proc tells neither this host's memory nor which CPUs may be used")
	}
	m := Machine{
		Host: readText(root, "proc/sys/kernel/hostname"), Kernel: readText(root, "proc/sys/kernel/osrelease"),
		Model: model(proc), CPUs: list(status.CpusAllowedList), Memory: *memory.MemTotalBytes,
		Storage: storageOf(mounts, dir), Cache: largestCache(root, status.CpusAllowedList[0]),
		cores: len(status.CpusAllowedList), free: *memory.MemTotalBytes,
	}
	if memory.MemAvailableBytes != nil {
		m.free = *memory.MemAvailableBytes
	}
	if m.Quota, err = cpuQuota(root, groups, mounts); err != nil {
		return Machine{}, err
	}
	limit, left, err := memoryLimit(root, groups, mounts)
	if limit < m.Memory {
		m.Limit = limit
	}
	m.free = min(m.free, left)
	return m, err
}

// readText is what a small file says; "" if it can't be read.
func readText(root, path string) string {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// model names the CPU as far as the kernel does.
func model(proc procfs.FS) string {
	all, err := proc.CPUInfo()
	if err != nil || len(all) == 0 {
		return runtime.GOARCH
	}
	c := all[0]
	return cmp.Or(c.ModelName, strings.TrimSpace(strings.Join([]string{c.VendorID, c.CPUFamily, c.Model, c.Stepping}, " ")), runtime.GOARCH)
}

// largestCache is the size of a CPU's largest cache; 0 if the kernel doesn't tell.
func largestCache(root string, cpu uint64) uint64 {
	largest := uint64(0)
	for index := range 8 {
		text := readText(root, fmt.Sprintf("sys/devices/system/cpu/cpu%d/cache/index%d/size", cpu, index))
		if size, err := unit.ParseSize(text); err == nil {
			largest = max(largest, uint64(size))
		}
	}
	return largest
}

// list writes numbers as the kernel does: 0-3,7.
func list(cpus []uint64) string {
	cpus = slices.Clone(cpus)
	slices.Sort(cpus)
	var b strings.Builder
	for i := 0; i < len(cpus); {
		last := i
		for last+1 < len(cpus) && cpus[last+1] == cpus[last]+1 {
			last++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatUint(cpus[i], 10))
		if last > i {
			b.WriteByte('-')
			b.WriteString(strconv.FormatUint(cpus[last], 10))
		}
		i = last + 1
	}
	return b.String()
}

// storageOf names the file system of a directory: what is mounted, its type and where.
func storageOf(mounts []*procfs.MountInfo, dir string) string {
	var found *procfs.MountInfo
	for _, m := range mounts {
		if under(m.MountPoint, dir) && (found == nil || len(m.MountPoint) >= len(found.MountPoint)) {
			found = m // of two at one place the later one hides the other
		}
	}
	if found == nil {
		return ""
	}
	return found.Source + " " + found.FSType + " " + found.MountPoint
}

// under tells whether a path is a directory or below it.
func under(dir, path string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}
