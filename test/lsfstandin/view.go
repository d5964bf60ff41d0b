package lsfstandin

import "time"

// Flavour is the queuing system that the stand-in stands for.
type Flavour string

// The flavours. Lava answers as a volclava 2.2 cluster did (its transcripts are
// the golden tests), LSF10 as IBM documents LSF 10.1.
const (
	Lava  Flavour = "lava"
	LSF10 Flavour = "lsf10"
)

// Stat is a job's state in LSF's own word.
type Stat string

// The states. PSUSP is a stopped pending job, USUSP a stopped running one.
const (
	PEND  Stat = "PEND"
	PSUSP Stat = "PSUSP"
	RUN   Stat = "RUN"
	USUSP Stat = "USUSP"
	SSUSP Stat = "SSUSP"
	DONE  Stat = "DONE"
	EXIT  Stat = "EXIT"
	ERROR Stat = "ERROR" // see Unkind.PostExecError
	UNKWN Stat = "UNKWN"
	ZOMBI Stat = "ZOMBI"
	WAIT  Stat = "WAIT"
)

// Listing is a snapshot of the cluster, all that bjobs, bhosts, bqueues, lshosts, lsid
// and bparams print from. It travels from the daemon to the program as JSON.
type Listing struct {
	Cluster ClusterInfo
	Hosts   []Host // by name; the master host first, which offers no slots
	Jobs    []Job  // in the order of submission, elements of an array by index; ended ones too
	Now     time.Time
}

// ClusterInfo is what does not change while the stand-in runs.
type ClusterInfo struct {
	Flavour Flavour
	Name    string
	Master  string // host name; jobs are submitted from it
	Version string // what lsid -V prints
	Params  Params
	Queues  []QueueConfig
	Groups  map[string][]string
	Unkind  Unkind
}

// Params are the parameters of lsb.params and lsf.conf that are used here.
type Params struct {
	MaxUserPriority int // 0: not set, -sp is refused
	DefaultQueue    string
	DefaultProject  string
	CleanPeriod     time.Duration // ended jobs are known for so long
	MaxArraySize    int
	LimitUnit       string // LSF_UNIT_FOR_LIMITS of LSF 10.1: KB, MB, …; "": not set, KB
}

// DefaultPriority is that of a job which names none: half of the most.
func (p Params) DefaultPriority() int { return p.MaxUserPriority / 2 }

// Host is one host. Its numbers are slots but for NCPUs and memory.
type Host struct {
	Name   string
	Max    int
	NJobs  int // RUN + SSUSP + USUSP + RSV
	Run    int
	SSUSP  int
	USUSP  int
	RSV    int
	Closed bool // badmin hclose: closed_Adm
	Down   bool // unavail
	Excl   bool // a job has it for itself: closed_Excl
	NCPUs  int
	MaxMem int64 // bytes
	MaxSwp int64 // bytes; 0: none

	Type       string         // "": linux
	Resources  []string       // boolean ones
	Has, Taken map[string]int // numeric ones, and what jobs take of them
	GPUs       int
}

// Status is what bhosts -w prints as STATUS. A stopped job's slot is not free: a
// host with one is still full.
func (h *Host) Status() string {
	switch {
	case h.Down:
		return "unavail"
	case h.Closed:
		return "closed_Adm"
	case h.Excl:
		return "closed_Excl"
	case h.NJobs >= h.Max:
		return "closed_Full"
	}
	return "ok"
}

// Job is one job, or one element of an array. Times are whole seconds; a zero
// time is none.
type Job struct {
	ID    int64
	Index int // 0: no element
	// Limit is how many elements of its array may run at a time, Elements how many there are.
	Limit, Elements int
	// Name is the whole name; of an element with its index: arr[2]. Empty: there was
	// no -J.
	Name        string
	User        string
	Project     string // as it was typed: chipA:synthesis
	Group       string // job group; "": the root
	Profile     string // of applications
	Queue       string
	Stat        Stat
	Command     string // the words joined by blanks, as LSF does
	Description string
	FromHost    string
	CWD         string // as it is listed: $HOME, $HOME/x or /x
	Home        string // the owner's
	RunCWD      string // where it runs: /home/bob/x
	Input       string // -i; "": none
	Output      string // -o
	ErrorFile   string // -e

	Priority     int // in force, 1 to MaxUserPriority
	UserPriority int // what -sp said; 0: nothing
	Slots        int // at least
	MaxSlots     int // at most, what -n said; 0: nothing said

	ExecHosts []string // one for each slot: h4 h4; empty: never started, or pending again
	Asked     []string // -m
	ResReq    string   // -R, several ones joined by blanks
	Memory    int64    // bytes that rusage[mem=] reserves in all; 0: none
	Depend    string   // -w
	Held      bool     // bsub -H: "with hold"

	Exclusive   bool // -x
	Rerunnable  bool // -r
	Interactive bool // -I and its like

	Submitted time.Time
	Begin     time.Time // -b
	Started   time.Time // of this run
	Ended     time.Time
	RunLimit  time.Duration // -W; 0: none
	MemLimit  int64         // KB, of -M; 0: none. On lava a plain -M is MB.
	ExitCode  int           // of an ended job, 128 + signal for a killed one
	Termed    string        // why it ended, such as TERM_OWNER; LSF 10.1 shows it. "": nothing to say
	PGID      int           // of the run; 0: none
	PIDs      []int
	MemUsed   int64 // bytes, of the run
	Requeued  int   // how often it was put back
	Gone      bool  // in the gap of a requeue: `bjobs -u all` leaves it out though its job has not ended

	// Reasons say why a pending job pends, a host count with each where LSF
	// gives one; empty for other jobs.
	Reasons []Reason
}

// Reason is one pending (or suspending) reason.
type Reason struct {
	Text  string
	Hosts int // that it holds for; 0: for the job itself
}
