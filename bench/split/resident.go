package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/quantile"
	"github.com/allotment-hpc/allotment/test/farm"
)

// What resident jobs are measured with (R55): 12 blocks on three hosts, one of which is slow, to a quarter,
// from some period on. The best that is possible then is 6, 5 and 1 blocks.
const (
	residentBlocks  = 12
	residentBlock   = 800 * time.Millisecond
	residentBefore  = 3 // periods before the host is slow
	residentAdjust  = 5 // periods in which blocks move
	residentCounted = 3 // periods after these
	residentBest    = 6 * residentBlock
	residentSlow    = 4

	maxHalved   = 1.34 // of the best
	maxBalanced = 1.1
)

// residentScript prints a block's number, and when it began and ended, in ns.
const residentScript = `b=$(date +%s%N); t=$2; if [ "$ALLOTMENT_PERIOD" -gt "$4" ] && [ "$LSB_HOSTS" != "${LSB_HOSTS#n3}" ]; then t=$3; fi; sleep $t; echo $1 $b $(date +%s%N)`

// measureResident has both rules move blocks away from a host that became slow, and compares the periods
// after some with the best that is possible.
func measureResident(ctx context.Context, o *options) (all []budget, err error) {
	on := farm.Options{Programs: o.programs, Config: "miniq: {nodes: [\"n1:1\", \"n2:1\", \"n3:1\"]}\n"}
	printf("\n%-36s %6s  %9s", "resident, a host slowed to a quarter", "blocks", "period")
	for _, rule := range []struct {
		name string
		most float64
	}{{"half", maxHalved}, {"rate", maxBalanced}} {
		var took []float64
		err := onFarm(ctx, on, func(f *farm.Farm, work string) error {
			ctx, cancel := context.WithTimeout(ctx, runTime)
			defer cancel()
			const periods = residentBefore + residentAdjust + residentCounted
			cmd := f.Background(ctx, "asplit", "resident", "--no-qualify", "--quiet", "--period", "10ms", "--periods", strconv.Itoa(periods),
				"--balance", rule.name, "--blocks", "1-"+strconv.Itoa(residentBlocks), "sh", "-c", residentScript, "sh", "{}",
				inSeconds(residentBlock), inSeconds(residentSlow*residentBlock), strconv.Itoa(residentBefore))
			_, err := timed(cmd, work, 0, func(results string) (err error) {
				took, err = lengths(results, periods)
				return err
			})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("resident --balance %s: %w", rule.name, err)
		}
		for i, t := range took {
			printf("%-36s %6d  %7.2f s", fmt.Sprintf("--balance %s, period %d", rule.name, i+1), residentBlocks, t)
		}
		after := quantile.Median(took[residentBefore+residentAdjust:])
		all = append(all, budget{"a period with --balance " + rule.name + " after 5 ÷ the best", after / residentBest.Seconds(), rule.most})
	}
	return all, nil
}

func inSeconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// lengths returns how long each period took, in seconds, and an error unless each has each block once,
// in their order.
func lengths(results string, periods int) (took []float64, err error) {
	lines := strings.Split(strings.TrimSuffix(results, "\n"), "\n")
	if len(lines) != periods*residentBlocks {
		return nil, fmt.Errorf("%d lines of %d periods of %d blocks", len(lines), periods, residentBlocks)
	}
	first, last := int64(math.MaxInt64), int64(0)
	for i, line := range lines {
		var block int
		var began, ended int64
		if _, err := fmt.Sscan(line, &block, &began, &ended); err != nil || block != i%residentBlocks+1 {
			return nil, errors.Join(fmt.Errorf("line %d is %q", i+1, line), err)
		}
		first, last = min(first, began), max(last, ended)
		if block == residentBlocks {
			took = append(took, time.Duration(last-first).Seconds())
			first, last = math.MaxInt64, 0
		}
	}
	return took, nil
}
