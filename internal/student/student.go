// Package student is Student's distribution, by which one knows how much the means of few values say.
package student

import "math"

// Above returns the probability that a value of Student's t with so many degrees of freedom is above t.
func Above(t, freedom float64) float64 {
	tail := beta(freedom/(freedom+t*t), freedom/2, 0.5) / 2
	if t < 0 {
		return 1 - tail
	}
	return tail
}

// beta is the regularized incomplete beta function, by its continued fraction (Abramowitz and Stegun,
// 26.5.8) from the end on which that converges.
func beta(x, a, b float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	case x > (a+1)/(a+b+2):
		return 1 - beta(1-x, b, a)
	}
	const steps = 300
	fraction := 1.0
	for m := float64(steps); m >= 1; m-- {
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		odd := -(a + m - 1) * (a + b + m - 1) * x / ((a + 2*m - 2) * (a + 2*m - 1))
		fraction = 1 + odd/(1+even/fraction)
	}
	whole, _ := math.Lgamma(a + b)
	one, _ := math.Lgamma(a)
	other, _ := math.Lgamma(b)
	return math.Exp(whole-one-other+a*math.Log(x)+b*math.Log1p(-x)) / (a * fraction)
}

// Quantile returns the value below which one of Student's t is with a probability, from a half to less than 1.
func Quantile(probability, freedom float64) float64 {
	low, high := 0.0, 1.0
	for Above(high, freedom) > 1-probability && high < 1e12 {
		high *= 2
	}
	for range 60 {
		if middle := (low + high) / 2; Above(middle, freedom) > 1-probability {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}
