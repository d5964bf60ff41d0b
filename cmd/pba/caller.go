package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/allotment-hpc/allotment/internal/account"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// caller is who runs this process. The name is looked up from the number that
// the kernel, or sudo, gives; no option and no USER has a say in it.
type caller struct {
	settings.Caller
	uid    int
	as     int  // the process's own user: another one's through sudo
	writes bool // the process may write the ledger
}

// String is the caller for audit rows.
func (c caller) String() string {
	text := "uid " + strconv.Itoa(c.uid)
	if c.User != "" {
		text = c.User + " (" + text + ")"
	}
	if c.sudo() {
		text += " by sudo"
	}
	return text
}

func (c caller) sudo() bool { return c.uid != c.as }

// identify says who runs this process, which uid started.
//
// SUDO_UID is a variable that anybody may set. It counts only where the process
// runs as root or as the ledger's owner, who may do everything anyway: nobody
// gains by setting it, and whom the sudoers file allows nothing but pba can't
// take it away, since sudo sets it after everything else.
func identify(c configfile.Config, uid int) (caller, error) {
	if os.Getuid() != os.Geteuid() {
		return caller{}, errors.New("find out who runs it: pba must not be setuid: chmod u-s it, and see roles in docs/operate.md")
	}
	owner := ledgerOwner(c, uid)
	who := caller{uid: uid, as: uid, writes: uid == 0 || uid == owner}
	if text, ok := os.LookupEnv("SUDO_UID"); ok && c.PBA.Roles.TrustSudo && who.writes {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return caller{}, fmt.Errorf("find out who runs it: SUDO_UID is %q, which is no user ID", text)
		}
		who.uid = int(n)
	}
	who.Owner = who.uid == 0 || who.uid == owner
	u, err := user.LookupId(strconv.Itoa(who.uid))
	if err != nil {
		return who, nil // he is a reader, or known by his number
	}
	who.User = u.Username
	who.Groups, err = account.GroupNames(u.Username)
	if err != nil && !who.Owner && len(c.PBA.Roles.Admins.Groups) > 0 {
		return caller{}, fmt.Errorf("look up the groups of %s: %w", u.Username, err)
	}
	return who, nil
}

// ledgerOwner is whose the ledger is, or will be once there is one.
func ledgerOwner(c configfile.Config, uid int) int {
	for _, path := range []string{ledgerPath(c), c.Paths.State} {
		if info, err := os.Stat(path); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				return int(stat.Uid)
			}
		}
	}
	return uid
}

// openLedger opens the ledger for who may write it, and else for reading.
func openLedger(path string, who caller) (*ledger.Ledger, error) {
	if who.writes {
		return ledger.Open(path)
	}
	return ledger.OpenToRead(path)
}

// mayWrite is an error where the process can't write the ledger.
func (s *site) mayWrite() error {
	if s.caller.writes {
		return nil
	}
	owner := strconv.Itoa(ledgerOwner(s.Config, s.caller.as))
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username
	} else {
		owner = "#" + owner
	}
	return fmt.Errorf("change the plan: the ledger belongs to %s: run it as `sudo -u %s pba …`, where the site allows it", owner, owner)
}

// mustBeAdmin is an error if the caller may not change everything.
func (s *site) mustBeAdmin(what string) error {
	if err := onlyAdmin(s.Config, s.caller, what); err != nil {
		return err
	}
	return s.mayWrite()
}

func onlyAdmin(c configfile.Config, who caller, what string) error {
	if c.PBA.Roles.Admin(who.Caller) {
		return nil
	}
	return fmt.Errorf("%s: you are %s: only an admin may (config: pba.roles.admins)", what, who)
}

// adminOnly is onlyAdmin for commands that do more than open a site.
func (p *process) adminOnly(c configfile.Config, what string) error {
	who, err := p.identify(c)
	if err != nil {
		return err
	}
	return onlyAdmin(c, who, what)
}

// project finds a project.
func (s *site) project(ctx context.Context, name string) (ledger.Project, error) {
	all, err := s.ledger.Projects(ctx)
	if err != nil {
		return ledger.Project{}, err
	}
	for _, p := range all {
		if p.Name == name {
			return p, nil
		}
	}
	return ledger.Project{}, fmt.Errorf("%w %q: see `pba project list`, or add it: pba project add NAME --group GROUP", ledger.ErrUnknownProject, name)
}

// checkProject is an error if there is no such project.
func (s *site) checkProject(ctx context.Context, name string) error {
	_, err := s.project(ctx, name)
	return err
}

// mayPlan is an error if the caller may not change a project's allocations.
func (s *site) mayPlan(ctx context.Context, name string) error {
	p, err := s.project(ctx, name)
	if err != nil {
		return err
	}
	if s.PBA.Roles.MayPlan(s.caller.Caller, p.Managers) {
		return s.mayWrite()
	}
	return fmt.Errorf("plan for %s: you are %s: only its managers (`pba project list`) and admins may", name, s.caller)
}
