package main

import (
	"context"
	"fmt"
	"io"
	"math"
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
	run         func(context.Context, *desk.Desk, reportOptions, io.Writer) error
}

func reportCommand(p process) *cli.Command {
	c := &cli.Command{Name: "report", Usage: "report use, waits, preemptions, dummy jobs and the forecast"}
	for _, kind := range []reportKind{
		{"usage", "slot-hours by day and pool, or by other groups, within the guarantee and beyond it", desk.UsageKeys, reportUsage},
		{"waits", "how long jobs and reclaims waited", desk.WaitKeys, reportWaits},
		{"victims", "which projects lost slots, to which, how reclaims ended, and which jobs wait as they lost too much", desk.VictimKeys, reportVictims},
		{"dummies", "slots held by dummy jobs for jobs that need much memory, and how long these gathered them", nil, reportDummies},
		{"forecast", "coming weeks: allocated slots, and expected use", nil, reportForecast},
	} {
		c.Subcommands = append(c.Subcommands, kind.command(p))
	}
	c.Subcommands = append(c.Subcommands, reportWeekCommand(p))
	return c
}

func (k reportKind) command(p process) *cli.Command {
	since := &ago{value: 7 * 24 * time.Hour}
	flags := []cli.Flag{
		&cli.StringFlag{Name: "project", Usage: "only what concerns this `PROJECT`"},
		&cli.GenericFlag{Name: "since", Value: since, Usage: "how far back: `TIME` such as 12h, 7d or 4w, or a day such as 2026-11-23"},
	}
	if k.name != "forecast" { // which looks ahead
		flags = append(flags, &cli.StringFlag{Name: "week", Usage: "this `WEEK` instead, such as 2026-W48, 48, a date of it, or last"})
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
			if o.by, err = desk.GroupsOf(c.StringSlice("by"), k.keys); err != nil {
				return withExitCode(err)
			}
			return p.withDesk(c, func(ctx context.Context, d *desk.Desk) error {
				span := desk.Span{Week: c.String("week"), Date: since.date, Since: since.value}
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

const agoForm = "%q is not a duration or a day; write it like 12h, 7d, 4w or 2026-11-23"

// Set reads 12h, 7d, 4w, 2026-11-23.
func (s *ago) Set(text string) error {
	if _, err := time.Parse(time.DateOnly, text); err == nil {
		s.date = text
		return nil
	}
	s.date = ""
	unit := time.Duration(0)
	if text != "" {
		unit = map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour}[text[len(text)-1]]
	}
	if unit == 0 {
		var d duration
		if err := d.Set(text); err != nil {
			return fmt.Errorf(agoForm, text)
		}
		s.value = time.Duration(d.value)
		return nil
	}
	n, err := strconv.Atoi(text[:len(text)-1])
	if err != nil || n < 1 || n > int(math.MaxInt64/unit) {
		return fmt.Errorf(agoForm, text)
	}
	s.value = time.Duration(n) * unit
	return nil
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

func reportUsage(ctx context.Context, d *desk.Desk, o reportOptions, out io.Writer) error {
	if len(o.by) > 0 {
		return reportUsageBy(ctx, d, o, out)
	}
	r, err := d.Usage(ctx, o.Period)
	if err != nil {
		return err
	}
	if len(r.Usage) == 0 && o.format == table.Text {
		return nothingYet(out, o)
	}
	t := table.New("day", "project", "step", "user", "guaranteed_slot_hours", "used_slot_hours", "borrowed_slot_hours", "waiting_slot_hours", "seen_hours", "hosts")
	for _, r := range r.Usage {
		t.Row(r.Day, dash(r.Project), dash(r.Step), dash(r.User), decimal(r.Guaranteed), decimal(r.Used), decimal(r.Borrowed), decimal(r.Waiting), decimal(r.Seen), dash(r.Hosts))
	}
	return table.Print(out, o.format, t, r)
}

// reportUsageBy prints slot-hours by groups, and in text their sum.
func reportUsageBy(ctx context.Context, d *desk.Desk, o reportOptions, out io.Writer) error {
	r, err := d.UsageBy(ctx, o.Period, o.by)
	if err != nil {
		return err
	}
	if len(r.Groups) == 0 && o.format == table.Text {
		return nothingYet(out, o)
	}
	promised := r.Total.Guaranteed != nil
	head := columnsOf(o.by)
	if promised {
		head = append(head, "guaranteed_slot_hours", "used_slot_hours", "borrowed_slot_hours", "waiting_slot_hours", "used_percent", "demand_percent")
	} else {
		head = append(head, "used_slot_hours", "borrowed_slot_hours", "share_percent")
	}
	t := table.New(head...)
	cells := func(u desk.Use) []any {
		if !promised {
			return []any{decimal(u.Used), decimal(u.Borrowed), orDash(u.Share, tenth)}
		}
		return []any{decimal(*u.Guaranteed), decimal(u.Used), decimal(u.Borrowed), decimal(*u.Waiting), orDash(u.Percent, tenth), orDash(u.Demand, tenth)}
	}
	for _, u := range r.Groups {
		row := make([]any, 0, len(head))
		for _, by := range o.by {
			row = append(row, dash(u.Cell(by)))
		}
		t.Row(append(row, cells(u)...)...)
	}
	if o.format == table.Text {
		t.Row(append(keyCells(desk.Key{}, o.by, o), cells(r.Total)...)...)
	}
	err = table.Print(out, o.format, t, r)
	if without := r.WithoutPromise(); err == nil && o.format == table.Text && len(without) > 0 {
		fmt.Fprintf(out, "Without a promise (no allocation): %s\n", shell.Printable(strings.Join(without, ", ")))
	}
	return err
}

// columnsOf returns the columns of groups.
func columnsOf(by []desk.By) []string {
	var names []string
	for _, key := range by {
		names = append(names, string(key))
	}
	return names
}

// keyCells returns the cells of a group; in text (all) in the row of all groups.
func keyCells(k desk.Key, by []desk.By, o reportOptions) []any {
	var cells []any
	for i, key := range by {
		text := k.Cell(key)
		if k == (desk.Key{}) && o.format == table.Text {
			if text = "-"; i == 0 {
				text = "(all)"
			}
		}
		cells = append(cells, text)
	}
	return cells
}

func tenth(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }

func (o reportOptions) since() string { return o.From.Local().Format("2006-01-02 15:04") }

func nothingYet(out io.Writer, o reportOptions) error {
	_, err := fmt.Fprintf(out, "Nothing is recorded since %s. Cycles record it: pba rebalance\n", o.since())
	return err
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }

func reportWaits(ctx context.Context, d *desk.Desk, o reportOptions, out io.Writer) error {
	r, err := d.Waits(ctx, o.Period, o.by)
	if err != nil {
		return err
	}
	if len(r.Waits) == 0 && o.format == table.Text {
		return nothingYet(out, o)
	}
	by := o.by
	if len(by) == 0 {
		by = []desk.By{"project"}
	}
	t := table.New(append(columnsOf(by), "kind", "of", "count", "median_seconds", "p95_seconds", "max_seconds")...)
	for _, r := range r.Waits {
		key := desk.Key{Week: r.Week, Project: r.Project, User: r.User, Step: r.Step}
		t.Row(append(keyCells(key, by, o), r.Kind, r.Of, r.Count, decimal(r.Median), decimal(r.P95), decimal(r.Max))...)
	}
	err = table.Print(out, o.format, t, r)
	if err != nil || o.format != table.Text || r.Promise.Reclaims == 0 {
		return err
	}
	threshold := fmt.Sprint(d.PBA.PendingThreshold)
	if len(d.PBA.Policy().Thresholds) > 0 {
		threshold += ", or the project's own"
	}
	fmt.Fprintf(out, "%d of %s took at most the threshold (%s), two cycles (%v each) and the time to free the slots.\n",
		r.Promise.Kept, printable.Count(r.Promise.Reclaims, "reclaim"), threshold, d.PBA.Every)
	return nil
}

// orAll returns a project's name; in text output (all) for the row of all projects.
func orAll(project string, o reportOptions) string {
	if project == "" && o.format == table.Text {
		return "(all)"
	}
	return project
}

func reportVictims(ctx context.Context, d *desk.Desk, o reportOptions, out io.Writer) error {
	r, err := d.Victims(ctx, o.Period, o.by)
	if r != nil && r.Away != nil {
		fmt.Fprintf(o.stderr, "pba: warning: jobs that wait as they are too wide are unknown: %s\n", shell.OneLine(r.Away.Error()))
	}
	if err != nil {
		return err
	}
	by := []desk.By{"project", "user"}
	if len(o.by) > 0 {
		by = slices.DeleteFunc([]desk.By{"week", "project", "user"}, func(key desk.By) bool { return key != "project" && !slices.Contains(o.by, key) })
	}
	t := table.New(append(columnsOf(by), "to", "requeued", "suspended", "slots", "lost_slot_hours", "ended", "saved")...)
	for _, l := range r.Victims {
		var cells []any
		for _, key := range by {
			cells = append(cells, dash(desk.Key{Week: l.Week, Project: l.Project, User: l.User}.Cell(key)))
		}
		t.Row(append(cells, l.To, l.Requeued, l.Suspended, l.Slots, decimal(l.Lost), l.Ended, l.Saved)...)
	}
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
		fmt.Fprintf(out, "No slots were preempted since %s.\n", o.since())
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
	t := table.New("reclaims", "end", "requested_slots", "evicted_slots", "evicted_per_requested", "useless_evictions")
	for _, e := range ends {
		t.Row(e.Reclaims, e.End, e.Requested, e.Evicted, decimal(e.Ratio), e.Useless)
	}
	return t
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
		_, err := fmt.Fprintf(out, "No dummy jobs were placed since %s.\n", o.since())
		return err
	}
	t := table.New("project", "user", "heavy_jobs", "dummies", "median_gather_seconds", "max_gather_seconds", "held_slot_hours")
	for _, r := range r.Dummies {
		t.Row(dash(r.Project), dash(r.User), r.Jobs, r.Dummies, decimal(r.Median), decimal(r.Max), decimal(r.Held))
	}
	return table.Print(out, o.format, t, r)
}

func reportForecast(ctx context.Context, d *desk.Desk, o reportOptions, out io.Writer) error {
	f, err := d.Forecast(ctx, o.Project)
	if err != nil {
		return err
	}
	t := table.New("week", "project", "allocated", "expected_use", "max_allocated", "free")
	for _, r := range f.Weeks {
		t.Row(r.Week, orAll(r.Project, o), r.Allocated, orDash(r.Expected, decimal), orDash(r.MaxAllocated, strconv.Itoa), orDash(r.Free, strconv.Itoa))
	}
	err = table.Print(out, o.format, t, f)
	if err != nil || o.format != table.Text {
		return err
	}
	for _, t := range f.Trends {
		fmt.Fprintf(out, "%s: %s slots in the last week seen, %+.2f a week over %s.\n", shell.Printable(t.Project), decimal(t.Last), t.Slope, printable.Count(t.Weeks, "week"))
	}
	return nil
}

func orDash[T any](x *T, show func(T) string) string {
	if x == nil {
		return "-"
	}
	return show(*x)
}
