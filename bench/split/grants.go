package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/internal/quantile"
	"github.com/allotment-hpc/allotment/lease/client"
)

// What grants are measured with (docs/design.md, "Budgets").
const (
	maxGrant     = 10 * time.Millisecond // 99 in 100 of them
	grantWaiting = 1000                  // requests that wait all the time
	grantEvery   = 5 * time.Millisecond  // 200 a second
	grantSlots   = 16
)

// measureGrants has asplit serve grant slots while 1,000 requests wait: each 5 ms one is
// freed, and the time to the grant that it allows is taken.
func measureGrants(ctx context.Context, o *options) (all []budget, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, stop, err := startServe(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { cancel(); err = errors.Join(err, stop()) }()
	times, err := measureTimes(ctx, c, o.grants)
	if err != nil {
		return nil, fmt.Errorf("grants: %w", err)
	}
	p50, p99 := quantile.Of(times, 50), quantile.Of(times, 99)
	printf("\n%-36s %6s  %8s  %8s", fmt.Sprintf("grants by HTTP, %d waiting, %d a second", grantWaiting, time.Second/grantEvery), "grants", "p50", "p99")
	printf("%-36s %6d  %5.2f ms  %5.2f ms", "from a free slot to the next grant", len(times), 1000*p50, 1000*p99)
	return []budget{{"99 in 100 grants, in ms", 1000 * p99, float64(maxGrant.Milliseconds())}}, nil
}

// startServe starts asplit serve, which ends with the context, and returns who speaks to it. To be called
// then: stop waits for its end.
func startServe(ctx context.Context, o *options) (c *client.Client, stop func() error, err error) {
	home, err := os.MkdirTemp("", "serve-")
	if err != nil {
		return nil, nil, err
	}
	serve := exec.CommandContext(ctx, filepath.Join(o.programs, "asplit"), "serve")
	serve.Env = append(os.Environ(), "HOME="+home, "XDG_RUNTIME_DIR="+home, "ALLOTMENT_HOME="+home)
	serve.Cancel = func() error { return serve.Process.Signal(syscall.SIGTERM) }
	serve.Stderr = os.Stderr
	out, err := serve.StdoutPipe()
	if err == nil {
		err = serve.Start()
	}
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(home))
	}
	stop = func() error {
		_ = serve.Wait() // a signal ends it: its status says nothing
		return os.RemoveAll(home)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("asplit serve said %q: %w", line, err), serve.Process.Kill(), stop())
	}
	words := strings.Fields(line)
	return client.New(ctx, words[len(words)-1]), stop, nil
}

// measureTimes returns the times in seconds from the free of a slot to the grant that came of it.
func measureTimes(ctx context.Context, c *client.Client, n int) (times []float64, err error) {
	w, err := c.Join("workers", fmt.Sprintf(`{"worker":"w1","host":"h1","milli_cores":%d}`, 1000*grantSlots))
	if err != nil {
		return nil, err
	}
	go func() { // a worker that does not read its leases is dropped
		for w.Next(new(struct{})) == nil {
		}
	}()
	c, err = c.Join("holders", fmt.Sprintf(`{"holder":"bench","limit":%d}`, 2*(grantWaiting+grantSlots)))
	if err != nil {
		return nil, err
	}
	request := func(i int) error { return c.Call(http.MethodPost, "requests", fmt.Sprintf(`{"id":"r%d"}`, i), nil) }
	for i := range grantSlots + grantWaiting {
		if err := request(i); err != nil {
			return nil, err
		}
	}
	type grant struct {
		Grant uint64
		at    time.Time
	}
	grants, ended := make(chan grant, grantSlots+n), make(chan error, 1)
	go func() {
		for {
			var g grant
			if err := c.Next(&g); err != nil {
				ended <- err
				return
			}
			g.at = time.Now()
			grants <- g
		}
	}()
	next := func() (grant, error) {
		select {
		case g := <-grants:
			return g, nil
		case err := <-ended:
			return grant{}, err
		case <-ctx.Done():
			return grant{}, context.Cause(ctx)
		}
	}
	var held []uint64
	for range grantSlots {
		g, err := next()
		if err != nil {
			return nil, err
		}
		held = append(held, g.Grant)
	}
	tick := time.NewTicker(grantEvery)
	defer tick.Stop()
	for i := range n {
		<-tick.C
		freed := time.Now()
		if err := c.Call(http.MethodDelete, fmt.Sprintf("leases/%d", held[0]), "", nil); err != nil {
			return nil, err
		}
		g, err := next()
		if err != nil {
			return nil, err
		}
		times = append(times, g.at.Sub(freed).Seconds())
		held = append(held[1:], g.Grant)
		if err := request(grantSlots + grantWaiting + i); err != nil {
			return nil, err
		}
	}
	return times, nil
}
