package qualify

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/internal/proc"
)

// cpuQuota returns the CPU time, in cores, that this process's groups may have; 0: no
// limit.
func cpuQuota(root string, g proc.Group) (float64, error) {
	least := math.Inf(1)
	for _, dir := range g.Chain() {
		dir = filepath.Join(root, dir)
		var text string
		var err error
		if g.V2 {
			text, err = readSetting(dir, "cpu.max")
		} else {
			quota, err1 := readSetting(dir, "cpu.cfs_quota_us")
			period, err2 := readSetting(dir, "cpu.cfs_period_us")
			text, err = strings.TrimSpace(quota+" "+period), errors.Join(err1, err2)
		}
		if err == nil && text != "" {
			var cores float64
			cores, err = parseQuota(text)
			least = min(least, cores)
		}
		if err != nil {
			return 0, fmt.Errorf("CPU quota of %s: %w", dir, err)
		}
	}
	if math.IsInf(least, 1) {
		return 0, nil
	}
	return least, nil
}

// parseQuota reads QUOTA PERIOD in cores: +Inf if the quota is "max" or, as version 1
// says it, negative.
func parseQuota(text string) (float64, error) {
	quota, period, ok := strings.Cut(text, " ")
	p, err := strconv.ParseUint(period, 10, 63)
	if !ok || err != nil || p == 0 {
		return 0, fmt.Errorf("%q is not a quota and a period", text)
	}
	if quota == "max" {
		return math.Inf(1), nil
	}
	q, err := strconv.ParseInt(quota, 10, 64)
	switch {
	case err != nil || q == 0:
		return 0, fmt.Errorf("%q is not a quota and a period", text)
	case q < 0:
		return math.Inf(1), nil
	}
	return float64(q) / float64(p), nil
}

// memoryLimit returns the memory that this process's groups may have, and how much of it
// is left, in bytes; MaxUint64: no limit.
func memoryLimit(root string, g proc.Group) (limit, left uint64, err error) {
	most, now := "memory.limit_in_bytes", "memory.usage_in_bytes"
	if g.V2 {
		most, now = "memory.max", "memory.current"
	}
	limit, left = math.MaxUint64, math.MaxUint64
	for _, dir := range g.Chain() {
		dir = filepath.Join(root, dir)
		here, err1 := readBytes(dir, most, math.MaxUint64)
		used, err2 := readBytes(dir, now, 0)
		if err := errors.Join(err1, err2); err != nil {
			return 0, 0, fmt.Errorf("memory limit of %s: %w", dir, err)
		}
		limit = min(limit, here)
		left = min(left, here-min(used, here))
	}
	return limit, left, nil
}

func readBytes(dir, name string, fallback uint64) (uint64, error) {
	text, err := readSetting(dir, name)
	if err != nil || text == "" {
		return fallback, err
	}
	return parseBytes(text)
}

// parseBytes reads a number of bytes; "max" is the largest.
func parseBytes(text string) (uint64, error) {
	if text == "max" {
		return math.MaxUint64, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of bytes", text)
	}
	return n, nil
}

// readSetting returns the content of a group's file; "" if the group has no such file, as
// the topmost group of version 2, or it may not be read.
func readSetting(dir, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}
