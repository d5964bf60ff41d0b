package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/internal/quantile"
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
	home, err := os.MkdirTemp("", "grants-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	serve := exec.CommandContext(ctx, filepath.Join(o.programs, "asplit"), "serve")
	serve.Env = append(os.Environ(), "HOME="+home, "XDG_RUNTIME_DIR="+home, "ALLOTMENT_HOME="+home)
	serve.Cancel = func() error { return serve.Process.Signal(syscall.SIGTERM) }
	serve.Stderr = os.Stderr
	out, err := serve.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := serve.Start(); err != nil {
		return nil, err
	}
	defer func() { cancel(); _ = serve.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("asplit serve said %q: %w", line, err)
	}
	words := strings.Fields(line)
	c := grantClient{ctx: ctx, http: listen.Client(words[len(words)-1], 0)} // as curl, with a connection for each call
	times, err := c.measure(o.grants)
	if err != nil {
		return nil, fmt.Errorf("grants: %w", err)
	}
	p50, p99 := quantile.Of(times, 50), quantile.Of(times, 99)
	printf("\n%-36s %6s  %8s  %8s", fmt.Sprintf("grants by HTTP, %d waiting, %d a second", grantWaiting, time.Second/grantEvery), "grants", "p50", "p99")
	printf("%-36s %6d  %5.2f ms  %5.2f ms", "from a free slot to the next grant", len(times), 1000*p50, 1000*p99)
	return []budget{{"99 in 100 grants, in ms", 1000 * p99, float64(maxGrant.Milliseconds())}}, nil
}

// grantClient speaks to asplit serve.
type grantClient struct {
	ctx   context.Context
	http  *http.Client
	token string
}

// open makes a call that answers with lines until the client ends.
func (c *grantClient) open(path, body string) (*json.Decoder, error) {
	answer, err := c.send(http.MethodPost, path, body)
	if err != nil {
		return nil, err
	}
	return json.NewDecoder(answer.Body), nil // the context closes it
}

func (c *grantClient) send(method, path, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(c.ctx, method, "http://asplit/v1/"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
		return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, bytes.TrimSpace(text)), answer.Body.Close())
	}
	return answer, nil
}

func (c *grantClient) call(method, path, body string) error {
	answer, err := c.send(method, path, body)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return errors.Join(err, answer.Body.Close())
}

// measure returns the times in seconds from the free of a slot to the grant that came of it.
func (c *grantClient) measure(n int) (times []float64, err error) {
	if _, err := c.open("workers", fmt.Sprintf(`{"worker":"w1","host":"h1","milli_cores":%d}`, 1000*grantSlots)); err != nil {
		return nil, err
	}
	lines, err := c.open("holders", fmt.Sprintf(`{"holder":"bench","limit":%d}`, 2*(grantWaiting+grantSlots)))
	if err != nil {
		return nil, err
	}
	var first struct{ Token string }
	if err := lines.Decode(&first); err != nil {
		return nil, err
	}
	c.token = first.Token
	request := func(i int) error { return c.call(http.MethodPost, "requests", fmt.Sprintf(`{"id":"r%d"}`, i)) }
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
			if err := lines.Decode(&g); err != nil {
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
		case <-c.ctx.Done():
			return grant{}, context.Cause(c.ctx)
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
		if err := c.call(http.MethodDelete, fmt.Sprintf("leases/%d", held[0]), ""); err != nil {
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
