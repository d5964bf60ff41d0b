package web

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/chart"
	"github.com/allotment-hpc/allotment/pba/desk"
	reportpage "github.com/allotment-hpc/allotment/pba/report/page"
)

func reportsPage() page {
	return page{path: "/reports", name: "Reports", routes: map[string]handler{"GET /reports": showReport, "GET /reports/{file}": sendReport}}
}

// reportKind is a report, as pba report has it.
type reportKind struct {
	Name, Title string
	keys        []desk.By // that its rows may be grouped by
	ahead       bool      // it looks ahead: it has no time
	read        func(q *request, o reportOptions) (reportTables, error)
}

// reportOptions are what a report was asked for.
type reportOptions struct {
	desk.Period
	by []desk.By
}

// reportTables are a report's rows, the first table of which is the CSV file.
type reportTables struct {
	tables []namedTable
	notes  []string
}

// namedTable is a table with what it is of.
type namedTable struct {
	Caption string
	desk.Table
}

func reportKinds() []reportKind {
	return []reportKind{
		{Name: "week", Title: "One week"},
		{Name: "usage", Title: "Use", keys: desk.UsageKeys, read: readUsage},
		{Name: "waits", Title: "Waits", keys: desk.WaitKeys, read: readWaits},
		{Name: "victims", Title: "Preemptions", keys: desk.VictimKeys, read: readVictims},
		{Name: "dummies", Title: "Dummy jobs", read: readDummies},
		{Name: "forecast", Title: "Forecast", ahead: true, read: readForecast},
	}
}

// reportForm is what the form of a report has.
type reportForm struct {
	Kind, Title                string
	Kinds                      []reportTab
	Keys                       []keyBox
	Week, Since, Project, User string
	For                        []keyBox
	CSV                        string // address of the same as a file
	Ahead                      bool
	From, To                   time.Time
}

type reportTab struct {
	Title, Address string
	Here           bool
}

// keyBox is a box of the form that may be checked.
type keyBox struct {
	Name string
	On   bool
}

func boxes(names, on []string) []keyBox {
	var all []keyBox
	for _, name := range names {
		all = append(all, keyBox{name, slices.Contains(on, name)})
	}
	return all
}

// options reads what a report is asked for: of a kind, its rows' groups and its time, which is
// the last seven days where nothing says otherwise.
func (q *request) options(k reportKind) (reportOptions, error) {
	var o reportOptions
	if k.read == nil {
		return o, nil
	}
	var err error
	if o.by, err = desk.GroupsOf(q.Form["by"], k.keys); err != nil {
		return o, err
	}
	span := desk.Span{Week: q.FormValue("week"), Since: 7 * 24 * time.Hour}
	if span.Week == "" {
		span.Date = q.FormValue("since")
	}
	o.Period, err = q.desk.Period(q.FormValue("project"), span)
	return o, err
}

// kind returns the report that is asked for.
func (q *request) kind(name string) (reportKind, error) {
	if err := q.ParseForm(); err != nil {
		return reportKind{}, &statusError{http.StatusBadRequest, "the address can't be read: " + err.Error()}
	}
	if name == "" {
		name = "week"
	}
	all := reportKinds()
	i := slices.IndexFunc(all, func(k reportKind) bool { return k.Name == name })
	if i < 0 {
		return reportKind{}, &statusError{http.StatusNotFound, "there is no such report"}
	}
	return all[i], nil
}

func (q *request) reportForm(k reportKind) reportForm {
	f := reportForm{
		Kind: k.Name, Title: k.Title, Ahead: k.ahead, Week: q.FormValue("week"), Since: q.FormValue("since"), Project: q.FormValue("project"), User: q.FormValue("user"),
	}
	var keys []string
	for _, by := range k.keys {
		keys = append(keys, string(by))
	}
	f.Keys = boxes(keys, q.Form["by"])
	f.For = boxes(desk.Readers(), q.Form["for"])
	for _, other := range reportKinds() {
		query := url.Values{"kind": {other.Name}}
		for _, key := range []string{"project", "week", "since"} {
			if value := q.FormValue(key); value != "" {
				query.Set(key, value)
			}
		}
		f.Kinds = append(f.Kinds, reportTab{other.Title, "/reports?" + query.Encode(), other.Name == k.Name})
	}
	query := url.Values{}
	for key, values := range q.Form {
		if key != "kind" {
			query[key] = values
		}
	}
	f.CSV = "/reports/" + k.Name + ".csv"
	if len(query) > 0 {
		f.CSV += "?" + query.Encode()
	}
	return f
}

