package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// reportOptions are those of every report.
type reportOptions struct {
	desk.Period
	by     []desk.By
	format table.Format
	stderr io.Writer
}

// reportKind is one report.
type reportKind struct {
	name, usage string
	keys        []desk.By // that its rows may be grouped by
	days        bool      // it may be of the days from one to another
	run         func(context.Context, answers, reportOptions, io.Writer) error
}

func reportCommand(p process) *cli.Command {
	c := &cli.Command{Name: "report", Usage: "report use, charges, waits, what kept jobs waiting, preemptions, dummy jobs and the forecast"}
	for _, kind := range []reportKind{
		{"usage", "slot-hours by day and pool, or by other groups, within the guarantee and beyond it", desk.UsageKeys, false, reportUsage},
		{"charge", "what projects, or other groups, are charged for the slot-hours that they used, by the prices in the config", desk.ChargeKeys, true, onDesk(reportCharge)},
		{"waits", "how long jobs and reclaims waited", desk.WaitKeys, false, reportWaits},
		{"victims", "which projects lost slots, to which, how reclaims ended, and which jobs wait as they lost too much", desk.VictimKeys, false, reportVictims},
		{"dummies", "slots held by dummy jobs for jobs that need much memory, and how long these gathered them", nil, false, onDesk(reportDummies)},
		{"waste", "memory and processors that jobs asked for and did not use, and what they should ask for", nil, false, onDesk(reportWaste)},
		{"hardware", "what kept jobs waiting: slots, memory, resources or rules; and what hardware would have helped", desk.HardwareKeys, true, onDesk(reportHardware)},
		{"forecast", "coming weeks: allocated slots, and expected use", nil, false, onDesk(reportForecast)},
	} {
		c.Subcommands = append(c.Subcommands, kind.command(p))
	}
	c.Subcommands = append(c.Subcommands, reportWeekCommand(p))
	return c
}

func (k reportKind) command(p process) *cli.Command {
	since := &ago{value: 7 * 24 * time.Hour}
	var flags []cli.Flag
	if k.name != "hardware" { // which is of the farm
		flags = append(flags, &cli.StringFlag{Name: "project", Usage: "only what concerns this `PROJECT`"})
	}
	flags = append(flags, &cli.GenericFlag{Name: "since", Value: since, Usage: "how far back: `TIME` such as 12h, 7d or 4w, or a day such as 2026-11-23"})
	if k.name != "forecast" { // which looks ahead
		flags = append(flags, &cli.StringFlag{Name: "week", Usage: "this `WEEK` instead, such as 2026-W48, 48, a date of it, or last"})
	}
	if k.days {
		flags = append(flags,
			&cli.StringFlag{Name: "from", Usage: "instead, the days from this `DAY` on, such as 2026-11-01"},
			&cli.StringFlag{Name: "to", Usage: "with --from, the last `DAY`, such as 2026-11-30 (default: up to now)"})
	}
	if len(k.keys) > 0 {
		var words []string
		for _, key := range k.keys {
			words = append(words, string(key))
		}
		flags = append(flags, &cli.StringSliceFlag{Name: "by", Usage: "rows for each `KEY`[,KEY]…: " + strings.Join(words, ", ")})
	}
	return &cli.Command{
		Name: k.name, Usage: k.usage, Flags: append(flags, table.Flags()...),
		Action: func(c *cli.Context) error {
			o := reportOptions{stderr: p.stderr}
			var err error
			if o.format, err = table.FormatOf(c); err != nil {
				return err
			}
			if c.IsSet("since") && c.IsSet("week") {
				return shell.Usagef("--since and --week exclude each other")
			}
			if c.IsSet("from") && (c.IsSet("since") || c.IsSet("week")) {
				return shell.Usagef("--from, --since and --week exclude each other")
			}
			if c.IsSet("to") && !c.IsSet("from") {
				return shell.Usagef("--to needs --from")
			}
			if o.by, err = desk.GroupsOf(c.StringSlice("by"), k.keys); err != nil {
				return withExitCode(err)
			}
			return p.ask(c, func(ctx context.Context, d answers) error {
				span := desk.Span{Week: c.String("week"), Date: since.date, Since: since.value}
				if c.IsSet("from") {
					span.Date, span.To = c.String("from"), c.String("to")
				}
				if o.Period, err = d.Period(c.String("project"), span); err != nil {
					return err
				}
				return k.run(ctx, d, o, c.App.Writer)
			})
		},
	}
}

// ago is the option of a time that may be given in days and weeks, or as a day.
type ago struct {
	value time.Duration
	date  string // "": the value counts
}

