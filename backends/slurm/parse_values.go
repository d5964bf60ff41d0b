package slurm

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/unit"
)

func absent(s string) string {
	if s == "(null)" || s == "N/A" {
		return ""
	}
	return s
}

// parseTime reads seconds of Unix time, which SLURM_TIME_FORMAT asks for.
func parseTime(s string) (time.Time, error) {
	switch s {
	case "N/A", "NONE", "Unknown", "None", "":
		return time.Time{}, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return time.Time{}, fmt.Errorf("%q is no time in seconds", s)
	}
	return unix(s), nil
}

// parseDuration reads days-hours:minutes:seconds; no limit is 0.
func parseDuration(s string) (time.Duration, error) {
	switch s {
	case "UNLIMITED", "NOT_SET", "Partition_Limit", "INVALID", "N/A", "", // squeue
		"NONE", "infinite", "n/a": // scontrol and sinfo, of partitions
		return 0, nil
	}
	days, rest, hasDays := strings.Cut(s, "-")
	if !hasDays {
		days, rest = "0", s
	}
	d, err := strconv.ParseUint(days, 10, 16)
	total, parts := int64(d)*24, strings.Count(rest, ":")+1
	if err != nil || parts < 2 || parts > 3 {
		return 0, noDuration(s)
	}
	hours := parts == 3
	for part := range strings.SplitSeq(rest, ":") {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return 0, noDuration(s)
		}
		if !hours {
			total *= 60
		}
		total, hours = total+int64(n), false
	}
	if total > int64(math.MaxInt64/time.Second) {
		return 0, noDuration(s)
	}
	return time.Duration(total) * time.Second, nil
}

func noDuration(s string) error { return fmt.Errorf("%q is no duration", s) }

// parseTRES reads the memory, in bytes, of "cpu=2,mem=128M,node=1".
func parseTRES(s string) (int64, error) {
	for part := range strings.SplitSeq(s, ",") {
		if size, ok := strings.CutPrefix(part, "mem="); ok {
			return parseMemory(size)
		}
	}
	return 0, nil
}

// parseMemory reads 128M or 1.50G; without a unit it is MiB, as all of Slurm's.
func parseMemory(s string) (int64, error) {
	bytes, ok := unit.ParseBytes(s, 1<<20)
	if !ok || bytes > math.MaxInt64/2 {
		return 0, fmt.Errorf("%q is no size of memory", s)
	}
	return int64(bytes), nil
}

// maxHosts is the most that one list of hosts may name.
const maxHosts = 1 << 16

// parseHosts reads a list such as "n1,rack[1-2]n[08-10,12]".
func parseHosts(s string) ([]string, error) {
	if absent(s) == "" {
		return nil, nil
	}
	var all []string
	depth, begin := 0, 0
	for i := 0; i <= len(s); i++ {
		switch {
		case i == len(s) && depth != 0:
			return nil, fmt.Errorf("%q is no list of hosts", s)
		case i == len(s) || s[i] == ',' && depth == 0:
			hosts, err := expandHosts(s[begin:i])
			if err != nil || len(all)+len(hosts) > maxHosts {
				return nil, fmt.Errorf("%q is no list of hosts", s)
			}
			all, begin = append(all, hosts...), i+1
		case s[i] == '[':
			depth++
		case s[i] == ']':
			depth--
		}
		if depth < 0 || depth > 1 {
			return nil, fmt.Errorf("%q is no list of hosts", s)
		}
	}
	return all, nil
}

var errHosts = errors.New("no list of hosts")

// expandHosts reads one name with its ranges in brackets.
func expandHosts(s string) ([]string, error) {
	if s == "" {
		return nil, errHosts
	}
	head, rest, bracket := strings.Cut(s, "[")
	if !bracket {
		return []string{s}, nil
	}
	ranges, tail, closed := strings.Cut(rest, "]")
	if !closed {
		return nil, errHosts
	}
	tails := []string{""}
	if tail != "" {
		var err error
		if tails, err = expandHosts(tail); err != nil {
			return nil, err
		}
	}
	var all []string
	for r := range strings.SplitSeq(ranges, ",") {
		first, last, ok := strings.Cut(r, "-")
		if !ok {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 32)
		to, err2 := strconv.ParseUint(last, 10, 32)
		if err1 != nil || err2 != nil || to < from || (to-from+1)*uint64(len(tails)) > maxHosts || len(all) > maxHosts {
			return nil, errHosts
		}
		for n := from; n <= to; n++ {
			for _, t := range tails {
				all = append(all, fmt.Sprintf("%s%0*d%s", head, len(first), n, t))
			}
		}
	}
	return all, nil
}
