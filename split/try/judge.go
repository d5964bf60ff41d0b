package try

import (
	"math"

	"github.com/allotment-hpc/allotment/internal/student"
)

// leastNoise is the least deviation of a difference of logarithms: times that are equal by chance prove
// nothing.
const leastNoise = 0.01

// look judges what was measured. The probability of an error is divided among the looks by what is new in
// each of them: so it holds for all of them together. most is the number of blocks
// that there may be.
func (t *Trial) look(most int, more bool) {
	share := 1 - t.Spent
	switch blocks := len(t.Sums); {
	case blocks < most:
		share *= float64(blocks-t.Judged) / float64(most-t.Judged)
	case more: // there may be another one
		share /= 2
	}
	t.Judged = len(t.Sums)
	t.Spent += share
	if blocks := len(t.Sums); blocks >= most && !more {
		t.Spent = 1
	}
	alive := t.Alive()
	t.Leader = t.best(alive)
	t.Sure = 1 - t.risk(share)
	for v := range t.Ratio {
		t.Ratio[v] = 0
		if d := t.differences(t.Leader, v); v == t.Leader {
			t.Ratio[v] = 1
		} else if len(d) > 0 {
			t.Ratio[v] = math.Exp(mean(d))
		}
	}
	for _, v := range alive {
		if v != t.Leader && t.doubt(t.Leader, v, share) <= Level {
			t.Out[v] = share
		}
	}
}

// risk is the probability, at most, that a variant is better than the leader: by tests against each of the
// others, each at the look after which it has no more items. A wrong leader has to win against
// the best one, and there are Variants - 1 that can; share is that of this look.
func (t *Trial) risk(share float64) float64 {
	risk := 0.0
	for v := range t.Variants {
		if v == t.Leader {
			continue
		}
		at := share
		if t.Out[v] > 0 {
			at = t.Out[v]
		}
		risk = max(risk, t.doubt(t.Leader, v, at))
	}
	return min(risk, 1-1/float64(t.Variants)) // by chance alone
}

// doubt is the probability of an error, at most, of one who says that a variant is better than another one
// after any look and of any variant.
func (t *Trial) doubt(better, worse int, share float64) float64 {
	return min(float64(t.Variants-1)*t.chance(better, worse)/share, 1)
}

// chance is the probability that a variant looks as good against another one by chance as it does. By two
// tests, where items failed, it is twice the lower one.
func (t *Trial) chance(better, worse int) float64 {
	slower := pairedT(t.differences(better, worse))
	if t.Failed[better] == 0 && t.Failed[worse] == 0 {
		return slower
	}
	return min(2*min(slower, fisher(t.Failed[better], t.Ran[better], t.Failed[worse], t.Ran[worse])), 1)
}

// differences returns by how much a variant took longer than another one in each block that has both: the
// difference of the means of logarithms.
func (t *Trial) differences(of, longer int) (all []float64) {
	for _, sums := range t.Sums {
		if a, b := sums[of], sums[longer]; a.N > 0 && b.N > 0 {
			all = append(all, b.Log/float64(b.N)-a.Log/float64(a.N))
		}
	}
	return all
}

// best returns the variant that takes least, on average against each of the others; the first one of equals.
// That of which a part fails counts as if that part were done again.
func (t *Trial) best(among []int) int {
	best, least := among[0], math.Inf(1)
	for _, v := range among {
		score := t.failing(v)
		for _, o := range among {
			if d := t.differences(o, v); len(d) > 0 {
				score += mean(d) / float64(len(among))
			}
		}
		if score < least {
			best, least = v, score
		}
	}
	return best
}

// failing is the logarithm of the number of items that one must execute until one has not failed.
func (t *Trial) failing(v int) float64 {
	return math.Log(float64(t.Ran[v]+1) / float64(t.Ran[v]-t.Failed[v]+1))
}

func mean(all []float64) float64 {
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	return sum / float64(len(all))
}

// pairedT returns the probability that the mean of values which are not positive on average is as high as it
// is: by Student's t. Few values prove nothing.
func pairedT(values []float64) float64 {
	n := float64(len(values))
	if n < leastBlocks {
		return 1
	}
	m, squares := mean(values), 0.0
	for _, v := range values {
		squares += (v - m) * (v - m)
	}
	deviation := max(math.Sqrt(squares/(n-1)), leastNoise)
	return student.Above(m/(deviation/math.Sqrt(n)), n-1)
}

// fisher returns the probability that so many or more of the failures are among the items of the worse
// variant, if both fail alike: by Fisher's exact test.
func fisher(failed, ran, worseFailed, worseRan int64) float64 {
	all, failures := ran+worseRan, failed+worseFailed
	if all == 0 {
		return 1
	}
	choose := func(n, k int64) float64 {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))
		return a - b - c
	}
	p := 0.0
	for k := worseFailed; k <= min(failures, worseRan); k++ {
		if failures-k <= ran {
			p += math.Exp(choose(worseRan, k) + choose(ran, failures-k) - choose(all, failures))
		}
	}
	return min(p, 1)
}
