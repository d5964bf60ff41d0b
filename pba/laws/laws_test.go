package laws

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A farm's garbage is small, and soon all of it is: collected less often, the laws take two thirds of the time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}

// No act of the engine takes slots from a pool that uses them within its guarantee.
func TestLawNoPoolIsChargedLess(t *testing.T) { obeyed(t, lawCharge) }

// No job is preempted for one that its pool has no room for.
func TestLawOnlyAPoolUnderItsGuaranteeTriggers(t *testing.T) { obeyed(t, lawTrigger) }

// Only slots that were used beyond guarantees are preempted.
func TestLawOnlySlotsBeyondGuaranteesArePreempted(t *testing.T) { obeyed(t, lawBeyond) }

// What runs beyond guarantees counts under its project where that is proven, and else, only
// then, under its user.
func TestLawUseCountsUnderItsProject(t *testing.T) { obeyed(t, lawKey) }

// R34: no set of victims is better than the chosen one, by brute force.
func TestLawLeastIsLost(t *testing.T) { obeyed(t, lawLeast) }

// R35: no set of victims has fewer jobs that lost too much already than the chosen one.
func TestLawJobsThatLostTooMuchGoLast(t *testing.T) { obeyed(t, lawProtected) }

// A victim loses its slots to a job that can run in them, and no victim is superfluous.
func TestLawNoActWithoutABeneficiaryThatCanUseIt(t *testing.T) { obeyed(t, lawUse) }

// R9: charges lie on the pool's hosts.
func TestLawChargesLieOnThePoolsHosts(t *testing.T) { obeyed(t, lawHosts) }

// R32: no job is preempted for one that is not understood, and it holds no room.
func TestLawNoJobThatIsNotUnderstoodIsServed(t *testing.T) { obeyed(t, lawOdd) }

// No more elements of an array hold room, or are served, than may still start.
func TestLawArraysHoldRoomWithinTheirLimit(t *testing.T) { obeyed(t, lawThrottle) }

// R32: a beneficiary is served on hosts that suit it and have what it needs.
func TestLawBeneficiariesAreServedWhereTheyMayRun(t *testing.T) { obeyed(t, lawPlace) }

// R32: a beneficiary's slots lie on its hosts as it asks for.
func TestLawBeneficiariesAreServedInTheirForm(t *testing.T) { obeyed(t, lawForm) }

// R32: an exclusive beneficiary has its hosts for itself.
func TestLawExclusiveBeneficiariesHaveTheirHosts(t *testing.T) { obeyed(t, lawAlone) }

// R16: what is spared is not preempted.
func TestLawWhatIsSparedIsNotPreempted(t *testing.T) { obeyed(t, lawSpared) }

// A host's resources are never exceeded.
func TestLawResourcesAreNeverExceeded(t *testing.T) { obeyed(t, lawUnits) }

// R32: no victim loses its slots to a job that can't use them then.
func TestLawNoEvictionIsUseless(t *testing.T) { obeyed(t, lawUseless) }

// R32: no job is preempted for one that the queue has not considered in its slots.
func TestLawTheQueueConsidersABeneficiaryFirst(t *testing.T) { obeyed(t, lawLook) }

// R14: a pool is served before the site's threshold only if its project has a threshold of
// its own, and for twice its slots an hour.
func TestLawFewSlotsArePreemptedEarly(t *testing.T) { obeyed(t, lawEarly) }

// R11, R13: bands and values, and the order in which the queue starts jobs.
func TestLawBandsAndOrderHold(t *testing.T) { obeyed(t, lawOrder) }

// The same state gives the same plan.
func TestLawSameStateSamePlan(t *testing.T) { obeyedOnOthers(t, lawSame) }

// Once a plan is applied, planning again acts on nothing but what a cap put off.
func TestLawAppliedThenPlannedAgainIsEmpty(t *testing.T) { obeyed(t, lawStable) }

// Everything held is released in the end, engine alive or not.
func TestLawEverythingHeldIsReleased(t *testing.T) { obeyedOnOthers(t, lawReleased) }

// Slots and memory of a host are never exceeded.
func TestLawHostsAreNeverOverfilled(t *testing.T) { obeyedOnOthers(t, lawCapacity) }

// R33: a job that saves itself is asked to, once, and loses nothing if it does.
func TestLawJobsThatSaveThemselvesLoseNothing(t *testing.T) { obeyed(t, lawSaves) }

// R22: no more jobs are preempted than the caps of a cycle and of an hour allow.
func TestLawCapsHold(t *testing.T) { obeyed(t, lawCaps) }

// TestLawNothingPanics: no farm makes the planner, the engine or the manager panic.
func TestLawNothingPanics(t *testing.T) { obeyedOnOthers(t, crash) }

