// Package account knows the users of this machine by the system's word, whatever
// its name service is (files, LDAP, SSSD): /etc/passwd alone is never read.
package account

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/command"
)

// Account is a user of this machine.
type Account struct {
	Name     string
	UID, GID uint32
	Groups   []uint32 // the IDs of all the user's groups, GID among them
	Home     string
	Shell    string // "": the system's, /bin/sh
}

// ErrUnknown says that the machine has no such user.
var ErrUnknown = errors.New("no such user on this machine")

// lookupTime bounds a query to the name service.
const lookupTime = 10 * time.Second

// noEntry is getent's exit status where the name service has answered no.
const noEntry = 2

// OwnName returns the name of this process's user, or its number, if it has none.
func OwnName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}

// Lookup returns the user of an ID. It takes as long as the name service does, 10 s at
// most. An error that does not wrap ErrUnknown means that nothing is known.
func Lookup(ctx context.Context, uid uint32) (Account, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	number := strconv.FormatUint(uint64(uid), 10)
	line, err := command.Run(ctx, command.Command{Argv: []string{"getent", "passwd", number}})
	var failed *command.Error
	if errors.As(err, &failed) && failed.Status == noEntry {
		return Account{}, fmt.Errorf("look up user ID %s: %w", number, ErrUnknown)
	}
	if err != nil {
		return Account{}, fmt.Errorf("look up user ID %s: %w", number, err)
	}
	a, err := parse(strings.TrimSuffix(string(line), "\n"))
	if err == nil && a.UID != uid {
		err = errors.New("getent returned another user")
	}
	if err == nil {
		a.Groups, err = groupsOf(ctx, a)
	}
	if err != nil {
		return Account{}, fmt.Errorf("look up user ID %s: %w", number, err)
	}
	return a, nil
}

var errEntry = errors.New("getent returned a malformed passwd entry")

// parse reads a line of passwd(5).
func parse(line string) (Account, error) {
	fields := strings.Split(line, ":")
	if len(fields) != 7 || fields[0] == "" {
		return Account{}, errEntry
	}
	uid, err := strconv.ParseUint(fields[2], 10, 32)
	gid, err2 := strconv.ParseUint(fields[3], 10, 32)
	if err != nil || err2 != nil {
		return Account{}, errEntry
	}
	return Account{Name: fields[0], UID: uint32(uid), GID: uint32(gid), Home: fields[5], Shell: fields[6]}, nil
}

// groupsOf is getgrouplist(3), given up when ctx ends.
func groupsOf(ctx context.Context, a Account) ([]uint32, error) {
	type answer struct {
		ids []string
		err error
	}
	got := make(chan answer, 1)
	go func() {
		u := user.User{Username: a.Name, Uid: strconv.FormatUint(uint64(a.UID), 10), Gid: strconv.FormatUint(uint64(a.GID), 10)}
		ids, err := u.GroupIds()
		got <- answer{ids, err}
	}()
	select {
	case g := <-got:
		if g.err != nil {
			return nil, fmt.Errorf("groups of %s: %w", a.Name, g.err)
		}
		return numbers(g.ids)
	case <-ctx.Done():
		return nil, fmt.Errorf("groups of %s: %w", a.Name, context.Cause(ctx))
	}
}

// GroupNames returns the names of a user's groups, sorted. It takes as long as the name
// service does.
func GroupNames(name string) ([]string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(ids))
	for _, id := range ids {
		if g, err := user.LookupGroupId(id); err == nil {
			names = append(names, g.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func numbers(ids []string) ([]uint32, error) {
	all := make([]uint32, len(ids))
	for i, id := range ids {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("group %q: %w", id, err)
		}
		all[i] = uint32(n)
	}
	return all, nil
}

// MayRun returns an error if programs are not to be run for a user: those without a
// shell are not to run any here, and those without a home would run them anywhere. A
// home that can't be looked at (root may not, on some file servers) is there.
func (a Account) MayRun() error {
	shell := a.Shell
	if shell == "" {
		shell = "/bin/sh"
	}
	base := filepath.Base(shell)
	info, err := os.Stat(shell)
	if base == "nologin" || base == "false" || err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("user %s has no login shell (%s), so its jobs are not run: set one with usermod -s /bin/sh", a.Name, shell)
	}
	info, err = os.Stat(a.Home)
	switch {
	case a.Home == "" || errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir():
		return fmt.Errorf("user %s has no home directory (%q): create it, or set another with usermod -d, and submit again", a.Name, a.Home)
	}
	return nil
}

// Environ returns env with the variables that a login would set for the user (USER,
// LOGNAME, HOME, SHELL) in place of its own.
func (a Account) Environ(env []string) []string {
	shell := a.Shell
	if shell == "" {
		shell = "/bin/sh"
	}
	own := [][2]string{{"USER", a.Name}, {"LOGNAME", a.Name}, {"HOME", a.Home}, {"SHELL", shell}}
	out := make([]string, 0, len(env)+len(own))
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		theirs := true
		for _, o := range own {
			theirs = theirs && name != o[0]
		}
		if theirs {
			out = append(out, entry)
		}
	}
	for _, o := range own {
		out = append(out, o[0]+"="+o[1])
	}
	return out
}
