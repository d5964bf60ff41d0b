package desk

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/allotment-hpc/allotment/internal/account"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// Caller is the user that pba serves. The name is looked up from the user ID that the
// kernel, or sudo, gives; no option and no USER variable changes it.
type Caller struct {
	settings.Caller
	UID    int
	As     int  // the process's own user: another one's through sudo
	Writes bool // the process may write the ledger
	Remote bool // a server asks for this user

	groups error // why the user's groups are not known; nil: they are
}

// String is the caller for audit rows.
func (c Caller) String() string {
	text := "uid " + strconv.Itoa(c.UID)
	if c.User != "" {
		text = c.User + " (" + text + ")"
	}
	switch {
	case c.Remote:
		text += byPage
	case c.sudo():
		text += bySudo
	}
	return text
}

// Ends of the names of callers by sudo, and by the management page or its API.
const (
	bySudo = " by sudo"
	byPage = " by page"
)

func (c Caller) sudo() bool { return c.UID != c.As }

// identify returns the user who runs this process, which uid started.
//
// SUDO_UID is a variable that any user may set. It counts only where the process
// runs as root or as the ledger's owner, who may do everything anyway: setting it
// gains nothing. A user who may run only pba through sudo can't unset it, since sudo
// sets it last.
func identify(c configfile.Config, uid int) (Caller, error) {
	if os.Getuid() != os.Geteuid() {
		return Caller{}, errors.New("identify the caller: pba must not be setuid: chmod u-s it, and see roles in docs/operate.md")
	}
	owner := ledgerOwner(c, uid)
	who := Caller{UID: uid, As: uid, Writes: uid == 0 || uid == owner}
	if text, ok := os.LookupEnv("SUDO_UID"); ok && c.PBA.Roles.TrustSudo && who.Writes {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return Caller{}, fmt.Errorf("identify the caller: SUDO_UID is %q, which is no user ID", text)
		}
		who.UID = int(n)
	}
	who.Owner = who.UID == 0 || who.UID == owner
	u, err := user.LookupId(strconv.Itoa(who.UID))
	if err != nil {
		return who, nil // without a name: a reader, or known by user ID
	}
	who.User = u.Username
	who.Groups, err = account.GroupNames(u.Username)
	who.groups = err
	if err != nil && !who.Owner && len(c.PBA.Roles.Admins.Groups) > 0 {
		return Caller{}, fmt.Errorf("look up the groups of %s: %w", u.Username, err)
	}
	return who, nil
}

// ledgerOwner returns the user ID that owns the ledger, or will own a new one.
func ledgerOwner(c configfile.Config, uid int) int {
	for _, path := range []string{ledgerPath(c), c.Paths.State} {
		if owner, ok := ownerOf(os.Stat(path)); ok {
			return owner
		}
	}
	return uid
}

// openLedger opens the ledger for writing if the caller may, and else for reading.
func openLedger(path string, who Caller) (*ledger.Ledger, error) {
	if who.Writes {
		return ledger.Open(path)
	}
	return ledger.OpenToRead(path)
}

// MayWrite is an error where the process can't write the ledger.
func (d *Desk) MayWrite() error {
	if d.Caller.Writes {
		return nil
	}
	owner := strconv.Itoa(ledgerOwner(d.Config, d.Caller.As))
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username
	} else {
		owner = "#" + owner
	}
	return fmt.Errorf("change the plan: the ledger belongs to %s: run it as `sudo -u %s pba …`, where the site allows it", owner, owner)
}

// mayDo is an error if the caller is no admin.
func (d *Desk) mayDo(what string) error {
	if d.PBA.Roles.Admin(d.Caller.Caller) {
		return nil
	}
	return deniedf("%s: you are %s: only an admin may (config: pba.roles.admins)", what, d.Caller)
}

// MayAdmitHosts is an error if the caller may not say which hosts belong to the farm.
func (d *Desk) MayAdmitHosts() error { return d.mayDo("admit hosts") }

// mayChange is an error if the caller is no admin, or can't write the ledger.
func (d *Desk) mayChange(what string) error {
	if err := d.mayDo(what); err != nil {
		return err
	}
	return d.MayWrite()
}

// mayPlan is an error if the caller may not change a project's allocations.
func (d *Desk) mayPlan(p ledger.Project) error {
	if d.PBA.Roles.MayPlan(d.Caller.Caller, p.Managers) {
		return nil
	}
	return deniedf("plan for %s: you are %s: only its managers (`pba project list`) and admins may", p.Name, d.Caller)
}

// mayAsk is an error if the caller may not request slots of a project.
func (d *Desk) mayAsk(p ledger.Project) error {
	if d.PBA.Roles.MayAsk(d.Caller.Caller, p.Group, p.Managers) {
		return nil
	}
	if d.Caller.groups != nil {
		return fmt.Errorf("look up the groups of %s: %w", d.Caller.User, d.Caller.groups)
	}
	return deniedf("request slots for %s: you are %s: only members of its group, %s, its managers and admins may", p.Name, d.Caller, p.Group)
}

// MayName returns an error if the caller may not name files: through sudo they are
// opened with another user's rights. What is the purpose, for the error.
func (d *Desk) MayName(what string) error {
	if d.Caller.Remote {
		return deniedf("%s: the management page names no files of its machine", what)
	}
	if !d.Caller.sudo() || d.PBA.Roles.Admin(d.Caller.Caller) {
		return nil
	}
	return deniedf("%s: you are %s: through sudo only an admin may name files (config: pba.roles.admins)", what, d.Caller)
}
