// Package daemon runs the bundled queue: it takes requests, writes every event to
// the journal before it is answered, lets the manager decide, and has the nodes
// carry out what was decided.
//
// One goroutine, the loop, owns the manager and everything that changes with
// it. It takes all inputs that have come in meanwhile, writes them with
// one sync, then steps through it, answers and acts.
//
// A client harms no other, whatever it does. The loop never waits for one, nor
// for a node. What one can hold is bounded: connections of a user (connections),
// what a request may name (miniq.DecodeRequest), and memory for what is large on
// its way in or out (room), which slow clients lose while others wait.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/account"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/miniq/node"
	"github.com/allotment-hpc/allotment/state"
)

// Options of a daemon.
type Options struct {
	Paths   home.Paths
	Config  miniq.Config
	Program string // miniqd itself, for the nodes
	Keeper  string // miniq-keeper
	Dummy   string // adummy; "": it is not installed, and there are no dummy jobs
	Version string
	Log     *slog.Logger

	NodeOptions []string // of Program's command node, besides its own

	Ready func() // called when requests are answered

	UnlessStopped bool // a daemon that was stopped on purpose is not started (miniq.ErrStopped)

	// Of root's daemon, which serves every user. Both may take a moment: the loop
	// calls neither.
	Admin func(account.Account) bool                 // users who may do everything, besides root; nil: none
	Next  func(account.Account, *backends.Spec) bool // whether the policy lets a user's job be next in line; nil: no job

	// What the tests set.
	Disk      disk.Disk                     // nil: the machine's own
	Boot      string                        // names this boot of the machine; empty: the kernel is asked
	ReadClock func() (clock.Reading, error) // nil: clock.Reader
	KeptEnded int                           // ended jobs of one user in memory; 0: as maxEnded says
	CompactAt int64                         // bytes of journal, after which the state is written anew; 0: compactSize and as many as the state had last
}

// Run serves until ctx ends or a client asks it to stop. Runs of jobs go on.
func Run(ctx context.Context, o Options) error {
	const firstOther = 3
	keeper.CloseOnExecFrom(firstOther)
	state := miniq.StateDir(o.Paths)
	if err := o.Paths.Prepare(); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		if err := o.Paths.CheckOwner(); err != nil {
			return err
		}
	}
	if o.Disk == nil {
		o.Disk = disk.OS()
	}
	if err := disk.MkdirAll(o.Disk, state, 0o700); err != nil {
		return err
	}
	lock, err := acquireState(ctx, state, miniq.Socket(o.Paths), o.Log)
	if err != nil {
		return err
	}
	defer lock.close()
	if o.UnlessStopped {
		if err := miniq.CheckStopped(state); err != nil {
			return err
		}
	}
	o.Disk = guardedDisk{o.Disk, lock}
	w := &clientSocket{paths: o.Paths, lock: lock, log: o.Log}
	if err := w.listen(); err != nil { // clients that connect by now wait
		return err
	}
	defer w.close()
	d, err := recoverDaemon(o, state)
	if err == nil {
		err = d.detectReboot()
	}
	if err != nil {
		return err
	}
	if err := o.Disk.Remove(filepath.Join(state, miniq.StoppedName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("start a daemon that was stopped: %w", err)
	}
	d.lock, d.socket, w.accept = lock, w, d.accept
	if err := lock.sign(miniq.Socket(o.Paths)); err != nil {
		d.log.Warn("the lock file can't be written: it does not name the process that serves", "error", err)
	}
	d.log.Info("serving", "socket", miniq.Socket(o.Paths), "state", state, "nodes", o.Config.Nodes, "pid", os.Getpid())
	return d.serve(ctx)
}

// Running reports whether an error of Run means that another daemon serves.
func Running(err error) bool { return errors.Is(err, errRunning) }

type daemon struct {
	Options
	log       *slog.Logger
	state     string
	since     time.Time
	uid       int
	user      string
	users     users
	objects   objects
	conns     connections
	snapshots snapshotQueue // snapshots of the queue, and room for them
	listed    *room         // of jobs in long answers
	awaits    *room         // of jobs in long waits
	requests  *room         // of bytes in long requests
	reading   sync.Mutex    // held while the end of a past job is read
	decoded   *room         // of bytes that decoded requests take
	rates     rates         // of changes that users ask for
	noting    noting        // of what jobs note

	lock   *stateLock // nil: no client is served
	socket *clientSocket

	inputs   chan input
	contents sync.Pool // of *[]byte, for entries of the journal

	lastEnvironment miniq.LastEnvironment // of a request

	// What follows belongs to the loop.
	lines        []byte // of the journal, of the last batch
	m            *manager.Manager
	journal      *journal
	seq          uint64
	clock        clock.Reading                 // of the last batch
	bodies       map[int64]*storedBody         // by job number; an array's stands for its elements'
	environments map[string]*sharedEnvironment // that of each user's last body
	bodyBytes    int                           // bytes of bodies
	submission   *lastSubmission
	young        []int64 // jobs whose bodies may not be in their state objects yet, the oldest first
	soon         []input // what the loop has for itself to do next
	unsaved      []input // events that could not be written yet; they can't be refused
	changes      uint64
	alarm        time.Time // when the timer is due
	timer        *time.Timer
	waiters      map[*waiter]bool
	hosts        map[string]*host
	awaited      map[string]bool     // nodes that have neither attached nor failed yet; clients wait for them
	opened       bool                // clients are accepted
	doubtful     map[node.RunID]bool // ordered before the machine went down last
	rebooted     bool                // the machine went down since the queue was last served
	stopping     *stopping
	failing      bool  // the journal could not be written last
	saving       bool  // a snapshot is being written
	saved        int   // bytes of the last one
	noted        int64 // changes to state objects since

	saves      sync.WaitGroup
	wanted     []func(error) // called after the next one
	forget     *time.Timer
	collecting bool   // objects of past jobs are being searched
	hooks      *hooks // nil: there is none
	tells      *teller
}

