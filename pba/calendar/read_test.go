package calendar

import (
	"fmt"
	"strings"
	"testing"
)

func show(weeks []Week) string {
	var texts []string
	for _, r := range Ranges(weeks) {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ",")
}

func TestReader(t *testing.T) {
	w48 := Week{2026, 48}
	at := Reader{This: w48, Last: AddWeeks(w48, 12)} // 2027-W07; 2026 has 53 weeks
	past, kept := at, at
	past.Past, kept.Kept = true, true
	for _, c := range []struct {
		reader Reader
		text   string
		want   string // or a part of the error
	}{
		{at, "2026-W48", "2026-W48"},
		{at, "2026-w49", "2026-W49"},
		{at, "2020-W53", "2020-W53"},
		{at, "W48", "2026-W48"},
		{at, "w49", "2026-W49"},
		{at, "48", "2026-W48"},
		{at, "53", "2026-W53"},
		{at, "2", "2027-W02"},
		{at, "07", "2027-W07"},
		{at, "now", "2026-W48"},
		{at, "this", "2026-W48"},
		{at, "next", "2026-W49"},
		{at, "+6", "2027-W01"},
		{at, "2026-11-25", "2026-W48"},
		{at, "2027-01-03", "2026-W53"},
		{at, "2026-W48..2026-W51", "2026-W48..2026-W51"},
		{at, "48-52", "2026-W48..2026-W52"},
		{at, "W52-W2", "2026-W52..2027-W02"},
		{at, "52-2", "2026-W52..2027-W02"},
		{at, "2026-W52..2", "2026-W52..2027-W02"},
		{at, "now..+3", "2026-W48..2026-W51"},
		{at, "2026-11-25..2026-12-07", "2026-W48..2026-W50"},
		{at, "50, 48,49-51", "2026-W48..2026-W51"},
		{at, "48,50", "2026-W48,2026-W50"},
		{past, "48", "2026-W48"},
		{past, "W49", "2025-W49"},
		{past, "last", "2026-W47"},
		{past, "now", "2026-W48"},
		{past, "next", `"next" is no week; write it like 2026-W48, W48, 48, 2026-11-25, now or last`},
		{past, "+1", `"+1" is no week`},
		{at, "last", `"last" is no week`},
		{past, "53", "the last two years have no such week"},
		{kept, "48-2", "2026-W48..2027-W02"},
		{kept, "now", `"now" is another week later`},
		{kept, "48..+2", `"+2" is another week later`},
		{kept, "soon", `"soon" is no week; write it like 2026-W48, W48, 48 or 2026-11-25`},
		{at, "8", `"8": there is no such week from 2026-W48 to 2027-W07; write its year, too: 2026-W08`},
		{at, "54", `"54" is no week`},
		{at, "0", `"0" is no week`},
		{at, "", `"" is no week; write it like 2026-W48, W48, 48, 2026-11-25, now, next or +1`},
		{at, "48,", `"" is no week`},
		{at, "2025-W53", "2025 has only 52"},
		{at, "2026-02-30", "is no week"},
		{at, "-1", `"-1" is no week`},
		{at, "2026-W48-2026-W51", "is no week"},
		{at, "2026-W50..2026-W48", "ends before it begins: from 2026-W50 to 2026-W48"},
		{at, "+3..now", "ends before it begins"},
		{at, "0001-W01..9999-W01", "more than 1000 weeks"},
		{at, strings.Repeat("2026-W01..2035-W01,", 3) + "48", "more than 1000 weeks"},
	} {
		weeks, err := c.reader.Weeks(c.text)
		if got := show(weeks); err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %s, %v; want %s", c.text, got, err, c.want)
		}
		if strings.ContainsAny(c.text, ",.") {
			continue
		}
		if w, err2 := c.reader.Week(c.text); !strings.Contains(c.text, "-") && fmt.Sprint(err) != fmt.Sprint(err2) || err2 == nil && w != weeks[0] {
			t.Errorf("%q: %v, %v; among several %v, %v", c.text, w, err2, weeks, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	for _, s := range []string{"2026-W48", "48-52", "52-2", "now..+3", "2026-11-25", "W1,W2", "0001-W01..0001-W53", "..", "9999-12-31..+999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := Reader{This: Week{2026, 48}, Last: Week{2027, 7}}
		weeks, err := r.Weeks(s)
		if err != nil {
			return
		}
		again, err := r.Weeks(show(weeks))
		if len(weeks) == 0 || len(weeks) > MaxWeeks || err != nil || show(again) != show(weeks) {
			t.Errorf("%q was read as %v, and that as %v: %v", s, weeks, again, err)
		}
	})
}
