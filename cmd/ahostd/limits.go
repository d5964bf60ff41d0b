package main

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/allotment-hpc/allotment/agent/limit"
	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/objects"
	"github.com/allotment-hpc/allotment/agent/root"
	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/settings"
	"github.com/allotment-hpc/allotment/state"
)

// limiter has jobs limited so that others have what they were promised (R47), or says which would be.
type limiter struct {
	host     string
	capacity supervise.Amounts
	log      *slog.Logger
	promises atomic.Pointer[heardPromises] // the last; nil: none were

	// set brings about limits by their jobs' IDs, lifts all others, and returns why each is not in force; nil: the
	// mode is observe.
	set    func([]root.Limit) ([]string, error)
	memory func() measure.Host
	groups func() []*measure.JobGroup
	plead  func(message []byte) error // asks allotd for acts; nil: none can be asked for
	kills  bool
	note   func(job state.Job, event, detail string, at time.Time) // in its history; nil: none is kept

	// said returns how far jobs are, by their own words; nil: that is not known here.
	said  func(*measure.Sample) map[measure.Key]objects.Said
	paces map[paceKey]*supervise.Progress

	before   *measure.Sample
	had      measure.Host               // the memory, then
	pleads   map[string]bool            // the jobs that acts are asked for
	works    map[string]supervise.Works // of each job's control group
	limits   []supervise.Limit          // in force, or that would be
	means    atomic.Pointer[supervise.Means]
	shortage map[string]bool // that was logged
	failed   string          // logged last
}

// heardPromises are promises, and when they were heard.
type heardPromises struct {
	*supervise.Promises
	at time.Time
}

// promisesLast is how long promises count: agents go on by the last ones where allotd is away, but not for ever,
// since it is allotd who hears that limits are paused, and what jobs are worth.
const promisesLast = 10 * time.Minute

func newLimiter(host string, l settings.Limits, helper *root.Client, log *slog.Logger) *limiter {
	n := &limiter{
		host: host, log: log, kills: l.Kill, memory: func() measure.Host { return measure.ReadHost("") }, shortage: map[string]bool{}, works: map[string]supervise.Works{},
		capacity: supervise.Amounts{supervise.CPU: int64(1000 * runtime.NumCPU()), supervise.Disk: int64(l.Disk), supervise.Network: int64(l.Network)},
		groups: func() []*measure.JobGroup {
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil {
				log.Warn("control groups are not found", "error", err)
			}
			return measure.LimitGroups(mounts)
		},
	}
	n.means.Store(&supervise.Means{Mode: string(l.Mode), Unable: l.Mode == settings.LimitsOn && helper == nil})
	if l.Mode == settings.LimitsOn && helper != nil {
		n.set = helper.SetLimits
	} else if l.Mode == settings.LimitsOn {
		log.Error("limits are only observed: ahostd runs without its root helper, which brings them about: start the service allotment-ahostd")
	}
	return n
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
	l.promises.Store(&heardPromises{p, time.Now()})
}

// sample decides by a new sample, has the limits set, and logs what has changed.
func (l *limiter) sample(s *measure.Sample) {
	before, had := l.before, l.had
	l.before, l.had = s, l.memory()
	p := l.promises.Load()
	if before == nil || p == nil || !s.At.After(before.At) {
		return
	}
	policy := supervise.DefaultPolicy()
	policy.Paused, policy.Kills = p.Paused || s.At.Sub(p.at) > promisesLast, l.kills
	h, keys := hostOf(l.host, before, s, p.Promises)
	h.Capacity, h.Limits, h.Memory = l.capacity, l.limits, memoryOf(&had, &l.had, s.At.Sub(before.At))
	l.follow(h, keys, s)
	saturate(h)
	l.probe(h, keys)
	d := supervise.Decide(h, policy, s.At)
	if l.set != nil {
		d.Limits = l.bringAbout(d.Limits, keys)
	}
	l.say(&d, keys, s.At)
	l.ask(h, &d, keys, s.At)
	l.limits = d.Limits
	l.summarize()
}

// paceKey is a run of a job.
type paceKey struct {
	measure.Key
	run int
}

