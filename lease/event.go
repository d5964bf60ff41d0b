package lease

// Event is something that happened: to a worker, a holder or a grant.
type Event interface{ event() }

// Create says that a worker is there, with what a queue granted it, or with what its host has
// where there is no queue. Its name is that of no other present worker; a name that was another
// worker's before it went is taken.
type Create struct {
	Worker string
	Host   string
	Milli  int   // milli-cores: 1000 a core
	Memory int64 // bytes; 0: not limited
	Shared bool  // no queue granted them: other processes of the host use them, too
}

// Heartbeat says what a worker's host has free, as measured. It counts for all workers of the host.
type Heartbeat struct {
	Worker string
	Free   int   // milli-cores that no process uses; at most those of the host
	Memory int64 // bytes; of a shared host alone
}

// Gone says that a worker has ended, or is lost. Its leases end.
type Gone struct{ Worker string }

// Withdraw says that a worker is to return its slots, as one does that its queue preempts. It gets
// no new grant. The holders of its leases get a Revoke, and free them; then it gets a Release.
type Withdraw struct{ Worker string }

// OpenJob begins a job of a holder: what its requests name. Jobs are numbered in order of this
// event, and the lowest number comes first.
type OpenJob struct {
	Holder string
	Limit  int // slots that it holds and waits for at a time; 0: Limits.Held
}

// CloseJob ends a job, with its requests and leases.
type CloseJob struct {
	Holder string
	Job    uint64
}

// Request asks for slots, which are granted one by one as they come free. It is acknowledged at
// once, whatever is free, or refused at once.
//
// Requests are served in order: the higher priority first, then the lower number of the job, then
// the one that came first. None overtakes another, also where it is smaller and would fit: so a
// request for a whole host is served in the end. But a request that no present worker could hold,
// not even without leases, keeps no other waiting; it takes its place in the order again when a
// worker comes that could hold it. So does one of a withdrawn worker's size.
type Request struct {
	Holder   string
	ID       string // the holder's own, of no other of its requests that wait
	Job      uint64
	Priority int
	Slots    int
	Milli    int    // milli-cores of each slot, 1 or more
	Memory   int64  // bytes of each slot
	PostBack string // for the one that carries out the grant: it is not read here

	// Task is for the worker, which gets it with the lock and answers with a Done; empty: the
	// holder uses the slot. A request with one is for one slot, and has no PostBack.
	Task string
}

// Cancel ends a request. What it was granted before stays with its holder.
type Cancel struct {
	Holder string
	ID     string
}

// Posted says that a grant has reached its holder.
type Posted struct{ Lease uint64 }

// PostFailed says that a grant could not be posted back. Its slot is free, and the rest of its
// request ends: the next slot would be lost in the same way.
type PostFailed struct{ Lease uint64 }

// Free returns a slot.
type Free struct {
	Holder string
	Lease  uint64
}

// Done says that a worker has done the task of a lease, and what came of it. The lease ends.
type Done struct {
	Worker string
	Lease  uint64
	Result string
}

// HolderGone says that a holder has ended, or is lost. Its jobs end, with their requests and leases.
type HolderGone struct{ Holder string }

// Tick says that time has passed: due at Manager.Wake, harmless at any other time.
type Tick struct{}

func (Create) event()     {}
func (Heartbeat) event()  {}
func (Gone) event()       {}
func (Withdraw) event()   {}
func (OpenJob) event()    {}
func (CloseJob) event()   {}
func (Request) event()    {}
func (Cancel) event()     {}
func (Posted) event()     {}
func (PostFailed) event() {}
func (Free) event()       {}
func (Done) event()       {}
func (HolderGone) event() {}
func (Tick) event()       {}
