package limit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/allotment-hpc/allotment/agent/supervise"
)

// knob is one value that a control group has: a file's, or a line's of a file that has one for each device.
type knob struct {
	File string
	Line string `json:",omitempty"` // the line's first word: a device, or "default"; "": the file has one value
}

func (k knob) compare(other knob) int {
	return cmp.Or(cmp.Compare(k.File, other.File), cmp.Compare(k.Line, other.Line))
}

// kind is how a knob's values are written, by its file.
type kind struct {
	controller string // in whose tree of version 1 the file is; "": it is of version 2
	value      *regexp.Regexp
	none       string // the value of a line that is not there
}

var (
	anyNumber = regexp.MustCompile(`^-?[0-9]{1,19}$`)
	anyRates  = regexp.MustCompile(`^rbps=(max|[0-9]{1,19}) wbps=(max|[0-9]{1,19}) riops=(max|[0-9]{1,19}) wiops=(max|[0-9]{1,19})$`)
)

// Files of control groups (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1 of the kernel).
const (
	cpuWeight = "cpu.weight"
	cpuMax    = "cpu.max"
	ioWeight  = "io.weight"
	ioMax     = "io.max"
	freezing  = "cgroup.freeze"

	cpuShares = "cpu.shares"
	cpuQuota  = "cpu.cfs_quota_us"
	cpuPeriod = "cpu.cfs_period_us"
	blkRead   = "blkio.throttle.read_bps_device"
	blkWrite  = "blkio.throttle.write_bps_device"
	freezer   = "freezer.state"
)

var kinds = map[string]kind{
	cpuWeight: {value: anyNumber},
	cpuMax:    {value: regexp.MustCompile(`^(max|[0-9]{1,19}) [0-9]{1,19}$`)},
	ioWeight:  {value: anyNumber, none: "100"},
	ioMax:     {value: anyRates, none: "rbps=max wbps=max riops=max wiops=max"},
	freezing:  {value: regexp.MustCompile(`^[01]$`)},

	cpuShares: {controller: "cpu", value: anyNumber},
	cpuQuota:  {controller: "cpu", value: anyNumber},
	blkRead:   {controller: "blkio", value: anyNumber, none: "0"},
	blkWrite:  {controller: "blkio", value: anyNumber, none: "0"},
	freezer:   {controller: "freezer", value: regexp.MustCompile(`^(FROZEN|THAWED)$`)},
}

// freezes returns what is written to thaw a group, and to freeze it.
func freezes(k knob) [2]string {
	if k.File == freezing {
		return [2]string{"0", "1"}
	}
	return [2]string{"THAWED", frozen}
}

const (
	maxFile    = 64 << 10
	maxDevices = 16 // that are limited
	frozen     = "FROZEN"
)

var errNoSuchRung = errors.New("there is no such limit")

// file reads a file of a control group.
func (g *Group) file(name, controller string) (string, error) {
	dir, ok := g.Dirs[controller]
	if !ok {
		return "", fmt.Errorf("the job has no control group with %s", name)
	}
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("the job's control group has no %s: %w", name, err)
	}
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(text), errors.Join(err, f.Close())
}

// read returns a knob's value.
func (g *Group) read(k knob) (string, error) {
	kind := kinds[k.File]
	text, err := g.file(k.File, kind.controller)
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(text)
	if k.Line != "" {
		value = kind.none
		for line := range strings.Lines(text) {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), k.Line+" "); ok {
				value = rest
			}
		}
	}
	if value == "FREEZING" {
		value = frozen
	}
	if !kind.value.MatchString(value) {
		return "", fmt.Errorf("%s is %q", k.File, value)
	}
	return value, nil
}

// write writes a knob's value, and reads it back.
func (g *Group) write(k knob, value string) error {
	if err := g.put(k, value); err != nil {
		return err
	}
	is, err := g.read(k)
	if err == nil && is != value {
		err = fmt.Errorf("%s is %q after %q was written", k.File, is, value)
	}
	return err
}

