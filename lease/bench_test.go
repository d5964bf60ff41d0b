package lease

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkLease is the cost of one lease, from its request to its end: three events. Requests wait all
// the time, so that each slot that is freed is granted at once.
func BenchmarkLease(b *testing.B) {
	for _, workers := range []int{10, 1000} {
		for _, waiting := range []int{0, 1000, 100_000} {
			b.Run(fmt.Sprintf("workers=%d/waiting=%d", workers, waiting), func(b *testing.B) { benchmarkLease(b, workers, waiting) })
		}
	}
}

func benchmarkLease(b *testing.B, workers, waiting int) {
	now := begin
	m := New(Limits{Waiting: 200_000, Each: 200_000, Held: 1_000_000, Idle: time.Minute})
	var held []uint64
	step := func(e Event) {
		now = now.Add(10 * time.Microsecond)
		actions, err := m.Step(now, e)
		if err != nil {
			b.Fatal(err)
		}
		for _, a := range actions {
			if g, ok := a.(Grant); ok {
				held = append(held, g.Lease)
			}
		}
	}
	for i := range workers {
		step(Create{Worker: fmt.Sprintf("w%05d", i), Host: fmt.Sprintf("h%04d", i/4), Milli: 16_000, Memory: 64 << 30})
	}
	step(OpenJob{Holder: "ann"})
	ids := make([]string, 300_000)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	n := 0
	ask := func() {
		step(Request{Holder: "ann", ID: ids[n%len(ids)], Job: 1, Slots: 1, Milli: 1000, Memory: 1 << 30})
		n++
	}
	for range 16*workers + waiting {
		ask()
	}
	b.ReportAllocs()
	for b.Loop() {
		first := held[0]
		held = held[1:]
		step(Posted{first})
		step(Free{"ann", first})
		ask()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "leases/s")
}
