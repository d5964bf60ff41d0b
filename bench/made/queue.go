// Package made makes traces: the same ones each time, for benchmarks and figures that no
// recorded trace is fit for.
package made

import (
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

// Records is a trace that was made.
type Records = iter.Seq2[trace.Record, error]

func start() time.Time { return time.Date(2026, time.November, 2, 8, 0, 0, 0, time.UTC) }

// record returns a job of a user, so many seconds after the start.
func record(at, run float64, slots int, user string) trace.Record {
	seconds := func(s float64) time.Duration { return time.Duration(math.Round(s)) * time.Second }
	return trace.Record{Submitted: start().Add(seconds(at)), Run: seconds(max(run, 1)), Slots: slots, User: user, Project: user}
}

// LongQueue is one-slot jobs of 60 users that arrive three times as fast as 500 slots do
// them: at the end two in three still wait. User 7 has a tenth of them.
func LongQueue(jobs int) Records {
	const (
		slots, overload = 500, 3
		meanRun         = 3600.0
		users           = 60
	)
	return func(yield func(trace.Record, error) bool) {
		draw := rand.New(rand.NewPCG(21, 188041))
		at := 0.0
		for range jobs {
			user := 7
			if draw.IntN(10) > 0 {
				user = 100 + int(users*math.Pow(draw.Float64(), 2)) // some have many more than others
			}
			if !yield(record(at, draw.ExpFloat64()*meanRun, 1, strconv.Itoa(user)), nil) {
				return
			}
			at += draw.ExpFloat64() * meanRun / (slots * overload)
		}
	}
}

// WriteSWF writes a trace in the Standard Workload Format.
func WriteSWF(out io.Writer, records Records) error {
	if _, err := fmt.Fprintf(out, "; UnixStartTime: %d\n", start().Unix()); err != nil {
		return err
	}
	n := 0
	for r, err := range records {
		if err != nil {
			return err
		}
		n++
		limit := -1
		if r.RunLimit > 0 {
			limit = int(r.RunLimit / time.Second)
		}
		_, err = fmt.Fprintf(out, "%d %d -1 %d %d -1 -1 -1 %d -1 1 %s 1 1 -1 -1 -1 -1\n", n, r.Submitted.Sub(start())/time.Second, r.Run/time.Second, r.Slots, limit, r.User)
		if err != nil {
			return err
		}
	}
	return nil
}
