package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/quantile"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/farm"
)

// What copies are measured with (R53): of three hosts of a Slurm cluster one is killed at a random moment.
const (
	maxCut    = 1.1 // of the time without a kill
	cutItems  = 300
	cutHosts  = 3
	cutRound  = "2s"
	cutScript = `sleep 0.1; echo $1`
)

// measureCopies compares splits with --copies 2 one of whose hosts is killed with those that keep theirs.
func measureCopies(ctx context.Context, o *options) (met bool, err error) {
	var whole, cut []float64
	on := farm.Options{Programs: o.programs, Slurm: &farm.Slurm{
		Nodes: cutHosts, Slots: 3, Namespaces: true, RequeueDelay: time.Second, Conf: []string{"SlurmdTimeout=30"},
	}}
	err = onFarm(ctx, on, func(f *farm.Farm, work string) error {
		one := func() (time.Duration, error) {
			ctx, cancel := context.WithTimeout(ctx, runTime)
			defer cancel()
			cmd := f.Background(ctx, "asplit", "--no-qualify", "--quiet", "--slots", "3", "--round", cutRound, "--copies", "2", "sh", "-c", cutScript, "sh", "{}")
			return timed(cmd, work, cutItems, func(results string) error { return checkSide(results, cutItems, true) })
		}
		for pair := range o.pairs {
			took, err := one()
			if err != nil {
				return fmt.Errorf("no host is killed: %w", err)
			}
			whole = append(whole, took.Seconds())
			host := f.Node(1 + rand.IntN(cutHosts))
			killed := make(chan error, 1)
			at := time.Duration(rand.Int64N(int64(took)))
			timer := time.AfterFunc(at, func() { killed <- host.Kill(ctx) })
			took, err = one()
			if timer.Stop() {
				killed <- nil // it was over before
			}
			if kill := <-killed; kill != nil {
				err = kill
			}
			if err != nil {
				return fmt.Errorf("pair %d, %s is killed after %v: %w", pair+1, host.Name(), at, err)
			}
			cut = append(cut, took.Seconds())
			printf("pair %d: %.2f s; %.2f s with %s killed after %.2f s", pair+1, whole[pair], cut[pair], host.Name(), at.Seconds())
			if err := host.Boot(ctx); err != nil {
				return err
			}
			if err := awaitIdle(ctx, f); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("copies: %w", err)
	}
	l := budget{"--copies 2: median makespan with a host killed ÷ without", quantile.Median(cut) / quantile.Median(whole), maxCut}
	worst := 0.0
	for _, took := range cut {
		worst = max(worst, took/quantile.Median(whole))
	}
	printf("  %-10s  %s: %.3f of %.3f; the worst of %d is %.3f", l.verdict(), l.what, l.value, l.limit, len(cut), worst)
	return l.verdict() != "missed", nil
}

// awaitIdle waits until all hosts are idle: a job of the one that was killed may stay in COMPLETING for minutes.
func awaitIdle(ctx context.Context, f *farm.Farm) error {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	state := ""
	if !await.Every(ctx, 200*time.Millisecond, func() bool {
		text, err := f.RunSlurm(ctx, "sinfo", "-h", "-o", "%T %D")
		state = strings.TrimSpace(text)
		return err == nil && state == "idle "+strconv.Itoa(cutHosts)
	}) {
		jobs, _ := f.RunSlurm(context.WithoutCancel(ctx), "squeue")
		return fmt.Errorf("the hosts are not idle after %v: %s\n%s", runTime, state, jobs)
	}
	return nil
}
