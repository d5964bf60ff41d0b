// Package desk is what users ask of Allotment, by any command: their permissions,
// edits of the plan, cycles, and answers in the types that --json prints.
package desk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// System is what a desk takes of the process and the machine that it runs on.
type System struct {
	Now          func() time.Time
	Load         func() (configfile.Config, error)
	Identify     func(configfile.Config) (Caller, error) // by the system's word
	Open         func(context.Context, configfile.Config) (backends.Backend, error)
	OpenToSubmit func(context.Context, configfile.Config) (backends.Backend, error) // starts the bundled queue
	User, Group  func(name string) error                                            // whether there is one
	Executable   func() (string, error)
	EditWait     time.Duration // how long an edit waits for a cycle, or another edit, to end
}

// ThisSystem is that of this process. To load the config makes root's process the
// ledger's owner's.
func ThisSystem() System {
	uid := os.Getuid() // before it becomes another one's
	return System{
		Now:      time.Now,
		Identify: func(c configfile.Config) (Caller, error) { return identify(c, uid) },
		Load: func() (configfile.Config, error) { // each cycle reads it anew
			c, err := configfile.LoadFor(uid, yamlplain.Convert)
			if err == nil {
				err = becomeOwner(c)
			}
			return c, err
		},
		Open: configfile.Open, OpenToSubmit: configfile.OpenToSubmit,
		User:       func(name string) error { _, err := user.Lookup(name); return err },
		Group:      func(name string) error { _, err := user.LookupGroup(name); return err },
		Executable: os.Executable, EditWait: 10 * time.Second,
	}
}

// Desk serves one question or edit: it has the config as it is now, and the caller. One
// that is open has the ledger and the queue, too.
type Desk struct {
	configfile.Config
	Caller Caller
	sys    System
	ledger *ledger.Ledger
	queue  backends.Backend

	view       func() (*view, error) // what the last cycle saw, of a desk that does not ask the queue; nil: it does
	shared     *shared               // what such desks compute once for all visitors; nil: this one does not
	simulating chan struct{}         // has a place for each simulation that a server runs at a time; nil: no bound

	facts   *queueFacts // what the queue said of itself when the filter's policy was written; nil: it was not asked
	expects *int64      // the plan's revision that edits are made to; nil: any
	cells   *seenPlan   // the plan that a user saw who sets cells; nil: it is not asked
}

// New returns a desk that is not open.
func New(sys System) (*Desk, error) {
	c, err := sys.Load()
	if err != nil {
		return nil, err
	}
	who, err := sys.Identify(c)
	return &Desk{Config: c, Caller: who, sys: sys}, err
}

// Open returns a desk with the ledger and the queue open. Of toSubmit the bundled queue
// is started where it does not run.
func Open(ctx context.Context, sys System, toSubmit bool) (*Desk, error) {
	d, err := New(sys)
	if err != nil {
		return nil, err
	}
	if d.ledger, err = openLedger(d.LedgerPath(), d.Caller); err != nil {
		return nil, err
	}
	open := sys.Open
	if toSubmit {
		open = sys.OpenToSubmit
	}
	if d.queue, err = open(ctx, d.Config); err != nil {
		return nil, errors.Join(err, d.ledger.Close())
	}
	return d, nil
}

// Close closes what Open opened.
func (d *Desk) Close() {
	_ = d.queue.Close() // neither buffers writes that could be lost
	_ = d.ledger.Close()
}

// LedgerPath returns the path of the ledger.
func (d *Desk) LedgerPath() string { return ledgerPath(d.Config) }

func ledgerPath(c configfile.Config) string { return filepath.Join(c.Paths.State, "ledger.db") }

// Now is the time at this desk.
func (d *Desk) Now() time.Time { return d.sys.Now() }

func (d *Desk) zone() *time.Location { return d.Timezone.Location() }

func (d *Desk) thisWeek() calendar.Week { return calendar.WeekOf(d.Now(), d.zone()) }

// horizon is the last week that may be planned.
func (d *Desk) horizon() calendar.Week { return calendar.AddWeeks(d.thisWeek(), d.PBA.Horizon) }

// editor returns the caller and the time, for audit rows.
func (d *Desk) editor() ledger.Editor {
	return ledger.Editor{Who: d.Caller.String(), At: d.Now()}
}

// Backup copies the ledger to a new file.
func (d *Desk) Backup(ctx context.Context, file string) error {
	if err := d.MayName("copy the ledger to a file"); err != nil {
		return err
	}
	return d.ledger.Backup(ctx, file)
}

