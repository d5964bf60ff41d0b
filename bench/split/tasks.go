package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/quantile"
	"github.com/allotment-hpc/allotment/lease/client"
)

// What tasks that spawn nothing are measured with (docs/design.md, "Budgets").
const (
	minTasks    = 20_000 // a second
	taskWorkers = 4
	taskSlots   = 16  // of each
	taskBatch   = 500 // requests of a call
	taskAhead   = 8   // calls whose results are still to come, at most
)

// measureTasks has asplit serve dispatch tasks, each by a lease of its own, to workers that answer each
// at once with a result of its own. Workers and the holder are of this process.
func measureTasks(ctx context.Context, o *options) ([]budget, error) {
	var rates []float64
	for range o.pairs {
		rate, err := tasksOnce(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("tasks: %w", err)
		}
		rates = append(rates, rate)
	}
	rate := quantile.Median(rates)
	printf("\n%-36s %6s  %9s", fmt.Sprintf("tasks by leases, %d workers of %d slots", taskWorkers, taskSlots), "tasks", "a second")
	printf("%-36s %6d  %9.0f", "each with a lease and a result", o.tasks, rate)
	return []budget{{fmt.Sprintf("tasks by leases: %d a second ÷ the rate", minTasks), minTasks / rate, 1}}, nil
}

// tasksOnce returns the rate at which one manager has tasks done.
func tasksOnce(ctx context.Context, o *options) (rate float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, stop, err := startServe(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { cancel(); err = errors.Join(err, stop()) }()
	ended := make(chan error, taskWorkers)
	for i := range taskWorkers {
		w, err := client.Join("workers", fmt.Sprintf(`{"worker":"w%d","host":"h%d","milli_cores":%d}`, i, i, 1000*taskSlots))
		if err != nil {
			return 0, err
		}
		go func() { ended <- doTasks(ctx, w) }()
	}
	h, err := client.Join("holders", `{"holder":"bench"}`)
	if err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	places := make(chan struct{}, taskAhead*taskBatch)
	go func() { done <- countResults(h, o.tasks, places) }()
	began := time.Now()
	if err := request(ctx, h, o.tasks, places); err != nil {
		return 0, err
	}
	select {
	case err = <-done:
	case err = <-ended:
		err = errors.Join(err, errors.New("a worker ended"))
	}
	return float64(o.tasks) / time.Since(began).Seconds(), err
}

// request requests slots with a task each, as far as places are free.
func request(ctx context.Context, c *client.Client, tasks int, places chan struct{}) error {
	var body strings.Builder
	for i := range tasks {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		fmt.Fprintf(&body, `{"id":"t%d","task":"%d"}`, i, i)
		if (i+1)%taskBatch == 0 || i+1 == tasks {
			if err := c.Call(http.MethodPost, "requests", body.String(), nil); err != nil {
				return err
			}
			body.Reset()
		}
	}
	return nil
}

// countResults reads results until all tasks have theirs, each the right one and once.
func countResults(c *client.Client, tasks int, places chan struct{}) error {
	seen := make([]bool, tasks)
	for n := 0; n < tasks; {
		var l struct{ Request, Result, Revoke string }
		if err := c.Next(&l); err != nil {
			return err
		}
		if l.Result == "" {
			continue // a grant
		}
		var task int
		if _, err := fmt.Sscanf(l.Request, "t%d", &task); err != nil || task < 0 || task >= tasks || seen[task] || l.Result != fmt.Sprintf("did %d", task) {
			return fmt.Errorf("the result of request %.60q is %.60q", l.Request, l.Result)
		}
		seen[task] = true
		n++
		<-places
	}
	return nil
}

// doTasks answers each task, those that came meanwhile in one call.
func doTasks(ctx context.Context, c *client.Client) error {
	type task struct {
		Lock uint64
		Task string
	}
	tasks, ended := make(chan task, 4*taskSlots), make(chan error, 1)
	go func() {
		defer close(tasks)
		for {
			var t task
			if err := c.Next(&t); err != nil {
				ended <- err
				return
			}
			tasks <- t
		}
	}()
	for t := range tasks {
		var body strings.Builder
		encoder := json.NewEncoder(&body)
		for more := true; more; {
			if err := encoder.Encode(map[string]any{"lease": t.Lock, "result": "did " + t.Task}); err != nil {
				return err
			}
			select {
			case t, more = <-tasks:
			default:
				more = false
			}
		}
		if err := c.Call(http.MethodPost, "results", body.String(), nil); err != nil {
			return err
		}
	}
	if err := <-ended; !errors.Is(err, io.EOF) && ctx.Err() == nil {
		return err
	}
	return nil
}
