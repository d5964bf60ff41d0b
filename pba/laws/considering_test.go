package laws

import (
	"context"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// considering is a queue that says when it considered a job, as Slurm does, and refuses
// some on hosts that suit them by all that the plan knows; unless it never considers jobs. Of
// some jobs it does not understand all.
type considering struct {
	*simulate.World
	d *drive
}

// slowly is the time between two looks of a slow queue at its jobs. A cycle takes less.
const slowly = 50 * time.Second

func (q considering) Snapshot(ctx context.Context, endedSince time.Time) (*backends.Snapshot, error) {
	s, err := q.World.Snapshot(ctx, endedSince)
	if err != nil {
		return nil, err
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if q.d.odd[j.ID] {
			j.Unserved = "--odd"
		}
		if j.State != backends.Pending || q.d.Considers == considersNever {
			continue
		}
		j.Considered = s.At
		if q.d.Considers == considersSlowly {
			j.Considered = start().Add(s.At.Sub(start()).Truncate(slowly))
		}
		if q.d.refuses(j) {
			j.Wait, j.Reason = backends.WaitOther, "BadConstraints"
		}
	}
	return s, nil
}

func (q considering) Abilities() backends.Abilities {
	able := q.World.Abilities()
	if q.d.Considers == considersNever {
		return able
	}
	able.Considers = true
	pin := able.Pin
	able.Pin = func(ctx context.Context, pins []backends.Pin) backends.Errors {
		for _, p := range pins {
			if !sameHosts(q.d.pinned[p.ID].hosts, p.Hosts) { // else the same pin is prolonged
				q.d.pinned[p.ID] = pinning{q.d.world.Now(), p.Hosts}
			}
		}
		return pin(ctx, pins)
	}
	return able
}

// pinning is where a job was pinned, and when.
type pinning struct {
	at    time.Time
	hosts []string
}

// When a queue considers its jobs.
const (
	considersNever = iota // it does not say when: miniq
	considersAtOnce
	considersSlowly
)

// refuses reports whether the queue finds that a job can't run where it is pinned: so with
// every seventh job on the first host.
func (d *drive) refuses(j *backends.Job) bool {
	return d.Considers != considersNever && j.ID.Job%7 == 3 && len(j.Pinned) > 0 && j.Pinned[0] == hostName(0)
}

// lawLook: no job is preempted for one that the queue has not considered on the hosts that
// come free; two cycles are enough for a job of one host that any host suits.
func (g *judge) lawLook() {
	if g.d.Considers == considersNever {
		return
	}
	for _, r := range g.fresh {
		b := g.jobs[r.Beneficiary]
		if len(r.Victims) == 0 || b == nil || b.State != backends.Pending {
			continue
		}
		g.d.met[tried] = true
		switch at, now := g.d.pinned[b.ID].at, g.state.Farm.At; {
		case !sameHosts(b.Pinned, hostsOf(r.Hosts)):
			g.d.breach(lawLook, "reclaim %d preempts jobs on %v for job %v, which is pinned to %v", r.ID, r.Hosts, b.ID, b.Pinned)
		case b.Considered.After(at):
		case b.OneHost && len(b.Asked) == 0 && b.Suits == nil && len(b.Needs) == 0 && !b.Exclusive && now.Sub(at) >= 2*cycle:
		default:
			g.d.breach(lawLook, "reclaim %d preempts jobs for job %v, pinned at %v and considered last at %v", r.ID, b.ID, sinceStart(at), sinceStart(b.Considered))
		}
	}
}

func sameHosts(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(host string) bool { return !slices.Contains(b, host) })
}

func hostsOf(placements []backends.Placement) (hosts []string) {
	for _, p := range placements {
		hosts = append(hosts, p.Host)
	}
	return hosts
}
