package chart

import (
	"testing"
	"time"
)

// Whatever the window's length, an axis has at least one label and not too many.
func TestTimeTicks(t *testing.T) {
	from := float64(time.Date(2026, 11, 21, 4, 5, 6, 0, time.UTC).Unix())
	for _, length := range []time.Duration{5 * time.Second, time.Minute, time.Hour, 26 * time.Hour, 5 * 24 * time.Hour, 46 * 24 * time.Hour, 400 * 24 * time.Hour, 20 * 365 * 24 * time.Hour} {
		ticks := timeTicks(from, from+length.Seconds(), 10, time.UTC)
		if len(ticks) < 1 || len(ticks) > 21 {
			t.Errorf("%v: %d ticks", length, len(ticks))
		}
		for _, tick := range ticks {
			if tick.Value < from || tick.Value > from+length.Seconds() || tick.Label == "" {
				t.Errorf("%v: a tick at %v, %q", length, tick.Value-from, tick.Label)
			}
		}
	}
	if got := timeTicks(from, from+3*86400, 4, time.UTC)[0].Label; got != "22 Nov" {
		t.Errorf("the first midnight is called %q", got)
	}
	east := time.FixedZone("east", 5*3600+1800)
	if got := timeTicks(from, from+3*86400, 4, east)[0]; got.Label != "22 Nov" || time.Unix(int64(got.Value), 0).In(east).Format("15:04") != "00:00" {
		t.Errorf("the first midnight in another zone: %+v", got)
	}
}

// Axes have some labels, and few enough not to overlap.
func TestTickCount(t *testing.T) {
	for _, high := range []float64{1, 1.05, 7, 33.6, 113, 999, 4032, 123456} {
		if n := len(EvenTicks(0, high)); n < 2 || n > 6 {
			t.Errorf("up to %v: %d ticks", high, n)
		}
		for _, low := range []float64{0, high * 0.9} {
			if n := len(EvenTicks(low, high)); n < 1 || n > 6 {
				t.Errorf("%v to %v: %d ticks", low, high, n)
			}
		}
	}
}
