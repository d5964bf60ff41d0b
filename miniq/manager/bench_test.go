package manager

import (
	"fmt"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// BenchmarkEnd is the cost of one end and the start that follows it, with many
// pending jobs of a few shapes, some of which never fit meanwhile.
func BenchmarkEnd(b *testing.B) {
	for _, pending := range []int{10_000, 100_000} {
		for _, shapes := range []int{1, 50} {
			b.Run(fmt.Sprintf("pending=%d/shapes=%d", pending, shapes), func(b *testing.B) { benchmarkEnd(b, pending, shapes, 20) })
		}
	}
}

// BenchmarkWide is the same on 1,000 hosts.
func BenchmarkWide(b *testing.B) { benchmarkEnd(b, 100_000, 50, 1000) }

func benchmarkEnd(b *testing.B, pending, shapes, hosts int) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	m := New(Config{AgeingInterval: 20 * time.Second, AgeingCap: 69, ReserveAfter: 10 * time.Minute})
	for i := range hosts {
		m.Step(now, NodeUp{Name: fmt.Sprintf("n%03d", i), Slots: 16, Memory: 64 << 30})
	}
	submit := func(i int) []Effect {
		slots := 1
		if i%shapes != 0 {
			slots = 1 + i%shapes%16
		}
		spec := backends.Spec{Slots: slots, Memory: int64(i%shapes) << 28, OneHost: true, RunLimit: time.Hour}
		effects, _ := m.Step(now, Submit{By: By{User: "ann"}, Specs: []backends.Spec{spec}})
		return effects
	}
	type run struct {
		id  backends.ID
		run int
	}
	var running []run
	record := func(effects []Effect) {
		for _, e := range effects {
			if s, ok := e.(StartRun); ok {
				running = append(running, run{s.ID, s.Run})
			}
		}
	}
	n := 0
	for ; n < pending; n++ {
		record(submit(n))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		now = now.Add(10 * time.Millisecond)
		first := running[0]
		running = running[1:]
		effects, _ := m.Step(now, Ended{ID: first.id, Run: first.run})
		record(effects)
		record(submit(n))
		n++
		if n%1000 == 0 {
			m.Step(now, Forget{EndedBefore: now})
		}
	}
}

// BenchmarkSubmit is the cost of one submission to a full queue.
func BenchmarkSubmit(b *testing.B) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	m := New(Config{AgeingInterval: 20 * time.Second, AgeingCap: 69, ReserveAfter: 10 * time.Minute})
	m.Step(now, NodeUp{Name: "n1", Slots: 16})
	for b.Loop() {
		m.Step(now, Submit{By: By{User: "ann"}, Specs: []backends.Spec{{Slots: 1}}})
	}
}

// BenchmarkFarm is one snapshot of a queue with many pending jobs.
func BenchmarkFarm(b *testing.B) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	m := New(Config{AgeingInterval: 20 * time.Second, AgeingCap: 69})
	m.Step(now, NodeUp{Name: "n1", Slots: 16})
	m.Step(now, Submit{By: By{User: "ann"}, Specs: make([]backends.Spec, 100_000)})
	b.Run("Farm", func(b *testing.B) {
		for b.Loop() {
			m.Snapshot(now, now)
		}
	})
	b.Run("State", func(b *testing.B) {
		for b.Loop() {
			if _, err := m.State(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
