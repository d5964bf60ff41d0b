package calendar

import (
	"testing"
	"time"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// TestPeriods: a week is its instants from one Monday's first to the next one's.
func TestPeriods(t *testing.T) { // R24
	for _, c := range []struct {
		week, zone, begin, end string
		hours                  int
	}{
		{"2026-W48", "UTC", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z", 168},
		{"2026-W13", "Europe/Berlin", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z", 167},      // summer time begins on its Sunday
		{"2026-W14", "Europe/Berlin", "2026-03-29T22:00:00Z", "2026-04-05T22:00:00Z", 168},      //
		{"2026-W43", "Europe/Berlin", "2026-10-18T22:00:00Z", "2026-10-25T23:00:00Z", 169},      // and ends on its Sunday
		{"2026-W10", "America/New_York", "2026-03-02T05:00:00Z", "2026-03-09T04:00:00Z", 167},   // west of UTC
		{"2026-W44", "America/New_York", "2026-10-26T04:00:00Z", "2026-11-02T05:00:00Z", 169},   //
		{"2026-W48", "Asia/Tokyo", "2026-11-22T15:00:00Z", "2026-11-29T15:00:00Z", 168},         // east of UTC
		{"2026-W48", "Pacific/Kiritimati", "2026-11-22T10:00:00Z", "2026-11-29T10:00:00Z", 168}, // UTC+14
		{"2026-W48", "Asia/Kathmandu", "2026-11-22T18:15:00Z", "2026-11-29T18:15:00Z", 168},     // UTC+5:45
		{"2026-W53", "Asia/Tokyo", "2026-12-27T15:00:00Z", "2027-01-03T15:00:00Z", 168},         // the year's 53rd, four days of it in 2026
		{"2027-W01", "Asia/Tokyo", "2027-01-03T15:00:00Z", "2027-01-10T15:00:00Z", 168},         //
		{"2025-W52", "UTC", "2025-12-22T00:00:00Z", "2025-12-29T00:00:00Z", 168},                // the last of a year without a 53rd
		{"2026-W01", "UTC", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z", 168},                //
		{"1995-W01", "Pacific/Kiritimati", "1995-01-01T10:00:00Z", "1995-01-08T10:00:00Z", 168}, // it left a day out on the Saturday before
		{"2011-W52", "Pacific/Apia", "2011-12-26T10:00:00Z", "2012-01-01T10:00:00Z", 144},       // and this week has six days
		{"1973-W40", "Asia/Amman", "1973-09-30T22:00:00Z", "1973-10-07T22:00:00Z", 168},         // at 24:00 on Sunday it was 23:00 once more
	} {
		w, err := ParseWeek(c.week)
		if err != nil {
			t.Fatal(err)
		}
		p := PeriodOf(w, zone(t, c.zone))
		if b, e := p.Begin.Format(time.RFC3339Nano), p.End.Format(time.RFC3339Nano); b != c.begin || e != c.end || p.End.Sub(p.Begin) != time.Duration(c.hours)*time.Hour {
			t.Errorf("%s in %s: %s to %s, %v; want %s to %s, %d h", c.week, c.zone, b, e, p.End.Sub(p.Begin), c.begin, c.end, c.hours)
		}
	}
}

// TestPeriodsAreHalfOpen: each instant is in one week, in zones of all kinds: some
// jump over a Monday's midnight (Sao Paulo in 1997), or have it twice (Jerusalem in 2001).
func TestPeriodsAreHalfOpen(t *testing.T) { // R24
	for _, name := range []string{
		"UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Pacific/Kiritimati", "Pacific/Apia", "Asia/Kathmandu",
		"Australia/Lord_Howe", "America/Sao_Paulo", "America/Asuncion", "Africa/Cairo", "Asia/Beirut", "Asia/Amman", "America/Havana", "Asia/Gaza", "Asia/Jerusalem", "Antarctica/Vostok",
	} {
		z := zone(t, name)
		w := Week{Year: 1990, Week: 1}
		last := PeriodOf(w, z)
		for range 52 * 45 {
			w = AddWeeks(w, 1)
			p := PeriodOf(w, z)
			if !p.Begin.Equal(last.End) {
				t.Fatalf("%s: %v ends %v and %v begins %v", name, last.Week, last.End, w, p.Begin)
			}
			if first, before := WeekOf(p.Begin, z), WeekOf(p.Begin.Add(-1), z); first != w || before != last.Week {
				t.Fatalf("%s: %v begins at %v, an instant of %v; the one before is of %v", name, w, p.Begin, first, before)
			}
			last = p
		}
	}
}
