package roster

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
)

// Bounds of what is remembered of jobs. The long series are Prometheus' matter.
const (
	MaxSeries = 100_000 // jobs on hosts whose last hour is kept; beyond it a job has its figures alone
	maxUses   = 200_000 // jobs on hosts

	pointEvery = 30 * time.Second
	points     = 120
)

// Rate is a figure in each second, or absent.
type Rate struct {
	PerSecond float64
	Known     bool
}

// Use is what a job uses on a host.
type Use struct {
	Host string
	At   time.Time // when the host's agent reported it
	measure.Job
	Cores         Rate // processor time in each second
	Read, Written Rate // bytes of disks
	Net           Rate // bytes sent and received, but not to the host itself

	Progress string    // of the job, by its own words: percent, then its text; "": it says nothing
	SaidAt   time.Time // when it said so, by this machine's clock
}

// Point is a point of a job's last hour, the mean of 30 s that began then. A figure that is
// absent is NaN.
type Point struct {
	At     time.Time
	Cores  float64
	Memory float64 // bytes
}

// Uses are what the jobs on all hosts use. It is for one goroutine.
type Uses struct {
	hosts  map[string]*hostUses
	jobs   int // on all hosts
	series int
}

type hostUses struct {
	elapsed time.Duration
	at      time.Time
	jobs    map[measure.Key]*use
}

type use struct {
	Use
	seen   time.Time // reported last
	series *series
}

// NewUses returns an empty one.
func NewUses() *Uses { return &Uses{hosts: map[string]*hostUses{}} }

// Heard takes a host's report.
func (u *Uses) Heard(host string, r Report, now time.Time) {
	h := u.hosts[host]
	if h == nil {
		if len(u.hosts) >= MaxHosts || host == "" || len(host) > MaxName {
			return
		}
		h = &hostUses{jobs: map[measure.Key]*use{}}
		u.hosts[host] = h
	}
	over := (r.Elapsed - h.elapsed).Seconds() // 0 or less: the agent began anew
	for i := range r.Jobs {
		u.heardJob(h, host, &r.Jobs[i], over, now)
	}
	for key, s := range r.Said {
		if j := h.jobs[key]; j != nil {
			j.Progress, j.SaidAt = s.Progress, now.Add(-s.Ago)
		}
	}
	h.elapsed, h.at = r.Elapsed, now
	full := len(h.jobs) > 2*MaxJobs
	for key, j := range h.jobs {
		if now.Sub(j.seen) >= points*pointEvery || (full || j.series == nil) && !j.seen.Equal(now) {
			u.drop(h, key)
		}
	}
}

func (u *Uses) heardJob(h *hostUses, host string, j *measure.Job, over float64, now time.Time) {
	was := h.jobs[j.Key]
	if was == nil {
		if u.jobs >= maxUses {
			return
		}
		u.jobs++
		was = &use{}
		if u.series < MaxSeries {
			was.series = &series{}
			u.series++
		}
		h.jobs[j.Key] = was
	}
	last := was.Job
	if !was.seen.Equal(h.at) {
		over = 0 // the last report did not have it
	}
	read, written := bytesOf(j)
	lastRead, lastWritten := bytesOf(&last)
	was.Use = Use{
		Host: host, At: now, Job: *j,
		Cores: rate(last.CPU, j.CPU, over), Read: rate(lastRead, read, over), Written: rate(lastWritten, written, over),
		Net: rate(last.Network.Sum(), j.Network.Sum(), over),
	}
	was.Cores.PerSecond /= 1e9
	was.seen = now
	if was.series != nil {
		was.series.add(now, &was.Use)
	}
}

func bytesOf(j *measure.Job) (read, written measure.Value) {
	if len(j.Disks) == 0 {
		return
	}
	return j.Disks[0].ReadBytes, j.Disks[0].WrittenBytes
}

// rate is how fast a counter rose.
func rate(was, is measure.Value, over float64) Rate {
	perSecond, known := is.Rise(was, over)
	return Rate{perSecond, known}
}

func (u *Uses) drop(h *hostUses, key measure.Key) {
	if h.jobs[key].series != nil {
		u.series--
	}
	u.jobs--
	delete(h.jobs, key)
}

// Forget drops what is known of a host.
func (u *Uses) Forget(host string) {
	h := u.hosts[host]
	if h == nil {
		return
	}
	for key := range h.jobs {
		u.drop(h, key)
	}
	delete(u.hosts, host)
}

// Now returns what jobs use that their hosts' last reports have, those that want says; by
// host, queue, ID, user.
func (u *Uses) Now(want func(*Use) bool) (all []Use) {
	for _, h := range u.hosts {
		all = h.now(all, want)
	}
	slices.SortFunc(all, compareUses)
	return all
}

// Of is Now of the jobs of a host.
func (u *Uses) Of(host string, want func(*Use) bool) (all []Use) {
	if h := u.hosts[host]; h != nil {
		all = h.now(nil, want)
	}
	slices.SortFunc(all, compareUses)
	return all
}

func (h *hostUses) now(all []Use, want func(*Use) bool) []Use {
	for _, j := range h.jobs {
		if j.seen.Equal(h.at) && want(&j.Use) {
			all = append(all, j.Use)
		}
	}
	return all
}

func compareUses(a, b Use) int {
	return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Queue, b.Queue), a.ID.Compare(b.ID), cmp.Compare(a.User, b.User))
}

// History returns a job's last hour on a host, or as much of it as is known: a point each 30 s.
func (u *Uses) History(host string, key measure.Key) []Point {
	h := u.hosts[host]
	if h == nil || h.jobs[key] == nil || h.jobs[key].series == nil {
		return nil
	}
	return h.jobs[key].series.list()
}

// series is the last hour of a job: 1 KiB.
type series struct {
	first         int64 // the number of the interval, since the year 1970, that values begin with
	cores, memory []float32
	sum           float64 // of cores within the last interval
	n             int
}

var absent = float32(math.NaN())

func (s *series) add(now time.Time, u *Use) {
	at := now.UnixNano() / int64(pointEvery)
	if len(s.cores) == 0 || at < s.first+int64(len(s.cores))-1 || at-s.first > 2*points {
		*s = series{first: at} // it is the first, the clock was set, or nothing else is left
	}
	for s.first+int64(len(s.cores)) <= at {
		s.cores, s.memory = append(s.cores, absent), append(s.memory, absent)
		s.sum, s.n = 0, 0
	}
	if extra := len(s.cores) - points; extra > 0 {
		s.cores, s.memory = slices.Delete(s.cores, 0, extra), slices.Delete(s.memory, 0, extra)
		s.first += int64(extra)
	}
	last := len(s.cores) - 1
	if u.Cores.Known {
		s.sum += u.Cores.PerSecond
		s.n++
		s.cores[last] = float32(s.sum / float64(s.n))
	}
	if u.Memory.Known {
		s.memory[last] = float32(u.Memory.N)
	}
}

func (s *series) list() []Point {
	all := make([]Point, len(s.cores))
	for i := range all {
		all[i] = Point{time.Unix(0, (s.first+int64(i))*int64(pointEvery)), float64(s.cores[i]), float64(s.memory[i])}
	}
	return all
}
