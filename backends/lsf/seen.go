package lsf

import (
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// flavour is one of the two kinds of queue that speak LSF's language.
type flavour uint8

// The flavours; parseVersion distinguishes them.
const (
	lava  flavour = iota + 1 // of the OpenLava line
	lsf10                    // IBM Spectrum LSF 10.1
)

func (f flavour) String() string {
	if f == lsf10 {
		return "LSF 10.1"
	}
	return "lava"
}

// anchor is a job as lava's JSON shows it, where every text is quoted: by it the job is
// found in the listing that has the rest of it (see parseDetails).
type anchor struct {
	id        backends.ID
	name      string // as it is printed, with the index of an array's element
	user      string
	project   string // with its step
	queue     string
	stat      string
	fromHost  string
	firstHost string // where it runs or ran; "": nowhere yet
	submitted string // Nov 20 22:54
	started   string // 11/20-22:54:20; "": not yet
	finished  string
	why       error // why its lines in that listing are unclear
}

// cluster is what is known of the cluster when its jobs are read.
type cluster struct {
	at        time.Time // the latest time that may be read, but for begin times
	limitUnit int64     // bytes; what a memory limit without a unit counts in (LSF 10.1)
	usageUnit int64     // bytes; what mem in rusage[] counts in
	perTask   bool      // rusage[mem=] is of each slot (RESOURCE_RESERVE_PER_TASK)
}

// listedJob is a job as bjobs shows it, with fields that callers do not see. Its Priority,
// Mark, HeldUntil, Pinned, Requeues and Resuming are not in the listing; Asked and
// BeginTime are what the queue has now, which may be the engine's.
type listedJob struct {
	backends.Job
	stat         string // LSF's word for its state: USUSP
	priority     int64  // by which the queue orders; 0: the queue gives none
	userPriority int64  // -sp, its owner's or the engine's; 0: none. lava only
	description  string // whole: the filter's tag, then its owner's text
	held         bool   // submitted with -H; lava only
	byAdmin      bool   // an administrator stopped it; lava only
	lost         bool   // UNKWN: its host does not respond
	zombie       bool   // ZOMBI: it was ended, and its host does not respond
	// vague: its owner's texts leave the rest uncertain. State, user, project, places and
	// slots of a run are right; it is not eligible.
	vague bool
	why   error // why it is vague

	request  string // its resource requirement, merged with those of its queue and application
	fromHost string // where it was submitted
}

// listedHost is a host as bhosts and lshosts show it.
type listedHost struct {
	backends.Host
	statics
	status    string // closed_Excl
	inUse     int    // slots that the queue counts as used: njobs, suspended ones and reservations included
	running   int    // of these, those of running jobs
	suspended int    // of these, those of suspended jobs
}

// params is what bparams -l shows of the whole cluster.
type params struct {
	defaultQueues   []string
	maxPriority     int64         // MAX_USER_PRIORITY; 0: jobs have no priority of their own
	defaultPriority int64         // of a job that names none; 0: unknown
	overTime        bool          // JOB_PRIORITY_OVER_TIME: priorities grow by themselves
	cleanPeriod     time.Duration // how long ended jobs are listed; 0: unknown
	perTask         bool          // RESOURCE_RESERVE_PER_TASK
	sleep           time.Duration // MBD_SLEEP_TIME; 0: unknown
}