// Set reads 12h, 7d, 4w, 2026-11-23.
func (s *ago) Set(text string) error {
	span, err := desk.ParseSince(text)
	if err == nil {
		s.date = span.Date
	}
	if err == nil && span.Date == "" {
		s.value = span.Since
	}
	return err
}

func (s *ago) String() string {
	switch {
	case s == nil || s.value == 0:
		return ""
	case s.date != "":
		return s.date
	case s.value%(24*time.Hour) == 0:
		return strconv.Itoa(int(s.value/(24*time.Hour))) + "d"
	}
	return s.value.String()
}

func reportUsage(ctx context.Context, d answers, o reportOptions, out io.Writer) error {
	if len(o.by) > 0 {
		return reportUsageBy(ctx, d, o, out)
	}
	r, err := d.Usage(ctx, o.Period)
	if err != nil {
		return err
	}
	if len(r.Usage) == 0 && o.format == table.Text {
		return nothingYet(out, r.Period)
	}
	return table.Print(out, o.format, tableOf(r.Table()), r)
}

// reportUsageBy prints slot-hours by groups, and in text their sum.
func reportUsageBy(ctx context.Context, d answers, o reportOptions, out io.Writer) error {
	r, err := d.UsageBy(ctx, o.Period, o.by)
	if err != nil {
		return err
	}
	if len(r.Groups) == 0 && o.format == table.Text {
		return nothingYet(out, r.Period)
	}
	rows := r.Table(o.by)
	if o.format == table.Text {
		rows.Rows = append(rows.Rows, append(make([]string, len(o.by)), r.UsageTotal()...))
		nameAll(rows, len(o.by))
	}
	err = table.Print(out, o.format, tableOf(rows), r)
	if without := r.WithoutPromise(); err == nil && o.format == table.Text && len(without) > 0 {
		fmt.Fprintf(out, "Without a promise (no allocation): %s\n", shell.Printable(strings.Join(without, ", ")))
	}
	return err
}

// reportCharge prints what groups are charged, and in text their sum.
func reportCharge(ctx context.Context, d *desk.Desk, o reportOptions, out io.Writer) error {
	r, err := d.Charge(ctx, o.Period, o.by)
	if err != nil {
		return err
	}
	if len(r.Charges) == 0 && o.format == table.Text {
		return nothingYet(out, r.Period)
	}
	rows := r.Table(o.by)
	if o.format == table.Text {
		rows.Rows = append(rows.Rows, r.TotalRow(o.by))
	}
	return table.Print(out, o.format, tableOf(rows), r)
}

// tableOf returns a report's rows, to be printed.
func tableOf(rows desk.Table) *table.Table {
	t := table.New(rows.Columns...)
	for _, row := range rows.Rows {
		cells := make([]any, len(row))
		for i := range row {
			cells[i] = row[i]
		}
		t.Row(cells...)
	}
	return t
}

// nameAll marks the rows of which so many keys, the first cells, are all empty: those of all
// groups.
func nameAll(t desk.Table, keys int) {
	for _, row := range t.Rows {
		if keys == 0 || slices.ContainsFunc(row[:keys], func(cell string) bool { return cell != "" }) {
			continue
		}
		for i := range keys {
			row[i] = "-"
		}
		row[0] = "(all)"
	}
}

func tenth(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }

// beginOf is when a report begins, which may be a server's.
func beginOf(p desk.Period) string { return p.From.Local().Format("2006-01-02 15:04") }

func nothingYet(out io.Writer, p desk.Period) error {
	_, err := fmt.Fprintf(out, "Nothing is recorded since %s. Cycles record it: pba rebalance\n", beginOf(p))
	return err
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }

func reportWaits(ctx context.Context, d answers, o reportOptions, out io.Writer) error {
	r, err := d.Waits(ctx, o.Period, o.by)
	if err != nil {
		return err
	}
	if len(r.Waits) == 0 && o.format == table.Text {
		return nothingYet(out, r.Period)
	}
	rows := r.Table(o.by)
	if o.format == table.Text {
		nameAll(rows, max(1, len(o.by)))
	}
	err = table.Print(out, o.format, tableOf(rows), r)
	if err != nil || o.format != table.Text || r.Promise.Reclaims == 0 {
		return err
	}
	threshold := r.Threshold.String()
	if r.OwnThresholds {
		threshold += ", or the project's own"
	}
	fmt.Fprintf(out, "%d of %s took at most the threshold (%s), two cycles (%v each) and the time to free the slots.\n",
		r.Promise.Kept, printable.Count(r.Promise.Reclaims, "reclaim"), threshold, r.Every)
	return nil
}

