package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/account"
	"github.com/allotment-hpc/allotment/internal/peer"
	"github.com/allotment-hpc/allotment/internal/proc"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/miniq/node"
	"github.com/allotment-hpc/allotment/state"
)

// A daemon of root's serves every user of the machine. Who a client is, the
// kernel says (the user ID at the socket), and the name service says the user's
// name and groups; nothing of that is taken from a request. Jobs run as their user.
// A daemon of another user serves that user, and root.

// users are those that root's daemon knows. What the name service says holds
// for a while, and longer while it can't be asked.
type users struct {
	lookup func(ctx context.Context, uid uint32) (account.Account, error)
	admin  func(account.Account) bool
	mu     sync.Mutex
	known  map[uint32]*knownUser
}

// knownUser is what the name service last returned for a user.
type knownUser struct {
	account.Account
	admin  bool
	mayRun error // why no jobs are run for the user
	err    error // nothing is known
	at     time.Time
	asking chan struct{} // closed when the open question is answered; nil: there is none
}

// userCacheTime is how long an answer holds.
const userCacheTime = time.Minute

func (a *knownUser) fresh() bool {
	return a != nil && a.err == nil && time.Since(a.at) < userCacheTime
}

// cached returns a user without a query of the name service; false: nothing fresh is
// known.
func (u *users) cached(uid uint32) (knownUser, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if a := u.known[uid]; a.fresh() {
		return *a, true
	}
	return knownUser{}, false
}

// get returns a user. It queries the name service if the last answer is too old, and may take as long as the
// name service, or a file server with the user's home: never call it in the loop.
func (u *users) get(uid uint32) knownUser {
	u.mu.Lock()
	a := u.known[uid]
	if a.fresh() {
		defer u.mu.Unlock()
		return *a
	}
	if a == nil {
		a = &knownUser{}
		if u.known == nil {
			u.known = make(map[uint32]*knownUser)
		}
		u.known[uid] = a
	}
	if a.asking == nil {
		a.asking = make(chan struct{})
		go u.query(uid, a)
	}
	asking := a.asking
	u.mu.Unlock()
	<-asking
	u.mu.Lock()
	defer u.mu.Unlock()
	return *a
}

