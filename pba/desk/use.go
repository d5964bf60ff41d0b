package desk

import (
	"context"
	"os/user"
	"slices"
	"strconv"

	"github.com/allotment-hpc/allotment/backends"
)

// MayReadUse returns which jobs' measures the caller may read: all for an admin, else the
// caller's own and those of the projects that the caller manages. A job is named as its host
// measured it: by its queue, its ID and the user ID of its processes, or -1 where that is
// not known.
func (d *Desk) MayReadUse(ctx context.Context) (func(queue string, id backends.ID, uid int) bool, error) {
	roles, who := d.PBA.Roles, d.Caller
	if roles.Admin(who.Caller) {
		return func(string, backends.ID, int) bool { return true }, nil
	}
	owners, err := d.managed(ctx)
	if err != nil {
		return nil, err
	}
	own := d.OwnOnHosts()
	return func(queue string, id backends.ID, uid int) bool {
		if uid == who.UID {
			return true
		}
		// What a user's processes say of the job that they are of proves nothing of another
		// user's: the farm's own record must have this user.
		owner, ok := owners[id]
		return ok && own(queue, uid, owner)
	}, nil
}

// OwnOnHosts returns which measures are of a job of the queue itself: a process of another user
// that says it is of the job proves nothing. It looks each user up once; "" are those that have no
// account.
func (d *Desk) OwnOnHosts() func(queue string, uid int, owner string) bool {
	names := map[int]string{}
	return func(queue string, uid int, owner string) bool {
		if queue != d.Config.Backend || uid < 0 {
			return false
		}
		name, ok := names[uid]
		if !ok {
			if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
				name = u.Username
			}
			names[uid] = name
		}
		return name == owner
	}
}

// JobsOnHosts returns how the queue names a job that its hosts measured: the elements of
// Slurm's arrays have numbers of their own there. A job that the last cycle did not see keeps
// the name that its hosts have for it.
func (d *Desk) JobsOnHosts(ctx context.Context) (func(queue string, id backends.ID) backends.ID, error) {
	r, err := d.observe(ctx)
	if err != nil && !Temporary(err) {
		return nil, err
	}
	names := map[backends.ID]backends.ID{}
	if err == nil && r.State.Farm != nil {
		for i := range r.State.Farm.Jobs {
			if j := &r.State.Farm.Jobs[i]; j.HostNumber != 0 {
				names[j.OnHosts()] = j.ID
			}
		}
	}
	return func(queue string, id backends.ID) backends.ID {
		if name, ok := names[id]; ok && queue == d.Config.Backend {
			return name
		}
		return id
	}, nil
}

// OnHosts returns the ID by which a job's hosts know it: the reverse of JobsOnHosts.
func (d *Desk) OnHosts(ctx context.Context, queue string, id backends.ID) (backends.ID, error) {
	if id.Index == 0 || queue != d.Config.Backend {
		return id, nil
	}
	r, err := d.observe(ctx)
	if err != nil && !Temporary(err) {
		return id, err
	}
	if err == nil && r.State.Farm != nil {
		for i := range r.State.Farm.Jobs {
			if j := &r.State.Farm.Jobs[i]; j.ID == id {
				return j.OnHosts(), nil
			}
		}
	}
	return id, nil
}

// HostsKeepStates reports whether the state of jobs is with their hosts, not with the queue.
func (d *Desk) HostsKeepStates() bool { return d.queue.Abilities().Set == nil }

// managed returns the jobs of the projects that the caller manages by the IDs that their hosts
// have for them, and their users, as the last cycle saw them.
func (d *Desk) managed(ctx context.Context) (map[backends.ID]string, error) {
	projects, err := d.ledger.Projects(ctx)
	if err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for i := range projects {
		own[projects[i].Name] = d.Caller.User != "" && slices.Contains(projects[i].Managers, d.Caller.User)
	}
	if !slices.ContainsFunc(projects, func(p Project) bool { return own[p.Name] }) {
		return nil, nil
	}
	r, err := d.observe(ctx)
	if Temporary(err) {
		return nil, nil // no cycle has ended yet: there is no record of whose job is whose
	}
	if err != nil {
		return nil, err
	}
	owners := map[backends.ID]string{}
	for i := range r.State.Farm.Jobs {
		if j := &r.State.Farm.Jobs[i]; own[j.Project] {
			owners[j.OnHosts()] = j.User
		}
	}
	return owners, nil
}
