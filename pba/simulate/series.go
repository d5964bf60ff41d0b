package simulate

import (
	"time"
)

// series adds up slots over time, bucket by bucket. Methods of a nil series do nothing.
type series struct {
	window Window
	bucket time.Duration
	used   []float64 // slot-seconds
	held   [][]float64
	waits  [][]float64
	plan   [][]float64
	names  []string
	bins   []WaitBin
}

// waitBins are the upper ends of a wait's bins, in seconds.
func waitBins() []float64 {
	return []float64{0, 1, 5, 10, 20, 40, 60, 80, 100, 120, 180, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800}
}

func newSeries(w Window, buckets int, c *calendar) *series {
	length := w.To.Sub(w.From)
	s := &series{window: w, bucket: max(length/time.Duration(buckets), time.Second)}
	n := max(1, int((length+s.bucket-1)/s.bucket))
	s.used = make([]float64, n)
	for i := range len(c.projects) + 1 {
		s.held, s.waits, s.plan = append(s.held, make([]float64, n)), append(s.waits, make([]float64, n)), append(s.plan, make([]float64, n))
		name := ""
		if i < len(c.projects) {
			name = c.projects[i]
			s.addAllocation(i, c)
		}
		s.names = append(s.names, name)
	}
	for _, end := range waitBins() {
		s.bins = append(s.bins, WaitBin{Seconds: end})
	}
	s.bins = append(s.bins, WaitBin{Seconds: -1})
	return s
}

func (s *series) addAllocation(i int, c *calendar) {
	for at := s.window.From; at.Before(s.window.To); {
		_, until := c.inForce(at)
		if until.IsZero() || until.After(s.window.To) {
			until = s.window.To
		}
		s.add(s.plan[i], at, until, c.slots(c.projects[i], at))
		at = until
	}
}

// add adds slots over a time to the buckets that it touches.
func (s *series) add(to []float64, from, until time.Time, slots int) {
	if from.Before(s.window.From) {
		from = s.window.From
	}
	if until.After(s.window.To) {
		until = s.window.To
	}
	for from.Before(until) {
		i := int(from.Sub(s.window.From) / s.bucket)
		end := s.window.From.Add(time.Duration(i+1) * s.bucket)
		if end.After(until) {
			end = until
		}
		to[i] += end.Sub(from).Seconds() * float64(slots)
		from = end
	}
}

func (s *series) ran(j *metered, at time.Time) {
	if s != nil {
		s.add(s.used, j.since, at, j.slots)
		s.add(s.held[j.account], j.since, at, j.slots)
	}
}

func (s *series) waited(j *metered, at time.Time) {
	if s != nil {
		s.add(s.waits[j.account], j.since, at, j.slots)
	}
}

func (s *series) count(j *metered) {
	if s == nil {
		return
	}
	bin := func(d time.Duration) *WaitBin {
		for i := range s.bins[:len(s.bins)-1] {
			if d.Seconds() <= s.bins[i].Seconds {
				return &s.bins[i]
			}
		}
		return &s.bins[len(s.bins)-1]
	}
	if !j.within {
		bin(j.wait).Rest++
		return
	}
	bin(j.wait).Within++
	bin(j.clock).Clock++
}

// result turns slot-seconds into mean slots.
func (s *series) result(slots int) Series {
	r := Series{Start: s.window.From, Bucket: s.bucket.Seconds(), Waits: s.bins, Waiting: make([]float64, len(s.used))}
	mean := func(sums []float64, of float64) []float64 {
		all := make([]float64, len(sums))
		for i := range sums {
			begin := time.Duration(i) * s.bucket
			length := min(s.bucket, s.window.To.Sub(s.window.From)-begin).Seconds()
			if length > 0 {
				all[i] = sums[i] / length / of
			}
		}
		return all
	}
	r.Utilization = mean(s.used, float64(slots))
	for i, name := range s.names {
		p := Pool{Project: name, Held: mean(s.held[i], 1), Allocated: mean(s.plan[i], 1), Waiting: mean(s.waits[i], 1)}
		r.Pools = append(r.Pools, p)
		for k := range p.Waiting {
			r.Waiting[k] += p.Waiting[k]
		}
	}
	return r
}
