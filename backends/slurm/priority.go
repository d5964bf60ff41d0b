package slurm

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// Scale turns priorities into site factors and back. A site factor is what an
// administrator adds to a job's priority under priority/multifactor; its owner
// can't touch it, and it outlives hold, release and requeue.
type Scale struct {
	// Unit is a site factor for one step of a value: more than all that the site's
	// own factors can add together, so that they order only what is equal to us.
	Unit int64
}

const (
	valuesPerRank = 128
	maxSiteFactor = 2147483645 // either way, 22.05
	maxPriority   = 4294967293
)

// ranks are the levels in their order, each with the least value that it needs:
// R10 gives no job of the level less.
var ranks = [...]struct {
	level backends.Level
	base  int
}{
	{backends.LevelNormal, backends.DefaultValue},
	{backends.LevelVictim, 0},
	{backends.LevelPlaceholder, 0},
	{backends.LevelNext, 0},
	{backends.LevelPBA, 100},
	{backends.LevelHandOver, 200},
}

// SiteFactor is the site factor of a priority. A normal job's at the default value is
// 0: a job that was never ranked needs none. LevelLow has none either: it is a
// partition. A value outside its level's 128 is taken for the nearest.
func (s Scale) SiteFactor(p backends.Priority) int64 {
	for rank, r := range ranks {
		if r.level == p.Level() {
			return (int64(rank)*valuesPerRank + int64(placeOf(r.level, p.Value()-r.base))) * s.Unit
		}
	}
	if p.Level() > backends.LevelHandOver {
		return s.SiteFactor(backends.At(backends.LevelHandOver, 999))
	}
	return 0
}

// Priority is the inverse of SiteFactor, for all of a job's priority: what the
// site's own factors add to it is less than a unit.
func (s Scale) Priority(factor int64) backends.Priority {
	if s.Unit < 1 || factor < 0 {
		return backends.At(backends.LevelNormal, backends.DefaultValue)
	}
	steps := factor / s.Unit
	rank := min(steps/valuesPerRank, int64(len(ranks))-1)
	r := ranks[rank]
	return backends.At(r.level, r.base+valueAt(r.level, int(min(steps-rank*valuesPerRank, valuesPerRank-1))))
}

// Values with a lead have the last places of their level, one for each bonus of a reclaim;
// Slurm ages no site factor. Victims that lost nothing have one (backends.GaveWay), jobs that
// wait for slots on several hosts have one or two (backends.Spread).
const (
	placesPerLead = 8
	leadStep      = 10
)

// leads returns how many leads a level has, and what each adds to a value.
func leads(level backends.Level) (most, each int) {
	switch level {
	case backends.LevelVictim:
		return 1, backends.GaveWay
	case backends.LevelHandOver:
		return 2, backends.Spread
	case backends.LevelLow, backends.LevelNormal, backends.LevelPlaceholder, backends.LevelNext, backends.LevelPBA:
	}
	return 0, 1
}

// placeOf returns a value's place among its level's 128.
func placeOf(level backends.Level, value int) int {
	most, each := leads(level)
	first := valuesPerRank - most*placesPerLead
	lead := min(max(value, 0)/each, most)
	if lead == 0 {
		return min(max(value, 0), first-1)
	}
	return first + (lead-1)*placesPerLead + min(max(value-lead*each-backends.DefaultValue, 0)/leadStep, placesPerLead-1)
}

// valueAt is the inverse of placeOf.
func valueAt(level backends.Level, place int) int {
	most, each := leads(level)
	first := valuesPerRank - most*placesPerLead
	if place < first {
		return place
	}
	lead := 1 + (place-first)/placesPerLead
	return lead*each + backends.DefaultValue + (place-first)%placesPerLead*leadStep
}

// NewScale reads the scale from what `scontrol show config` prints. It fails
// where site factors have no effect, or no room.
func NewScale(config []byte) (Scale, error) {
	settings := parseConfig(config)
	if kind, ok := settings["PriorityType"]; !ok || !strings.HasSuffix(kind, "/multifactor") {
		return Scale{}, fmt.Errorf("%w: PriorityType is %q: site factors need priority/multifactor in slurm.conf", backends.ErrUnable, kind)
	}
	sum, err := weights(settings)
	if err != nil {
		return Scale{}, err
	}
	if sum > maxWeights {
		return Scale{}, fmt.Errorf("%w: the PriorityWeight… of slurm.conf sum up to %d: site factors have room for %d", backends.ErrUnable, sum, maxWeights)
	}
	return Scale{Unit: sum + 2}, nil // a job without factors has the priority 1
}

// maxWeights is what all weights together may be for site factors to have room.
const maxWeights = maxSiteFactor/int64(len(ranks)*valuesPerRank) - 2

// weights sums up the most that the site's own factors add to a job's priority.
func weights(settings map[string]string) (sum int64, err error) {
	for key, value := range settings {
		if !strings.HasPrefix(key, "PriorityWeight") {
			continue
		}
		weight, err := parseWeight(value)
		if err != nil {
			return 0, fmt.Errorf("scontrol show config: %s = %q: %w", key, value, err)
		}
		sum += weight
	}
	return sum, nil
}

// parseWeight reads a weight: a number, or a list such as CPU=1000,Mem=2000.
func parseWeight(s string) (int64, error) {
	if s == "(null)" || s == "" {
		return 0, nil
	}
	var sum int64
	for part := range strings.SplitSeq(s, ",") {
		if _, number, ok := strings.Cut(part, "="); ok {
			part = number
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || n < 0 || n > maxPriority {
			return 0, fmt.Errorf("%q is no weight", part)
		}
		sum += int64(n) + 1
	}
	return sum, nil
}

// parseConfig reads the lines "Key = value" of `scontrol show config`.
func parseConfig(config []byte) map[string]string {
	settings := map[string]string{}
	for line := range strings.SplitSeq(string(config), "\n") {
		if key, value, ok := strings.Cut(line, "="); ok {
			settings[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return settings
}
