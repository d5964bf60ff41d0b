package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/account"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// isAdmin tells whether the config names a user, or one of his groups, as an
// administrator of the queue: the engine's administrators are.
func isAdmin(c *configfile.Config) func(account.Account) bool {
	return func(a account.Account) bool {
		who := settings.Caller{User: a.Name}
		if len(c.PBA.Roles.Admins.Groups) > 0 {
			who.Groups, _ = account.GroupNames(a.Name) // those that can't be looked up make nobody an administrator
		}
		return c.PBA.Roles.Admin(who)
	}
}

// mayBeNext asks the policy snapshot what the submit filter asked it in the
// user's own process, where he could have said what he likes.
func mayBeNext(c *configfile.Config) func(account.Account, *backends.Spec) bool {
	return func(a account.Account, s *backends.Spec) bool {
		// A mismatch is a moment between two renames of pba's.
		const tries = 5
		var d esub.Decision
		err := esub.ErrMismatch
		for n := 0; n < tries && errors.Is(err, esub.ErrMismatch); n++ {
			d, err = decide(c.Paths.State, a, s)
		}
		return err == nil && !d.Reject && d.Queue == "" && d.Priority >= s.Priority
	}
}

func decide(state string, a account.Account, s *backends.Spec) (esub.Decision, error) {
	snapshot, err := openOurs(state, esub.SnapshotName)
	if err != nil {
		return esub.Decision{}, err
	}
	defer func() { _ = snapshot.Close() }()
	info, err := snapshot.Stat()
	if err != nil {
		return esub.Decision{}, err
	}
	reader, err := esub.Open(snapshot, info.Size())
	if err != nil {
		return esub.Decision{}, err
	}
	standing, err := openOurs(state, esub.GenerationName)
	if err != nil {
		return esub.Decision{}, err
	}
	defer func() { _ = standing.Close() }()
	data, err := io.ReadAll(io.LimitReader(standing, esub.MaxGeneration))
	if err != nil {
		return esub.Decision{}, err
	}
	generation, err := esub.OpenGeneration(data)
	if err != nil {
		return esub.Decision{}, err
	}
	return esub.Decide(requestOf(a, s), reader, generation, time.Now())
}

// openOurs opens a file of pba's, who may be root or the state directory's owner.
func openOurs(state, name string) (*os.File, error) {
	return trusted.OpenBy(filepath.Join(state, name), func(owner uint32) bool {
		info, err := os.Lstat(state)
		if err != nil {
			return false
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		return ok && stat.Uid == owner
	})
}

func requestOf(a account.Account, s *backends.Spec) esub.Request {
	groups := make([]int64, len(a.Groups))
	for i, g := range a.Groups {
		groups[i] = int64(g)
	}
	env := func(name string) string {
		i := slices.IndexFunc(s.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		if i < 0 {
			return ""
		}
		return s.Env[i][len(name)+1:]
	}
	return esub.Request{
		User: a.Name, UID: int64(a.UID), Groups: groups, Project: s.Project, Queue: s.Queue, Slots: s.Slots, Memory: s.Memory,
		Preempt: env("ALLOTMENT_PREEMPT"), Description: s.Description, Interactive: s.Interactive, Exclusive: s.Exclusive, NoRequeue: s.NoRequeue,
	}
}
