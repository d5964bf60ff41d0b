package main

import (
	"context"
	"runtime"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/roster"
	"github.com/allotment-hpc/allotment/agent/watch"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/bus"
	"github.com/allotment-hpc/allotment/internal/random"
)

// heartbeats sends a heartbeat every 5 s, and what each new sample says of the jobs, until the
// context ends.
func (a *agent) heartbeats(ctx context.Context, link *bus.Link) {
	h := &heart{agent: a, link: link, run: random.Text(), began: time.Now()}
	ticker := time.NewTicker(roster.Every)
	defer ticker.Stop()
	for {
		h.beat()
		h.announce(time.Now())
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// heart is what heartbeats remember.
type heart struct {
	agent    *agent
	link     *bus.Link
	run      string
	began    time.Time
	sequence uint64
	reported *measure.Sample // last
	left     int             // jobs that its report had no room for
	// in the last beat
	connected bool
}

func (h *heart) beat() {
	sample := h.agent.last.Load().sample
	h.sequence++
	var report []byte // nil: the last one stands
	left := h.left
	if sample != h.reported {
		r := roster.Report{Elapsed: sample.At.Sub(h.began), Jobs: sample.Jobs, Said: h.agent.said(sample, time.Now())}
		report, left = r.Encode()
	}
	b := beatOf(measure.ReadHost(""), sample, left)
	b.Run, b.Sequence, b.Limits = h.run, h.sequence, h.agent.limiter.summary()
	message, err := b.Encode()
	if err == nil {
		err = h.link.Publish(watch.BeatKind, message)
	}
	if err == nil && report != nil {
		h.reported = sample
		err = h.link.Publish(watch.ReportKind, report)
	}
	if (left > 0) != (h.left > 0) {
		h.agent.log.Info("jobs that the report has no room for", "jobs", left, "of", len(sample.Jobs))
	}
	h.left = left
	if err != nil {
		h.agent.log.Warn("a heartbeat is not sent", "error", err)
	}
}

// said returns how far the jobs of a sample are, by their own words.
func (a *agent) said(sample *measure.Sample, now time.Time) map[measure.Key]roster.Said {
	if a.objects == nil {
		return nil
	}
	all := map[measure.Key]roster.Said{}
	for key, s := range a.objects.Said(sample) {
		all[key] = roster.Said{Progress: s.String(), Ago: now.Sub(s.At)}
	}
	return all
}

// beatOf returns the heartbeat of a host, without its number. left is the number of jobs that
// its report has no room for.
func beatOf(host measure.Host, sample *measure.Sample, left int) roster.Beat {
	b := roster.Beat{Boot: host.Boot, Version: shell.Version, Cores: runtime.NumCPU(), Memory: host.Memory.N, Load: host.Load, Jobs: min(len(sample.Jobs), roster.MaxJobs)}
	if b.Boot == "" {
		b.Boot = "unknown"
	}
	if host.Available.Known {
		b.Available = &host.Available.N
	}
	for _, l := range sample.Lacks {
		if n := len(b.Lacks); n == 0 || b.Lacks[n-1] != string(l.Figure) { // they are sorted
			b.Lacks = append(b.Lacks, string(l.Figure))
		}
	}
	if left > 0 {
		b.Lacks = append(b.Lacks, roster.LacksReport)
	}
	for i := range sample.GPUs {
		b.GPUs = append(b.GPUs, gpuOf(&sample.GPUs[i]))
	}
	return b
}

func gpuOf(g *measure.GPU) roster.GPU {
	watts := g.Milliwatts
	watts.N /= 1000
	return roster.GPU{Index: g.Index, Busy: orNil(g.Busy), Used: orNil(g.MemoryUsed), Memory: orNil(g.Memory), Celsius: orNil(g.Celsius), Watts: orNil(watts)}
}
