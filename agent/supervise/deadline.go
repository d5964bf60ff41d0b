package supervise

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// pace is a job's pace, where it has a deadline and its speed is known.
type pace struct {
	left  float64 // seconds until it ends, at its present speed
	until float64 // seconds until its deadline; less than 0: it is over
}

// paceOf returns the pace of a job; false: it has no deadline, or its speed is not known.
func (d *decider) paceOf(j *Job) (pace, bool) {
	if j.Deadline.IsZero() || j.Foreign || j.Held || !(j.Done >= 0 && j.Done < 1) || !(j.Speed > 0) || math.IsInf(j.Speed, 1) {
		return pace{}, false
	}
	return pace{(1 - j.Done) / j.Speed, j.Deadline.Sub(d.now).Seconds()}, true
}

func (p pace) late() bool { return p.left > p.until }

// needs returns what a job must have of a resource to end before its deadline, by what it had while its speed was
// measured, at most its bound: with a tenth of reserve, as other things than this resource slow it down, too.
func (p pace) needs(j *Job, r Resource) int64 {
	const reserve = 1.1
	most := float64(j.Most[r])
	if p.until <= 0 {
		return j.Most[r]
	}
	return int64(min(most, reserve*float64(j.Had[r])*p.left/p.until))
}

// hasten raises what jobs have as their own of a resource, where they would end after their deadlines and wait for it:
// to what makes them fast enough, at most their bounds, and what the promises of others leave (R48). Of two the one with
// the earlier deadline comes first. A job for whose deadline others are limited already keeps what it needs for it,
// until it has more than that without.
func (d *decider) hasten(r Resource, shares []share, free int64) {
	var late []*share
	for i := range shares {
		s := &shares[i]
		if s.hurries = d.hurries(s.Job, r); s.hurries > 0 {
			late = append(late, s)
		}
	}
	slices.SortStableFunc(late, func(a, b *share) int {
		return cmp.Or(a.Deadline.Compare(b.Deadline), cmp.Compare(a.Name, b.Name))
	})
	for _, s := range late {
		// What it does not use of its promise it has lent, and would have first.
		own := s.Minimum[r]
		room := s.claim + max(0, free)
		has := max(own, min(s.hurries, room))
		if p, _ := d.paceOf(s.Job); s.hurries > has && p.late() {
			d.Shortages = append(d.Shortages, Shortage{s.Name, r, fmt.Sprintf("%s would end after its deadline, and what others on %s were promised leaves it no more %s", s.Name, d.h.Name, r)})
		}
		if s.hurries = has; has == own {
			s.hurries = 0
			continue
		}
		s.Minimum[r] = has
		was := s.claim
		d.claim(s, r)
		free -= s.claim - was
	}
}

// hurries returns what a job is to have of a resource as its own because of its deadline; 0: what it was promised.
func (d *decider) hurries(j *Job, r Resource) int64 {
	p, known := d.paceOf(j)
	if !known {
		return 0
	}
	had := int64(0) // because of its deadline
	for _, l := range d.h.Limits {
		if l.For == j.Name && l.Resource == r {
			had = max(had, l.Hastens)
		}
	}
	const much, enough = 1.5, 1.25
	needs := p.needs(j, r)
	// Would it have less and less as it comes closer, its reserve would never be any time.
	has := min(j.Most[r], max(needs, min(had, int64(much*float64(needs)))))
	switch {
	case has <= j.Minimum[r]:
	case p.late() && (had > 0 || d.waits(j, r)), had > 0 && float64(j.Uses[r]) < enough*float64(has):
		return has
	}
	return 0
}

// String says of a job's end how it is beside its deadline.
func (p pace) String() string {
	if !p.late() {
		return "keeps its deadline by this"
	}
	const year = 365 * 24 * 3600
	switch after := min(p.left-p.until, year); {
	case after >= year:
		return "would end more than a year after its deadline"
	case after >= 48*3600:
		return fmt.Sprintf("would end %.0f days after its deadline", after/86400)
	case after >= 2*3600:
		return fmt.Sprintf("would end %.0f h after its deadline", after/3600)
	case after >= 120:
		return fmt.Sprintf("would end %.0f min after its deadline", after/60)
	default:
		return fmt.Sprintf("would end %.0f s after its deadline", math.Ceil(after))
	}
}

// Progress follows how far a job is, by its own words, and how fast: as it was seen, not by the job's clock. The zero
// Progress is of a job of which nothing is known.
type Progress struct {
	first, base, last note
	known             bool // last is
	at                time.Time
	uses              [resources]float64 // since the first note
}

// note is a change of a job's progress.
type note struct {
	done float64
	at   time.Time
	uses [resources]float64 // until then
}

const (
	// minSpan is how far two notes must be apart at least for a speed; one of an age of twice that is left for a
	// later one.
	minSpan = 10 * time.Second
	// speedLasts is how long a speed is known without another note, unless notes come more rarely.
	speedLasts = 10 * time.Minute
)

// See takes how far a job is, by its own words, and what it used since the last call. Done that is no part of the work
// from 0 to 1, or falls, makes the job unknown; what it says from then on counts.
func (p *Progress) See(done float64, uses Amounts, now time.Time) {
	if !(done >= 0 && done <= 1) || p.known && (done < p.last.done || !now.After(p.at)) {
		*p = Progress{}
		if !(done >= 0 && done <= 1) {
			return
		}
	}
	if p.known {
		for r := range uses {
			p.uses[r] += float64(uses[r]) * now.Sub(p.at).Seconds()
		}
	}
	p.at = now
	n := note{done, now, p.uses}
	switch {
	case !p.known:
		p.first, p.base, p.last, p.known = n, n, n, true
	case done > p.last.done:
		p.last = n
		if now.Sub(p.base.at) >= 2*minSpan {
			p.first, p.base = p.base, n
		}
	}
}

// Set sets in a job how far it is, how fast, and what it had meanwhile, where that is known.
func (p *Progress) Set(j *Job) {
	j.Done, j.Speed, j.Had = 0, 0, Amounts{}
	span := p.last.at.Sub(p.first.at)
	if !p.known || span < minSpan || p.at.Sub(p.last.at) > max(speedLasts, 3*span) {
		return
	}
	step := p.last.done - p.first.done
	j.Speed = step / span.Seconds()
	// It has gone on since, but no further than to where it would have said so, and is not done before it says so.
	j.Done = p.last.done + min(j.Speed*p.at.Sub(p.last.at).Seconds(), step, (1-p.last.done)/2)
	for r := range j.Had {
		j.Had[r] = int64((p.last.uses[r] - p.first.uses[r]) / span.Seconds())
	}
}
