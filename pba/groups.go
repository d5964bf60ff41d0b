package pba

import (
	"context"
	"errors"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/account"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// GroupCache stores what was looked up; pba/ledger has one.
type GroupCache interface {
	Groups(ctx context.Context) (map[string]ledger.Groups, error)
	SetGroups(ctx context.Context, groups map[string]ledger.Groups) error
}

// Directory looks up UNIX groups through NSS, as the system's own login does
// (R4), and remembers them: a directory service that is away or slow keeps no
// cycle waiting and leaves no known user without groups.
type Directory struct {
	Cache    GroupCache
	ReadOnly bool                                    // remember nothing
	Lookup   func(name string) ([]string, error)     // of a user; nil: NSS
	GroupID  func(group string) (gid int64, e error) // nil: NSS
	UserID   func(user string) (uid int64, e error)  // nil: NSS
}

// fresh is for how long a cached answer is good, and patience how long one
// question may take.
const (
	fresh    = 10 * time.Minute
	patience = 2 * time.Second
)

// Of returns the groups of users. One who can't be looked up keeps the groups that
// are cached; one who was never looked up is missing.
func (d *Directory) Of(ctx context.Context, users []string) (map[string][]string, error) {
	lookup := d.Lookup
	if lookup == nil {
		lookup = account.GroupNames
	}
	return d.ask(ctx, users, lookup)
}

// groupKey separates groups' numbers from users in the cache, and userKey users'
// numbers from both; no user's name and no group's has a colon.
const (
	groupKey = ":"
	userKey  = "::"
)

// IDs returns the numbers of groups; one that can't be looked up and never could is
// missing.
func (d *Directory) IDs(ctx context.Context, groups []string) (map[string]int64, error) {
	lookup := d.GroupID
	if lookup == nil {
		lookup = lookupGroupID
	}
	return d.numbers(ctx, groupKey, groups, lookup)
}

// UserIDs returns the numbers of users, as IDs does those of groups.
func (d *Directory) UserIDs(ctx context.Context, users []string) (map[string]int64, error) {
	lookup := d.UserID
	if lookup == nil {
		lookup = lookupUserID
	}
	return d.numbers(ctx, userKey, users, lookup)
}

func (d *Directory) numbers(ctx context.Context, prefix string, names []string, lookup func(string) (int64, error)) (map[string]int64, error) {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = prefix + name
	}
	answers, err := d.ask(ctx, keys, func(key string) ([]string, error) {
		id, err := lookup(key[len(prefix):])
		return []string{strconv.FormatInt(id, 10)}, err
	})
	ids := make(map[string]int64, len(answers))
	for key, answer := range answers {
		if id, err := strconv.ParseInt(answer[0], 10, 64); err == nil {
			ids[key[len(prefix):]] = id
		}
	}
	return ids, err
}

// Known returns the groups of all users who were looked up lately. It leaves out
// users with only an old answer: they may have joined a group since.
func (d *Directory) Known(ctx context.Context) (map[string][]string, error) {
	cached, err := d.Cache.Groups(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string][]string{}
	for key, entry := range cached {
		if age := time.Since(entry.LookedUp); !strings.HasPrefix(key, groupKey) && age >= 0 && age < 2*fresh {
			known[key] = entry.Names
		}
	}
	return known, nil
}

// ask answers from the cache, and looks up what is not fresh there until one
// question takes too long.
func (d *Directory) ask(ctx context.Context, keys []string, lookup func(string) ([]string, error)) (map[string][]string, error) {
	cached, err := d.Cache.Groups(ctx)
	if err != nil {
		return nil, err
	}
	answers := make(map[string][]string, len(keys))
	learned := map[string]ledger.Groups{}
	slow := false
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		entry, ok := cached[key]
		if age := time.Since(entry.LookedUp); !slow && (!ok || age < 0 || age >= fresh) {
			names, err := timed(ctx, key, lookup)
			if err == nil {
				entry, ok = ledger.Groups{Names: names, LookedUp: time.Now()}, true
				learned[key] = entry
			}
			slow = errors.Is(err, context.DeadlineExceeded)
		}
		if ok {
			answers[key] = entry.Names
		}
	}
	if len(learned) == 0 || d.ReadOnly {
		return answers, nil
	}
	return answers, d.Cache.SetGroups(ctx, learned)
}

// timed asks in a goroutine of its own, which is left behind when the answer
// does not come: a call into NSS can't be interrupted.
func timed(ctx context.Context, key string, lookup func(string) ([]string, error)) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type answer struct {
		names []string
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		names, err := lookup(key)
		answers <- answer{names, err}
	}()
	select {
	case a := <-answers:
		return a.names, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func lookupGroupID(group string) (int64, error) {
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(g.Gid, 10, 64)
}

func lookupUserID(name string) (int64, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(u.Uid, 10, 64)
}