func reportVictims(ctx context.Context, d answers, o reportOptions, out io.Writer) error {
	r, err := d.Victims(ctx, o.Period, o.by)
	if r != nil && r.Away != nil {
		fmt.Fprintf(o.stderr, "pba: warning: jobs that wait as they are too wide are unknown: %s\n", shell.OneLine(r.Away.Error()))
	}
	if err != nil {
		return err
	}
	t := tableOf(r.Table(o.by))
	if o.format != table.Text {
		return table.Print(out, o.format, t, r)
	}
	if err := printEnds(out, o, r, t); err != nil {
		return err
	}
	for _, w := range r.TooWide {
		fmt.Fprintf(out, "Job %s of %s, %s: %s\n", w.Job, shell.Printable(w.User), dash(shell.Printable(w.Project)), w.Why)
	}
	return nil
}

// printEnds prints who lost slots, and how the reclaims ended.
func printEnds(out io.Writer, o reportOptions, r *desk.Victims, losses *table.Table) error {
	if len(r.Ends) == 0 {
		fmt.Fprintf(out, "No slots were preempted since %s.\n", beginOf(r.Period))
		return nil
	}
	if len(r.Victims) > 0 {
		if err := table.Print(out, o.format, losses, nil); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	return table.Print(out, o.format, endsTable(r.Ends), nil)
}

// endsTable returns how reclaims ended.
func endsTable(ends []desk.End) *table.Table {
	return tableOf(desk.EndsTable(ends))
}

func reportDummies(ctx context.Context, d *desk.Desk, o reportOptions, out io.Writer) error {
	r, err := d.DummyUse(ctx, o.Period)
	if r != nil && r.Away != nil {
		fmt.Fprintf(o.stderr, "pba: warning: the owners of unfinished jobs are unknown: %s\n", shell.OneLine(r.Away.Error()))
	}
	if err != nil {
		return err
	}
	if len(r.Dummies) == 0 && o.format == table.Text {
		_, err := fmt.Fprintf(out, "No dummy jobs were placed since %s.\n", beginOf(r.Period))
		return err
	}
	return table.Print(out, o.format, tableOf(r.Table()), r)
}

func reportWaste(ctx context.Context, d *desk.Desk, o reportOptions, out io.Writer) error {
	w, err := d.WastedBy(ctx, o.Period)
	if err != nil {
		return err
	}
	if w.Note != "" {
		fmt.Fprintf(o.stderr, "pba: warning: %s\n", shell.OneLine(w.Note))
	}
	if w.Older > 0 {
		fmt.Fprintf(o.stderr, "pba: warning: %s before these were not looked at\n", printable.Count(w.Older, "job"))
	}
	if len(w.Kinds) == 0 && o.format == table.Text {
		_, err := fmt.Fprintf(out, "No job was done since %s, as far as the queue shows.\n", beginOf(w.Period))
		return err
	}
	return table.Print(out, o.format, tableOf(w.Table()), w)
}

// reportHardware prints what kept jobs waiting, and in text what would have helped.
func reportHardware(ctx context.Context, d *desk.Desk, o reportOptions, out io.Writer) error {
	r, err := d.Hardware(ctx, o.Period, o.by)
	if err != nil {
		return err
	}
	if len(r.Lacks) == 0 && o.format == table.Text {
		_, err := fmt.Fprintf(out, "No cycle since %s saw jobs wait that could have started with more slots, memory or resources.\n", beginOf(r.Period))
		return err
	}
	err = table.Print(out, o.format, tableOf(r.Table(o.by)), r)
	if err != nil || o.format != table.Text {
		return err
	}
	for _, text := range r.Words {
		fmt.Fprintln(out, shell.Printable(text))
	}
	return nil
}

func reportForecast(ctx context.Context, d *desk.Desk, o reportOptions, out io.Writer) error {
	f, err := d.Forecast(ctx, o.Project)
	if err != nil {
		return err
	}
	rows := f.Table()
	for _, row := range rows.Rows {
		if o.format == table.Text && row[1] == "" {
			row[1] = "(all)"
		}
	}
	err = table.Print(out, o.format, tableOf(rows), f)
	if err != nil || o.format != table.Text {
		return err
	}
	for _, t := range f.Trends {
		fmt.Fprintf(out, "%s: %s slots in the last week seen, %+.2f a week over %s.\n", shell.Printable(t.Project), decimal(t.Last), t.Slope, printable.Count(t.Weeks, "week"))
	}
	return nil
}
