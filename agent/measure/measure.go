// Package measure measures what each job uses on this host, whatever queue started it.
//
// A job is found by its control group, of version 2 or 1, where its queue makes one
// (Slurm, LSF); by its processes' control group; or by what its queue put into its
// processes' environment. What a job's control group counts is taken from there, and the
// rest is summed from its processes. What neither says is absent, never zero, and
// Sample.Lacks says why.
//
// Files are read by this package itself, with descriptors that stay open. The kept libraries
// open each file by its path each time: prometheus/procfs 0.23 takes 51 µs for stat, statm
// and io of a process, which is the whole budget (200 jobs of 5 processes, 1 % of a core at
// 5 s); read from open descriptors they take 8 µs. containerd/cgroups/v3 does the same for
// groups, and a file that is not there is 0 in its answer, where absent is wanted.
package measure

import (
	"cmp"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Value is a figure, or absent where it can't be measured.
type Value struct {
	N     uint64
	Known bool
}

func known(n uint64) Value { return Value{n, true} }

// or returns the value, or another one where it is absent.
func (v Value) or(other Value) Value {
	if v.Known {
		return v
	}
	return other
}

// Rise returns by how much a counter has risen in each second since it was another value; false: that is not
// known. One that is smaller than it was began anew.
func (v Value) Rise(since Value, seconds float64) (perSecond float64, known bool) {
	if !since.Known || !v.Known || seconds <= 0 || v.N < since.N {
		return 0, false
	}
	return float64(v.N-since.N) / seconds, true
}

// Source says where a job's figures are from.
type Source string

// The sources. What a control group lacks is from processes, too.
const (
	FromGroupV2   Source = "cgroup2"
	FromGroupV1   Source = "cgroup1"
	FromProcesses Source = "processes"
)

// Queue is the queue that a job is of.
type Queue string

// The queues whose jobs are found.
const (
	Slurm Queue = "slurm"
	LSF   Queue = "lsf"
	Miniq Queue = "miniq"
)

// NoUser is the User of a job whose owner is not known.
const NoUser = -1

// Key names a job on this host. Any user can write a job's ID into an environment: so what
// a user's processes claim is counted under that user's own ID.
type Key struct {
	Queue Queue
	ID    backends.ID
	User  int // user ID
}

// Compare orders jobs by queue, ID and user.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Queue, other.Queue), k.ID.Compare(other.ID), cmp.Compare(k.User, other.User))
}

// Job is what a job uses on this host.
type Job struct {
	Key
	Source Source
	Run    int // of Slurm, from 1: its restart count and one; 0: not known yet, or of another queue

	CPU       Value // processor time of all that ran, ended or not, in ns
	Memory    Value // bytes: what its control group is charged for, with files' cache; of processes, what is resident, shared pages once
	Cache     Value // bytes of Memory that are files' cache
	Peak      Value // the most Memory: the kernel's own where it keeps one, else of the samples
	Swap      Value // bytes
	Processes Value
	Threads   Value
	Disks     []Disk // by device; of processes one without a name, for all devices; none: not measured
	Pressure  Pressure
	Network   Network
	GPU       GPUUse   // in sum
	GPUs      []JobGPU // those that it uses, by their indexes; not in reports
}

// Disk is what a job moved to and from a device; network file systems are not in it.
type Disk struct {
	Device                                 string // the kernel's name; "": all devices
	ReadBytes, WrittenBytes, Reads, Writes Value
}

// SumDisks adds up a job's disks. What one of them lacks is absent.
func SumDisks(disks []Disk) (all Disk) {
	if disks != nil { // of none, too
		zero := known(0)
		all = Disk{ReadBytes: zero, WrittenBytes: zero, Reads: zero, Writes: zero}
	}
	for i := range disks {
		d := &disks[i]
		for _, x := range []struct{ to, from *Value }{{&all.ReadBytes, &d.ReadBytes}, {&all.WrittenBytes, &d.WrittenBytes}, {&all.Reads, &d.Reads}, {&all.Writes, &d.Writes}} {
			*x.to = Value{N: x.to.N + x.from.N, Known: x.from.Known && x.to.Known}
		}
	}
	return all
}

// Pressure is for how long some, or all, of a job's tasks stalled, in ns.
type Pressure struct{ CPUSome, MemorySome, MemoryFull, IOSome, IOFull Value }

// Figure is a kind of figure that a job can lack.
type Figure string

// The figures.
const (
	CPU            Figure = "cpu"
	Memory         Figure = "memory"
	Swap           Figure = "swap"
	DiskBytes      Figure = "disk_bytes"
	DiskOperations Figure = "disk_operations"
	PressureStalls Figure = "pressure"
	Threads        Figure = "threads"
	NetworkBytes   Figure = "network"
	GPUs           Figure = "gpu"
	Jobs           Figure = "jobs" // jobs that are not found, or left out
)

// Figures lists them.
func Figures() []Figure {
	return []Figure{CPU, Memory, Swap, DiskBytes, DiskOperations, PressureStalls, Threads, NetworkBytes, GPUs, Jobs}
}

// Lack says what a sample lacks.
type Lack struct {
	Figure Figure
	N      int // jobs that lack it; of Jobs, processes whose job is not found
	Why    string
}

// Sample is what the jobs of this host use at a time.
type Sample struct {
	At    time.Time
	Jobs  []Job // by queue, ID and user
	GPUs  []GPU
	Lacks []Lack
	Seen  Seen
}

// Seen counts what a sample looked at.
type Seen struct{ Processes, Groups, Descriptors int }

// Options are where and how much is read.
type Options struct {
	Proc string // "": /proc. Its self/mountinfo says where control groups are.

	Root Root // nil: what only root may read is not read

	GPUs func(now time.Time) GPUReading // the last reading; it does not block; nil: GPUs are not read

	MaxJobs        int // 0: 2,000
	MaxJobsOfUser  int // found by environments, which any user writes; 0: 500
	MaxProcesses   int // 0: 50,000
	MaxDescriptors int // that stay open; 0: half of the process's limit
}

const maxDevices = 64 // of a job

// IDText returns a job's ID as its queue writes it.
func (k Key) IDText() string { return k.ID.String() }

// UserText returns the user ID; "": not known.
func (k Key) UserText() string {
	if k.User == NoUser {
		return ""
	}
	return strconv.Itoa(k.User)
}
