package try

import (
	"math"
	"testing"
)

// The probabilities are those of Fisher's lady who tastes tea.
func TestProbabilities(t *testing.T) {
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
