package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/report/page"
)

func reportWeekCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "week", Usage: "one week: use against promises, waits, preemptions, and advice",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "week", Usage: "the `WEEK`, such as 2026-W48, 48, a date of it, or last (default: this week so far)"},
			&cli.StringFlag{Name: "project", Usage: "only what concerns this `PROJECT`"},
			&cli.StringSliceFlag{Name: "for", Usage: "parts for each `READER`[,READER]…: " + strings.Join(desk.Readers(), ", ") + " (default: manager)"},
			&cli.StringFlag{Name: "html", Usage: "write the report with charts to `FILE`, one page without script or network"},
			&cli.StringSliceFlag{Name: "mail", Usage: "send the report to these `ADDRESS`[,ADDRESS]… (pba.mail in the config)"},
			&cli.StringFlag{Name: "user", Usage: "under --for user, the jobs of this `USER` instead of one's own"},
		}, table.Flags()...),
		Action: func(c *cli.Context) error {
			format, err := table.FormatOf(c)
			if err != nil {
				return err
			}
			file, to := c.String("html"), c.StringSlice("mail")
			if format != table.Text && len(to) > 0 {
				return shell.Usagef("--mail sends text and HTML: leave --json and --csv away")
			}
			o := desk.WeekOptions{Week: c.String("week"), Project: c.String("project"), User: c.String("user"), For: c.StringSlice("for")}
			return p.withDesk(c, func(ctx context.Context, d *desk.Desk) error {
				if err := d.MayMail(to); err != nil {
					return err
				}
				w, err := d.Week(ctx, o)
				if err != nil {
					return err
				}
				var text, html bytes.Buffer
				if err := printWeek(&text, w); err != nil {
					return err
				}
				if c.IsSet("html") || len(to) > 0 {
					if err := page.Write(&html, page.Page{Week: w.Week, Zone: w.Zone, Version: shell.VersionText()}); err != nil {
						return err
					}
				}
				if c.IsSet("html") {
					if err := d.WriteNamed("write the report's page", file, html.Bytes()); err != nil {
						return err
					}
				}
				if len(to) > 0 {
					if err := d.Mail(ctx, to, "Allotment: "+weekTitle(w), text.String(), html.Bytes()); err != nil {
						return err
					}
				}
				if w.Away != nil {
					fmt.Fprintf(p.stderr, "pba: warning: what is going on now is unknown: %s\n", shell.OneLine(w.Away.Error()))
				}
				if format == table.Text {
					if len(to) > 0 || c.IsSet("html") { // cron mails what is printed
						return nil
					}
					_, err := c.App.Writer.Write(text.Bytes())
					return err
				}
				return table.Print(c.App.Writer, format, weekUse(w, false), w)
			})
		},
	}
}

// printWeek prints the report as text.
func printWeek(b *bytes.Buffer, w *desk.Week) error {
	fmt.Fprintf(b, "%s: %s\n", weekTitle(w), weekSpan(w))
	if len(w.Projects) == 0 {
		fmt.Fprintln(b, "Nothing is recorded. Cycles record it: pba rebalance")
	}
	for _, part := range []struct {
		title string
		show  bool
		of    func() *table.Table
	}{
		{"Slot-hours by project", len(w.Projects) > 0, func() *table.Table { return weekUse(w, true) }},
		{"Waits and preemptions by project", len(w.Projects) > 0, func() *table.Table { return weekWaits(w) }},
		{"By user", w.Has(desk.ForLead) && len(w.Users) > 0, func() *table.Table { return weekUsers(w.Users) }},
		{"Jobs of " + shell.Printable(w.User), w.Has(desk.ForUser) && len(w.Mine) > 0, func() *table.Table { return weekUsers(w.Mine) }},
		{"Reclaims by how they ended", len(w.Ends) > 0, func() *table.Table { return endsTable(w.Ends) }},
	} {
		if !part.show {
			continue
		}
		fmt.Fprintf(b, "\n%s\n", part.title)
		if err := table.Print(b, table.Text, part.of(), nil); err != nil {
			return err
		}
	}
	if without := w.WithoutPromise(); len(without) > 0 {
		fmt.Fprintf(b, "Without a promise (no allocation): %s\n", shell.Printable(strings.Join(without, ", ")))
	}
	if w.Has(desk.ForUser) && len(w.Mine) == 0 {
		fmt.Fprintf(b, "\nNo jobs of %s are recorded.\n", shell.Printable(w.User))
	}
	if f := w.Farm; f != nil {
		fmt.Fprintf(b, "\nThe farm had %s slot-hours, %s more were down; pools used %s, normal jobs %s; jobs were suspended on %s.\n",
			tenth(f.Slots), tenth(f.Down), tenth(f.Pools), tenth(f.Normal), tenth(f.Suspended))
	}
	if len(w.Advice) > 0 {
		fmt.Fprintln(b, "\nAdvice")
	}
	for _, a := range w.Advice {
		fmt.Fprintf(b, "- %s (%s)\n", shell.Printable(a.What), shell.Printable(a.Evidence))
	}
	return nil
}

func weekTitle(w *desk.Week) string {
	title := "Week " + w.Week.Week.String()
	if w.Project != "" {
		title += ", project " + shell.Printable(w.Project)
	}
	return title
}

func weekSpan(w *desk.Week) string {
	last := w.To.Add(-time.Second)
	return fmt.Sprintf("%s to %s; cycles saw %s of its %s hours", w.From.In(w.Zone).Format(time.DateOnly), last.In(w.Zone).Format(time.DateOnly), tenth(w.Seen), tenth(w.To.Sub(w.From).Hours()))
}

// weekUse returns the projects' slot-hours; with their sum in text.
func weekUse(w *desk.Week, sum bool) *table.Table {
	rows := w.Table()
	if sum {
		total := w.UseRow(&w.Total)
		total[0] = "(all)"
		rows.Rows = append(rows.Rows, total)
	}
	return tableOf(rows)
}

// weekWaits returns how long the projects' jobs waited, and what they lost.
func weekWaits(w *desk.Week) *table.Table {
	t := table.New("project", "jobs", "median", "p95", "longest", "jobs_beyond", "reclaims", "in_time", "preempted", "lost_slot_hours")
	row := func(name string, p *desk.ProjectWeek) {
		median, p95, longest := p.Within.InWords("-")
		t.Row(name, p.Within.Jobs, median, p95, longest, p.Beyond.Jobs,
			p.Reclaims.Reclaims, p.Reclaims.Kept, p.Victims.Preempted, decimal(p.Victims.Work))
	}
	for i := range w.Projects {
		row(dash(w.Projects[i].Project), &w.Projects[i])
	}
	row("(all)", &w.Total)
	return t
}

func weekUsers(users []desk.UserWeek) *table.Table {
	t := table.New("project", "user", "used", "borrowed", "jobs", "median", "p95", "longest", "preempted", "lost_slot_hours")
	for _, u := range users {
		median, p95, longest := u.Waits.InWords("-")
		t.Row(dash(u.Project), dash(u.User), decimal(u.Used), decimal(u.Borrowed), u.Waits.Jobs, median, p95, longest,
			u.Victims.Preempted, decimal(u.Victims.Work))
	}
	return t
}