// TestLawsWerePutToTheTest checks that enough farms could have broken the laws.
func TestLawsWerePutToTheTest(t *testing.T) {
	checkShares(t, allFarms(), map[share]float64{
		reclaimed: 30, compared: 5, protectedOnes: 1, suspended: 5, capped: 5, refused: 5, crossed: 5, tried: 5, limited: 5, hurried: 5,
		metNeeds: 5, metSuits: 5, metAlone: 5, metForm: 5, metEven: 0.3, metThrottle: 5, metOdd: 5, metOutage: 1, metAway: 5, metSaved: 5, metSaveFailed: 2, metFinished: 1,
	})
}

func checkShares(t *testing.T, r *result, wanted map[share]float64) {
	const enough = 500 // fewer say nothing about shares
	t.Logf("%d farms (seed %d) in %v", r.farms, r.seed, r.took.Round(time.Second/10))
	for s := range shares {
		least, asked := wanted[s]
		if !asked {
			continue
		}
		percent := 100 * float64(r.met[s]) / float64(max(r.farms, 1))
		t.Logf("%5.1f %% %s (at least %.0f %%)", percent, s, least)
		if percent < least && r.farms >= enough {
			t.Errorf("only %.1f %% of the farms %s, want %.0f %%", percent, s, least)
		}
	}
}

// result sums up the outcomes of all farms.
type result struct {
	farms  int
	seed   uint64
	took   time.Duration
	met    [shares]int
	broken [laws]*breach
}

type breach struct {
	seed uint64
	what string
	n    int // farms that broke it
}

// allFarms runs as many farms as -rapid.checks says, once for all laws; allHeavy those
// of heavy jobs, allFixed those of jobs that can't be preempted, allStandby those of slots that
// are kept free.
var (
	allFarms   = sync.OnceValue(func() *result { return runAll(farms, 1) })
	allHeavy   = sync.OnceValue(func() *result { return runAll(heavyFarms, 2) })
	allStandby = sync.OnceValue(func() *result { return runAll(standbyFarms, 4) })
	allWide    = sync.OnceValue(func() *result { return runAll(wideFarms, 4) })
	allResume  = sync.OnceValue(func() *result { return runAll(resumeFarms, 4) })
	allFixed   = sync.OnceValue(func() *result { return runAll(fixedFarms, 4) })
)

// runAll runs rapid.checks / oneOf farms.
func runAll(farms func() *rapid.Generator[farm], oneOf int) *result {
	began := time.Now()
	r := &result{farms: number[int]("rapid.checks"), seed: number[uint64]("rapid.seed")}
	if r.seed == 0 {
		r.seed = uint64(began.UnixNano()) >> 1
	}
	if testing.Short() {
		r.farms /= 5
	}
	r.farms = (r.farms + oneOf - 1) / oneOf
	var next atomic.Int64
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			draw := farms()
			for {
				i := uint64(next.Add(1)) - 1
				if i >= uint64(r.farms) {
					return
				}
				seed := r.seed + i
				out := run(draw.Example(int(seed)))
				mu.Lock()
				r.add(seed, &out)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	r.took = time.Since(began)
	return r
}

func (r *result) add(seed uint64, out *outcome) {
	for s, met := range out.met {
		if met {
			r.met[s]++
		}
	}
	for l, what := range out.broken {
		if what == "" {
			continue
		}
		if r.broken[l] == nil {
			r.broken[l] = &breach{seed: seed, what: what}
		}
		b := r.broken[l]
		b.n++
		if seed < b.seed {
			b.seed, b.what = seed, what
		}
	}
}

func number[T any](name string) T {
	return flag.Lookup(name).Value.(flag.Getter).Get().(T)
}

// obeyed fails if any farm broke the law, and shows the first one made small.
func obeyed(t *testing.T, l law) { obeyedBy(t, allFarms(), farms(), l) }

// obeyedOnFixed is obeyed of farms with jobs that can't be preempted, too.
func obeyedOnOthers(t *testing.T, l law) {
	obeyed(t, l)
	obeyedBy(t, allFixed(), fixedFarms(), l)
	obeyedBy(t, allStandby(), standbyFarms(), l)
}

func obeyedBy(t *testing.T, r *result, farms *rapid.Generator[farm], l law) {
	b := r.broken[l]
	if b == nil {
		return
	}
	t.Errorf("%d of %d farms break it; the first one (-rapid.seed=%d -rapid.checks=1): %s", b.n, r.farms, b.seed, b.what)
	f := farms.Example(int(b.seed))
	again := run(f)
	if again.broken[l] == "" || l != crash && again.broken[l] != b.what {
		t.Errorf("run again, it gave: %s\nsomething is not deterministic", again.broken[l])
		return
	}
	f = reduce(f, l)
	var story strings.Builder
	again = runStory(f, &story)
	t.Logf("reduced: %s\n%s%s", again.broken[l], f, &story)
}
