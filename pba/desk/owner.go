package desk

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/allotment-hpc/allotment/pba/configfile"
)

// becomeOwner makes root's process one of the user who owns the state directory, such
// as an LSF administrator: what it writes is that user's, so that both can keep it, and
// the queue takes its commands for that user's. Root's files are out of reach from then
// on.
func becomeOwner(c configfile.Config) error {
	if os.Getuid() != 0 || os.Geteuid() != 0 {
		return nil
	}
	owner := serviceUser(c)
	if owner == 0 {
		return nil
	}
	gid, groups, err := groupsOf(owner)
	if err == nil {
		err = syscall.Setgroups(groups)
	}
	if err == nil {
		err = syscall.Setgid(gid)
	}
	if err == nil {
		err = syscall.Setuid(owner)
	}
	if err != nil {
		return fmt.Errorf("become user ID %d, who owns the ledger in %s: %w", owner, c.Paths.State, err)
	}
	return nil
}

// serviceUser returns the ID of the user who owns the state directory, and the ledger
// where there is one; 0: root, or two owners. What a symbolic link leads to does not
// count.
func serviceUser(c configfile.Config) int {
	owner, ok := ownerOf(os.Lstat(c.Paths.State))
	if !ok {
		return 0
	}
	if of, ok := ownerOf(os.Lstat(ledgerPath(c))); ok && of != owner {
		return 0
	}
	return owner
}

// ownerOf is a file's owner.
func ownerOf(info os.FileInfo, err error) (uid int, ok bool) {
	if err != nil {
		return 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

// groupsOf returns a user's primary group and all of the user's groups. A user unknown
// to the system has a primary group of the same ID, and no others.
func groupsOf(uid int) (primary int, all []int, err error) {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return uid, nil, nil
	}
	if primary, err = strconv.Atoi(u.Gid); err != nil {
		return 0, nil, err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return 0, nil, err
	}
	for _, id := range ids {
		n, err := strconv.Atoi(id)
		if err != nil {
			return 0, nil, err
		}
		all = append(all, n)
	}
	return primary, all, nil
}
