package miniq

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unit"
)

// Config is the section miniq of the config file.
type Config struct {
	Nodes        []Node        `yaml:"nodes"` // empty: one, this machine with all its cores and memory
	ScheduleBy   ScheduleBy    `yaml:"schedule_by"`
	ReserveAfter unit.Duration `yaml:"reserve_after"` // a job that waited so long reserves what it needs; 0: never
	Ageing       Ageing        `yaml:"ageing"`
	MaxJobs      int           `yaml:"max_jobs"`      // of a user that have not ended, elements each for itself; 0: any number
	MaxBytes     unit.Size     `yaml:"max_bytes"`     // of commands, scripts and environments of such jobs; 0: any
	KeepFinished unit.Duration `yaml:"keep_finished"` // how long an ended job is remembered
	EndHook      []string      `yaml:"end_hook"`      // a program and its arguments, run when a job has ended; empty: none
	Sendmail     string        `yaml:"sendmail"`      // the path of a program that takes a mail as sendmail does
	Environment  Environment   `yaml:"environment"`   // whose variables jobs have
}

// Ageing is how a waiting job's priority grows.
type Ageing struct {
	Interval unit.Duration `yaml:"interval"` // one more for each; 0: DefaultAgeing, or what pba.every says
	Cap      int           `yaml:"cap"`      // at most so many over a job's life; 0: jobs don't age
}

// Defaults of the section.
const (
	DefaultAgeing       = 20 * time.Second
	DefaultAgeCap       = 69
	DefaultReserveAfter = 10 * time.Minute
	DefaultMaxJobs      = 100_000
	DefaultMaxBytes     = 1 << 30
	DefaultKeepFinished = 7 * 24 * time.Hour
)

// DefaultConfig returns the values of keys that the file does not set.
func DefaultConfig() Config {
	return Config{
		ScheduleBy:   BySlotsAndMemory,
		ReserveAfter: unit.Duration(DefaultReserveAfter),
		Ageing:       Ageing{Cap: DefaultAgeCap},
		MaxJobs:      DefaultMaxJobs,
		MaxBytes:     DefaultMaxBytes,
		KeepFinished: unit.Duration(DefaultKeepFinished),
		Environment:  EnvironmentLSF,
		Sendmail:     "/usr/sbin/sendmail",
	}
}

// interval returns the ageing interval that is in force.
func (a Ageing) interval() time.Duration {
	if a.Interval == 0 {
		return DefaultAgeing
	}
	return time.Duration(a.Interval)
}

// Every returns the interval at which waiting jobs age; 0: they don't.
func (c Config) Every() time.Duration {
	if c.Ageing.Cap == 0 {
		return 0
	}
	return c.Ageing.interval()
}

// Validate checks the section as a whole.
func (c *Config) Validate() error {
	seen := make(map[string]bool, len(c.Nodes))
	for _, n := range c.Nodes {
		if seen[n.Name] {
			return fmt.Errorf("node %s is named twice", n.Name)
		}
		seen[n.Name] = true
	}
	if len(c.EndHook) > 0 && !filepath.IsAbs(c.EndHook[0]) {
		return fmt.Errorf("end_hook runs %q: name the program by its absolute path", c.EndHook[0])
	}
	if !filepath.IsAbs(c.Sendmail) {
		return fmt.Errorf("sendmail is %q: want the path of a program, such as /usr/sbin/sendmail", c.Sendmail)
	}
	if c.MaxJobs < 0 {
		return fmt.Errorf("max_jobs is %d, want 0 or more", c.MaxJobs)
	}
	if c.Ageing.Cap < 0 || c.Ageing.Cap > 999 {
		return fmt.Errorf("ageing.cap is %d, want 0 to 999", c.Ageing.Cap)
	}
	return nil
}

// ScheduleBy names what jobs are scheduled by.
type ScheduleBy string

// What jobs are scheduled by.
const (
	BySlotsAndMemory ScheduleBy = "slots+memory"
	BySlots          ScheduleBy = "slots"
)

// UnmarshalText reads one of the names.
func (s *ScheduleBy) UnmarshalText(text []byte) error {
	switch by := ScheduleBy(text); by {
	case BySlots, BySlotsAndMemory:
		*s = by
		return nil
	}
	return fmt.Errorf("%q: want %s or %s", text, BySlotsAndMemory, BySlots)
}

// Environment names the queuing system whose variables a job finds in its environment.
type Environment string

// The environments of jobs.
const (
	EnvironmentLSF   Environment = "lsf"
	EnvironmentSlurm Environment = "slurm" // Slurm's beside LSF's
)

// UnmarshalText reads one of the names.
func (e *Environment) UnmarshalText(text []byte) error {
	switch of := Environment(text); of {
	case EnvironmentLSF, EnvironmentSlurm:
		*e = of
		return nil
	}
	return fmt.Errorf("%q: want %s or %s", text, EnvironmentLSF, EnvironmentSlurm)
}

// Node is one host that miniq offers.
type Node struct {
	Name   string
	Slots  int
	Memory int64 // bytes; 0: not managed

	Has      []backends.Amount // countable resources beside slots and memory, by name
	Features []string          // by name, some with a value: rack=r1
}

