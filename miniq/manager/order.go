package manager

import (
	"math"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// maxValue is the highest value within a level.
func maxValue() int { return backends.At(backends.LevelNormal, math.MaxInt).Value() }

// rank is a place in the queue: the higher priority goes first, then the job
// that was submitted first, or that its owner put there (see Reorder).
type rank struct {
	priority backends.Priority
	turn     int64
}

func (r rank) before(other rank) bool {
	if r.priority != other.priority {
		return r.priority > other.priority
	}
	return r.turn < other.turn
}

// tick returns the number of the last multiple of the ageing interval.
func (m *Manager) tick(t time.Time) int64 {
	interval := int64(m.cfg.AgeingInterval)
	if interval <= 0 {
		return 0
	}
	n := t.UnixNano()
	if n < 0 {
		return -((-n + interval - 1) / interval)
	}
	return n / interval
}

// timeOf returns the time of a tick.
func (m *Manager) timeOf(tick int64) time.Time {
	return time.Unix(0, tick*int64(m.cfg.AgeingInterval)).UTC()
}

// mayGain returns how many more ticks a job can gain.
func (m *Manager) mayGain(j *job) int64 {
	if m.cfg.AgeingInterval <= 0 {
		return 0
	}
	return int64(max(0, min(m.cfg.AgeingCap-j.aged, maxValue()-j.base.Value())))
}

// gained returns the ticks that a job gained since it last began to wait.
func (m *Manager) gained(j *job, t time.Time) int64 {
	if !j.ageing {
		return 0
	}
	return max(0, min(m.tick(t)-j.ageFrom, m.mayGain(j)))
}

func (m *Manager) priority(j *job, t time.Time) backends.Priority {
	return j.base + backends.Priority(m.gained(j, t))
}

func (m *Manager) rank(j *job) rank { return rank{m.priority(j, m.now), j.turn} }

func (m *Manager) startAgeing(j *job) {
	m.beforeChange(j)
	j.ageing, j.ageFrom = true, m.tick(m.now)
}

func (m *Manager) stopAgeing(j *job) {
	m.beforeChange(j)
	n := m.gained(j, m.now)
	j.base += backends.Priority(n)
	j.aged += int(n)
	j.ageing = false
}