// storedBody is a body in memory, and since when it is in the journal.
type storedBody struct {
	*body // shared by jobs in a row with the same
	env   *sharedEnvironment
	seq   uint64
	left  int // jobs that have not ended
}

func recoverDaemon(o Options, dir string) (*daemon, error) {
	d := newDaemon(o, dir)
	if d.Disk == nil {
		d.Disk = disk.OS()
	}
	if d.ReadClock == nil {
		d.ReadClock = clock.Reader()
	}
	writer, err := state.NewWriter(d.Disk, d.objectDir(), o.Log)
	if err != nil {
		return nil, err
	}
	d.objects = writer
	if err := d.recover(); err != nil {
		d.objects.Close()
		return nil, err
	}
	writer.Start()
	return d, nil
}

// newDaemon returns a daemon that knows of no job yet.
func newDaemon(o Options, state string) *daemon {
	d := &daemon{
		Options: o, log: o.Log, state: state, since: time.Now(), uid: os.Getuid(),
		changes: uint64(time.Now().UnixMicro()), // above any earlier daemon's count: its clients would wait for ever else
		inputs:  make(chan input, 1024), bodies: map[int64]*storedBody{}, environments: map[string]*sharedEnvironment{}, waiters: map[*waiter]bool{},
		hosts: map[string]*host{}, awaited: map[string]bool{}, doubtful: map[node.RunID]bool{},
		snapshots: snapshotQueue{room: newRoom(2 * listRoom)}, tells: newTeller(), listed: newRoom(listRoom), awaits: newRoom(waitRoom), requests: newRoom(requestRoom), decoded: newRoom(decodedRoom),
	}
	if len(d.Config.Nodes) == 0 {
		d.Config.Nodes = []miniq.Node{miniq.ThisMachine()}
	}
	d.users.lookup, d.users.admin = account.Lookup, o.Admin
	d.user = strconv.Itoa(d.uid)
	if u, err := user.LookupId(d.user); err == nil {
		d.user = u.Username
	}
	return d
}

func (d *daemon) objectDir() string { return filepath.Join(d.state, "jobs") }

// stopWait is how long a node may take to report that a run has stopped, before the
// run's slots are given out all the same: that report does not come from keepers of earlier
// versions.
const stopWait = 5 * time.Second

func (d *daemon) managerConfig() manager.Config {
	return manager.Config{
		SlotsOnly: d.Config.ScheduleBy == miniq.BySlots, ReserveAfter: time.Duration(d.Config.ReserveAfter),
		AgeingInterval: d.Config.Every(), AgeingCap: d.Config.Ageing.Cap, MaxJobs: d.Config.MaxJobs, MaxBytes: int64(d.Config.MaxBytes),
		StopWait: stopWait, MaxEnded: d.maxEnded(), MaxEndedBytes: keptEndedBytes,
	}
}

// maxEnded returns how many ended jobs of one user are in memory: an array of as many
// elements as a user may have stays whole.
func (d *daemon) maxEnded() int {
	if d.KeptEnded > 0 {
		return d.KeptEnded
	}
	return max(keptEnded, d.Config.MaxJobs)
}

// recover brings back the queue as the last acknowledgement left it.
func (d *daemon) recover() error {
	s, err := readSnapshot(d.state, d.managerConfig())
	if err != nil {
		return err
	}
	d.m, d.seq, d.saved = s.m, s.seq, len(s.state)
	began, from := time.Now(), d.seq
	d.journal, d.seq, err = replay(d.Disk, d.state, d.seq, d.log, d.replayEntry)
	if err != nil {
		return err
	}
	if err := s.upgrade(d.Disk, d.state); err != nil {
		return fmt.Errorf("bring %s up to date: %w", d.state, err)
	}
	if n := d.seq - from; n > 0 {
		d.log.Info("recovered", "events", n, "took", time.Since(began))
	}
	d.objects.Mark(d.seq)
	return nil
}

