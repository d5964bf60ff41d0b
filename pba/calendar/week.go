// Package calendar counts in weeks, as plans do (R24).
package calendar

import (
	"cmp"
	"fmt"
	"time"
)

// Week is an ISO week.
type Week struct{ Year, Week int }

// String is the week as people write it: 2026-W48.
func (w Week) String() string { return fmt.Sprintf("%04d-W%02d", w.Year, w.Week) }

// MarshalText writes the week as String does.
func (w Week) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (w *Week) UnmarshalText(text []byte) (err error) {
	*w, err = ParseWeek(string(text))
	return err
}

// Compare orders weeks.
func (w Week) Compare(other Week) int {
	return cmp.Or(cmp.Compare(w.Year, other.Year), cmp.Compare(w.Week, other.Week))
}

// Period is a week in time: all instants from Begin up to, and without, End.
type Period struct {
	Week
	Begin, End time.Time
}

// WeekOf is the ISO week that an instant lies in, in the zone that weeks are
// counted in (R24): a week is all instants from its Monday's first up to, and
// without, the next Monday's.
func WeekOf(t time.Time, zone *time.Location) Week {
	year, week := t.In(zone).ISOWeek()
	return Week{Year: year, Week: week}
}

// monday is noon on a week's Monday, in a calendar without zones. 4 January is
// always in week 1.
func monday(w Week) time.Time {
	fourth := time.Date(w.Year, time.January, 4, 12, 0, 0, 0, time.UTC)
	back := (int(fourth.Weekday()) + 6) % 7
	return fourth.AddDate(0, 0, 7*(w.Week-1)-back)
}

// PeriodOf is a week in the zone that weeks are counted in, as instants in UTC:
// half-open, an hour shorter or longer where the clock is changed in it.
func PeriodOf(w Week, zone *time.Location) Period {
	return Period{Week: w, Begin: begin(w, zone), End: begin(AddWeeks(w, 1), zone)}
}

// begin is a week's first instant: midnight; where the clock jumps over midnight,
// that jump; where it shows midnight twice, the first time.
func begin(w Week, zone *time.Location) time.Time {
	day := monday(w)
	t := time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, zone)
	since, until := t.ZoneBounds()
	if t.Day() != day.Day() {
		return until.UTC()
	}
	if !since.IsZero() {
		_, was := since.Add(-1).Zone()
		_, is := t.Zone()
		if first := t.Add(time.Duration(is-was) * time.Second); first.Before(since) && was > is {
			t = first
		}
	}
	return t.UTC()
}

// AddWeeks is the week n weeks after w; n may be negative.
func AddWeeks(w Week, n int) Week {
	return WeekOf(monday(w).AddDate(0, 0, 7*n), time.UTC)
}

// WeeksBetween returns the number of weeks from one week to another.
func WeeksBetween(from, to Week) int {
	return int(monday(to).Sub(monday(from)).Hours()) / (7 * 24)
}

// ParseWeek reads a week as it is written: 2026-W48. Week 53 of a year that has
// only 52 is an error of its own.
func ParseWeek(s string) (Week, error) {
	var w Week
	var rest string
	if n, _ := fmt.Sscanf(s, "%4d-W%2d%s", &w.Year, &w.Week, &rest); n != 2 || w.String() != s || w.Week < 1 || w.Week > 53 || w.Year < 1 {
		return w, fmt.Errorf("%q is no week; write it like 2026-W48", s)
	}
	if WeekOf(monday(w), time.UTC) != w {
		return w, fmt.Errorf("%q is no week: %d has only 52", s, w.Year)
	}
	return w, nil
}
