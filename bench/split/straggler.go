package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/internal/quantile"
	"github.com/allotment-hpc/allotment/test/farm"
)

// What stragglers are measured with (R54): the last items of a host take ten times as long.
const (
	maxStraggler   = 1.3 // of the time without the slow host
	straggleItems  = 360
	straggleSlow   = 300 // the slow host is slow from this item on
	straggleScript = `t=0.1; if [ "$1" = slow ] && [ "$2" -gt "$3" ] && [ "$LSB_HOSTS" != "${LSB_HOSTS#n2}" ]; then t=1; fi; sleep $t; echo $2`
)

// measureStragglers compares a split one of whose hosts becomes slow near the end with one where none
// does, with --speculate and without.
func measureStragglers(ctx context.Context, o *options) ([]budget, error) {
	times := map[string][]float64{}
	err := onFarm(ctx, farm.Options{Programs: o.programs, Config: "miniq: {nodes: [\"n1:2\", \"n2:2\", \"n3:2\"]}\n"}, func(f *farm.Farm, work string) error {
		for range o.pairs {
			for _, one := range []struct {
				name, how string
				options   []string
			}{
				{"no host is slow", "even", nil},
				{"one host is slow at the end", "slow", nil},
				{"the same, --speculate", "slow", []string{"--speculate"}},
			} {
				limited, cancel := context.WithTimeout(ctx, runTime)
				cmd := f.Background(limited, "asplit", append(append([]string{"--no-qualify", "--quiet", "--slots", "2", "--round", "60"}, one.options...),
					"sh", "-c", straggleScript, "sh", one.how, "{}", strconv.Itoa(straggleSlow))...)
				took, err := timed(cmd, work, straggleItems, func(results string) error { return checkSide(results, straggleItems, true) })
				cancel()
				if err != nil {
					return fmt.Errorf("%s: %w", one.name, err)
				}
				times[one.name] = append(times[one.name], took.Seconds())
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("stragglers: %w", err)
	}
	printf("\n%-36s %6s  %9s", "a host slowed to a tenth near the end", "items", "makespan")
	even := quantile.Median(times["no host is slow"])
	for _, name := range []string{"no host is slow", "one host is slow at the end", "the same, --speculate"} {
		printf("%-36s %6d  %9v", name, straggleItems, time.Duration(quantile.Median(times[name])*float64(time.Second)).Round(time.Millisecond))
	}
	return []budget{{"makespan with a straggler and --speculate ÷ without one", quantile.Median(times["the same, --speculate"]) / even, maxStraggler}}, nil
}
