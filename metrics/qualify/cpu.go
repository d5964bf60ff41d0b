package qualify

import (
	"context"
	"crypto/sha256"
	"math"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/quantile"
)

// CPU is the speed of the cores.
type CPU struct {
	Workers int     `json:"workers"` // threads that worked: one for each core that may be used
	Cores   float64 `json:"cores"`   // the cores' worth of time that they got
	One     Speed   `json:"one"`     // one thread
	All     Speed   `json:"all"`     // all of them together
}

// Speed is work done in a second of wall time.
type Speed struct {
	Integer  float64 `json:"integer_mops"`    // million rounds of splitmix64
	Floating float64 `json:"floating_mflops"` // million multiplications and additions
	Hash     float64 `json:"hash_mbytes"`     // million bytes through SHA-256
}

// For returns the speed of work on so many cores; 0: on all.
func (c CPU) For(cores int) float64 {
	all := mean(c.All.Integer, c.All.Floating, c.All.Hash)
	if cores <= 0 {
		return all
	}
	return min(all, float64(cores)*mean(c.One.Integer, c.One.Floating, c.One.Hash))
}

func measureCPU(ctx context.Context, workers int) CPU {
	work(ctx, workers, warmTime)
	c := CPU{Workers: workers}
	if workers > 1 {
		c.One, _ = work(ctx, 1, oneTime)
	}
	c.All, c.Cores = work(ctx, workers, allTime)
	if workers == 1 {
		c.One = c.All
	}
	return c
}

// work runs threads side by side for a time, and returns what they did in a second of it
// and the cores' worth of time that they got. The time of Go's runtime counts as theirs: of a small
// quota it is a good part, and a job's own work would have it.
func work(ctx context.Context, threads int, d time.Duration) (Speed, float64) {
	all := make([]worker, threads)
	began, start := time.Now(), processTime()
	var done sync.WaitGroup
	for i := range all {
		done.Go(func() { all[i].run(ctx, d) })
	}
	done.Wait()
	cores := min((processTime()-start).Seconds()/time.Since(began).Seconds(), float64(threads))
	var speeds [parts]float64
	for i := range all {
		for part, ops := range [parts]float64{integerRounds, floatingOps, hashBytes} {
			speeds[part] += perSecond(ops, median(all[i].turns[part])) * cores / float64(threads)
		}
	}
	return Speed{rounded(speeds[0]), rounded(speeds[1]), rounded(speeds[2])}, rounded(cores)
}

// A turn of each part takes about a quarter of a millisecond: much less than a quota gives
// in one period, much more than reading a clock.
const (
	parts         = 3
	integerRounds = 1 << 15
	side          = 32 // of a matrix; three of them are 24 KiB
	floatingRuns  = 8
	floatingOps   = floatingRuns * 2 * side * side * side
	hashBytes     = 256 << 10
)

// worker is one thread at work. The parts take turns, so that three of them need no more
// wall time than one. A part's speed is that of its median turn in CPU time, times the
// cores that all threads got: a quota that cuts a turn in two, or a neighbour that disturbs
// a few, does not change it.
type worker struct {
	turns   [parts][]time.Duration // CPU time
	state   uint64
	a, b, c [side][side]float64
	block   [hashBytes]byte
}

func (w *worker) run(ctx context.Context, d time.Duration) {
	runtime.LockOSThread() // CPU time is counted by thread
	defer runtime.UnlockOSThread()
	for i := range side {
		for j := range side {
			w.a[i][j], w.b[i][j] = float64(i+1)/side, float64(j+1)/side
		}
	}
	last := threadTime()
	for until := time.Now().Add(d); len(w.turns[0]) == 0 || timeLeft(ctx, until); {
		for part, do := range [parts]func(){w.integer, w.floating, w.hash} {
			do()
			now := threadTime()
			w.turns[part] = append(w.turns[part], now-last)
			last = now
		}
	}
}

// median returns the median, at least 1 ns.
func median(all []time.Duration) time.Duration { return max(quantile.Median(all), 1) }

// integer runs a chain of shifts and multiplications, as in random numbers, hash tables
// and compressors.
func (w *worker) integer() {
	x := w.state
	for range integerRounds {
		x += 0x9e3779b97f4a7c15
		x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
		x = (x ^ (x >> 27)) * 0x94d049bb133111eb
		x ^= x >> 31
	}
	w.state = x
}

func (w *worker) floating() {
	for range floatingRuns {
		for i := range side {
			row := &w.c[i]
			*row = [side]float64{}
			for k := range side {
				f, from := w.a[i][k], &w.b[k]
				for j := range side {
					row[j] += f * from[j]
				}
			}
		}
	}
	w.state += math.Float64bits(w.c[side-1][side-1])
}

func (w *worker) hash() {
	sum := sha256.Sum256(w.block[:])
	w.state += uint64(sum[0])
	copy(w.block[:], sum[:])
}

// threadTime returns the CPU time of the calling thread, processTime that of all threads.
func threadTime() time.Duration  { return cpuTime(unix.CLOCK_THREAD_CPUTIME_ID) }
func processTime() time.Duration { return cpuTime(unix.CLOCK_PROCESS_CPUTIME_ID) }

func cpuTime(id int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil {
		return 0 // Linux always has both
	}
	return time.Duration(t.Nano())
}