// put writes a knob's value.
func (g *Group) put(k knob, value string) error {
	kind := kinds[k.File]
	if !kind.value.MatchString(value) {
		return fmt.Errorf("%s can't be %q", k.File, value)
	}
	text := value
	if k.Line != "" {
		text = k.Line + " " + value
	}
	// One write, of a file that is there: a control group's files are not made by who writes them.
	f, err := os.OpenFile(filepath.Join(g.Dirs[kind.controller], k.File), os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// turn is a knob with the function that makes the limit's value from the one that the queue has set.
type turn struct {
	knob
	value func(before string) (string, error)
}

// turns returns what a setting changes in its group. disks returns the numbers of the host's disks.
func (s *Setting) turns(disks func() ([]string, error)) ([]turn, error) {
	if s.Value < 1 && s.Rung != supervise.Freeze || s.Value >= 100 && s.Rung == supervise.Weight || s.Value >= 1000 && s.Rung == supervise.Duty {
		return nil, fmt.Errorf("%w: %s %s %d", errNoSuchRung, s.Resource, s.Rung, s.Value)
	}
	v2 := s.Group.Dirs[""] != ""
	either := func(two, one string) knob {
		if v2 {
			return knob{File: two}
		}
		return knob{File: one}
	}
	switch {
	case s.Resource == supervise.Memory && s.Rung == supervise.Freeze, s.Resource != supervise.Memory && s.Rung == supervise.Duty:
		k := either(freezing, freezer)
		values := freezes(k)
		return []turn{{k, func(before string) (string, error) {
			if s.Rung == supervise.Duty && before == values[1] {
				return "", errors.New("the job is frozen, and not by a limit")
			}
			return values[1], nil
		}}}, nil
	case s.Resource == supervise.CPU && s.Rung == supervise.Weight:
		return []turn{{either(cpuWeight, cpuShares), func(before string) (string, error) { return percent(before, s.Value, v2) }}}, nil
	case s.Resource == supervise.CPU && s.Rung == supervise.Rate && v2:
		return []turn{{knob{File: cpuMax}, func(before string) (string, error) {
			quota, period, _ := strings.Cut(before, " ")
			quota, err := s.quota(quota, period)
			return quota + " " + period, err
		}}}, nil
	case s.Resource == supervise.CPU && s.Rung == supervise.Rate:
		return []turn{{knob{File: cpuQuota}, func(before string) (string, error) {
			period, err := s.Group.file(cpuPeriod, "cpu")
			if err != nil {
				return "", err
			}
			return s.quota(before, strings.TrimSpace(period))
		}}}, nil
	case s.Resource == supervise.Disk && s.Rung == supervise.Weight && v2:
		return []turn{{knob{ioWeight, "default"}, func(before string) (string, error) { return percent(before, s.Value, v2) }}}, nil
	case s.Resource == supervise.Disk && s.Rung == supervise.Rate:
		return s.diskTurns(v2, disks)
	}
	return nil, fmt.Errorf("%w: %s %s, in control groups of version %d", errNoSuchRung, s.Resource, s.Rung, version(v2))
}

func version(v2 bool) int {
	if v2 {
		return 2
	}
	return 1
}

// diskTurns limits what is read from, and what is written to, each of the host's disks.
func (s *Setting) diskTurns(v2 bool, disks func() ([]string, error)) (all []turn, err error) {
	devices, err := disks()
	if err != nil {
		return nil, err
	}
	for _, device := range devices {
		if v2 {
			all = append(all, turn{knob{ioMax, device}, func(before string) (string, error) {
				words := strings.Fields(before)
				for i, name := range []string{"rbps=", "wbps="} {
					words[i] = name + least(strings.TrimPrefix(words[i], name), "max", max(leastRate, s.Value))
				}
				return strings.Join(words, " "), nil
			}})
			continue
		}
		for _, file := range []string{blkRead, blkWrite} {
			all = append(all, turn{knob{file, device}, func(before string) (string, error) { return least(before, "0", s.Value), nil }})
		}
	}
	if len(all) == 0 {
		return nil, errors.New("this host has no disk")
	}
	return all, nil
}

// leastRate is the least that the kernel takes of version 2, in bytes a second.
const leastRate = 2

var device = regexp.MustCompile(`^[0-9]{1,7}:[0-9]{1,7}$`)

// disks returns the numbers of this host's disks that have a size: the kernel limits whole disks alone.
// What a group has used does not say: of version 1 it names no disk without a limit since Linux 6.10.
func disks() (all []string, err error) {
	const block = "/sys/block"
	entries, err := os.ReadDir(block)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		size, err := os.ReadFile(filepath.Join(block, e.Name(), "size"))
		if err != nil || strings.TrimSpace(string(size)) == "0" {
			continue
		}
		number, err := os.ReadFile(filepath.Join(block, e.Name(), "dev"))
		if text := strings.TrimSpace(string(number)); err == nil && device.MatchString(text) && len(all) < maxDevices {
			all = append(all, text)
		}
	}
	return all, nil
}

// least returns the smaller of a value and of a limit, where none is as much as there is.
func least(value, none string, limit int64) string {
	n, err := strconv.ParseInt(value, 10, 64)
	if value == none || err != nil || n > limit {
		n = limit
	}
	return strconv.FormatInt(n, 10)
}

// percent returns so many percent of a weight. The kernel's least are 1 and, for shares of version 1, 2.
func percent(weight string, value int64, v2 bool) (string, error) {
	n, err := strconv.ParseInt(weight, 10, 32)
	if err != nil || n < 1 {
		return "", fmt.Errorf("a weight of %q", weight)
	}
	fewest := int64(2)
	if v2 {
		fewest = 1
	}
	return strconv.FormatInt(max(fewest, min(n, n*value/100)), 10), nil
}

// leastQuota is the least that the kernel takes, in µs.
const leastQuota = 1000

// quota returns the processor time that a rate in milli-cores leaves in a period, in µs, and no more than
// the queue has set.
func (s *Setting) quota(before, period string) (string, error) {
	p, err := strconv.ParseInt(period, 10, 64)
	if err != nil || p < 1 || p > math.MaxInt32 || s.Value > math.MaxInt32 {
		return "", fmt.Errorf("%d milli-cores in a period of %q µs", s.Value, period)
	}
	quota := max(leastQuota, s.Value*p/1000)
	if n, err := strconv.ParseInt(before, 10, 64); err == nil && n > 0 {
		quota = min(quota, n)
	}
	return strconv.FormatInt(quota, 10), nil
}
