package lease

// Action is something to do, in the order given.
type Action interface{ action() }

// JobOpened answers an OpenJob.
type JobOpened struct {
	Holder string
	Job    uint64
	Limit  int // slots that it may hold and wait for: what was asked, or Limits.Held
}

// Acknowledge says that a request was taken. It comes before all grants of the request.
type Acknowledge struct {
	Holder string
	ID     string
}

// Lock has a worker take tasks of a lease. The slot is locked when Step returns.
type Lock struct {
	Lease  uint64
	Worker string
	Holder string
	Milli  int
	Memory int64
	Task   string // that the worker is to do; empty: the holder uses the slot
}

// Grant is to be posted back to the holder. It comes after its Lock. What carries it out answers
// with Posted or PostFailed.
type Grant struct {
	Lease    uint64
	Worker   string
	Host     string
	Holder   string
	ID       string // of the request
	Job      uint64
	PostBack string
	Milli    int
	Memory   int64
}

// Unlock ends a lease: its worker takes no more tasks of it. It comes once for each Lock.
type Unlock struct {
	Lease  uint64
	Worker string
	Holder string
	Why    Why
}

// Result is what came of a task. It comes after the Unlock of its lease.
type Result struct {
	Lease  uint64
	Worker string
	Holder string
	ID     string // of the request
	Job    uint64
	Result string
}

// Revoke tells a holder that a lease ended with its worker (WorkerGone), or that the holder is to
// free it (Withdrawn).
type Revoke struct {
	Lease  uint64
	Worker string
	Holder string
	ID     string // of the request
	Why    Why
}

// Release has a worker return its slots to its queue, and end. It holds no lease, and gets none
// any more.
type Release struct {
	Worker string
	Why    Why // Idle or Withdrawn
}

// Want is the number of workers that would be of use beside those that are there. It comes when
// that number changes.
type Want struct{ Workers int }

func (JobOpened) action()   {}
func (Acknowledge) action() {}
func (Lock) action()        {}
func (Grant) action()       {}
func (Unlock) action()      {}
func (Result) action()      {}
func (Revoke) action()      {}
func (Release) action()     {}
func (Want) action()        {}

// Why is the reason why a lease, or a worker's use, ended.
type Why int

// The reasons.
const (
	Freed      Why = iota + 1 // by its holder
	Finished                  // its task is done
	JobClosed                 // the holder ended its job
	HolderLost                // its holder is gone
	WorkerGone                // its worker is gone
	Withdrawn                 // its worker is to return its slots
	NotPosted                 // the holder could not be reached
	Idle                      // nothing was asked of the worker for a while
)

func (w Why) String() string {
	switch w {
	case Freed:
		return "freed"
	case Finished:
		return "its task is done"
	case JobClosed:
		return "its job was closed"
	case HolderLost:
		return "its holder is gone"
	case WorkerGone:
		return "its worker is gone"
	case Withdrawn:
		return "its worker returns its slots"
	case NotPosted:
		return "it could not be posted back"
	case Idle:
		return "idle"
	}
	return "unknown"
}