// rules returns what holds for a cycle now.
func (d *Desk) rules(ctx context.Context, now time.Time) (pba.Rules, error) {
	week := calendar.PeriodOf(calendar.WeekOf(now, d.zone()), d.zone())
	projects, pools, err := d.ledger.InForce(ctx, week, now.Add(-time.Duration(d.PBA.LoweredGrace)))
	if err != nil {
		return pba.Rules{}, err
	}
	paused, err := d.ledger.Paused(ctx)
	if err != nil {
		return pba.Rules{}, err
	}
	policy := d.PBA.Policy()
	policy.Projects, policy.Allocations = projects, pools
	policy.Queues, policy.Hosts, policy.LowQueue = d.Queues, d.Hosts, d.Filter.LowQueue
	policy.Dummies = d.Dummies.Policy()
	return pba.Rules{Policy: policy, Observe: d.Mode == configfile.Observe, Paused: paused, BesideOthers: d.PBA.OwnPreemption == settings.Act}, nil
}

// engine returns this desk's engine; a read-only one changes nothing.
func (d *Desk) engine(readOnly bool) *pba.Engine {
	groups := &pba.Directory{Cache: d.ledger, ReadOnly: readOnly}
	e := &pba.Engine{
		Backend: d.queue, Ledger: d.ledger, Rules: d.rules, Groups: groups.Of, Pleas: d.ledger.Pleas, Who: d.Caller.String(),
		Zone: d.zone(), KeepHistory: time.Duration(d.PBA.KeepHistory), ReadClock: clock.Read,
	}
	if !readOnly {
		e.Publish = d.publish
	}
	return e
}

// preview returns what a cycle would see and do now. It changes nothing.
func (d *Desk) preview(ctx context.Context) (pba.Result, error) {
	if d.view != nil {
		return d.seen(ctx)
	}
	return d.engine(true).Preview(ctx, d.Now)
}

// observe returns what a cycle would make its plan from now.
func (d *Desk) observe(ctx context.Context) (pba.Result, error) {
	if d.view != nil {
		return d.seen(ctx)
	}
	return d.engine(true).Observe(ctx, d.Now)
}

// publish publishes the plan in force and its pools' standing to the submit filter.
func (d *Desk) publish(ctx context.Context, standing ledger.Standing) error {
	if d.queue.Abilities().HookRank != nil { // it asks a script
		if err := writeHook(d.Config); err != nil {
			return err
		}
	}
	rules, err := d.rules(ctx, standing.At)
	if err != nil {
		return err
	}
	return d.writeFilterPolicy(ctx, rules, standing)
}

// republish publishes an edit at once. How the pools stand, and when the engine was
// last alive, it leaves as the last cycle published it.
func (d *Desk) republish(ctx context.Context) error {
	if d.view != nil {
		if _, err := d.view(); err != nil { // the next cycle publishes it
			return nil //nolint:nilerr // the edit is made
		}
	}
	rules, err := d.rules(ctx, d.Now())
	if err != nil {
		return err
	}
	standing, err := d.ledger.Standing(ctx)
	if err != nil {
		return err
	}
	if standing.At.IsZero() {
		standing.At = d.Now() // nothing was published before
	}
	standing.Observe = rules.Observe || rules.Paused
	return d.writeFilterPolicy(ctx, rules, standing)
}

func (d *Desk) writeFilterPolicy(ctx context.Context, rules pba.Rules, standing ledger.Standing) error {
	standing, err := d.ledger.SetStanding(ctx, standing)
	if err != nil {
		return err
	}
	able := d.queue.Abilities()
	d.facts = &queueFacts{}
	able.ForFilter = d.facts.record(able.ForFilter)
	if d.PBA.Unpreemptable.OnExcess == settings.Pass {
		able.Fixed = nil
	}
	var holdFixed time.Duration
	if rules.Policy.HoldsFixed(able.ForEngine) {
		holdFixed = rules.Policy.HoldLimit
	}
	p := &pba.Publisher{
		Dir:         d.Paths.State,
		Groups:      &pba.Directory{Cache: d.ledger},
		Queue:       able.ForFilter,
		ProjectFrom: string(d.Slurm.ProjectFrom),
		Settings: esub.Settings{
			Config:       d.Filter,
			NextInLine:   backends.At(backends.LevelNext, backends.DefaultValue),
			SuspendFrees: able.SuspendFrees,
			Queues:       d.Queues,
			HoldFixed:    holdFixed,
		},
	}
	return p.Publish(ctx, rules.Policy, standing)
}