const maxSlots = 1 << 20

// maxResources bounds a node's resources and features together.
const maxResources = 64

var (
	errNode     = errors.New("want NAME:SLOTS, NAME:SLOTS:MEMORY or NAME:SLOTS:MEMORY:RESOURCES, such as n1:4:16G or n1:4:16G:gpu=2,big,rack=r1")
	errResource = errors.New("want NAME=COUNT for what jobs use up, NAME for a feature and NAME=VALUE for one with a value, which begins with a letter, with commas between them, such as gpu=2,big,rack=r1")
)

// ParseNode reads n1:4:16G:gpu=2,big,rack=r1. Without memory (n1:4 or n1:4::big) the node does not
// manage it.
func ParseNode(s string) (Node, error) {
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 4 {
		return Node{}, fmt.Errorf("node %q: %w", s, errNode)
	}
	if err := CheckNodeName(parts[0]); err != nil {
		return Node{}, err
	}
	slots, err := strconv.Atoi(parts[1])
	if err != nil || slots < 1 || slots > maxSlots {
		return Node{}, fmt.Errorf("node %q: %q is no number of slots; %w", s, parts[1], errNode)
	}
	n := Node{Name: parts[0], Slots: slots}
	if len(parts) > 2 && (parts[2] != "" || len(parts) == 3) {
		memory, err := unit.ParseSize(parts[2])
		if err != nil {
			return Node{}, fmt.Errorf("node %q: memory %w", s, err)
		}
		n.Memory = int64(memory)
	}
	if len(parts) > 3 {
		if err := n.parseResources(parts[3]); err != nil {
			return Node{}, fmt.Errorf("node %q: %w", s, err)
		}
	}
	return n, nil
}

// parseResources reads gpu=2,big,rack=r1.
func (n *Node) parseResources(s string) error {
	seen := map[string]bool{}
	for item := range strings.SplitSeq(s, ",") {
		name, count, counted := strings.Cut(item, "=")
		switch {
		case !backends.IsResourceName(name):
			return fmt.Errorf("%q: %w", item, errResource)
		case seen[name]:
			return fmt.Errorf("%s is named twice", name)
		case len(seen) == maxResources:
			return fmt.Errorf("more than %d resources and features", maxResources)
		case name == "mem":
			return errors.New("mem: memory is what stands before the resources, such as n1:4:16G:gpu=2")
		case name == "hname" || name == "ncpus" || name == "maxmem":
			return fmt.Errorf("%s: every host has it anyway, from its name, slots and memory", name)
		}
		seen[name] = true
		if !counted {
			n.Features = append(n.Features, name)
			continue
		}
		if isFeatureValue(count) {
			n.Features = append(n.Features, item)
			continue
		}
		units, err := strconv.Atoi(count)
		if err != nil || units < 1 || units > maxSlots {
			return fmt.Errorf("%q: %w", item, errResource)
		}
		n.Has = append(n.Has, backends.Amount{Name: name, Count: units})
	}
	slices.SortFunc(n.Has, func(a, b backends.Amount) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(n.Features)
	return nil
}

// isFeatureValue reports whether a text can be the value of a feature: a letter, then letters,
// digits, dot, dash and underscore, 64 at most.
func isFeatureValue(s string) bool {
	return s != "" && len(s) <= 64 && backends.IsResourceName(s[:1]) && backends.IsResourceName(strings.NewReplacer(".", "_", "-", "_").Replace(s))
}

// CheckNodeName returns an error if a name can't be a node's, and so a directory's.
func CheckNodeName(name string) error {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	if name == "" || len(name) > 64 || strings.Trim(name[:1], letters) != "" || strings.Trim(name, letters+"._-") != "" {
		return fmt.Errorf("node name %q: want a letter or digit, then letters, digits, dot, dash or underscore, 64 at most", name)
	}
	return nil
}

// UnmarshalText is ParseNode.
func (n *Node) UnmarshalText(text []byte) error {
	parsed, err := ParseNode(string(text))
	if err != nil {
		return err
	}
	*n = parsed
	return nil
}

// MarshalText is String.
func (n Node) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// String writes what ParseNode reads.
func (n Node) String() string {
	s := n.Name + ":" + strconv.Itoa(n.Slots)
	var resources []string
	for _, a := range n.Has {
		resources = append(resources, a.Name+"="+strconv.Itoa(a.Count))
	}
	resources = append(resources, n.Features...)
	switch {
	case n.Memory > 0:
		s += ":" + unit.Size(n.Memory).String()
	case len(resources) > 0:
		s += ":"
	}
	if len(resources) > 0 {
		s += ":" + strings.Join(resources, ",")
	}
	return s
}

// ThisMachine is the node of a config that names none: this host, all its cores
// and all its memory.
func ThisMachine() Node {
	name, err := os.Hostname()
	name, _, _ = strings.Cut(name, ".")
	if err != nil || CheckNodeName(name) != nil {
		name = "localhost"
	}
	var info unix.Sysinfo_t
	var memory int64
	if unix.Sysinfo(&info) == nil {
		memory = int64(info.Totalram) * int64(info.Unit)
	}
	return Node{Name: name, Slots: runtime.NumCPU(), Memory: memory}
}
