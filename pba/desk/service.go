package desk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/account"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// Service opens desks for the users of a server, such as the management page. Each has the
// roles that pba gives it. The desks see the farm as the last cycle published it: none asks
// the queue.
type Service struct {
	sys     System
	view    viewFile
	shared  shared
	watched watched

	simulating chan struct{} // holds a place for each simulation that runs
}

// NewService returns a service of this process, which must be able to write the ledger.
func NewService(sys System) *Service { return &Service{sys: sys, simulating: make(chan struct{}, 1)} }

// Visitor is a user as the system knows it.
type Visitor struct {
	Name   string // of the account; "": the ID has none
	UID    int
	Groups []string
	Failed error // why the groups are not known; nil: they are
}

// ErrNoAccount is wrapped where the system knows no such user.
var ErrNoAccount = errors.New("the system has no such user")

// VisitorNamed looks up an account by its name. It takes as long as the name service does.
func VisitorNamed(name string) (Visitor, error) {
	u, err := user.Lookup(name)
	if errors.As(err, new(user.UnknownUserError)) {
		return Visitor{}, fmt.Errorf("user %q: %w", name, ErrNoAccount)
	}
	if err != nil {
		return Visitor{}, fmt.Errorf("look up user %q: %w", name, err)
	}
	return visitor(u)
}

// VisitorOf looks up an account by its ID, like VisitorNamed. An ID without an account
// is a reader.
func VisitorOf(uid int) (Visitor, error) {
	u, err := user.LookupId(strconv.Itoa(uid))
	if errors.As(err, new(user.UnknownUserIdError)) {
		return Visitor{UID: uid}, nil
	}
	if err != nil {
		return Visitor{}, fmt.Errorf("look up user ID %d: %w", uid, err)
	}
	return visitor(u)
}

func visitor(u *user.User) (Visitor, error) {
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return Visitor{}, fmt.Errorf("user %s: user ID %q is no number", u.Username, u.Uid)
	}
	v := Visitor{Name: u.Username, UID: uid}
	v.Groups, v.Failed = account.GroupNames(u.Username)
	return v, nil
}

// Open returns a visitor's desk with the ledger open.
func (s *Service) Open(ctx context.Context, v Visitor) (*Desk, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sys := s.sys
	sys.Identify = func(c configfile.Config) (Caller, error) { return identifyVisitor(c, v) }
	d, err := New(sys)
	if err != nil {
		return nil, err
	}
	if d.ledger, err = openLedger(d.LedgerPath(), d.Caller); err != nil {
		return nil, err
	}
	d.view = func() (*view, error) { return s.view.get(viewPath(d.Config)) }
	d.queue, d.shared, d.simulating = viewed{d.view}, &s.shared, s.simulating
	return d, nil
}

// identifyVisitor gives a visitor the roles that pba gives the same user.
func identifyVisitor(c configfile.Config, v Visitor) (Caller, error) {
	as := os.Getuid()
	owner := ledgerOwner(c, as)
	who := Caller{UID: v.UID, As: as, Writes: as == 0 || as == owner, Remote: true, groups: v.Failed}
	who.User, who.Groups, who.Owner = v.Name, v.Groups, v.UID == 0 || v.UID == owner
	if v.Failed != nil && !who.Owner && len(c.PBA.Roles.Admins.Groups) > 0 {
		return Caller{}, againf("look up the groups of %s: %w", v.Name, v.Failed)
	}
	return who, nil
}

// Seen is when the queue showed what the last cycle published, by the queue's clock.
func (d *Desk) Seen() (time.Time, error) {
	if d.view == nil {
		return d.Now(), nil
	}
	v, err := d.view()
	if err != nil {
		return time.Time{}, err
	}
	return v.Result.State.Farm.At, nil
}

// Revision is the number of the newest edit of the plan.
func (d *Desk) Revision(ctx context.Context) (int64, error) { return d.ledger.Revision(ctx) }

