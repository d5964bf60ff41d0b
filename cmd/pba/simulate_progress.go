package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// progress shows on a terminal how far a simulation is.
type progress struct {
	out      io.Writer
	policies []string
	next     time.Time // not before
	shown    bool
}

// newProgress shows nothing where out is no terminal.
func newProgress(out io.Writer, policies []string) *progress {
	if !shell.Terminal(out) {
		out = io.Discard
	}
	return &progress{out: out, policies: policies}
}

const (
	showEvery     = 200 * time.Millisecond
	progressWidth = 30
)

func (p *progress) show(policy string, done, jobs int) {
	now := time.Now()
	if jobs < 1 || now.Before(p.next) {
		return
	}
	if p.next.IsZero() { // a short one ends before the bar is seen
		p.next = now.Add(showEvery)
		return
	}
	p.next, p.shown = now.Add(showEvery), true
	fmt.Fprintf(p.out, "\r\x1b[K%s", progressLine(p.policies, policy, done, jobs))
}

// progressLine is the bar: all policies take equal parts of it.
func progressLine(policies []string, policy string, done, jobs int) string {
	share := (float64(max(slices.Index(policies, policy), 0)) + float64(done)/float64(jobs)) / float64(max(len(policies), 1))
	full := min(int(share*progressWidth), progressWidth)
	return fmt.Sprintf("[%s%s] %3.0f %%  %s: %d of %d jobs", strings.Repeat("#", full), strings.Repeat(".", progressWidth-full), 100*share, policy, done, jobs)
}

// end removes the bar.
func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