// reportRows bounds the rows of a table on a page; a CSV file has all.
const reportRows = 500

// showReport shows a report.
func showReport(q *request) error {
	k, err := q.kind(q.FormValue("kind"))
	if err != nil {
		return err
	}
	if k.read == nil {
		return showWeek(q, k)
	}
	o, err := q.options(k)
	if err != nil {
		return err
	}
	r, err := k.read(q, o)
	if err != nil {
		return err
	}
	v := reportView{reportForm: q.reportForm(k), Notes: r.notes}
	v.From, v.To = o.From, o.To
	for _, t := range r.tables {
		v.Tables = append(v.Tables, shownTable(t))
	}
	return q.show("reports", k.Title, v)
}

type reportView struct {
	reportForm
	Facts  []reportpage.Fact
	Advice []adviceLine
	Notes  []string
	Tables []shown
	Charts []chart.Figure
	More   int
}

type adviceLine struct{ What, Evidence string }

// shown is a table on a page.
type shown struct {
	Caption, About string
	Head           []cell
	Rows           [][]cell
	Sum            []cell
	Left           int // rows that only the file has
}

// cell is a cell of a column: one of numbers is aligned to the right.
type cell struct {
	Text   string
	Number bool
}

func shownTable(t namedTable) shown {
	head := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		head[i] = strings.ReplaceAll(strings.ReplaceAll(c, "_slot_hours", " slot-hours"), "_", " ")
	}
	return tableOf(t.Caption, "", head, t.Rows, nil)
}

func tableOf(caption, about string, head []string, rows [][]string, sum []string) shown {
	s := shown{Caption: caption, About: about, Left: max(0, len(rows)-reportRows)}
	rows = rows[:len(rows)-s.Left]
	number := make([]bool, len(head))
	for i := range head {
		number[i] = i > 0 && len(rows) > 0
		for _, row := range rows {
			if !isNumber(row[i]) {
				number[i] = false
				break
			}
		}
		s.Head = append(s.Head, cell{head[i], number[i]})
	}
	cells := func(row []string) []cell {
		var all []cell
		for i, text := range row {
			all = append(all, cell{text, number[i]})
		}
		return all
	}
	for _, row := range rows {
		s.Rows = append(s.Rows, cells(row))
	}
	if sum != nil {
		s.Sum = cells(sum)
	}
	return s
}

// isNumber reports whether a cell is a number, with a unit or not, or stands for none.
func isNumber(text string) bool {
	if text == "-" || text == chart.None || text == "none" {
		return true
	}
	return text != "" && text[0] >= '0' && text[0] <= '9' || len(text) > 1 && text[0] == '-'
}

// showWeek shows a week's report with its charts.
func showWeek(q *request, k reportKind) error {
	w, err := q.week()
	if err != nil {
		return err
	}
	c, err := reportpage.ContentOf(reportpage.Page{Week: w.Week, Zone: w.Zone})
	if err != nil {
		return err
	}
	v := reportView{reportForm: q.reportForm(k), Facts: c.Head, Charts: c.Charts, More: c.More}
	if v.From, v.To = w.From, w.To; w.Away != nil {
		v.Notes = append(v.Notes, "What is going on now is unknown: "+w.Away.Error())
	}
	if without := w.WithoutPromise(); len(without) > 0 {
		v.Notes = append(v.Notes, "Without a promise (no allocation): "+strings.Join(without[:min(len(without), 20)], ", "))
	}
	for _, a := range c.Advice {
		v.Advice = append(v.Advice, adviceLine{a.What, a.Evidence})
	}
	for _, t := range slices.Concat(c.Tables, c.Details) {
		v.Tables = append(v.Tables, tableOf(t.Caption, t.About, t.Head, t.Rows, t.Sum))
	}
	return q.show("reports", c.Title, v)
}

func (q *request) week() (*desk.Week, error) {
	return q.desk.Week(q.Context(), desk.WeekOptions{Week: q.FormValue("week"), Project: q.FormValue("project"), User: q.FormValue("user"), For: q.Form["for"]})
}