// follow says of each job that has a deadline how far it is, by its own word, and how fast (R48).
func (l *limiter) follow(h *supervise.Host, keys map[string]measure.Key, s *measure.Sample) {
	if l.said == nil {
		return
	}
	var said map[measure.Key]objects.Said // as far as it is asked for
	paces := map[paceKey]*supervise.Progress{}
	for i := range h.Jobs {
		j := &h.Jobs[i]
		if j.Deadline.IsZero() {
			continue
		}
		if said == nil {
			said = l.said(s)
		}
		key := keys[j.Name]
		word, known := said[key]
		at, found := slices.BinarySearchFunc(s.Jobs, key, func(m measure.Job, k measure.Key) int { return m.Compare(k) })
		if !known || !found {
			continue
		}
		run := paceKey{key, s.Jobs[at].Run}
		pace := l.paces[run]
		if pace == nil {
			pace = &supervise.Progress{}
		}
		pace.See(float64(word.Percent)/100, j.Uses, s.At)
		pace.Set(j)
		paces[run] = pace
	}
	l.paces = paces
}

// memoryOf returns what is known of the host's memory at the end of an interval.
func memoryOf(before, now *measure.Host, passed time.Duration) (m supervise.MemoryOf) {
	if !now.Memory.Known || !now.Available.Known {
		return m // there is no lack
	}
	m.Total, m.Available = int64(now.Memory.N), int64(now.Available.N)
	if before.Available.Known {
		m.Fell = int64(before.Available.N) - m.Available
	}
	if stalled, known := now.Stalled.Rise(before.Stalled, passed.Seconds()); known {
		m.Stalled = stalled / 1e9
	}
	return m
}

// ask asks allotd for acts: the queue's own verbs are for who decides over all hosts. Where allotd is away, jobs stay
// frozen. What was asked for and is not needed any more is taken back.
func (l *limiter) ask(h *supervise.Host, d *supervise.Decision, keys map[string]measure.Key, at time.Time) {
	if l.set == nil {
		return // nothing was frozen
	}
	pleas, asked := supervise.Pleas{}, map[string]bool{}
	for _, a := range d.Acts {
		key := keys[a.Job]
		plea := supervise.Plea{Queue: string(key.Queue), Job: key.ID.Job, Index: key.ID.Index, Verb: a.Verb}
		for i := range h.Jobs {
			if h.Jobs[i].Name == a.Job {
				plea.Used = h.Jobs[i].Used
			}
		}
		for i := range l.limits {
			if n := &l.limits[i]; n.Job == a.Job && n.Resource == supervise.Memory {
				plea.Frozen = at.Sub(n.Since)
			}
		}
		pleas.Jobs = append(pleas.Jobs, plea)
		asked[a.Job] = true
		if !l.pleads[a.Job] {
			l.log.Warn("asks allotd for an act", "job", a.Job, "verb", string(a.Verb), "why", a.Reason)
		}
	}
	if len(asked)+len(l.pleads) > 0 && l.plead != nil {
		message, err := pleas.Encode()
		if err == nil {
			err = l.plead(message)
		}
		if err != nil {
			l.log.Warn("allotd is not asked for an act", "error", err)
		}
	}
	l.pleads = asked
}

// inForce returns the limits that are, not those that would be.
func (l *limiter) inForce() []supervise.Limit {
	if l == nil || l.set == nil {
		return nil
	}
	return l.limits
}

// probe says of each job which kinds of limits take effect on it. Control groups are looked for when a job is new.
func (l *limiter) probe(h *supervise.Host, keys map[string]measure.Key) {
	works := make(map[string]supervise.Works, len(h.Jobs))
	var groups []*measure.JobGroup
	for i := range h.Jobs {
		j := &h.Jobs[i]
		if j.Foreign {
			continue
		}
		known, found := l.works[j.Name]
		if !found {
			if groups == nil {
				groups = l.groups()
			}
			key := keys[j.Name]
			at := slices.IndexFunc(groups, func(g *measure.JobGroup) bool { return g.Queue == key.Queue && g.ID == key.ID })
			if at < 0 { // it may have one yet
				continue
			}
			known = limit.GroupOf(groups[at]).Works()
		}
		j.Works, works[j.Name] = known, known
	}
	l.works = works
}

// bringAbout has limits set, and returns those that are in force. One that can't be set is not tried again with its
// job.
func (l *limiter) bringAbout(all []supervise.Limit, keys map[string]measure.Key) (inForce []supervise.Limit) {
	if len(all)+len(l.limits) == 0 {
		return nil
	}
	asked := make([]root.Limit, len(all))
	for i := range all {
		key := keys[all[i].Job]
		asked[i] = root.Limit{Queue: key.Queue, ID: key.ID, Resource: all[i].Resource, Rung: all[i].Rung, Value: all[i].Value}
	}
	why, err := l.set(asked)
	if err != nil {
		if l.failed != err.Error() {
			l.failed = err.Error()
			l.log.Error("limits are not set; those in force end by themselves", "error", err)
		}
		return nil
	}
	for i := range all {
		n := &all[i]
		if why[i] == "" {
			inForce = append(inForce, *n)
			continue
		}
		l.log.Warn("a limit is not in force", "job", n.Job, "resource", n.Resource.String(), "by", n.Rung.String(), "why", why[i])
		rungs := l.works[n.Job]
		rungs[n.Resource] = slices.DeleteFunc(rungs[n.Resource], func(r supervise.Rung) bool { return r == n.Rung })
	}
	return inForce
}

