package try

import (
	"math"
	"testing"
)

// The probabilities are those of tables: Student's t (NIST/SEMATECH e-Handbook, 1.3.6.7.2), and Fisher's
// lady who tastes tea.
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
		if got := above(c.t, c.freedom); math.Abs(got-c.want) > 0.001*max(c.want, 0.1) {
			t.Errorf("t = %g with %g degrees of freedom: %g, want %g", c.t, c.freedom, got, c.want)
		}
	}
	for _, c := range []struct {
		failed, ran, worseFailed, worseRan int64
		want                               float64
	}{{0, 4, 4, 4, 1.0 / 70}, {1, 4, 3, 4, 17.0 / 70}, {0, 3, 3, 3, 1.0 / 20}, {3, 3, 3, 3, 1}, {0, 0, 0, 0, 1}, {2, 5, 0, 5, 1}} {
		if got := fisher(c.failed, c.ran, c.worseFailed, c.worseRan); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: %g", c, got)
		}
	}
	for _, few := range [][]float64{nil, {1}, {1, 1}} {
		if p := pairedT(few); p != 1 {
			t.Errorf("%v prove something: %g", few, p)
		}
	}
	if p := pairedT([]float64{0.001, 0.001, 0.001}); p < 0.4 {
		t.Errorf("times that are equal by chance prove something: %g", p)
	}
}
