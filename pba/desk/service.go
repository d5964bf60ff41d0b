package desk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
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
	sys    System
	view   viewFile
	shared shared

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

// State reads what the pages would be made from now.
func (s *Service) State(ctx context.Context) (State, error) {
	c, err := s.sys.Load()
	if err != nil {
		return State{}, err
	}
	var state State
	if info, err := os.Stat(viewPath(c)); err == nil {
		state.Viewed = info.ModTime()
	}
	l, err := ledger.OpenToRead(ledgerPath(c))
	if err != nil {
		return state, err
	}
	state.Revision, err = l.Revision(ctx)
	return state, errors.Join(err, l.Close())
}