// say logs the limits that begin, or become others, and those that end.
func (l *limiter) say(d *supervise.Decision, keys map[string]measure.Key, at time.Time) {
	note := func(job, event, detail string) {
		if key, here := keys[job]; here && l.set != nil && l.note != nil {
			l.note(state.Job{Queue: string(key.Queue), ID: key.ID}, event, detail, at)
		}
	}
	limits, lifts := "would limit", "would lift"
	if l.set != nil {
		limits, lifts = "limits", "lifts"
	}
	same := func(a, b *supervise.Limit) bool { return a.Job == b.Job && a.Resource == b.Resource }
	for i := range d.Limits {
		n := &d.Limits[i]
		was := slices.IndexFunc(l.limits, func(o supervise.Limit) bool { return same(n, &o) })
		if was < 0 || l.limits[was].Rung != n.Rung {
			l.log.Info(limits, "job", n.Job, "resource", n.Resource.String(), "by", n.Rung.String(), "value", n.Value, "for", n.For, "why", n.Reason)
			by := fmt.Sprintf("%s %d", n.Rung, n.Value)
			if n.Rung == supervise.Freeze {
				by = n.Rung.String()
			}
			note(n.Job, "limited", fmt.Sprintf("%s, by %s: %s", n.Resource, by, n.Reason))
		}
	}
	for i := range l.limits {
		o := &l.limits[i]
		if !slices.ContainsFunc(d.Limits, func(n supervise.Limit) bool { return same(&n, o) }) {
			l.log.Info(lifts, "job", o.Job, "resource", o.Resource.String(), "by", o.Rung.String(), "since", o.Since.UTC().Format(time.RFC3339))
			note(o.Job, "unlimited", fmt.Sprintf("%s, by %s, since %s", o.Resource, o.Rung, o.Since.UTC().Format(time.RFC3339)))
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

// saturate says which jobs wait for the network: no queue of the kernel counts that by jobs. Those do that send less
// than they were promised, or may have because of their deadlines, while the host sends almost all it can.
func saturate(h *supervise.Host) {
	const full = 0.9
	sent := int64(0)
	for i := range h.Jobs {
		sent += h.Jobs[i].Uses[supervise.Network]
	}
	most := h.Capacity[supervise.Network]
	if most == 0 || float64(sent) < full*float64(most) {
		return
	}
	for i := range h.Jobs {
		j := &h.Jobs[i]
		if use := j.Uses[supervise.Network]; use > 0 && use < max(j.Minimum[supervise.Network], j.Most[supervise.Network]) {
			j.Waits[supervise.Network] = 1
		}
	}
}

// hostOf returns what is known of a host between two samples, and its jobs' keys by their names.
func hostOf(name string, before, now *measure.Sample, p *supervise.Promises) (*supervise.Host, map[string]measure.Key) {
	h, keys := &supervise.Host{Name: name}, map[string]measure.Key{}
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
			keys[job.Name] = m.Key
			job.Foreign, job.Slots, job.Minimum, job.Held = false, p.Slots, p.Minimum, p.Held
			if p.Deadline > 0 {
				job.Deadline, job.Most = time.Unix(p.Deadline, 0), p.Most
			}
			job.Requested, job.Requeues, job.Saving, job.Protected = p.Memory, p.Requeues, p.Saving, p.Protected
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
		if m.Memory.Known && m.Cache.Known { // files' cache is given back by itself
			job.Used = int64(m.Memory.N - min(m.Memory.N, m.Cache.N) + m.Swap.N)
		}
		h.Jobs = append(h.Jobs, job)
	}
	return h, keys
}

// bytesMoved returns the bytes that a job has moved from and to disks.
func bytesMoved(j *measure.Job) measure.Value {
	d := measure.SumDisks(j.Disks)
	return measure.Value{N: d.ReadBytes.N + d.WrittenBytes.N, Known: d.ReadBytes.Known && d.WrittenBytes.Known}
}
