package desk

import (
	"errors"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/pba/calendar"
)

// TestWhen: a bare number counts weeks, all else names them.
func TestWhen(t *testing.T) {
	w48 := calendar.Week{Year: 2026, Week: 48}
	r := calendar.Reader{This: w48, Last: calendar.AddWeeks(w48, 12)}
	for _, c := range []struct {
		when When
		want string // or a part of the error
	}{
		{When{}, "2026-W48..2026-W49"},
		{When{"next", ""}, "2026-W49..2026-W50"},
		{When{"50", "4"}, "2026-W50..2026-W53"},
		{When{"", "4"}, "2026-W48..2026-W51"},
		{When{"", "W4"}, "2027-W04"},
		{When{"", "50-2"}, "2026-W50..2027-W02"},
		{When{"", "49,51"}, "2026-W49,2026-W51"},
		{When{"48", "49-51"}, "--weeks 49-51 names the weeks: omit --week"},
		{When{"48-50", ""}, `--week: "48-50" is no week`},
		{When{"", "0"}, "--weeks 0: want one week or more"},
		{When{"", "99999999999999999999"}, "--weeks 99999999999999999999: want one week or more, at most 1000"},
		{When{"", "soon"}, `--weeks: "soon" is no week`},
	} {
		weeks, err := c.when.weeks(r, 2)
		var texts []string
		for _, r := range calendar.Ranges(weeks) {
			texts = append(texts, r.String())
		}
		got := strings.Join(texts, ",")
		if err == nil && got != c.want || err != nil && (!strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrInvalid)) {
			t.Errorf("%+v: %s, %v; want %s", c.when, got, err, c.want)
		}
	}
}
