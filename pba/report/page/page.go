// Package page shows a week's report on one page of HTML that needs neither network nor
// script. It is pure: a report in, bytes out, and the same report gives the same bytes.
package page

import (
	_ "embed"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/internal/chart"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/report"
)

// Page is what a page shows. The report's texts may be hostile.
type Page struct {
	Week    *report.Week
	Zone    *time.Location // of its dates
	Version string         // of the program; may be ""
}

// maxCharts is the number of projects that have charts.
const maxCharts = 8

// Content is a page's parts. Its texts may be hostile where a comment does not say that they are
// printable.
type Content struct {
	Title, Version string
	Head           []Fact
	Advice         []report.Advice
	Tables         []Table // by project, before the charts
	Charts         []chart.Figure
	More           int     // projects with a guarantee that have no chart
	Details        []Table // which may be long
}

// Fact is a line of a page's head. It is printable.
type Fact struct{ What, Is string }

// Table has its rows' names in the first cells. It is printable.
type Table struct {
	Caption, About string
	Head           []string
	Rows           [][]string
	Sum            []string // nil: none
}

//go:embed page.html
var source string

// Write writes the page.
func Write(w io.Writer, p Page) error {
	v, err := ContentOf(p)
	if err != nil {
		return fmt.Errorf("draw the report's charts: %w", err)
	}
	return chart.WritePage(w, source, v)
}

// ContentOf returns the parts of a page.
func ContentOf(p Page) (Content, error) {
	w := p.Week
	v := Content{Title: "Week " + w.Week.String(), Version: p.Version, Advice: w.Advice}
	if w.Project != "" {
		v.Title += ", project " + w.Project
	}
	v.Head = []Fact{
		{"From", w.From.In(p.Zone).Format("Monday, 2 January 2006")},
		{"To", w.To.Add(-time.Second).In(p.Zone).Format("Monday, 2 January 2006, 15:04")},
		{"Recorded", fmt.Sprintf("%s of %s hours: cycles ran in these", decimal(w.Seen), decimal(w.To.Sub(w.From).Hours()))},
	}
	if t := w.Total; t.Percent != nil {
		v.Head = append(v.Head, Fact{"Use of what was promised", percent(t.Percent)}, Fact{"Demand", percent(t.Demand) + " of what was promised"})
	}
	if r := w.Total.Reclaims; r.Reclaims > 0 {
		v.Head = append(v.Head, Fact{"Reclaims in time", fmt.Sprintf("%d of %d", r.Kept, r.Reclaims)})
	}
	if f := w.Farm; f != nil {
		v.Head = append(v.Head, Fact{"Farm", fmt.Sprintf("%s slot-hours, %s more were down; pools used %s, normal jobs %s", decimal(f.Slots), decimal(f.Down), decimal(f.Pools), decimal(f.Normal))})
	}
	all := tables(w)
	v.Tables, v.Details = all[:2], all[2:]
	var err error
	v.Charts, v.More, err = charts(w, p.Zone)
	return v, err
}

// tables returns the tables by project, two, and then those of users, losses and reclaims.
func tables(w *report.Week) []Table {
	use := Table{
		Caption: "Use against promise", About: "In slot-hours. Used: within the guarantee. Demand: used, borrowed and waited for, of the guarantee. Borrowed: beyond it. Lent: of the guarantee, what the project did not use and others’ jobs ran on.",
		Head: []string{"project", "promised", "used", "used %", "demand %", "borrowed", "lent", "waiting"},
	}
	waits := Table{
		Caption: "Waits and preemptions", About: "Waits: of jobs within the guarantee, from submission to their last start. Reclaims: preemptions for the project’s jobs, and how many of them took no longer than is promised. Preempted: the project’s own jobs, and the slot-hours of work that they lost.",
		Head: []string{"project", "jobs", "median wait", "95 %", "longest", "reclaims", "in time", "preempted", "work lost"},
	}
	for i := range w.Projects {
		p := &w.Projects[i]
		use.Rows, waits.Rows = append(use.Rows, useRow(name(p.Project), p)), append(waits.Rows, waitRow(name(p.Project), p))
	}
	if len(w.Projects) > 1 {
		use.Sum, waits.Sum = useRow("all", &w.Total), waitRow("all", &w.Total)
	}
	all := []Table{use, waits}
	if w.Has(report.ForLead) {
		all = append(all, usersTable("By user", w.Users))
	}
	if w.Has(report.ForUser) {
		all = append(all, usersTable("Jobs of "+printable.Text(w.User), w.Mine))
	}
	victims := Table{Caption: "Slots lost to reclaims", About: "Most work lost first, at most 20.", Head: []string{"project", "user", "to project", "jobs", "slots", "work lost"}}
	for _, l := range w.Losses[:min(len(w.Losses), 20)] {
		victims.Rows = append(victims.Rows, []string{name(l.Project), name(l.User), name(l.To), strconv.Itoa(l.Requeued + l.Suspended), strconv.Itoa(l.Slots), decimal(l.Lost)})
	}
	all = append(all, victims)
	if w.Has(report.ForAdmin) {
		ends := Table{Caption: "Reclaims by how they ended", Head: []string{"end", "reclaims", "slots asked for", "slots evicted", "useless evictions"}}
		for _, e := range w.Ends {
			ends.Rows = append(ends.Rows, []string{string(e.End), strconv.Itoa(e.Reclaims), strconv.Itoa(e.Requested), strconv.Itoa(e.Evicted), strconv.Itoa(e.Useless)})
		}
		all = append(all, ends)
	}
	return all
}

func useRow(of string, p *report.ProjectWeek) []string {
	promised := decimal(*p.Guaranteed)
	if p.NoPromise {
		promised = "none"
	}
	return []string{of, promised, decimal(p.Used), percent(p.Percent), percent(p.Demand), decimal(p.Borrowed), decimal(p.Lent), decimal(*p.Waiting)}
}

func waitRow(of string, p *report.ProjectWeek) []string {
	median, p95, longest := p.Within.InWords(chart.None)
	return []string{of, strconv.Itoa(p.Within.Jobs), median, p95, longest, strconv.Itoa(p.Reclaims.Reclaims), strconv.Itoa(p.Reclaims.Kept), strconv.Itoa(p.Victims.Preempted), decimal(p.Victims.Work)}
}

func usersTable(caption string, users []report.UserWeek) Table {
	t := Table{Caption: caption, Head: []string{"project", "user", "used", "borrowed", "jobs", "median wait", "longest", "preempted", "work lost"}}
	for _, u := range users {
		median, _, longest := u.Waits.InWords(chart.None)
		t.Rows = append(t.Rows, []string{name(u.Project), name(u.User), decimal(u.Used), decimal(u.Borrowed), strconv.Itoa(u.Waits.Jobs), median, longest, strconv.Itoa(u.Victims.Preempted), decimal(u.Victims.Work)})
	}
	return t
}

// name returns a name fit for a page; chart.None for none.
func name(text string) string {
	if text == "" {
		return chart.None
	}
	return printable.Text(text)
}

func decimal(x float64) string {
	if x >= 100 {
		return chart.Count(int(x + 0.5))
	}
	return chart.Trimmed(strconv.FormatFloat(x, 'f', 1, 64))
}

func percent(x *float64) string {
	if x == nil {
		return chart.None
	}
	return strconv.FormatFloat(*x, 'f', 0, 64) + " %"
}
