package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/esub/filter"
	"github.com/allotment-hpc/allotment/internal/account"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// isAdmin reports whether the config names a user, or one of the user's groups, as an
// administrator of the queue: the engine's administrators are.
func isAdmin(c *configfile.Config) func(account.Account) bool {
	return func(a account.Account) bool {
		caller := settings.Caller{User: a.Name}
		if len(c.PBA.Roles.Admins.Groups) > 0 {
			caller.Groups, _ = account.GroupNames(a.Name) // groups that can't be looked up grant nothing
		}
		return c.PBA.Roles.Admin(caller)
	}
}

// mayBeNext asks the policy snapshot what the submit filter asked it in the user's own
// process, where the user could have forged the answer.
func mayBeNext(c *configfile.Config) func(account.Account, *backends.Spec) bool {
	return func(a account.Account, s *backends.Spec) bool {
		open := func(name string) (*os.File, error) { // written by pba, as root or the state directory's owner
			return trusted.OpenBy(filepath.Join(c.Paths.State, name), trusted.OwnerOf(c.Paths.State))
		}
		d, err := filter.Ask(open, func(esub.Settings) (esub.Request, error) { return requestOf(a, s), nil }, time.Now)
		return err == nil && !d.Reject && d.Queue == "" && d.Priority >= s.Priority
	}
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
		Preempt: env("ALLOTMENT_PREEMPT"), Checkpoint: env(backends.CheckpointVariable), Minimum: env(backends.MinimumVariable), Deadline: env(backends.DeadlineVariable), Description: s.Description, Interactive: s.Interactive, Exclusive: s.Exclusive, NoRequeue: s.NoRequeue,
	}
}
