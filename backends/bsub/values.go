package bsub

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/unit"
)

// Limits on what a command line may ask for: far beyond any use, low enough that
// no sum of them overflows.
const (
	maxSlots   = 1_000_000
	maxMinutes = 10 * 366 * 24 * 60
)

// parseNumber reads a decimal number from least to most.
func parseNumber(s string, least, most int) (int, error) {
	n, err := strconv.Atoi(s)
	switch {
	case errors.Is(err, strconv.ErrRange) && !strings.HasPrefix(s, "-"), err == nil && n > most:
		return 0, fmt.Errorf("%s is too large; at most %d", Visible(s), most)
	case err != nil || strings.HasPrefix(s, "+"):
		return 0, fmt.Errorf("%q is no number", s)
	case n < least:
		return 0, fmt.Errorf("%s is too small; at least %d", Visible(s), least)
	}
	return n, nil
}

// ParseSize reads a memory size in bytes. K, M, G, T, P, E (also with a B after
// them, in either case) are powers of 1024; a plain number is MB. Fractions
// (1.5G) are allowed.
func ParseSize(s string) (int64, error) {
	text := strings.ToUpper(s)
	if n := len(text); n > 1 && strings.IndexByte("KMGTPE", text[n-2]) >= 0 {
		text = strings.TrimSuffix(text, "B")
	}
	switch bytes, ok := unit.ParseBytes(text, 1<<20); {
	case !ok || strings.Contains(s, " "):
		return 0, fmt.Errorf("size %q: want a number with a unit, such as 512M or 16G", s)
	case bytes < 1:
		return 0, fmt.Errorf("size %q: must be more than 0", s)
	case bytes >= 1<<60:
		return 0, fmt.Errorf("size %q: too large", s)
	default:
		return int64(bytes), nil
	}
}

// parseMinutes reads LSF's [hour:]minute, more than zero.
func parseMinutes(s string) (time.Duration, error) {
	hours, minutes, both := strings.Cut(s, ":")
	if !both {
		hours, minutes = "0", s
	}
	h, err := parseNumber(hours, 0, maxMinutes/60)
	if err != nil {
		return 0, err
	}
	m, err := parseNumber(minutes, 0, maxMinutes)
	if err != nil {
		return 0, err
	}
	if h+m == 0 {
		return 0, errors.New("must be more than 0")
	}
	return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute, nil
}

// FormatMinutes is a run limit as LSF and Slurm count it, in whole minutes, rounded up.
func FormatMinutes(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Minute-1)/time.Minute), 10)
}

// ParseBegin reads LSF's [[[year:]month:]day:]hour:minute in now's zone. Without
// a year it is the next such time, this very minute included; a year may lie in
// the past. A day that a month lacks is looked for in the next ones.
func ParseBegin(s string, now time.Time) (time.Time, error) {
	wrong := func(why string) (time.Time, error) {
		return time.Time{}, fmt.Errorf("time %q: %s; want [[[year:]month:]day:]hour:minute", s, why)
	}
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 5 {
		return wrong("want two to five numbers")
	}
	fields := [5]int{now.Year(), int(now.Month()), now.Day()}
	least := [5]int{1970, 1, 1, 0, 0}
	most := [5]int{9999, 12, 31, 23, 59}
	names := [5]string{"year", "month", "day", "hour", "minute"}
	for i, part := range parts {
		f := i + 5 - len(parts)
		n, err := parseNumber(part, least[f], most[f])
		if err != nil {
			return wrong(names[f] + " " + err.Error())
		}
		fields[f] = n
	}
	given := func(months, days int) (time.Time, bool) {
		month := time.Month(fields[1] + months)
		day := fields[2] + days
		t := time.Date(fields[0], month, day, fields[3], fields[4], 0, 0, now.Location())
		first := time.Date(fields[0], month, 1, 12, 0, 0, 0, now.Location())
		return t, days != 0 || (t.Month() == first.Month() && t.Day() == day)
	}
	if len(parts) == 5 {
		t, exists := given(0, 0)
		if !exists {
			return wrong("there is no such day")
		}
		return t, nil
	}
	// The step to the next candidate, and how many can't be ones at all: a
	// 31st comes again within two months, a 29th of February within eight years.
	months, days, tries := 0, 1, 2
	switch len(parts) {
	case 3:
		months, days, tries = 1, 0, 4
	case 4:
		months, days, tries = 12, 0, 10
	}
	earliest := now.Truncate(time.Minute)
	for i := range tries {
		if t, exists := given(i*months, i*days); exists && !t.Before(earliest) {
			return t, nil
		}
	}
	return wrong("there is no such day")
}
