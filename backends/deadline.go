package backends

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// DeadlineVariable says in the environment of a submission by when the job should have ended (see
// ParseDeadline).
const DeadlineVariable = "ALLOTMENT_DEADLINE"

// maxDeadline is how far ahead a deadline may be.
const maxDeadline = 366 * 24 * time.Hour

const deadlineExamples = ": say 07:00, 2026-12-01T07:00, 2026-12-01T07:00:00Z or +3h"

// What is wrong with a deadline.
var (
	errDeadline     = errors.New("it is no time" + deadlineExamples)
	errDeadlineOver = errors.New("it is in the past" + deadlineExamples)
	errDeadlineFar  = errors.New("it is more than a year ahead" + deadlineExamples)
)

// ParseDeadline reads what ALLOTMENT_DEADLINE or asub --deadline says:
//
//	07:00                   the next such time
//	2026-12-01T07:00        perhaps with seconds
//	2026-12-01T07:00:00Z    or with an offset: +01:00
//	+3h                     after now; +90m, +2d
//
// Times without Z or an offset are in now's zone. The empty text is the zero time. A deadline is after now,
// and at most a year ahead. esub/job_submit.lua has the same grammar. An error says what is wrong, and does
// not repeat the text.
func ParseDeadline(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, ok := readDeadline(text, now)
	switch {
	case !ok:
		return time.Time{}, errDeadline
	case !at.After(now):
		return time.Time{}, errDeadlineOver
	case at.Sub(now) > maxDeadline:
		return time.Time{}, errDeadlineFar
	}
	return at, nil
}

// readDeadline returns the time that a deadline's text means; false: none.
func readDeadline(text string, now time.Time) (time.Time, bool) {
	year, month, day := now.Date()
	const longest = 6 // +99999d
	switch n := len(text); {
	case n > 2 && n <= longest+1 && text[0] == '+':
		number, ok := digits(text[1 : n-1])
		unit := map[byte]time.Duration{'m': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[text[n-1]]
		return now.Truncate(time.Second).Add(time.Duration(number) * unit), ok && unit > 0
	case shaped(text, "0:00"), shaped(text, "00:00"):
		of, ok := parseClock(text)
		at := time.Date(year, month, day, 0, of, 0, 0, now.Location())
		if !at.After(now) {
			at = time.Date(year, month, day+1, 0, of, 0, 0, now.Location())
		}
		return at, ok
	}
	return readDate(text, now.Location())
}

// readDate returns the time that a date and a time of day mean, in a zone if they name none; false: none.
func readDate(text string, zone *time.Location) (time.Time, bool) {
	const date, day, seconds = "0000-00-00T00:00", len("0000-00-00"), ":00"
	if len(text) < len(date) || !shaped(text[:len(date)], date) {
		return time.Time{}, false
	}
	at, err := time.ParseInLocation("2006-01-02", text[:day], time.UTC)
	of, ok := parseClock(text[day+1 : len(date)])
	rest, second := text[len(date):], 0
	if len(rest) >= len(seconds) && shaped(rest[:len(seconds)], seconds) {
		second, _ = digits(rest[1:len(seconds)])
		rest = rest[len(seconds):]
	}
	switch {
	case rest == "Z":
		zone = time.UTC
	case shaped(rest, "+00:00"), shaped(rest, "-00:00"):
		offset, is := parseClock(rest[1:])
		if rest[0] == '-' {
			offset = -offset
		}
		zone, ok = time.FixedZone("", 60*offset), ok && is
	case rest != "":
		ok = false
	}
	return time.Date(at.Year(), at.Month(), at.Day(), 0, of, second, 0, zone), ok && err == nil && second < 60
}

// shaped reports whether a text has the form of another one, in which 0 stands for any digit.
func shaped(text, form string) bool {
	if len(text) != len(form) {
		return false
	}
	for i := range len(form) {
		if form[i] == '0' && (text[i] < '0' || text[i] > '9') || form[i] != '0' && text[i] != form[i] {
			return false
		}
	}
	return true
}

// parseClock returns the minutes of a time of day, of digits.
func parseClock(text string) (minutes int, ok bool) {
	hours, rest, _ := strings.Cut(text, ":")
	hour, _ := digits(hours)
	minute, _ := digits(rest)
	return 60*hour + minute, hour < 24 && minute < 60
}

// digits returns the number of a few digits.
func digits(s string) (n int, ok bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && s[0] >= '0' && s[0] <= '9'
}

// DeadlineText is a deadline that ParseDeadline reads in every zone.
func DeadlineText(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05Z") }
