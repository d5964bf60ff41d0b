package calendar

import (
	"testing"
	"time"
)

func TestWeeks(t *testing.T) { // R24
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	kiritimati, err := time.LoadLocation("Pacific/Kiritimati") // UTC+14
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at   string
		zone *time.Location
		want string
	}{
		{"2026-11-22T22:59:59.999999999Z", berlin, "2026-W47"},
		{"2026-11-22T23:00:00Z", berlin, "2026-W48"},
		{"2026-03-29T21:59:59Z", berlin, "2026-W13"}, // summer time began that day
		{"2026-03-29T22:00:00Z", berlin, "2026-W14"},
		{"2026-10-25T22:59:59Z", berlin, "2026-W43"}, // and ended that day
		{"2026-10-25T23:00:00Z", berlin, "2026-W44"},
		{"2026-11-22T09:59:59Z", kiritimati, "2026-W47"},
		{"2026-11-22T10:00:00Z", kiritimati, "2026-W48"},
		{"2026-12-31T12:00:00Z", time.UTC, "2026-W53"},
		{"2027-01-03T23:59:59Z", time.UTC, "2026-W53"},
		{"2027-01-04T00:00:00Z", time.UTC, "2027-W01"},
		{"2024-12-30T00:00:00Z", time.UTC, "2025-W01"},
	} {
		at, err := time.Parse(time.RFC3339Nano, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := WeekOf(at, c.zone).String(); got != c.want {
			t.Errorf("%s in %v is in %s, want %s", c.at, c.zone, got, c.want)
		}
	}
}

func TestWeekArithmetic(t *testing.T) {
	for _, c := range []struct {
		from string
		n    int
		want string
	}{
		{"2026-W48", 0, "2026-W48"},
		{"2026-W53", 1, "2027-W01"},
		{"2027-W01", -1, "2026-W53"},
		{"2025-W52", 1, "2026-W01"},
		{"2020-W01", 53, "2021-W01"},
	} {
		from, err := ParseWeek(c.from)
		if err != nil {
			t.Fatal(err)
		}
		got := AddWeeks(from, c.n)
		if got.String() != c.want || WeeksBetween(from, got) != c.n {
			t.Errorf("%s + %d = %s (%d between), want %s", c.from, c.n, got, WeeksBetween(from, got), c.want)
		}
	}
}

func TestParseWeek(t *testing.T) {
	if w, err := ParseWeek("2026-W53"); err != nil || w != (Week{Year: 2026, Week: 53}) {
		t.Errorf("%v %v", w, err)
	}
	for _, bad := range []string{
		"", "2026", "2026-48", "2026-W", "2026-W0", "2026-W00", "2026-W54", "2025-W53", "2026-W4", "2026-W048",
		"2026-W48x", " 2026-W48", "2026-w48", "-026-W48", "0000-W01", "2026-W+8",
	} {
		if w, err := ParseWeek(bad); err == nil {
			t.Errorf("%q was read as %v", bad, w)
		}
	}
}
