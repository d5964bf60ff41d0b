package task

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/internal/command"
)

// Times of what a task says of itself.
const (
	sayEvery = 5 * time.Second
	sayTime  = 5 * time.Second // bounds one word
)

// watchProgress says in the state object of the job that executes a task how far the task is, from its beginning
// until the returned function is called (R56). An error does not matter: the words are for people.
func (e *execution) watchProgress() (ended func()) {
	if e.order.States == "" {
		return func() {}
	}
	program, err := command.Sibling("astate")
	if err != nil {
		return func() {}
	}
	stop := make(chan struct{})
	var saying sync.WaitGroup
	saying.Go(func() {
		every := time.NewTicker(sayEvery)
		defer every.Stop()
		for {
			e.sayProgress(program)
			select {
			case <-every.C:
			case <-stop:
				return
			}
		}
	})
	return func() {
		close(stop)
		saying.Wait()
		e.sayProgress(program)
	}
}

// sayProgress says it once.
func (e *execution) sayProgress(program string) {
	e.mu.Lock()
	done := e.to.ended
	e.mu.Unlock()
	text := fmt.Sprintf("%s task %d: %d of %d items from %d", e.order.States, e.n, done, e.order.Count, e.order.First)
	argv := []string{program, "progress", strconv.FormatInt(100*done/e.order.Count, 10), text}
	_, _ = command.Run(context.Background(), command.Command{Argv: argv, Env: e.env, Timeout: sayTime})
}
