package main

import (
	"maps"
	"slices"

	"github.com/allotment-hpc/allotment/agent/supervise"
)

// summarize publishes which kinds of limits take effect on all jobs that are here; where none is, the last ones stand.
func (l *limiter) summarize() {
	m := *l.means.Load()
	if len(l.works) > 0 {
		m.Works = supervise.Common(slices.Collect(maps.Values(l.works)))
	}
	l.means.Store(&m)
}

// summary returns what was published last; nil: limits are off. Any goroutine may call it.
func (l *limiter) summary() *supervise.Means {
	if l == nil {
		return nil
	}
	return l.means.Load()
}
