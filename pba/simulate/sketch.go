package simulate

import "math/bits"

// sketch counts values of 0 and more, in thousandths, so that quantiles are
// exact to one part in a thousand, in memory that does not grow with them.
type sketch struct {
	counts []int
	n      int
	sum    float64
	max    float64
}

// Values below exact are counted one by one, greater ones by their highest bits.
const (
	sketchBits = 11
	exact      = 1 << sketchBits
)

func (s *sketch) add(value float64) {
	value = max(value, 0)
	at := bucketOf(uint64(value*1000 + 0.5))
	for at >= len(s.counts) {
		s.counts = append(s.counts, make([]int, exact)...)
	}
	s.counts[at]++
	s.n++
	s.sum += value
	s.max = max(s.max, value)
}

// bucketOf returns the bucket that counts a value; each doubling has exact/2 buckets.
func bucketOf(v uint64) int {
	over := bits.Len64(v) - sketchBits
	if over <= 0 {
		return int(v)
	}
	return over*exact/2 + int(v>>over)
}

// valueAt returns the middle of the values that a bucket counts.
func valueAt(at int) float64 {
	if at < exact {
		return float64(at) / 1000
	}
	over := at/(exact/2) - 1
	low := uint64(at-over*exact/2) << over
	return (float64(low) + float64(uint64(1)<<over-1)/2) / 1000
}

// quantile returns the smallest value that a share of all do not exceed.
func (s *sketch) quantile(share float64) float64 {
	if s.n == 0 {
		return 0
	}
	need := max(1, int(share*float64(s.n)+0.999999))
	for at, n := range s.counts {
		if need -= n; need <= 0 {
			return min(valueAt(at), s.max)
		}
	}
	return s.max
}

func (s *sketch) spread() Spread {
	if s.n == 0 {
		return Spread{}
	}
	return Spread{Mean: s.sum / float64(s.n), Median: s.quantile(0.5), P95: s.quantile(0.95), Max: s.max}
}