// Unknown reports whether a project, request or job that was asked for does not exist.
func Unknown(err error) bool {
	for _, kind := range []error{ledger.ErrUnknownProject, ledger.ErrUnknownRequest, errUnknownJob, backends.ErrUnknownJob} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// ServerConfig reads the config as the user who started the process, who may be root: it
// opens what a server needs before the process becomes the ledger's owner's.
func ServerConfig() (configfile.Config, error) { return configfile.Load(yamlplain.Convert) }

// MayServe is an error where this process can't write the ledger, or there is none.
func (d *Desk) MayServe(ctx context.Context) error {
	if !d.Caller.Writes {
		return fmt.Errorf("serve the ledger %s: it belongs to user ID %d: run allotd as that user, or as root", d.LedgerPath(), ledgerOwner(d.Config, d.Caller.As))
	}
	l, err := ledger.Open(d.LedgerPath())
	if err != nil {
		return err
	}
	_, err = l.Revision(ctx)
	return errors.Join(err, l.Close())
}

// State is what pages are made from: two that are equal give the same pages.
type State struct {
	Viewed   time.Time // when a cycle published what it saw; zero: none has
	Revision int64     // of the plan
}

// State reads what the pages would be made from now. It is asked each second while pages are
// open: the config is loaded again only where its file has changed, and the ledger stays open
// until Unwatch is called.
func (s *Service) State(ctx context.Context) (State, error) { return s.watched.state(ctx, s.sys.Load) }

// Unwatch closes what State keeps open.
func (s *Service) Unwatch() { s.watched.close() }

// watched is what State keeps.
type watched struct {
	mu     sync.Mutex
	config *configfile.Config // nil: not loaded
	file   fs.FileInfo        // of the config when it was loaded; nil: there was none
	ledger *ledger.Ledger     // nil: not open
	opened fs.FileInfo        // the ledger's file
}

func (w *watched) state(ctx context.Context, load func() (configfile.Config, error)) (state State, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.config == nil || !unchanged(w.config.Paths.Config, w.file) {
		if err := w.reload(load); err != nil {
			return State{}, err
		}
	}
	if info, err := os.Stat(viewPath(*w.config)); err == nil {
		state.Viewed = info.ModTime()
	}
	path := ledgerPath(*w.config)
	if now, err := os.Stat(path); w.ledger == nil || err != nil || !os.SameFile(now, w.opened) { // a backup may have been restored
		w.closeLedger()
		if w.ledger, err = ledger.OpenToRead(path); err != nil {
			w.ledger = nil
			return state, err
		}
		if w.opened, err = os.Stat(path); err != nil {
			w.closeLedger()
			return state, err
		}
	}
	if state.Revision, err = w.ledger.Revision(ctx); err != nil {
		w.closeLedger()
	}
	return state, err
}

// reload loads the config. One that is changed meanwhile is loaded again the next time.
func (w *watched) reload(load func() (configfile.Config, error)) error {
	before, path := fs.FileInfo(nil), ""
	if w.config != nil {
		path = w.config.Paths.Config
		before, _ = os.Stat(path) // nil where there is none
	}
	c, err := load()
	if err != nil {
		w.config = nil
		return err
	}
	if path != c.Paths.Config { // the first time it is not known where the file is
		before, _ = os.Stat(c.Paths.Config)
		if c, err = load(); err != nil {
			return err
		}
	}
	if w.config != nil && ledgerPath(*w.config) != ledgerPath(c) {
		w.closeLedger()
	}
	w.config, w.file = &c, before
	return nil
}

// unchanged reports whether a file is as it was; nil: there was none.
func unchanged(path string, was fs.FileInfo) bool {
	is, err := os.Stat(path)
	if err != nil || was == nil {
		return was == nil && errors.Is(err, fs.ErrNotExist)
	}
	return os.SameFile(is, was) && is.ModTime().Equal(was.ModTime()) && is.Size() == was.Size()
}

func (w *watched) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closeLedger()
	w.config = nil
}

func (w *watched) closeLedger() {
	if w.ledger != nil {
		_ = w.ledger.Close() // it was read alone
		w.ledger = nil
	}
}