func (u *users) query(uid uint32, a *knownUser) {
	found, err := u.lookup(context.Background(), uid)
	mayRun, admin := err, false
	if err == nil {
		mayRun = found.MayRun()
		admin = u.admin != nil && u.admin(found)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	stale := !a.at.IsZero() && err != nil && !errors.Is(err, account.ErrUnknown)
	if !stale {
		a.Account, a.mayRun, a.admin, a.err = found, mayRun, admin, err
	}
	if err == nil || stale {
		a.at = time.Now()
	}
	if errors.Is(err, account.ErrUnknown) {
		delete(u.known, uid) // those that wait have it
	}
	close(a.asking)
	a.asking = nil
}

// servesAll reports whether this daemon serves every user.
func (d *daemon) servesAll() bool { return d.uid == 0 }

// identify returns who a client with this user ID is.
func (d *daemon) identify(uid int) (manager.By, error) {
	switch {
	case uid == d.uid || uid == 0: // also while the name service can't be asked
		return manager.By{User: d.user, Admin: true}, nil
	case !d.servesAll():
		return manager.By{}, fmt.Errorf("%w: this miniqd belongs to %s", backends.ErrDenied, d.user)
	}
	a := d.users.get(uint32(uid))
	switch {
	case errors.Is(a.err, account.ErrUnknown):
		return manager.By{}, fmt.Errorf("%w: %w", backends.ErrDenied, a.err)
	case a.err != nil:
		return manager.By{}, fmt.Errorf("%w: your user ID can't be looked up: %w", backends.ErrUnreachable, a.err)
	}
	return manager.By{User: a.Name, Admin: a.admin}, nil
}

// runsAs returns the user that the jobs of a client run as, and their limits; nil:
// the daemon's own user.
func (d *daemon) runsAs(c *connection) (*runAs, error) {
	if !d.servesAll() || c.uid == 0 {
		return nil, nil
	}
	if a := d.users.get(uint32(c.uid)); a.mayRun != nil {
		return nil, fmt.Errorf("%w: %w", backends.ErrDenied, a.mayRun)
	}
	pid, err := peer.PID(c.conn)
	if err != nil {
		return nil, fmt.Errorf("read the client's process ID: %w", err)
	}
	as := &runAs{UID: uint32(c.uid)}
	if pid == 0 { // in a PID namespace outside this one, which no user can enter unaided
		return as, nil
	}
	as.Limits, err = keeper.LimitsOf(pid)
	if err == nil && proc.RealUser(pid) != c.uid { // the number was reused for another user's process
		err = errors.New("it has ended")
	}
	if err != nil {
		return nil, fmt.Errorf("find out the limits of the process that connected: %w: submit from one that stays", err)
	}
	return as, nil
}

// owner returns the job's owner for its state object.
func (as *runAs) owner(user string) state.Owner {
	if as == nil {
		return state.Owner{User: user}
	}
	return state.Owner{User: user, UID: strconv.FormatUint(uint64(as.UID), 10), Limits: string(as.Limits)}
}

// runAsOf is the inverse of owner.
func runAsOf(o state.Owner) (*runAs, error) {
	if o.UID == "" {
		return nil, nil
	}
	uid, err := strconv.ParseUint(o.UID, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user ID %q: %w", o.UID, state.ErrCorrupt)
	}
	return &runAs{UID: uint32(uid), Limits: keeper.Limits(o.Limits)}, nil
}

// scriptDir returns the directory for scripts of jobs that run as other users than the
// daemon's: these may traverse it, but not list it, and read their own script.
func (d *daemon) scriptDir() string {
	if !d.servesAll() {
		return ""
	}
	return filepath.Join(d.Paths.State, "scripts")
}

// mayBeNext asks the site's policy for each job that wants to be next in line.
func (d *daemon) mayBeNext(c *connection, specs []backends.Spec, bodies []body) []bool {
	if c.by.Admin || d.Next == nil {
		return nil
	}
	var next []bool
	for i := range specs {
		if specs[i].Priority.Level() <= backends.LevelNormal {
			continue
		}
		if next == nil {
			next = make([]bool, len(specs))
		}
		spec := bodies[i].join(specs[i]).MapTexts(backends.Unescape)
		next[i] = d.Next(d.users.get(uint32(c.uid)).Account, &spec)
	}
	return next
}

// errNoOwner refuses a job whose record does not say whose it is.
var errNoOwner = errors.New("its record does not say which user it runs as: submit it again")

// runUser returns the user that a run is started as; nil: the daemon's own. later says
// that the name service is asked first: the run is ordered when it has answered.
func (d *daemon) runUser(s *manager.StartRun, b *body) (u *knownUser, later bool, err error) {
	switch {
	case !d.servesAll():
		return nil, false, nil
	case b.As == nil && s.User == d.user:
		return nil, false, nil
	case b.As == nil || b.As.UID == 0:
		return nil, false, errNoOwner
	}
	if a, ok := d.users.cached(b.As.UID); ok {
		return &a, false, a.mayRunAs(s.User)
	}
	run, uid := node.RunID{ID: s.ID, Run: s.Run}, b.As.UID
	go func() {
		a := d.users.get(uid)
		d.post(input{do: func() {
			switch {
			case a.err == nil:
				d.absent(run)
			case errors.Is(a.err, account.ErrUnknown):
				d.cannotRun(run.ID, run.Run, a.err)
			default:
				d.enqueue(input{event: manager.StartFailed{ID: run.ID, Run: run.Run, Reason: a.err.Error()}})
			}
		}})
	}()
	return nil, true, nil
}

// mayRunAs returns why a job of a user of that name may not run. A user ID that was
// reassigned runs none of the former user's jobs.
func (a *knownUser) mayRunAs(name string) error {
	if a.Name != name {
		return fmt.Errorf("user ID %d belongs to %s now; the job was submitted by %s", a.UID, a.Name, name)
	}
	return a.mayRun
}

// keeperUser returns the user that a keeper runs a job as; nil: its own.
func (a *knownUser) keeperUser(as *runAs) *keeper.User {
	if a == nil {
		return nil
	}
	return &keeper.User{UID: a.UID, GID: a.GID, Groups: a.Groups, Limits: as.Limits}
}

// environ returns a job's environment with the variables of the user that it runs as.
func (a *knownUser) environ(env []string) []string {
	if a == nil {
		return env
	}
	escaped := a.Account
	for _, text := range []*string{&escaped.Name, &escaped.Home, &escaped.Shell} {
		*text = backends.Escape(*text)
	}
	return escaped.Environ(env)
}

// mayAccess returns an error if a user other than an administrator asks for another's job.
func mayAccess(by manager.By, jobs []backends.Job, why string) error {
	for i := range jobs {
		if !by.Admin && jobs[i].User != by.User {
			return fmt.Errorf("job %v: %s: %w", jobs[i].ID, why, backends.ErrDenied)
		}
	}
	return nil
}
