package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// site is an opened run: its config, ledger and queue.
type site struct {
	configfile.Config
	process
	ledger  *ledger.Ledger
	backend backends.Backend
	caller  caller
}

func ledgerPath(c configfile.Config) string { return filepath.Join(c.Paths.State, "ledger.db") }

type opener func(context.Context, configfile.Config) (backends.Backend, error)

// openSite reads the config and opens the ledger and the queue.
func openSite(ctx context.Context, p process, open opener) (*site, error) {
	c, err := p.load()
	if err != nil {
		return nil, err
	}
	who, err := p.identify(c)
	if err != nil {
		return nil, err
	}
	l, err := openLedger(ledgerPath(c), who)
	if err != nil {
		return nil, err
	}
	b, err := open(ctx, c)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &site{Config: c, process: p, ledger: l, backend: b, caller: who}, nil
}

func (s *site) close() {
	_ = s.backend.Close() // nothing of ours is in them that could be lost
	_ = s.ledger.Close()
}

// withSite opens the site for one command.
func withSite(ctx context.Context, p process, open opener, do func(*site) error) error {
	s, err := openSite(ctx, p, open)
	if err != nil {
		return busy(err)
	}
	defer s.close()
	return busy(do(s))
}

func (s *site) zone() *time.Location { return s.Timezone.Location() }

func (s *site) thisWeek() calendar.Week { return calendar.WeekOf(s.now(), s.zone()) }

// editor is who edits, and when.
func (s *site) editor() ledger.Editor { return ledger.Editor{Who: s.caller.String(), At: s.now()} }

// rules are what holds for a cycle now.
func (s *site) rules(ctx context.Context, now time.Time) (pba.Rules, error) {
	week := calendar.PeriodOf(calendar.WeekOf(now, s.zone()), s.zone())
	projects, pools, err := s.ledger.InForce(ctx, week, now.Add(-time.Duration(s.PBA.LoweredGrace)))
	if err != nil {
		return pba.Rules{}, err
	}
	paused, err := s.ledger.Paused(ctx)
	if err != nil {
		return pba.Rules{}, err
	}
	policy := s.PBA.Policy()
	policy.Projects, policy.Allocations = projects, pools
	policy.Queues, policy.Hosts, policy.LowQueue = s.Queues, s.Hosts, s.Filter.LowQueue
	policy.Dummies = s.Dummies.Policy()
	return pba.Rules{Policy: policy, Observe: s.Mode == configfile.Observe, Paused: paused}, nil
}

// engine is the engine of this site; one that only looks changes nothing.
func (s *site) engine(lookOnly bool) *pba.Engine {
	groups := &pba.Directory{Cache: s.ledger, ReadOnly: lookOnly}
	e := &pba.Engine{Backend: s.backend, Ledger: s.ledger, Rules: s.rules, Groups: groups.Of, Who: s.caller.String(), Zone: s.zone(), Keep: time.Duration(s.PBA.KeepHistory), ReadClock: clock.Read}
	if !lookOnly {
		e.Publish = s.publish
	}
	return e
}

// publish tells the submit filter the plan in force and how its pools stand.
func (s *site) publish(ctx context.Context, standing ledger.Standing) error {
	rules, err := s.rules(ctx, standing.At)
	if err != nil {
		return err
	}
	if standing, err = s.ledger.SetStanding(ctx, standing); err != nil {
		return err
	}
	if s.backend.Abilities().HookRank != nil { // it asks a script
		if err := writeHook(s.Config); err != nil {
			return err
		}
	}
	return s.publisher().Publish(ctx, rules.Policy, standing)
}

func (s *site) publisher() *pba.Publisher {
	next := backends.At(backends.LevelNext, backends.DefaultValue)
	abilities := s.backend.Abilities()
	p := &pba.Publisher{
		Dir:    s.Paths.State,
		Groups: &pba.Directory{Cache: s.ledger},
		Facts:  abilities.FilterFacts,
		Settings: esub.Settings{
			Config:       s.Filter,
			NextInLine:   next,
			SuspendFrees: abilities.SuspendFrees,
			Queues:       s.Queues,
		},
	}
	if rank := abilities.HookRank; rank != nil {
		p.Script = &pba.Script{
			ProjectFrom: string(s.Slurm.ProjectFrom),
			Rank:        func(ctx context.Context) (int64, error) { return rank(ctx, next) },
		}
	}
	return p
}

// republish tells the filter of an edit at once. How the pools stand, and when
// the engine was last alive, it leaves as the last cycle wrote it.
func (s *site) republish(ctx context.Context) error {
	rules, err := s.rules(ctx, s.now())
	if err != nil {
		return err
	}
	standing, err := s.ledger.Standing(ctx)
	if err != nil {
		return err
	}
	if standing.At.IsZero() {
		standing.At = s.now() // nobody was told anything before
	}
	standing.Observe = rules.Observe || rules.Paused
	if _, err := s.ledger.SetStanding(ctx, standing); err != nil {
		return err
	}
	return s.publisher().Publish(ctx, rules.Policy, standing)
}

// edit changes the plan: while no cycle goes on, and told to the filter at once.
func (s *site) edit(ctx context.Context, do func() error) error {
	if err := s.mayWrite(); err != nil {
		return err
	}
	return s.locked(ctx, s.Paths.State, func() error {
		if err := do(); err != nil {
			return err
		}
		return s.republish(ctx)
	})
}

// farm is how many slots the managed farm offers now, and how many of it are down.
func (s *site) farm(ctx context.Context) (slots, down int, err error) {
	farm, err := s.backend.Farm(ctx, s.now())
	if err != nil {
		return 0, 0, err
	}
	slots, down = plan.Slots(farm, s.Hosts)
	return slots, down, nil
}

// busy makes a lock that is held an error that may be gone later.
func busy(err error) error {
	if errors.Is(err, pba.ErrBusy) || errors.Is(err, ledger.ErrLocked) {
		return shell.TryAgain(err)
	}
	return err
}
