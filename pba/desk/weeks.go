package desk

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/calendar"
)

// When names weeks, as users do: the forms of calendar.Reader.
type When struct {
	Week  string // the first; "": this week
	Weeks string // a number: so many weeks from Week on; else the weeks themselves; "": the command's default
}

var weekCount = regexp.MustCompile(`^[0-9]+$`)

// reader reads weeks that are planned, at this time.
func (d *Desk) reader() calendar.Reader {
	return calendar.Reader{This: d.thisWeek(), Last: d.horizon()}
}

// pastReader reads weeks of the past.
func (d *Desk) pastReader() calendar.Reader {
	return calendar.Reader{This: d.thisWeek(), Past: true}
}

// weeks returns the weeks that are meant, in order: otherwise so many from the first on.
func (w When) weeks(r calendar.Reader, otherwise int) ([]calendar.Week, error) {
	n := otherwise
	switch {
	case w.Weeks == "":
	case weekCount.MatchString(w.Weeks):
		var err error
		if n, err = strconv.Atoi(w.Weeks); err != nil || n < 1 || n > calendar.MaxWeeks {
			return nil, invalidf("--weeks %.20s: want one week or more, at most %d", w.Weeks, calendar.MaxWeeks)
		}
	case w.Week != "":
		return nil, invalidf("--weeks %s names the weeks: omit --week, or give a number of weeks", printable.Text(w.Weeks))
	default:
		all, err := r.Weeks(w.Weeks)
		if err != nil {
			return nil, invalidf("--weeks: %w", err)
		}
		return all, nil
	}
	first := r.This
	if w.Week != "" {
		var err error
		if first, err = r.Week(w.Week); err != nil {
			return nil, invalidf("--week: %w", err)
		}
	}
	return calendar.From(first, n), nil
}

// plannable returns the weeks that are meant, which may be planned (R24): one, unless
// more are given.
func (d *Desk) plannable(when When) ([]calendar.Week, error) {
	all, err := when.weeks(d.reader(), 1)
	if err != nil {
		return nil, err
	}
	what := "week " + all[len(all)-1].String()
	if weekCount.MatchString(when.Weeks) {
		what = fmt.Sprintf("%s from %s on", printable.Count(len(all), "week"), all[0])
		if len(all) > d.PBA.Horizon+1 && len(all) <= 53 {
			what += fmt.Sprintf(" (--weeks %s is a number of weeks; the week is W%02d)", when.Weeks, len(all))
		}
	}
	return all, d.mayBePlanned(all[0], all[len(all)-1], what)
}

// inARow is an error if some weeks are missing between the first and the last. What is
// for these weeks, for the error.
func inARow(what string, weeks []calendar.Week) error {
	if gaps := calendar.Ranges(weeks); len(gaps) > 1 {
		return invalidf("--weeks: %s has weeks in a row: between %s and %s some are missing", what, gaps[0].Last, gaps[1].First)
	}
	return nil
}
