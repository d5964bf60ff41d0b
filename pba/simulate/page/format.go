package page

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// none stands for a figure that there is none of.
const none = "–"

// count groups a number's digits: 12 345, by narrow spaces that don't break.
func count(n int) string {
	digits := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, digits = "−", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return sign + digits
}

func plural(n int, of string) string {
	if n != 1 {
		of += "s"
	}
	return count(n) + " " + of
}

// number shows what is large without, and what is small with two decimals.
func number(x float64) string {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return none
	case math.Abs(x) >= 1000:
		return count(int(math.Round(x)))
	default:
		return trimmed(strconv.FormatFloat(x, 'f', 2, 64))
	}
}

func trimmed(decimal string) string {
	return strings.TrimSuffix(strings.TrimRight(decimal, "0"), ".")
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }

func slotHours(slotSeconds float64) string {
	if hours := slotSeconds / 3600; math.Abs(hours) < 100 {
		return trimmed(strconv.FormatFloat(hours, 'f', 1, 64))
	}
	return count(int(math.Round(slotSeconds / 3600)))
}

// seconds shows a time in seconds, to the tenth below 100.
func seconds(s float64) string {
	if math.Abs(s) < 100 {
		return trimmed(strconv.FormatFloat(s, 'f', 1, 64))
	}
	return count(int(math.Round(s)))
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
				return count(int(math.Round(n))) + " " + u.name
			}
			return trimmed(strconv.FormatFloat(s/u.seconds, 'f', 1, 64)) + " " + u.name
		}
	}
	return seconds(s) + " s"
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }
