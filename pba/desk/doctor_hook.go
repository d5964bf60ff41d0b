package desk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// checkSetup asks the queue how it is set up, where that is known to matter.
func (d *Desk) checkSetup(ctx context.Context, all *findings) error {
	examine := d.queue.Abilities().Examine
	if examine == nil {
		return nil
	}
	e, err := examine(ctx, d.installation(ledgerOwner(d.Config, d.Caller.As)))
	if errors.Is(err, backends.ErrUnreachable) {
		return nil // checkQueue says so
	}
	if err != nil {
		return err
	}
	for _, f := range append(settingsMissing(d.Config, e.Settings), e.Findings...) {
		all.add("queue", f.Remedy, "%s", f.What)
	}
	if e.Hook != nil {
		d.checkHook(e.Hook, all)
	}
	if !d.queue.Abilities().FoldsProjects {
		return nil
	}
	projects, err := d.ledger.Projects(ctx)
	checkNames(projects, all)
	if err != nil || d.queue.Abilities().Accounts == nil || string(d.Slurm.ProjectFrom) != "account" {
		return err
	}
	accounts, err := d.queue.Abilities().Accounts(ctx)
	checkAccounts(projects, accounts, all)
	return err
}

// checkAccounts finds projects that no job can name, as the queue would refuse it: accounts
// are the queue's own, with their users, nil if it refuses none.
func checkAccounts(projects []ledger.Project, accounts map[string][]int64, all *findings) {
	for _, p := range projects {
		name := strings.ToLower(p.Name)
		switch users, known := accounts[name]; {
		case accounts == nil:
		case !known:
			all.add("projects", fmt.Sprintf("`sacctmgr add account %s`, and add its users (or set slurm.project_from to wckey or comment)", name),
				"project %s has no account in the queue's accounting: the queue refuses its jobs", p.Name)
		case len(users) == 0:
			all.add("projects", fmt.Sprintf("`sacctmgr add user NAME account=%s` for each of its users", name),
				"the account of project %s has no users in the queue's accounting: the queue refuses its jobs", p.Name)
		}
	}
}

// checkNames finds projects that are the same for a queue that folds their names.
func checkNames(projects []ledger.Project, all *findings) {
	first := map[string]string{}
	for _, p := range projects {
		folded := strings.ToLower(p.Name)
		if first[folded] == "" {
			first[folded] = p.Name
			continue
		}
		all.add("projects", "give one of them another name: the queue keeps all names in lower case",
			"projects %s and %s are one for the queue", first[folded], p.Name)
	}
}

// checkHook looks whether the queue asks our filter at each submission, and whether
// that can read what it decides by.
func (d *Desk) checkHook(h *backends.Hook, all *findings) {
	switch {
	case !h.Enabled:
		all.add("filter", h.Remedy, "the queue asks no script at submission: jobs are neither tested nor tagged")
	case !strings.Contains(h.Answer, controlCharacters):
		all.add("filter", hookRemedy(d.Config, h), "the queue does not ask our filter at submission: jobs are neither tested nor tagged")
	}
	script, err := trusted.Read(hookPath(d.Config))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		all.add("filter", "the next `pba rebalance` writes it", "%s is missing: the queue can't ask it", hookPath(d.Config))
	case err != nil:
		all.add("filter", "give the file back to the user who runs pba (chown, chmod 644), or remove it: the next `pba rebalance` writes it", "%v", err)
	case !bytes.Equal(script, esub.JobSubmit(d.Paths.State)):
		all.add("filter", "the next `pba rebalance` writes it anew", "%s is of another version", hookPath(d.Config))
	}
	reads := []string{h.File, hookPath(d.Config)}
	for _, name := range []string{esub.LuaPolicyName, esub.LuaGenerationName} {
		reads = append(reads, filepath.Join(d.Paths.State, name))
	}
	who := newReader(h.UID)
	for _, name := range reads {
		if err := who.mayRead(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all.add("filter", "correct the mode or owner (chmod, chown)", "as %s, who runs the filter: %v", h.User, err)
			return
		}
	}
}

// controlCharacters is how the filter refuses a name that has some.
const controlCharacters = "control characters"

// reader is a user whose access to files is checked.
type reader struct {
	uid  int
	gids []int
	stat func(string) (fs.FileInfo, error)
}

func newReader(uid int) reader {
	_, groups, _ := groupsOf(uid) // an unknown user has none
	return reader{uid: uid, gids: groups, stat: os.Stat}
}

// mayRead returns an error where modes keep the user from a file, or let another user
// exchange it. It does not read access control lists.
func (r reader) mayRead(path string) error {
	const read, search = 4, 1
	info, err := r.stat(path)
	if err != nil {
		return err
	}
	if !r.has(info, read) {
		return fmt.Errorf("%s can't be read (mode %#o)", path, info.Mode().Perm())
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s can be written by others (mode %#o)", path, info.Mode().Perm())
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := r.stat(dir)
		switch {
		case err != nil:
			return err
		case !r.has(info, search):
			return fmt.Errorf("%s can't be reached: directory %s is closed (mode %#o)", path, dir, info.Mode().Perm())
		case info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0:
			return fmt.Errorf("%s can be exchanged: directory %s can be written by others (mode %#o)", path, dir, info.Mode().Perm())
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// has reports whether the user has a right: read, write or search.
func (r reader) has(info fs.FileInfo, right fs.FileMode) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	switch {
	case r.uid == 0 || !ok:
		return true
	case int(stat.Uid) == r.uid:
		mode >>= 6
	case slices.Contains(r.gids, int(stat.Gid)):
		mode >>= 3
	}
	return mode&right != 0
}
