package main

import (
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// limiter says what jobs would be limited so that others have what they were promised (R47). It limits
// nothing.
type limiter struct {
	host     string
	capacity supervise.Amounts
	log      *slog.Logger
	promises atomic.Pointer[supervise.Promises] // the last that were heard; nil: none were

	before   *measure.Sample
	limits   []supervise.Limit // that would be in force
	shortage map[string]bool   // that was logged
}

func newLimiter(host string, l settings.Limits, log *slog.Logger) *limiter {
	return &limiter{
		host: host, log: log, shortage: map[string]bool{},
		capacity: supervise.Amounts{supervise.CPU: int64(1000 * runtime.NumCPU()), supervise.Disk: int64(l.Disk), supervise.Network: int64(l.Network)},
	}
}

// hear takes what allotd says of the jobs here.
func (l *limiter) hear(message []byte) {
	p, err := supervise.ParsePromises(message)
	if err != nil {
		l.log.Warn("what jobs were promised is not known", "error", err)
		return
	}
	within := 0
	for i := range p.Jobs {
		if p.Jobs[i].Minimum != (supervise.Amounts{}) {
			within++
		}
	}
	l.log.Debug("promises are heard", "jobs", len(p.Jobs), "within", within, "paused", p.Paused)
	l.promises.Store(p)
}

// sample decides by a new sample, and logs what has changed.
func (l *limiter) sample(s *measure.Sample) {
	before := l.before
	l.before = s
	p := l.promises.Load()
	if before == nil || p == nil || !s.At.After(before.At) {
		return
	}
	policy := supervise.DefaultPolicy()
	policy.Paused = p.Paused
	h := hostOf(l.host, before, s, p)
	h.Capacity, h.Limits = l.capacity, l.limits
	d := supervise.Decide(h, policy, s.At)
	l.say(&d)
	l.limits = d.Limits
}

// say logs the limits that begin, or become others, and those that end.
func (l *limiter) say(d *supervise.Decision) {
	same := func(a, b *supervise.Limit) bool { return a.Job == b.Job && a.Resource == b.Resource }
	for i := range d.Limits {
		n := &d.Limits[i]
		was := slices.IndexFunc(l.limits, func(o supervise.Limit) bool { return same(n, &o) })
		if was < 0 || l.limits[was].Rung != n.Rung {
			l.log.Info("would limit", "job", n.Job, "resource", n.Resource.String(), "by", n.Rung.String(), "value", n.Value, "for", n.For, "why", n.Reason)
		}
	}
	for i := range l.limits {
		o := &l.limits[i]
		if !slices.ContainsFunc(d.Limits, func(n supervise.Limit) bool { return same(&n, o) }) {
			l.log.Info("would lift", "job", o.Job, "resource", o.Resource.String(), "by", o.Rung.String(), "since", o.Since.UTC().Format(time.RFC3339))
		}
	}
	short := map[string]bool{}
	for _, s := range d.Shortages {
		short[s.Reason] = true
		if !l.shortage[s.Reason] {
			l.log.Warn("a promise is not kept", "job", s.Job, "resource", s.Resource.String(), "why", s.Reason)
		}
	}
	l.shortage = short
}

// hostOf returns what is known of a host between two samples.
func hostOf(name string, before, now *measure.Sample, p *supervise.Promises) *supervise.Host {
	h := &supervise.Host{Name: name, Works: map[supervise.Resource][]supervise.Rung{}}
	passed := now.At.Sub(before.At).Seconds()
	promised := map[string]*supervise.Promise{}
	for i := range p.Jobs {
		j := &p.Jobs[i]
		promised[j.Queue+" "+backends.ID{Job: j.Job, Index: j.Index}.String()] = j
	}
	for i := range now.Jobs {
		m := &now.Jobs[i]
		job := supervise.Job{Name: string(m.Queue) + " " + m.ID.String(), Foreign: true, Slots: 1}
		switch p := promised[job.Name]; {
		case m.Source == measure.FromProcesses: // any user says so
			job.Name += " of user ID " + m.UserText()
		case p != nil:
			delete(promised, job.Name) // the first of two groups of the same job has it
			job.Foreign, job.Slots, job.Minimum, job.Held = false, p.Slots, p.Minimum, p.Held
			job.Requested, job.Requeues, job.Protected = p.Memory, p.Requeues, p.Protected
		}
		at, found := slices.BinarySearchFunc(before.Jobs, m.Key, func(j measure.Job, k measure.Key) int { return j.Compare(k) })
		if found && before.Jobs[at].Run == m.Run {
			b := &before.Jobs[at]
			rate := func(was, is measure.Value) float64 { // 0: not known
				perSecond, _ := is.Rise(was, passed)
				return perSecond
			}
			job.Uses[supervise.CPU] = int64(rate(b.CPU, m.CPU) / 1e6)
			job.Uses[supervise.Disk] = int64(rate(bytesMoved(b), bytesMoved(m)))
			job.Uses[supervise.Network] = int64(rate(b.Network.SumSent(), m.Network.SumSent()))
			job.Waits[supervise.CPU] = rate(b.Pressure.CPUSome, m.Pressure.CPUSome) / 1e9
			job.Waits[supervise.Disk] = rate(b.Pressure.IOSome, m.Pressure.IOSome) / 1e9
		}
		if m.Memory.Known {
			job.Used = int64(m.Memory.N)
		}
		if m.Source == measure.FromGroupV2 {
			h.Works[supervise.CPU] = []supervise.Rung{supervise.Weight, supervise.Rate}
			if m.Disks != nil {
				h.Works[supervise.Disk] = []supervise.Rung{supervise.Rate}
			}
		}
		h.Jobs = append(h.Jobs, job)
	}
	return h
}

// bytesMoved returns the bytes that a job has moved from and to disks.
func bytesMoved(j *measure.Job) measure.Value {
	d := measure.SumDisks(j.Disks)
	return measure.Value{N: d.ReadBytes.N + d.WrittenBytes.N, Known: d.ReadBytes.Known && d.WrittenBytes.Known}
}
