package backends

import (
	"context"
	"time"
)

// Abilities are what one queue can do and another can't, grouped by caller. Callers
// test them, never a backend's name. A nil function means that the ability is absent.
type Abilities struct {
	ForEngine
	ForWrappers
	ForFilter
	ForDoctor
}

// ForEngine is what the cycle asks (pba, pba/plan, dummy). The planner looks at which
// functions there are and calls none.
type ForEngine struct {
	// SuspendFrees: a suspended job's slots are free for others. If not, suspending a
	// victim gains nothing (R16); the submit filter and ahosts ask for it, too.
	SuspendFrees bool
	// Ages: a pending job's priority grows by one each such interval, up to AgeCap; 0:
	// it does not.
	Ages   time.Duration
	AgeCap int
	// ManagesMemory: the queue itself never has jobs on a host that ask for more memory
	// than that has. Dummy jobs are of no use then.
	ManagesMemory bool
	// FoldsProjects: jobs have the names of their projects in lower case, however
	// their users typed them.
	FoldsProjects bool

	// CountsFixed: the queue itself can count the slots of jobs that can't be preempted (see
	// ForFilter.Fixed). If not, and if HoldUntil is there, the engine does (R22).
	CountsFixed bool

	// Considers: the queue says when it considered a pending job (Job.Considered), and it
	// may find that a pinned job can't run where the plan thinks it can. No job is
	// preempted for a pinned job before the queue has considered it there (R32).
	Considers bool

	// SavesBySignal and SavesByCommand: Requeue heeds Act.Save with a Signal, with a
	// Command.
	SavesBySignal, SavesByCommand bool

	// Pin binds pending jobs to hosts. nil: a beneficiary starts where the queue lets
	// it, and there are no dummy jobs.
	Pin func(ctx context.Context, pins []Pin) Errors
	// PinShares: Pin heeds Slots. If not, the queue divides a job over its hosts.
	PinShares bool
	// PinEnds: Pin heeds Until, the queue itself removes the pin then. If not, it stays
	// until the engine removes it.
	PinEnds bool
	// HoldUntil keeps jobs from starting. nil: a requeued victim may start at once, and
	// there are no dummy jobs.
	HoldUntil func(ctx context.Context, holds []HoldUntil) Errors
	// Reserve keeps hosts for jobs. nil: the queue's own scheduler does, or nothing does.
	Reserve func(ctx context.Context, reservations []Reservation) Errors
	// Guarantee replaces what the queue knows of guarantees (Snapshot.Guaranteed). Where it
	// keeps slots for jobs that wait too long, one below LevelPBA has none of these kept
	// (R37). nil: the queue keeps none, or its scheduler can't be given such a number.
	Guarantee func(ctx context.Context, all []Guaranteed) error
	// Move puts pending jobs into another queue. nil: they stay where the filter sent them.
	Move func(ctx context.Context, ids []ID, queue string) Errors
	// Start starts a pending job in these slots, full or not as the queue counts them.
	// nil: the queue starts a beneficiary by its priority.
	Start func(ctx context.Context, id ID, hosts []Placement) error
	// Place submits dummy jobs. The queue shows them with Job.DummyFor, which only the
	// engine's own user can bring about; Kill ends them. An acknowledged one starts by its
	// priority as any other job. nil: there are none on this queue.
	Place func(ctx context.Context, dummies []Dummy) []Submitted
	// Standbys: Place accepts standby jobs, too, which are shown with their project.
	Standbys bool
	// Enlarge has a pending job ask for so many bytes of memory, over all its slots. nil: what it asks for stays
	// as its owner submitted it.
	Enlarge func(ctx context.Context, id ID, memory int64) error
	// Reconcile does what the queue can't finish by itself, such as a resume that waits for its
	// slots. The engine calls it at the start of each cycle that may act, and while it is
	// paused: it begins nothing new. nil: there is nothing to do.
	Reconcile func(ctx context.Context) error
}

// ForWrappers is what the users' commands ask (asub, ajobs and the like, asplit).
type ForWrappers struct {
	// Filters: the queue itself asks the site's submit filter about each new job and each
	// change by its owner, from any user and by any command. What the filter must know of
	// a job beside what the queue has stands in its environment: ALLOTMENT_STEP and
	// ALLOTMENT_PREEMPT. If not, the wrappers ask it.
	Filters bool
	// SharesState: the queue keeps its state in the state directory, beside the policy. Where
	// that file system does not answer, the queue does not either, so the wrappers set the
	// filter no time limit of its own.
	SharesState bool
	// CountsPriorities: a user's priorities (-sp) are numbers of the queue's own. If
	// not, they are values of at most DefaultValue.
	CountsPriorities bool
	// Resources: Spec.Needs, Features, Select and Same are heeded, or the submission gets an
	// error that names what can't be. If not, a Spec has none, and what bsub's -R says of
	// them is ignored with a warning.
	Resources bool
	// Terminals: the process that starts a job with Spec.Terminal connects to that Unix
	// socket (SOCK_STREAM) and receives one message: the job's standard input, output and
	// error as descriptors (SCM_RIGHTS), with one byte of data, '0', '1' or '2' for the
	// one of them that becomes its controlling terminal, '-' for none. Spec.Stdin, Stdout
	// and Stderr replace them. When the other end closes the connection while the job
	// runs, the job is hung up on and killed. If not, asub refuses interactive jobs.
	Terminals bool

	// Bsub is the queue's own command of that name: what a user types at asub is
	// handed to it. nil: there is none, or it is not LSF's.
	Bsub func(ctx context.Context) (Bsub, error)
	// Options gives those of bsub's options, by name (-I), that this queue treats in
	// another way than package bsub says; nil: none.
	Options func() map[string]OptionMeaning
	// Queues lists the queues; pba init and pba doctor ask for it, too. nil: those of
	// the jobs are all that is known.
	Queues func(ctx context.Context) ([]Queue, error)
	// Modify changes pending jobs: each as a whole or not at all; and the run limit of those
	// that have started, as far as the queue lets the caller. nil: amod can't.
	Modify func(ctx context.Context, ids []ID, change Change) Errors
	// Reopen puts jobs that have ended, and that the queue still has, back into the queue under their
	// IDs. ErrWrongState: the job has not ended, or the queue does not put it back. nil: arequeue -e
	// and -d can't.
	Reopen func(ctx context.Context, ids []ID) Errors
	// KillNow is Kill, but does not wait for what jobs do when they are asked to end. LSF takes such a
	// job off its records before its processes are gone, also where its host can't be reached; on the
	// bundled queue its slots are taken until then. nil: akill -r can't.
	KillNow func(ctx context.Context, ids []ID) Errors
	// InGroup returns a function that reports whether a job is in a job group itself, and not in one
	// below it (bsub -g). nil: there are no job groups.
	InGroup func(ctx context.Context, group string) (func(*Job) bool, error)
	// OfProfile returns one that reports whether a job has an application profile (bsub -app). nil:
	// there are none.
	OfProfile func(ctx context.Context, profile string) (func(*Job) bool, error)
	// Reorder moves pending jobs to a position among the pending jobs of their owner: 1 is the
	// first, with bottom the last. Jobs of one owner change places; the other users' stay where
	// they are. nil: atop and abot can't.
	Reorder func(ctx context.Context, ids []ID, position int, bottom bool) Errors
	// Record is all that the queue has kept of a job. nil: nothing beside Jobs.
	Record func(ctx context.Context, id ID) (*Record, error)
	// Set keeps a fact of a job's own in the state object that the queue keeps of it: the caller is
	// its owner or an administrator. ErrWrongState: the job has ended. nil: the queue keeps none; the
	// agents do.
	Set func(ctx context.Context, id ID, key, value string) error
	// Attach keeps a file there. nil: as Set.
	Attach func(ctx context.Context, id ID, f Attachment) error
	// Attached reads it. nil: as Set.
	Attached func(ctx context.Context, id ID, name string) (Attachment, error)
	// History returns jobs that have ended or were requeued, with their runs, from what the queue
	// keeps of them; LSF and Slurm do so in their accounting. nil: ahist can't.
	History func(ctx context.Context, q PastQuery) (PastJobs, error)
	// Output returns the path of the file that a job's standard output goes to, on the hosts where
	// it runs; "": it goes to none. nil: apeek can't.
	Output func(ctx context.Context, id ID) (path string, err error)
	// Wait waits as long as ctx until all of these jobs have ended and returns
	// them. A job that the queue does not know counts as ended and is left out.
	// nil: asub asks Jobs again and again.
	Wait func(ctx context.Context, ids []ID) ([]Job, error)
	// Changed waits until the queue has changed since it gave after, and returns a
	// higher number, for the next call; 0, with which to begin, waits for nothing.
	// nil: ajobs --follow reads the jobs at intervals.
	Changed func(ctx context.Context, after uint64) (uint64, error)
	// Part returns the ID of a part of a job that starts on several kinds of hosts at once:
	// each part is a job of its own here. ErrUnknownJob: there is none. nil: there are no
	// such jobs.
	Part func(ctx context.Context, job int64, part int) (ID, error)
	// CloseHosts has hosts take no new jobs, or take them again, as an administrator's command;
	// what runs there goes on. nil: the queue's own commands do that.
	CloseHosts func(ctx context.Context, hosts []string, open bool, reason string) Errors
	// WhyClosed returns why hosts take no jobs, which user closed them and when, for people, by host, as far
	// as that is known. nil: Host.Reason has it.
	WhyClosed func(ctx context.Context) (map[string]string, error)
	// Signal sends a signal to all processes of running jobs. nil: akill -s can't.
	Signal func(ctx context.Context, ids []ID, signal int) Errors
}

// ForFilter is what the publisher asks to write down what the submit filter reads.
type ForFilter struct {
	// Marks: the filter runs on the machine that the engine runs on, which hears its marks
	// there (R6). If not, it leaves none.
	Marks bool
	// FilterFacts are what the filter must know of a queue that runs it by LSF's
	// protocol; nil: it does not.
	FilterFacts func(ctx context.Context) (FilterFacts, error)
	// HookRank is the number by which the script that the queue itself runs at
	// submission (the submit filter in the queue's own language) gives a new job a
	// priority; nil: the queue runs none. ErrUnable: it can't give it any.
	HookRank func(ctx context.Context, p Priority) (int64, error)
	// Fixed is what the queue itself counts of the slots of jobs that can't be preempted
	// (R22); nil: it can't count them.
	Fixed func(ctx context.Context) (FixedShare, error)
	// Accounts returns the numbers of the users that each of the queue's own accounts
	// lists, by the account's name in lower case, where the queue refuses the jobs of all
	// others. A nil map: it refuses none, or that is not known. nil: it has no accounts.
	Accounts func(ctx context.Context) (map[string][]int64, error)
}

// ForDoctor is what sysadmins ask (pba init, doctor and restore).
type ForDoctor struct {
	// Examine looks for what is wrong with the queue's own set-up. It changes nothing.
	// nil: the queue has none that could be wrong.
	Examine func(ctx context.Context, by Installation) (Examination, error)
	// ExamineFixed looks for what is wrong with what the queue counts of the slots of jobs
	// that can't be preempted, which are to hold so many at most. nil: it can't count them.
	ExamineFixed func(ctx context.Context, slots int) ([]Finding, error)
	// Forget removes all that Allotment wrote into the queue's jobs, the submit filter's
	// part included, and returns from how many. It can't be undone. It may be repeated
	// after an error. nil: pba restore --forget can't.
	Forget func(ctx context.Context) (jobs int, err error)
}

// EnlargeBy returns an Enlarge of a queue that can modify pending jobs.
func EnlargeBy(modify func(context.Context, []ID, Change) Errors) func(context.Context, ID, int64) error {
	return func(ctx context.Context, id ID, memory int64) error {
		return modify(ctx, []ID{id}, Change{Memory: &memory}).First()
	}
}
