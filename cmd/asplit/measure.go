package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/metrics/qualify"
)

// measurer measures hosts that are to take part in a split, by a job on each.
type measurer struct {
	queue   qualify.Queue
	job     backends.Spec
	program string // this very program

	once   sync.Once
	hosts  qualify.Hosts
	server *qualify.Server
	err    error // if set, no host can be measured
}

// measure is split.Measure.
func (m *measurer) measure(ctx context.Context, dir, host string, slots int) (measures metrics.Measures, err error) {
	m.once.Do(func() {
		m.hosts.Queue, m.hosts.Dir, m.hosts.Job, m.hosts.Argv = m.queue, dir, m.job, []string{m.program, wordQualify}
		m.server, m.err = qualify.Serve(ctx, qualify.LinkFile(dir))
	})
	if m.err != nil {
		return measures, m.err
	}
	err = errors.New("its job reported no result")
	m.hosts.Measure(ctx, []qualify.Request{{Host: host, Slots: slots}}, func(a qualify.Answer) {
		if err = a.Err; err == nil {
			measures = a.Result.Measures(slots)
		}
	})
	if err == nil && measures == (metrics.Measures{}) {
		err = fmt.Errorf("nothing could be measured on %s", host)
	}
	return measures, err
}

// close ends what answers its jobs.
func (m *measurer) close() {
	if m.server != nil {
		m.server.Close()
	}
}
