package calendar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxWeeks is the largest number of weeks that are read at once.
const MaxWeeks = 1000

// Reader reads weeks as people type them, for every command and file.
type Reader struct {
	This Week // the present one
	Last Week // of those that a week without a year may mean

	// Past has a week without a year mean the latest one up to This, and reads last, the
	// week before This, instead of next and +1.
	Past bool
	// Kept refuses now, next and +1: what is read is kept, and shall mean the same
	// weeks later.
	Kept bool
}

// WeekForms are the ways to write a week, for errors and help; PastForms a past one.
const (
	WeekForms = "2026-W48, W48, 48, 2026-11-25, now, next or +1"
	PastForms = "2026-W48, W48, 48, 2026-11-25, now or last"
	keptForms = "2026-W48, W48, 48 or 2026-11-25"
)

// Week reads one week: 2026-W48; W48 or 48, the next one of that number; a date, for its
// week; now or this, next, or +1, a number of weeks ahead; last, if it reads past weeks.
func (r Reader) Week(text string) (Week, error) {
	relative := true
	ahead := 0
	switch digits, plus := strings.CutPrefix(text, "+"); {
	case text == "now" || text == "this":
	case text == "last" && r.Past:
		ahead = -1
	case text == "next" && !r.Past:
		ahead = 1
	case plus && !r.Past:
		ahead, relative = number(digits, 3)
	default:
		relative = false
	}
	switch {
	case relative && r.Kept:
		return Week{}, fmt.Errorf("%q is another week later; write it like 2026-W48", text)
	case relative:
		return AddWeeks(r.This, ahead), nil
	}
	if n, ok := weekNumber(text); ok {
		return r.numbered(text, n)
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil && day.Year() > 0 {
		return WeekOf(day, time.UTC), nil
	}
	w, err := ParseWeek(strings.ToUpper(text))
	if year, week, _ := strings.Cut(text, "-"); err != nil && !(len(year) == 4 && len(week) == 3) {
		return w, fmt.Errorf("%q is no week; write it like %s", text, r.forms())
	}
	return w, err
}

// weekNumber reads W48 and 48.
func weekNumber(text string) (n int, ok bool) {
	if text != "" && (text[0] == 'W' || text[0] == 'w') {
		text = text[1:]
	}
	return number(text, 2)
}

// number reads a number of some digits at most.
func number(text string, most int) (n int, ok bool) {
	if text == "" || len(text) > most || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

func (r Reader) forms() string {
	switch {
	case r.Kept:
		return keptForms
	case r.Past:
		return PastForms
	}
	return WeekForms
}

// numbered finds the week of a number that is meant: the first from This up to Last, or
// for Past the last one up to This.
func (r Reader) numbered(text string, number int) (Week, error) {
	if number < 1 || number > 53 {
		return Week{}, fmt.Errorf("%q is no week; write it like %s", text, r.forms())
	}
	if r.Past {
		for _, year := range []int{r.This.Year, r.This.Year - 1} {
			if w := (Week{Year: year, Week: number}); w.exists() && w.Compare(r.This) <= 0 {
				return w, nil
			}
		}
	} else {
		for _, year := range []int{r.This.Year, r.This.Year + 1} {
			if w := (Week{Year: year, Week: number}); w.exists() && w.Compare(r.This) >= 0 && w.Compare(r.Last) <= 0 {
				return w, nil
			}
		}
	}
	if r.Past {
		return Week{}, fmt.Errorf("%q: the last two years have no such week", text)
	}
	return Week{}, fmt.Errorf("%q: there is no such week from %s to %s; write its year, too: %04d-W%02d", text, r.This, r.Last, r.This.Year, number)
}

// exists reports whether the year has a week of that number.
func (w Week) exists() bool {
	return w.Year > 0 && WeekOf(monday(w), time.UTC) == w
}

// Weeks reads one or several weeks: ranges with both ends in them, such as
// 2026-W48..2026-W51, 48-52 or now..+3, and single weeks, separated by commas. It returns
// them in order, each once, at most MaxWeeks.
func (r Reader) Weeks(text string) ([]Week, error) {
	var all []Week
	for part := range strings.SplitSeq(text, ",") {
		first, last, err := r.ends(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		n := WeeksBetween(first, last) + 1
		switch {
		case n < 1:
			return nil, fmt.Errorf("%q ends before it begins: from %s to %s", part, first, last)
		case len(all)+n > MaxWeeks:
			return nil, fmt.Errorf("%.40q: more than %d weeks", text, MaxWeeks)
		}
		all = append(all, From(first, n)...)
	}
	slices.SortFunc(all, Week.Compare)
	return slices.Compact(all), nil
}

// ends reads a range's first and last week; the same for a single week. A last one
// without a year is the next of that number after the first.
func (r Reader) ends(text string) (first, last Week, err error) {
	begin, end, several := strings.Cut(text, "..")
	if a, b, dash := strings.Cut(text, "-"); dash {
		_, from := weekNumber(a)
		if _, to := weekNumber(b); from && to {
			begin, end, several = a, b, true
		}
	}
	if first, err = r.Week(begin); err != nil || !several {
		return first, first, err
	}
	if _, ok := weekNumber(end); ok {
		r = Reader{This: first, Last: AddWeeks(first, 53), Kept: r.Kept}
	}
	if last, err = r.Week(end); err == nil && last.Year > 9999 {
		err = fmt.Errorf("%q: %s is no week", text, last)
	}
	return first, last, err
}

// From returns n weeks from one on.
func From(first Week, n int) []Week {
	all := make([]Week, n)
	for i := range all {
		all[i] = AddWeeks(first, i)
	}
	return all
}

// Range is weeks in a row, both ends included.
type Range struct{ First, Last Week }

// String is the range as Weeks reads it: 2026-W48..2026-W51, or a single week.
func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + ".." + r.Last.String()
}

// MarshalText writes the range as String does.
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (r *Range) UnmarshalText(text []byte) error {
	first, last, several := strings.Cut(string(text), "..")
	err := r.First.UnmarshalText([]byte(first))
	if r.Last = r.First; err == nil && several {
		err = r.Last.UnmarshalText([]byte(last))
	}
	return err
}

// Append adds a week after the others to ranges: to the last one if it follows that.
func Append(ranges []Range, w Week) []Range {
	if n := len(ranges); n > 0 && AddWeeks(ranges[n-1].Last, 1) == w {
		ranges[n-1].Last = w
		return ranges
	}
	return append(ranges, Range{First: w, Last: w})
}

// Ranges returns weeks, which are in order, as ranges.
func Ranges(weeks []Week) []Range {
	var all []Range
	for _, w := range weeks {
		all = Append(all, w)
	}
	return all
}
