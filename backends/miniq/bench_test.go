package miniq_test

import (
	"context"
	"sync"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// BenchmarkSubmit is durable submission of one job at a time by eight clients.
func BenchmarkSubmit(b *testing.B) {
	q := newQueue(b, setup{})
	spec := q.run("true")
	spec.Hold = true
	var wait sync.WaitGroup
	b.ResetTimer()
	for range 8 {
		wait.Go(func() {
			for range b.N / 8 {
				if r := q.Submit(context.Background(), []backends.Spec{spec}); r[0].Err != nil {
					b.Error(r[0].Err)
				}
			}
		})
	}
	wait.Wait()
}

// BenchmarkRun is from submission in batches to the end of every job.
func BenchmarkRun(b *testing.B) {
	q := newQueue(b, setup{})
	spec := q.run("")
	spec.Command = []string{"/bin/true"}
	specs := make([]backends.Spec, b.N)
	for i := range specs {
		specs[i] = spec
	}
	b.ResetTimer()
	ids := q.submit(specs...)
	if _, err := q.WaitEnded(context.Background(), ids); err != nil {
		b.Fatal(err)
	}
}
