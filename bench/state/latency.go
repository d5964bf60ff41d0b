package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Latencies counts times in classes, each 2 % longer than the one before.
type Latencies struct {
	Classes [classes]int64
	Count   int64
}

const (
	step    = 1.02
	classes = 1300 // up to 150 s
)

func (l *Latencies) add(d time.Duration) {
	l.Classes[min(int(math.Log(float64(max(d, 1)))/math.Log(step)), classes-1)]++
	l.Count++
}

func (l *Latencies) merge(o *Latencies) {
	for i, n := range o.Classes {
		l.Classes[i] += n
	}
	l.Count += o.Count
}

// quantile returns the time that this part of all does not exceed, to 2 %.
func (l *Latencies) quantile(q float64) time.Duration {
	seen, want := int64(0), int64(math.Ceil(q*float64(l.Count)))
	for i, n := range l.Classes {
		if seen += n; seen >= want {
			return time.Duration(math.Pow(step, float64(i+1)))
		}
	}
	return 0
}

// ask has clients ask for random jobs, one question after the other, for some time.
func ask(ctx context.Context, clients, jobs int, lasts time.Duration, question func(ctx context.Context, job int64) error) (*Latencies, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.Now().Add(lasts)
	var mu sync.Mutex
	var all Latencies
	var failed error
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			var own Latencies
			var err error
			for now := time.Now(); err == nil && now.Before(end); {
				err = question(ctx, rand.Int64N(int64(jobs))+1)
				then := time.Now()
				own.add(then.Sub(now))
				now = then
			}
			mu.Lock()
			defer mu.Unlock()
			all.merge(&own)
			if err != nil {
				cancel()
				if failed == nil {
					failed = err
				}
			}
		})
	}
	running.Wait()
	return &all, errors.Join(failed, context.Cause(ctx))
}
