package laws

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// TestPlans runs cycles on random farms and judges nothing. `make same-plans` runs it in
// two trees, in older ones by adding this file, and compares what plan.Make decided.
func TestPlans(t *testing.T) {
	const cycles = 8
	to, err := strconv.Atoi(os.Getenv("ALLOTMENT_SAME_PLANS"))
	if err != nil {
		t.Skip("make same-plans runs it")
	}
	out := os.NewFile(3, "plans")
	for i := range to {
		draw, kind := farms, "farm"
		if i%4 == 3 {
			draw, kind = heavyFarms, "farm with heavy jobs"
		}
		fmt.Fprintln(out, kind, i)
		d := newDrive(example(draw, i))
		d.schedule()
		for c := range min(cycles, len(d.Missed)) {
			d.advance(start().Add(time.Duration(c+1) * cycle))
			if d.at = c; d.Missed[c] {
				continue
			}
			if r, err := d.engine.Cycle(d.ctx, d.world.Now); err != nil || r.Note != "" {
				t.Fatalf("farm %d, cycle %d: %v; %s", i, c, err, r.Note)
			}
		}
	}
}

func example(draw func() *rapid.Generator[farm], seed int) farm { return draw().Example(seed) }

// newDrive makes a farm that nothing has happened on.
func newDrive(f farm) *drive {
	u := newUsage(f.hosts())
	u.apart = f.Heavy
	d := &drive{farm: f, ctx: context.Background(), groups: f.groups(), ids: make([]backends.ID, len(f.Jobs)), usage: u, raised: map[backends.ID]bool{}, pinned: map[backends.ID]pinning{}, pools: map[int64]int64{}, odd: map[backends.ID]bool{}, condemned: map[int64]bool{}, claims: map[string]time.Time{}, asked: map[runOf]bool{}, wide: wideBooks{lost: map[backends.ID]float64{}, stakes: map[stakeOf]stakeOfVictim{}}}
	of := simulate.Config{Hosts: f.hosts(), Start: start(), Watch: u.watch, WatchEnd: u.ended}
	of.Manager.AgeingInterval, of.Manager.AgeingCap, of.Manager.ReserveAfter, of.Manager.SlotsOnly = cycle, 69, 10*time.Minute, f.Heavy
	d.world = simulate.New(of)
	d.engine = pba.Engine{
		Backend: d.world, Ledger: &d.ledger,
		Rules: func(context.Context, time.Time) (pba.Rules, error) {
			return pba.Rules{Policy: d.policy(d.at)}, nil
		},
		Groups: func(context.Context, []string) (map[string][]string, error) { return d.groups, nil },
	}
	d.engine.Backend = considering{d.world, d}
	return d
}