// sendReport sends a report as a file, such as usage.csv.
func sendReport(q *request) error {
	name, isCSV := strings.CutSuffix(q.PathValue("file"), ".csv")
	if !isCSV {
		return notFound(q)
	}
	k, err := q.kind(name)
	if err != nil {
		return err
	}
	var table desk.Table
	if k.read == nil {
		w, err := q.week()
		if err != nil {
			return err
		}
		table = w.Table()
	} else {
		o, err := q.options(k)
		if err != nil {
			return err
		}
		r, err := k.read(q, o)
		if err != nil {
			return err
		}
		table = r.tables[0].Table
	}
	q.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	q.w.Header().Set("Content-Disposition", `attachment; filename="`+k.Name+`.csv"`)
	out := csv.NewWriter(q.w)
	for _, row := range slices.Concat([][]string{table.Columns}, table.Rows) {
		if err := out.Write(harmless(row)); err != nil {
			break // the browser is gone
		}
	}
	out.Flush()
	return nil
}

// harmless keeps a spreadsheet from taking a user's text for a formula.
func harmless(row []string) []string {
	cells := make([]string, len(row))
	for i, text := range row {
		cells[i] = text
		if _, err := strconv.ParseFloat(text, 64); err == nil || text == "-" || text == "" {
			continue
		}
		if strings.ContainsRune("=+-@\t\r", rune(text[0])) {
			cells[i] = "'" + text
		}
	}
	return cells
}

func readUsage(q *request, o reportOptions) (reportTables, error) {
	if len(o.by) == 0 {
		u, err := q.desk.Usage(q.Context(), o.Period)
		if err != nil {
			return reportTables{}, err
		}
		return reportTables{tables: []namedTable{{"Slot-hours by day and pool", u.Table()}}}, nil
	}
	u, err := q.desk.UsageBy(q.Context(), o.Period, o.by)
	if err != nil {
		return reportTables{}, err
	}
	r := reportTables{tables: []namedTable{{"Slot-hours", u.Table(o.by)}}}
	if without := u.WithoutPromise(); len(without) > 0 {
		r.notes = append(r.notes, "Without a promise (no allocation): "+strings.Join(without[:min(len(without), 20)], ", "))
	}
	return r, nil
}

func readWaits(q *request, o reportOptions) (reportTables, error) {
	w, err := q.desk.Waits(q.Context(), o.Period, o.by)
	if err != nil {
		return reportTables{}, err
	}
	r := reportTables{tables: []namedTable{{"How long jobs and reclaims waited, in seconds; rows without a name are of all", w.Table(o.by)}}}
	if w.Promise.Reclaims > 0 {
		r.notes = append(r.notes, fmt.Sprintf("%d of %d preemptions took no longer than is promised.", w.Promise.Kept, w.Promise.Reclaims))
	}
	return r, nil
}

func readVictims(q *request, o reportOptions) (reportTables, error) {
	v, err := q.desk.Victims(q.Context(), o.Period, o.by)
	if err != nil {
		return reportTables{}, err
	}
	r := reportTables{tables: []namedTable{{"Which projects lost slots, and to which", v.Table(o.by)}, {"How reclaims ended", v.EndsTable()}}}
	if v.Away != nil {
		r.notes = append(r.notes, "Jobs that wait as they are too wide are unknown: "+v.Away.Error())
	}
	for _, w := range v.TooWide {
		r.notes = append(r.notes, fmt.Sprintf("Job %s of %s: %s", w.Job, w.User, w.Why))
	}
	return r, nil
}

func readDummies(q *request, o reportOptions) (reportTables, error) {
	d, err := q.desk.DummyUse(q.Context(), o.Period)
	if err != nil {
		return reportTables{}, err
	}
	r := reportTables{tables: []namedTable{{"Slots that dummy jobs held for jobs that need much memory", d.Table()}}}
	if d.Away != nil {
		r.notes = append(r.notes, "The owners of unfinished jobs are unknown: "+d.Away.Error())
	}
	return r, nil
}

func readForecast(q *request, o reportOptions) (reportTables, error) {
	f, err := q.desk.Forecast(q.Context(), o.Project)
	if err != nil {
		return reportTables{}, err
	}
	r := reportTables{tables: []namedTable{{"Coming weeks, in slots; rows without a project are of all", f.Table()}}}
	for _, t := range f.Trends[:min(len(f.Trends), 20)] {
		r.notes = append(r.notes, fmt.Sprintf("%s: %.2f slots in the last week seen, %+.2f a week over %d weeks.", t.Project, t.Last, t.Slope, t.Weeks))
	}
	return r, nil
}
