package page

import (
	"math"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/internal/chart"
)

func plural(n int, of string) string {
	if n != 1 {
		of += "s"
	}
	return chart.Count(n) + " " + of
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }

func slotHours(slotSeconds float64) string {
	if hours := slotSeconds / 3600; math.Abs(hours) < 100 {
		return chart.Trimmed(strconv.FormatFloat(hours, 'f', 1, 64))
	}
	return chart.Count(int(math.Round(slotSeconds / 3600)))
}

// seconds shows a time in seconds, to the tenth below 100.
func seconds(s float64) string {
	if math.Abs(s) < 100 {
		return chart.Trimmed(strconv.FormatFloat(s, 'f', 1, 64))
	}
	return chart.Count(int(math.Round(s)))
}

// human shows seconds in the unit that people would: 45 s, 1.5 min, 3.2 h, 14 d.
func human(s float64) string {
	units := []struct {
		name    string
		seconds float64
		from    float64
	}{{"d", 86400, 2 * 86400}, {"h", 3600, 2 * 3600}, {"min", 60, 120}}
	for _, u := range units {
		if s >= u.from {
			if n := s / u.seconds; n >= 100 {
				return chart.Count(int(math.Round(n))) + " " + u.name
			}
			return chart.Trimmed(strconv.FormatFloat(s/u.seconds, 'f', 1, 64)) + " " + u.name
		}
	}
	return seconds(s) + " s"
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }
