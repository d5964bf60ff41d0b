package calendar

import "testing"

func FuzzParseWeek(f *testing.F) {
	for _, s := range []string{"2026-W48", "2026-W53", "2021-W53", "2026-W00", "26-W1", "2026-W48 ", "9999-W53"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if w, err := ParseWeek(s); err == nil && w.String() != s {
			t.Errorf("%q was read as %v", s, w)
		}
	})
}

func FuzzRange(f *testing.F) {
	for _, s := range []string{"2026-W48", "2026-W48..2026-W51", "2026-W48..2026-W48", "2026-W48..", "..2026-W48", "2026-W48..2026-W51..2026-W52", "2026-W00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var r Range
		if err := r.UnmarshalText([]byte(s)); err == nil && r.String() != s && r.First != r.Last {
			t.Errorf("%q was read as %v", s, r)
		}
	})
}
