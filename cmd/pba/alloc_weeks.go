package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// weekForms explains how weeks are written, below each command that takes them.
const weekForms = "A WEEK is " + calendar.WeekForms + ". W48 and 48 are the next week of that number\n" +
	"that may be planned. WEEKS is either a number, so many weeks from --week on, or the weeks\n" +
	"themselves: a week with a W, a range such as 48-52, 50-2 or 2026-W48..2026-W51, or several\n" +
	"of these separated by commas: --weeks 4 is four weeks, --weeks W4 is week 4."

// weekFlags are the options --week and --weeks; without --weeks, the number of weeks is
// the default, all weeks for "".
func weekFlags(weeks string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "week", Usage: "first `WEEK`, such as 2026-W48, 48 or next (default: this week)"},
		&cli.StringFlag{Name: "weeks", Value: weeks, Usage: "`WEEKS`: a number of weeks, or the weeks, such as 48-52"},
	}
}

// when returns what weekFlags were given.
func when(c *cli.Context) desk.When {
	return desk.When{Week: c.String("week"), Weeks: c.String("weeks")}
}

// inWeeks says in which weeks something is.
func inWeeks(weeks []calendar.Week) string {
	ranges := calendar.Ranges(weeks)
	if len(ranges) == 1 {
		return inRange(ranges[0].First, ranges[0].Last)
	}
	return "in " + joinRanges(ranges)
}

func inRange(first, last calendar.Week) string {
	if first == last {
		return "in " + first.String()
	}
	return fmt.Sprintf("in each week from %s to %s", first, last)
}

func joinRanges(ranges []calendar.Range) string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = r.String()
	}
	return strings.Join(texts, ", ")
}
