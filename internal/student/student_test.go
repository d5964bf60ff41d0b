package student

import (
	"math"
	"testing"
)

// The probabilities are those of tables (NIST/SEMATECH e-Handbook, 1.3.6.7.2).
func TestProbabilities(t *testing.T) {
	for _, c := range []struct{ t, freedom, want float64 }{
		{6.314, 1, 0.05},
		{31.821, 1, 0.01},
		{2.920, 2, 0.05},
		{4.303, 2, 0.025},
		{1.812, 10, 0.05},
		{2.764, 10, 0.01},
		{1.711, 24, 0.05},
		{3.467, 24, 0.001},
		{1.660, 100, 0.05},
		{0, 5, 0.5},
		{-1.812, 10, 0.95},
	} {
		if got := Above(c.t, c.freedom); math.Abs(got-c.want) > 0.001*max(c.want, 0.1) {
			t.Errorf("t = %g with %g degrees of freedom: %g, want %g", c.t, c.freedom, got, c.want)
		}
		if c.t < 0 {
			continue
		}
		if got := Quantile(1-c.want, c.freedom); math.Abs(got-c.t) > 0.001*max(c.t, 1) {
			t.Errorf("the quantile of %g with %g degrees of freedom: %g, want %g", 1-c.want, c.freedom, got, c.t)
		}
	}
}
