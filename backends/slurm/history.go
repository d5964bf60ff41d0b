package slurm

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
	"github.com/allotment-hpc/allotment/internal/command"
)

// errNoAccounting is what sacct's own text means: "Slurm accounting storage is disabled".
var errNoAccounting = errors.New("this cluster keeps no accounting (AccountingStorageType in slurm.conf): an administrator can set up slurmdbd")

// history returns what sacct knows of jobs, all of their runs.
func (c *Client) history(ctx context.Context, q backends.PastQuery) (backends.PastJobs, error) {
	nonce := newNonce()
	argv := []string{"sacct", "--noheader", "--duplicates", "--parsable", "--delimiter=" + nonce, "--format=" + strings.Join(pastFields, ",")}
	switch some := names(q.IDs); {
	case len(some) > 0:
		argv = append(argv, "--jobs="+strings.Join(some, ","))
	case len(q.IDs) > 0: // sacct would list all jobs
		return backends.PastJobs{}, nil
	default:
		argv = append(argv, "--starttime="+formatTime(q.Since))
	}
	if q.User == "" {
		argv = append(argv, "--allusers")
	} else {
		u, err := user.Lookup(q.User)
		if errors.As(err, new(user.UnknownUserError)) {
			return backends.PastJobs{}, nil
		}
		if err != nil {
			return backends.PastJobs{}, fmt.Errorf("look up user %s: %w", q.User, err)
		}
		argv = append(argv, "--uid="+u.Uid)
	}
	r := newPastReader(nonce, c.config.ProjectFrom)
	cmd := c.command(nil, argv)
	cmd.Stdout = r
	_, err := command.Run(ctx, cmd)
	if err = reconcile.Classify(err, failure); err != nil {
		if text, failed := reconcile.ExitFailure(err); failed && strings.Contains(text, "accounting storage is disabled") {
			return backends.PastJobs{}, fmt.Errorf("ask sacct: %w", errNoAccounting)
		}
		return backends.PastJobs{}, err
	}
	if err := r.end(); err != nil {
		return backends.PastJobs{}, fmt.Errorf("sacct: %w", err)
	}
	nameUsers(r.rows)
	all, err := past(r.rows, &q)
	if err != nil {
		return backends.PastJobs{}, fmt.Errorf("sacct: %w", err)
	}
	return backends.Newest(all, q.Most), nil
}

// nameUsers replaces the numbers of users who cancelled jobs by their names, where they have one.
func nameUsers(rows []pastRow) {
	known := map[string]string{"": ""}
	for i := range rows {
		name, seen := known[rows[i].by]
		if !seen {
			name = "the user with number " + rows[i].by
			if u, err := user.LookupId(rows[i].by); err == nil {
				name = u.Username
			}
			known[rows[i].by] = name
		}
		rows[i].by = name
	}
}
