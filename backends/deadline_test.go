package backends

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseDeadline(t *testing.T) { // R48
	zone := time.FixedZone("", 3600)
	now := time.Date(2026, 11, 29, 12, 0, 0, 5e8, zone)
	for text, want := range map[string]string{
		"12:01":                     "2026-11-29T11:01:00Z",
		"12:00":                     "2026-11-30T11:00:00Z", // half a second ago
		"7:05":                      "2026-11-30T06:05:00Z",
		"2026-12-01T07:00":          "2026-12-01T06:00:00Z",
		"2026-12-01T07:00:59":       "2026-12-01T06:00:59Z",
		"2026-12-01T07:00:00Z":      "2026-12-01T07:00:00Z",
		"2026-12-01T07:00Z":         "2026-12-01T07:00:00Z",
		"2026-12-01T07:00:00-05:30": "2026-12-01T12:30:00Z",
		"+3h":                       "2026-11-29T14:00:00Z",
		"+90m":                      "2026-11-29T12:30:00Z",
		"+366d":                     "2027-11-30T11:00:00Z",
	} {
		at, err := ParseDeadline(text, now)
		if got := DeadlineText(at); err != nil || got != want {
			t.Errorf("%q is %s, %v; want %s", text, got, err, want)
		}
	}
	if at, err := ParseDeadline("", now); err != nil || !at.IsZero() {
		t.Errorf("no deadline is %v, %v", at, err)
	}
	for text, want := range map[string]error{
		"2026-11-29T12:00":       errDeadlineOver,
		"2025-12-01T07:00:00Z":   errDeadlineOver,
		"0000-01-01T00:00":       errDeadlineOver,
		"+0h":                    errDeadlineOver,
		"9999-12-31T23:59":       errDeadlineFar,
		"+367d":                  errDeadlineFar,
		"+99999d":                errDeadlineFar,
		"+100000h":               errDeadline,
		"24:00":                  errDeadline,
		"07:60":                  errDeadline,
		"7":                      errDeadline,
		"+3":                     errDeadline,
		"+1.5h":                  errDeadline,
		"3h":                     errDeadline,
		"-3h":                    errDeadline,
		"2027-02-29T00:00":       errDeadline,
		"2027-13-01T00:00":       errDeadline,
		"2027-00-01T00:00":       errDeadline,
		"2027-01-01T00:00:60":    errDeadline,
		"2027-01-01T00:00+24:0":  errDeadline,
		"2027-01-01T00:00+24:00": errDeadline,
		"2027-01-01 00:00":       errDeadline,
		"07:00\n":                errDeadline,
		" 07:00":                 errDeadline,
	} {
		if at, err := ParseDeadline(text, now); !errors.Is(err, want) || !at.IsZero() {
			t.Errorf("%q is %v, %v; want %v", text, at, err, want)
		}
	}
}

// What is read is after now, at most a year ahead, and written so that it is read again in any zone; an error is
// one short printable line.
func FuzzDeadline(f *testing.F) {
	for _, text := range []string{"", "07:00", "2026-12-01T07:00", "2026-12-01T07:00:00Z", "2026-12-01T07:00+01:00", "+3h", "+90m", "7:00:00"} {
		f.Add(text, int64(1796000000), 3600)
	}
	f.Fuzz(func(t *testing.T, text string, seconds int64, offset int) {
		const most = 1 << 40
		now := time.Unix(seconds%most, 0).In(time.FixedZone("", offset%86400))
		at, err := ParseDeadline(text, now)
		switch {
		case err != nil:
			if !at.IsZero() || len(err.Error()) > 200 || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q: %v, and the error is not one short printable line: %q", text, at, err)
			}
			return
		case text == "":
			return
		}
		if left := at.Sub(now); left <= 0 || left > maxDeadline || at.Nanosecond() != 0 {
			t.Errorf("%q at %v is %v", text, now, at)
		}
		if year := at.UTC().Year(); year < 0 || year > 9999 { // its text is no date
			return
		}
		if again, err := ParseDeadline(DeadlineText(at), now); err != nil || !again.Equal(at) {
			t.Errorf("%q at %v is %v, which is written as %q, which is %v, %v", text, now, at, DeadlineText(at), again, err)
		}
	})
}