// edit changes the plan while no cycle goes on, and publishes it at once.
func (d *Desk) edit(ctx context.Context, do func() error) error {
	if err := d.MayWrite(); err != nil {
		return err
	}
	return d.locked(ctx, func() error {
		if err := d.checkRevision(ctx); err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
		return d.republish(ctx)
	})
}

// ErrChanged is wrapped where the plan is not any more what an edit was made to.
var ErrChanged = errors.New("the plan has changed")

// Expect has edits fail with ErrChanged unless they are made to this revision of the plan.
func (d *Desk) Expect(revision int64) { d.expects = &revision }

// seenPlan is a plan that a user saw before the user set cells of it.
type seenPlan struct {
	revision  int64
	overtaken bool // it has been edited since, in other cells
}

// ExpectCells has SetAllocation fail with ErrChanged if one of its cells was edited after this
// revision of the plan.
func (d *Desk) ExpectCells(revision int64) { d.cells = &seenPlan{revision: revision} }

// Overtaken reports whether the plan was edited elsewhere between the revision that ExpectCells
// names and SetAllocation: then the user has not seen all of it.
func (d *Desk) Overtaken() bool { return d.cells != nil && d.cells.overtaken }

// checkCells returns an error where a cell that changes was edited after the user saw the plan.
func (d *Desk) checkCells(ctx context.Context, changes []ledger.Change) error {
	if d.cells == nil {
		return nil
	}
	edits, newest, err := d.ledger.EditedSince(ctx, d.cells.revision)
	if err != nil {
		return err
	}
	if d.cells.revision > newest {
		return fmt.Errorf("%w: it is at revision %d, and the edit was made to %d, such as before a backup was restored: nothing is changed; read the plan again", ErrChanged, newest, d.cells.revision)
	}
	d.cells.overtaken = d.cells.revision < newest
	planned, err := d.ledger.Allocations(ctx, d.thisWeek(), forever)
	if err != nil {
		return err
	}
	since := map[cell]int64{}
	for _, c := range changes {
		since[cell{c.Pool, c.Week}] = d.cells.revision
	}
	found := conflicting(changed(changes, planned), edits, since)
	if len(found) == 0 {
		return nil
	}
	texts := make([]string, len(found))
	for i, f := range found {
		texts[i] = fmt.Sprintf("%s of %s: %s", f.difference.Pool, f.difference.Week, f.inWords(d.zone()))
	}
	return fmt.Errorf("%w: %s: nothing is changed; read the plan again", ErrChanged, faultText(texts))
}

func (d *Desk) checkRevision(ctx context.Context) error {
	if d.expects == nil {
		return nil
	}
	now, err := d.ledger.Revision(ctx)
	if err == nil && now != *d.expects {
		err = fmt.Errorf("%w: it is at revision %d, and the edit was made to %d: nothing is changed; read the plan again", ErrChanged, now, *d.expects)
	}
	return err
}

// locked does something while no cycle and no other edit goes on.
func (d *Desk) locked(ctx context.Context, do func() error) error {
	unlock, err := pba.Lock(ctx, d.Paths.State, pba.EditLock, d.sys.EditWait)
	if err != nil {
		return err
	}
	defer unlock()
	return do()
}

// ErrInvalid is wrapped where a request can't succeed for any caller at any time.
var ErrInvalid = errors.New("invalid")

// ErrDenied is wrapped where the caller may not do what was asked.
var ErrDenied = errors.New("permission denied")

// errAgain is wrapped where the same may be possible later.
var errAgain = errors.New("try again")

// marked is an error with another one's kind, and not its words.
type marked struct {
	error
	kind error
}

func (m marked) Is(kind error) bool { return m.kind == kind }
func (m marked) Unwrap() error      { return m.error }

func invalidf(format string, args ...any) error {
	return marked{fmt.Errorf(format, args...), ErrInvalid}
}

func deniedf(format string, args ...any) error {
	return marked{fmt.Errorf(format, args...), ErrDenied}
}

func againf(format string, args ...any) error {
	return marked{fmt.Errorf(format, args...), errAgain}
}

// Temporary reports whether the same may be possible later: another process holds a
// lock, or the queue can't be reached.
func Temporary(err error) bool {
	for _, kind := range []error{errAgain, backends.ErrUnreachable, pba.ErrBusy, ledger.ErrLocked} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
