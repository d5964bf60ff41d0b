package made

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

// WideJob is one normal job of 124 slots for 4 h, on a farm of 128 where user 7, with a
// guarantee of 32, sends a job of 8 slots for 10 minutes every half hour, for 8 days.
func WideJob() Records {
	return func(yield func(trace.Record, error) bool) {
		const hour, days = 3600.0, 8
		if !yield(record(0, 4*hour, 124, "5"), nil) {
			return
		}
		for at := hour / 2; at < days*24*hour; at += hour / 2 {
			if !yield(record(at, hour/6, 8, "7"), nil) {
				return
			}
		}
	}
}

// Requested is 6,000 jobs of 1 to 96 slots whose users asked for run times: two to five times
// what the jobs take, in quarters of an hour. They are about nine tenths of what 128 slots do.
func Requested() Records {
	const (
		jobs, slots = 6000, 128
		load        = 0.9
		quarter     = 15 * time.Minute
	)
	return func(yield func(trace.Record, error) bool) {
		draw := rand.New(rand.NewPCG(21, 6000))
		at := 0.0
		for range jobs {
			width := 1 << draw.IntN(6)
			if draw.IntN(50) == 0 {
				width = 64 + 32*draw.IntN(2)
			}
			run := 60 + 3600*draw.ExpFloat64()
			user := 7
			if draw.IntN(6) > 0 || width > 32 {
				user = 100 + draw.IntN(20)
			}
			r := record(at, run, width, strconv.Itoa(user))
			asked := time.Duration(float64(r.Run) * (2 + 3*draw.Float64()))
			r.RunLimit = max(1, (asked+quarter-1)/quarter) * quarter
			if !yield(r, nil) {
				return
			}
			const meanWidth, meanRun = (1+2+4+8+16+32)/6.0*0.98 + 80*0.02, 3660.0
			at += draw.ExpFloat64() * meanRun * meanWidth / (slots * load)
		}
	}
}

// Store returns a trace that is ready to be simulated.
func Store(records Records) (*trace.Store, error) {
	store := new(trace.Store)
	return store, store.Fill(records, 0)
}
