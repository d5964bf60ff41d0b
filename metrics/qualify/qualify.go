// Package qualify measures what a host can do, from inside the limits that a job has
// there: control groups (v1 and v2), CPU affinity and resource limits. A measurement
// takes less than ten seconds. It gives one number for each element of package
// metrics, of which only the ratios between hosts count:
//
//   - C: geometric mean of integer (million rounds of splitmix64 a second), floating
//     (Mflop/s of a matrix multiplied in the nearest cache) and hash work (MB/s of
//     SHA-256), for as many cores as the work will use
//   - M: geometric mean of bandwidth (MB/s copied by all cores, in a block larger than
//     the caches if there is memory for it) and size (MiB that the job may use)
//   - B: one large copy (MB/s copied by one core)
//   - S: geometric mean of sequential writing, with the sync, and reading (MB/s) and of
//     random 4 KiB writes, each synced (writes a second), in the work directory
//   - I: geometric mean of throughput to the submitting host (MB/s) and round trips a
//     second; 0 if that host can't be reached
//   - G: the sum over GPUs of the geometric mean of memory (GiB) and clock (GHz), as
//     their driver states them: nothing is measured; 0 without one
//
// MB are millions of bytes. All rates are by wall time: a host on which a job gets a
// tenth of a core has a tenth of C.
package qualify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"
)

// Limit is the longest that Measure takes.
const Limit = 10 * time.Second

// The parts of a measurement. A CPU quota is given in periods of 100 ms mostly, at
// whose beginning a job runs at full speed: a figure is wrong unless it is taken over
// many of them.
const (
	warmTime    = 200 * time.Millisecond // until clocks are up, and a first burst is spent
	oneTime     = time.Second            // one core, if there are more
	allTime     = 2500 * time.Millisecond
	touchTime   = 500 * time.Millisecond // for the kernel to hand out memory
	memoryTime  = 600 * time.Millisecond
	busTime     = 400 * time.Millisecond
	writeTime   = 700 * time.Millisecond
	readTime    = 400 * time.Millisecond
	randomTime  = 600 * time.Millisecond
	latencyTime = 300 * time.Millisecond
	streamTime  = 400 * time.Millisecond
	gpuTime     = 1500 * time.Millisecond
)

// Options say what is measured.
type Options struct {
	Dir  string // storage is measured here, in a file that is gone by the end
	Link string // the file that Serve wrote; "" or missing: the interconnect is not measured
}

// Measure measures this host, for a job that may do what this process may. It fails
// if the storage can't be measured, or ctx ends.
func Measure(ctx context.Context, o Options) (Result, error) {
	machine, err := Inspect(o.Dir)
	peer, err2 := readOffer(o.Link)
	if err := errors.Join(err, err2); err != nil {
		return Result{}, err
	}
	return measure(ctx, o.Dir, machine, peer)
}

func measure(ctx context.Context, dir string, machine Machine, peer offer) (r Result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Limit, fmt.Errorf("it took longer than %v", Limit))
	defer cancel()
	began := time.Now()
	r = Result{Version: version, Measured: began.UTC().Truncate(time.Second), Machine: machine, Fingerprint: machine.Fingerprint(peer.Host)}
	workers := machine.workers()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(workers + 1)) // also if the environment sets it
	r.CPU = measureCPU(ctx, workers)
	if err := r.measureMemory(ctx, workers); err != nil {
		return Result{}, err
	}
	if r.Storage, err = measureStorage(ctx, dir); err != nil {
		return Result{}, err
	}
	if r.Interconnect, err = peer.measure(ctx); err != nil {
		r.Notes = append(r.Notes, "the interconnect is left out: "+err.Error())
	}
	if r.GPUs, err = findGPUs(ctx); err != nil {
		r.Notes = append(r.Notes, "the GPUs are left out: "+err.Error())
	}
	if ctx.Err() != nil {
		return Result{}, fmt.Errorf("measure this host: %w", context.Cause(ctx))
	}
	r.Seconds = rounded(time.Since(began).Seconds())
	return r, r.check()
}

// timeLeft reports whether a part's time is not over yet.
func timeLeft(ctx context.Context, until time.Time) bool {
	return time.Now().Before(until) && ctx.Err() == nil
}

// mean returns the geometric mean of positive numbers, so that the ratio of two hosts does
// not depend on the units. It is 0 if one of them is.
func mean(values ...float64) float64 {
	sum := 0.0
	for _, v := range values {
		if v <= 0 {
			return 0
		}
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(values)))
}

// perSecond returns a rate in millions a second.
func perSecond(n float64, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return rounded(n / 1e6 / took.Seconds())
}
