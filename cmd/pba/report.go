package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/report"
)

// reportOptions are those of every report.
type reportOptions struct {
	project  string
	from, to time.Time
	format   table.Format
}

func reportCommand(p process) *cli.Command {
	kind := func(name, usage string, run func(context.Context, *site, reportOptions, io.Writer) error) *cli.Command {
		since := &ago{7 * 24 * time.Hour}
		return &cli.Command{
			Name: name, Usage: usage,
			Flags: append([]cli.Flag{
				&cli.StringFlag{Name: "project", Usage: "only what concerns this `PROJECT`"},
				&cli.GenericFlag{Name: "since", Value: since, Usage: "how far back: `TIME` such as 12h, 7d or 4w"},
			}, table.Flags()...),
			Action: func(c *cli.Context) error {
				format, err := table.FormatOf(c)
				if err != nil {
					return err
				}
				now := p.now()
				o := reportOptions{project: c.String("project"), from: now.Add(-since.value), to: now, format: format}
				return withSite(c.Context, p, p.open, func(s *site) error { return run(c.Context, s, o, c.App.Writer) })
			},
		}
	}
	return &cli.Command{
		Name: "report", Usage: "what was used, how long jobs waited, who lost slots, what comes",
		Subcommands: []*cli.Command{
			kind("usage", "slot-hours by day and pool, against the guarantee and beyond it", reportUsage),
			kind("waits", "how long jobs and reclaims waited", reportWaits),
			kind("victims", "who lost slots to whom, and how reclaims ended", reportVictims),
			kind("dummies", "what was held for jobs that need much memory, and how long they gathered it", reportDummies),
			kind("forecast", "coming weeks: allocated slots, and use if it goes on as it did", reportForecast),
		},
	}
}

// ago is the option of a time that may be given in days and weeks.
type ago struct{ value time.Duration }

// Set reads 12h, 7d, 4w.
func (s *ago) Set(text string) error {
	unit := time.Duration(0)
	if text != "" {
		unit = map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour}[text[len(text)-1]]
	}
	if unit == 0 {
		var d duration
		if err := d.Set(text); err != nil {
			return fmt.Errorf("%q is no time; write it like 12h, 7d or 4w", text)
		}
		s.value = time.Duration(d.value)
		return nil
	}
	n, err := strconv.Atoi(text[:len(text)-1])
	if err != nil || n < 1 || n > int(math.MaxInt64/unit) {
		return fmt.Errorf("%q is no time; write it like 12h, 7d or 4w", text)
	}
	s.value = time.Duration(n) * unit
	return nil
}

func (s *ago) String() string {
	switch {
	case s == nil || s.value == 0:
		return ""
	case s.value%(24*time.Hour) == 0:
		return strconv.Itoa(int(s.value/(24*time.Hour))) + "d"
	}
	return s.value.String()
}

// period is what a report covers, in JSON.
type period struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// hours reads the use of a report's time.
func (s *site) hours(ctx context.Context, from, to time.Time) ([]ledger.FarmHour, []ledger.UseHour, error) {
	farm, err := s.ledger.FarmHours(ctx, from, to)
	if err != nil {
		return nil, nil, err
	}
	use, err := s.ledger.UseHours(ctx, from, to)
	return farm, use, err
}

// concerns checks that there is, or was, a project of that name.
func (s *site) concerns(ctx context.Context, o reportOptions, known bool) error {
	if o.project == "" || known {
		return nil
	}
	return s.checkProject(ctx, o.project)
}

func reportUsage(ctx context.Context, s *site, o reportOptions, out io.Writer) error {
	farm, use, err := s.hours(ctx, o.from, o.to)
	if err != nil {
		return err
	}
	rows := report.Usages(farm, use, s.zone(), o.project)
	if err := s.concerns(ctx, o, len(rows) > 0); err != nil {
		return err
	}
	if len(rows) == 0 && o.format == table.Text {
		return nothingYet(out, o)
	}
	t := table.New("day", "project", "step", "user", "guaranteed_slot_hours", "used_slot_hours", "borrowed_slot_hours", "waiting_slot_hours", "seen_hours")
	for _, r := range rows {
		t.Row(r.Day, dash(r.Project), dash(r.Step), dash(r.User), decimal(r.Guaranteed), decimal(r.Used), decimal(r.Borrowed), decimal(r.Waiting), decimal(r.Seen))
	}
	return table.Print(out, o.format, t, struct {
		period
		Usage []report.Usage `json:"usage"`
	}{o.period(), rows})
}

func (o reportOptions) period() period { return period{o.from, o.to} }

func nothingYet(out io.Writer, o reportOptions) error {
	_, err := fmt.Fprintf(out, "Nothing is recorded since %s. Cycles record it: pba rebalance\n", o.from.Local().Format("2006-01-02 15:04"))
	return err
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }

func reportWaits(ctx context.Context, s *site, o reportOptions, out io.Writer) error {
	jobs, err := s.ledger.PastJobs(ctx, o.from, o.to)
	if err != nil {
		return err
	}
	reclaims, err := s.ledger.PastReclaims(ctx, o.from, o.to)
	if err != nil {
		return err
	}
	rates := report.Rates{Threshold: time.Duration(s.PBA.PendingThreshold), Cycle: time.Duration(s.PBA.Every)}
	rows, promise := report.Waits(jobs, reclaims, rates, o.project)
	if err := s.concerns(ctx, o, len(rows) > 0); err != nil {
		return err
	}
	if len(rows) == 0 && o.format == table.Text {
		return nothingYet(out, o)
	}
	t := table.New("project", "kind", "of", "count", "median_seconds", "p95_seconds", "max_seconds")
	for _, r := range rows {
		t.Row(orAll(r.Project, o), r.Kind, r.Of, r.Count, decimal(r.Median), decimal(r.P95), decimal(r.Max))
	}
	err = table.Print(out, o.format, t, struct {
		period
		Waits   []report.Wait  `json:"waits"`
		Promise report.Promise `json:"promise"`
	}{o.period(), rows, promise})
	if err != nil || o.format != table.Text || promise.Reclaims == 0 {
		return err
	}
	fmt.Fprintf(out, "%d of %s took at most the threshold (%v), two cycles (%v each) and the time to free the slots.\n",
		promise.Kept, count(promise.Reclaims, "reclaim"), s.PBA.PendingThreshold, s.PBA.Every)
	return nil
}

// orAll names the row of all projects, which has no name, for people.
func orAll(project string, o reportOptions) string {
	if project == "" && o.format == table.Text {
		return "(all)"
	}
	return project
}

func reportVictims(ctx context.Context, s *site, o reportOptions, out io.Writer) error {
	reclaims, err := s.ledger.PastReclaims(ctx, o.from, o.to)
	if err != nil {
		return err
	}
	losses, ends := report.Victims(reclaims, o.project)
	if err := s.concerns(ctx, o, len(ends) > 0); err != nil {
		return err
	}
	t := table.New("project", "user", "to", "requeued", "suspended", "slots", "lost_slot_hours", "ended")
	for _, l := range losses {
		t.Row(dash(l.Project), l.User, l.To, l.Requeued, l.Suspended, l.Slots, decimal(l.Lost), l.Ended)
	}
	if o.format != table.Text {
		return table.Print(out, o.format, t, struct {
			period
			Victims []report.Loss `json:"victims"`
			Ends    []report.End  `json:"ends"`
		}{o.period(), losses, ends})
	}
	if len(ends) == 0 {
		fmt.Fprintf(out, "No slots were taken back since %s.\n", o.from.Local().Format("2006-01-02 15:04"))
		return nil
	}
	if len(losses) > 0 {
		if err := table.Print(out, o.format, t, nil); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	t = table.New("reclaims", "end", "requested_slots", "evicted_slots", "evicted_per_requested")
	for _, e := range ends {
		t.Row(e.Reclaims, e.End, e.Requested, e.Evicted, decimal(e.Ratio))
	}
	return table.Print(out, o.format, t, nil)
}

func reportForecast(ctx context.Context, s *site, o reportOptions, out io.Writer) error {
	p := report.Plans{This: calendar.WeekOf(s.now(), s.zone()), Horizon: s.PBA.Horizon}
	var err error
	if p.Allocations, err = s.ledger.Allocations(ctx, p.This, calendar.AddWeeks(p.This, p.Horizon)); err != nil {
		return err
	}
	farm, use, err := s.hours(ctx, s.now().AddDate(0, 0, -7*(report.LookBack+1)), s.now())
	if err != nil {
		return err
	}
	p.Limit = s.allocatable(ctx, farm)
	rows, trends := report.Forecast(p, farm, use, s.zone(), o.project)
	if err := s.concerns(ctx, o, len(trends) > 0); err != nil {
		return err
	}
	t := table.New("week", "project", "allocated", "expected_use", "max_allocated", "free")
	for _, r := range rows {
		t.Row(r.Week, orAll(r.Project, o), r.Allocated, orDash(r.Expected, decimal), orDash(r.MaxAllocated, strconv.Itoa), orDash(r.Free, strconv.Itoa))
	}
	err = table.Print(out, o.format, t, struct {
		Weeks  []report.Outlook `json:"weeks"`
		Trends []report.Trend   `json:"trends"`
	}{rows, trends})
	if err != nil || o.format != table.Text {
		return err
	}
	for _, t := range trends {
		fmt.Fprintf(out, "%s: %s slots in the last week seen, %+.2f a week over %s.\n", shell.Printable(t.Project), decimal(t.Last), t.Slope, count(t.Weeks, "week"))
	}
	return nil
}

// allocatable is max_allocated in slots of the farm as it is now, or, where the
// queue is away, as cycles saw it last; -1 if nobody ever saw it.
func (s *site) allocatable(ctx context.Context, farm []ledger.FarmHour) int {
	slots, _, err := s.farm(ctx)
	if err != nil {
		if len(farm) == 0 || farm[len(farm)-1].Seen == 0 {
			return -1
		}
		last := farm[len(farm)-1]
		slots = int(math.Round(last.Slots.Hours() / last.Seen.Hours()))
	}
	return s.limitOf(slots)
}

// limitOf is max_allocated of a farm in slots.
func (s *site) limitOf(farm int) int { return int(float64(farm)*float64(s.PBA.MaxAllocated) + 1e-9) }

func orDash[T any](x *T, show func(T) string) string {
	if x == nil {
		return "-"
	}
	return show(*x)
}
