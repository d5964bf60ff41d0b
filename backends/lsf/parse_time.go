package lsf

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

var months = map[string]time.Month{
	"Jan": 1, "Feb": 2, "Mar": 3, "Apr": 4, "May": 5, "Jun": 6, "Jul": 7, "Aug": 8, "Sep": 9, "Oct": 10, "Nov": 11, "Dec": 12,
}

var weekdays = map[string]time.Weekday{"Sun": 0, "Mon": 1, "Tue": 2, "Wed": 3, "Thu": 4, "Fri": 5, "Sat": 6}

// stamp is a time as LSF prints it: often without its year.
type stamp struct {
	year    int // 0: not said
	month   time.Month
	day     int
	clock   time.Duration
	weekday time.Weekday // -1: not said
}

// parseStamp reads the ways in which LSF's commands print a time, in UTC, which they
// do with TZ=UTC: "Fri Nov 20 22:54:18", "Nov 20 22:54", "11/20-22:54:20"; the first
// two also with a year behind them (LSF 10.1's LSB_DISPLAY_YEAR).
func parseStamp(s string) (stamp, error) {
	t := stamp{weekday: -1}
	fields := strings.Fields(s)
	clock := ""
	if date, hour, ok := strings.Cut(s, "-"); ok && len(fields) == 1 {
		month, day, _ := strings.Cut(date, "/")
		m, err := strconv.ParseUint(month, 10, 8)
		if err != nil || len(month) != 2 || len(day) != 2 {
			return stamp{}, noTime(s)
		}
		fields, t.month, clock = []string{"", day, hour}, time.Month(m), hour
	} else {
		if len(fields) > 0 {
			if d, ok := weekdays[fields[0]]; ok {
				t.weekday, fields = d, fields[1:]
			}
		}
		if len(fields) < 3 || len(fields) > 4 {
			return stamp{}, noTime(s)
		}
		t.month, clock = months[fields[0]], fields[2]
	}
	day, err := strconv.ParseUint(fields[1], 10, 8)
	if err != nil || day < 1 || day > 31 || t.month < 1 || t.month > 12 {
		return stamp{}, noTime(s)
	}
	t.day = int(day)
	if len(fields) == 4 {
		year, err := strconv.ParseUint(fields[3], 10, 14)
		if err != nil || len(fields[3]) != 4 {
			return stamp{}, noTime(s)
		}
		t.year = int(year)
	}
	if t.clock, err = parseClock(clock); err != nil {
		return stamp{}, noTime(s)
	}
	return t, nil
}

func noTime(s string) error { return fmt.Errorf("%q is no time as LSF prints it", s) }

// parseClock reads 22:54 and 22:54:18.
func parseClock(s string) (time.Duration, error) {
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return 0, errClock
	}
	total, most := time.Duration(0), [3]uint64{23, 59, 60}
	for i, unit := range []time.Duration{time.Hour, time.Minute, time.Second}[:len(parts)] {
		n, err := strconv.ParseUint(parts[i], 10, 8)
		if err != nil || len(parts[i]) != 2 || n > most[i] {
			return 0, errClock
		}
		total += time.Duration(n) * unit
	}
	return total, nil
}

// in returns the stamp in a year, and whether it can be of that year.
func (t stamp) in(year int) (time.Time, bool) {
	day := time.Date(year, t.month, t.day, 0, 0, 0, 0, time.UTC)
	ok := day.Day() == t.day && (t.weekday < 0 || day.Weekday() == t.weekday)
	return day.Add(t.clock), ok
}

// before returns the latest time that the stamp can be, up to a day after at: clocks
// differ. A stamp with a year is of that year.
func (t stamp) before(at time.Time) (time.Time, bool) {
	if t.year != 0 {
		return t.in(t.year)
	}
	for year := at.Year() + 1; year >= at.Year()-stampYears; year-- {
		if candidate, ok := t.in(year); ok && !candidate.After(at.AddDate(0, 0, 1)) {
			return candidate, true
		}
	}
	return time.Time{}, false
}

// near returns the time that is nearest to at: a begin time may be past or future.
func (t stamp) near(at time.Time) (best time.Time, found bool) {
	if t.year != 0 {
		return t.in(t.year)
	}
	for year := at.Year() - stampYears; year <= at.Year()+stampYears; year++ {
		candidate, ok := t.in(year)
		if ok && (!found || candidate.Sub(at).Abs() < best.Sub(at).Abs()) {
			best, found = candidate, true
		}
	}
	return best, found
}

// parsePast reads a past time; "" and "-" are zero.
func parsePast(s string, at time.Time) (time.Time, error) {
	return parseTime(s, func(t stamp) (time.Time, bool) { return t.before(at) })
}

// parseNear reads a time near at; "" and "-" are zero.
func parseNear(s string, at time.Time) (time.Time, error) {
	return parseTime(s, func(t stamp) (time.Time, bool) { return t.near(at) })
}

func parseTime(s string, year func(stamp) (time.Time, bool)) (time.Time, error) {
	if s = strings.TrimSpace(s); s == "" || s == "-" {
		return time.Time{}, nil
	}
	t, err := parseStamp(s)
	if err != nil {
		return time.Time{}, err
	}
	at, ok := year(t)
	if !ok {
		return time.Time{}, fmt.Errorf("%w: there is no such day", noTime(s))
	}
	return at, nil
}