// replayEntry applies an entry of the journal. What it had to do has been done, or
// is found undone when the nodes are attached.
func (d *daemon) replayEntry(e *entry) error {
	event, err := manager.DecodeEvent(e.Event)
	if err != nil {
		return &stateError{fmt.Sprintf("entry %d can't be read (%v)", e.Seq, err), "use the newer version of Allotment that wrote it, else " + restoreBackup}
	}
	effects, result := d.m.Step(time.Unix(0, e.At), event)
	d.recordEntry(e, event, effects, result)
	return nil
}

// detectReboot finds the runs that were ordered before the machine went down.
func (d *daemon) detectReboot() error {
	if d.Boot == "" {
		now, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return fmt.Errorf("read the machine's boot ID: %w", err)
		}
		d.Boot = string(now)
	}
	if d.bootRecorded() {
		return nil
	}
	d.rebooted = true
	for _, r := range d.m.Runs() {
		d.doubtful[node.RunID{ID: r.ID, Run: r.Run}] = true
	}
	if len(d.doubtful) > 0 {
		d.log.Warn("the machine went down while jobs ran", "runs", len(d.doubtful))
	}
	return d.recordBoot()
}

func (d *daemon) bootFile() string { return filepath.Join(d.state, "boot") }

// bootRecorded reports whether this is the boot of the machine that was recorded last.
func (d *daemon) bootRecorded() bool {
	recorded, err := os.ReadFile(d.bootFile())
	return err == nil && string(recorded) == d.Boot
}

// recordBoot records this boot once nothing of an earlier one is open.
func (d *daemon) recordBoot() error {
	if len(d.doubtful) > 0 || d.bootRecorded() {
		return nil
	}
	return disk.Replace(d.Disk, d.bootFile(), 0o600, []byte(d.Boot))
}

// serve runs until ctx ends or a client stops it, then gives everything back.
func (d *daemon) serve(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	d.timer = time.NewTimer(time.Hour)
	d.timer.Stop()
	if groups, err := keeper.PrepareGroups(); err != nil {
		d.log.Info("jobs' memory is measured, since the kernel can't limit it", "why", err)
	} else {
		d.log.Info("the kernel limits jobs' memory", "control_groups", groups)
	}
	d.beginHooks()
	watcher, err := watch(d.socket, func(err error) { end(err) })
	if err != nil {
		return err
	}
	d.begin()
	asked := d.loop(ctx)
	watcher.stop()
	d.socket.close()
	d.conns.ended()
	d.conns.hangUp(asked)
	err = d.end()
	if cause := context.Cause(ctx); errors.Is(cause, errSocketGone) {
		err = cause
	}
	d.log.Info("stopped")
	if d.stopping != nil {
		close(d.stopping.left)
	}
	d.conns.tasks.Wait()
	return err
}

// end detaches the nodes and writes the queue's state.
func (d *daemon) end() error {
	d.endHooks()
	d.endTells()
	d.detachAll()
	if d.forget != nil {
		d.forget.Stop()
	}
	return d.saveState()
}

// lost returns an error if the state directory, or the journal in it, is gone: what is
// written now would not be found again.
func (d *daemon) lost() error {
	if d.lock == nil {
		return nil
	}
	if err := d.lock.lost(); err != nil {
		return err
	}
	// Not by stat(2): on Linux 6.13 and later, a write to a file whose times were asked for
	// gets a time of its own, and ext4 without a journal then writes the inode at each sync.
	path := filepath.Join(d.state, d.journal.name)
	if err := unix.Access(path, unix.F_OK); errors.Is(err, fs.ErrNotExist) {
		return &lostError{path}
	}
	return nil
}

// saveState leaves a state whose journal is empty, if it can.
func (d *daemon) saveState() error {
	d.objects.Close()
	d.saves.Wait()                   // an older state must not replace the one that is written here
	if err := d.lost(); err != nil { // what is there now is not this daemon's
		d.log.Error("the queue's state is not written", "error", err)
		return errors.Join(err, d.journal.f.Close())
	}
	if len(d.unsaved) > 0 {
		d.log.Error("events could not be written; the nodes will report them again", "events", len(d.unsaved))
	}
	if d.journal.torn {
		if err := d.journal.repair(); err != nil {
			d.log.Error("a refused request may be replayed at the next start", "error", err)
		}
	}
	if d.objects.Durable() < d.seq {
		return d.journal.f.Close() // the journal keeps what the objects lack
	}
	state, err := d.m.State()
	if err == nil {
		err = writeSnapshot(d.Disk, d.state, d.seq, state)
	}
	if err != nil {
		d.log.Warn("the journal is kept since the queue's state could not be written", "error", err)
	} else if err := d.journal.rotate(d.seq + 1); err == nil {
		_ = dropSegments(d.Disk, d.state, d.seq)
	}
	return d.journal.f.Close()
}
