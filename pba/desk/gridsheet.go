package desk

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// A plan as a table has a column for each of these, a column for each week, and a row for
// each pool and its terms. What stands in parentheses (totals, what is free, the revision)
// is for people, and only the revision is read.
var sheetColumns = []string{"project", "step", "user", "hosts", "sla", "jobs"}

const (
	revisionRow  = "(revision)"
	capacityRow  = "(capacity)"
	allocatedRow = "(allocated)"
	freeRow      = "(free)"
	totalColumn  = "(total)"

	maxSheetRows    = 5000
	maxSheetColumns = 200
	maxSheetFile    = 16 << 20 // bytes, packed and unpacked
)

// sheet is a table as texts.
type sheet struct {
	file    string
	tab     string // the sheet's name in a workbook
	rows    []sheetRow
	numbers separators
	faults  faults // found by its format's reader
}

// sheetRow is a row of a table.
type sheetRow struct {
	number int // in the file, from 1
	cells  []string
	shown  map[int]string // cells that are shown otherwise, such as dates
}

// cell returns a cell's text without spaces around it; "" where there is none.
func (r sheetRow) cell(column int) string {
	if column < 0 || column >= len(r.cells) {
		return ""
	}
	text := trimmed(r.cells[column])
	if len(text) > 1 && text[0] == '\'' && risky(text[1:]) {
		return text[1:]
	}
	return text
}

func trimmed(text string) string {
	return strings.TrimFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r == '\ufeff' || r == '\u200b' })
}

// risky reports whether a spreadsheet would take a text for a formula.
func risky(text string) bool { return text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) }

// none reports whether a cell says that there is nothing, as people write it.
func none(text string) bool { return text == "" || text == "-" || text == "." }

// SheetPlan is a plan that was read from a table: all that its projects have in its weeks.
type SheetPlan struct {
	PlanFile
	Weeks    []calendar.Week // its columns
	Revision int64           // of the plan that was exported; 0: not known

	sheet   *sheet
	columns map[string]int        // by name
	weeks   map[calendar.Week]int // their columns
	rows    map[ledger.Change]int // of the allocations
	first   map[string]int        // the first row of each project
}

// plan reads a table, the weeks in its head as weeks says. Its error is a *FileFaults; the plan is nil where the head can't be
// read, and else has what can.
func (s *sheet) plan(weeks calendar.Reader) (*SheetPlan, error) {
	p := &SheetPlan{sheet: s, columns: map[string]int{}, weeks: map[calendar.Week]int{}, rows: map[ledger.Change]int{}, first: map[string]int{}}
	if len(s.rows) == 0 {
		s.faults.add(0, 0, "there is no table in it: `pba alloc export` shows how a plan is written")
		return nil, s.faults.of(s.file, s.tab)
	}
	if !p.head(s.rows[0], weeks) {
		return nil, s.faults.of(s.file, s.tab)
	}
	p.body(s.rows[1:])
	p.From, p.To = slices.MinFunc(p.Weeks, calendar.Week.Compare), slices.MaxFunc(p.Weeks, calendar.Week.Compare)
	return p, s.faults.of(s.file, s.tab)
}

// head reads the row with the names of the columns. It reports whether the rows below can
// be read.
func (p *SheetPlan) head(r sheetRow, weeks calendar.Reader) bool {
	faults := &p.sheet.faults
	for i := range r.cells {
		text := r.cell(i)
		name := strings.ToLower(text)
		if text == "" || text[0] == '(' {
			continue
		}
		if slices.Contains(sheetColumns, name) {
			if _, twice := p.columns[name]; twice {
				faults.add(r.number, i, "the column %s is given a second time", name)
			}
			p.columns[name] = i
			continue
		}
		if shown, is := r.shown[i]; is {
			text = shown
		}
		w, err := headWeek(text, weeks)
		if err != nil {
			faults.add(r.number, i, "%v", err)
			continue
		}
		if other, twice := p.weeks[w]; twice {
			faults.add(r.number, i, "the week %s is given a second time (first in column %s)", w, cellName(other))
			continue
		}
		p.weeks[w] = i
		p.Weeks = append(p.Weeks, w)
	}
	_, named := p.columns["project"]
	switch {
	case !named:
		faults.add(r.number, 0, "want the names of the columns in this row: project, then what you need of step, user, hosts, sla and jobs, then weeks such as 2026-W48")
	case len(p.Weeks) == 0:
		faults.add(r.number, 0, "this row names no week: want columns such as 2026-W48")
	case len(p.Weeks) > maxGridWeeks:
		faults.add(r.number, 0, "%d weeks: want at most %d", len(p.Weeks), maxGridWeeks)
	default:
		return true
	}
	return false
}

// headWeek reads the week of a column.
func headWeek(text string, weeks calendar.Reader) (calendar.Week, error) {
	weeks.Kept = true
	w, err := weeks.Week(short(text))
	if err == nil {
		return w, nil
	}
	switch all, rangeErr := weeks.Weeks(text); {
	case rangeErr == nil && len(all) > 1:
		return w, fmt.Errorf("%s is several weeks: a column has one", clipped(text))
	case looksLikeDate(text):
		return w, fmt.Errorf("%s is a date: write its week, such as 2026-W48", clipped(text))
	}
	return w, fmt.Errorf("%w; other columns are %s", err, strings.Join(sheetColumns, ", "))
}

// looksLikeDate reports whether a text is two or three numbers between . / or -.
func looksLikeDate(text string) bool {
	parts := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("./-", r) })
	return len(parts) >= 2 && len(parts) <= 3 && !slices.ContainsFunc(parts, func(part string) bool {
		return strings.ContainsFunc(part, func(r rune) bool { return r < '0' || r > '9' })
	})
}

// body reads the rows below the head.
func (p *SheetPlan) body(rows []sheetRow) {
	p.strayCells(rows)
	seen := map[string]int{}         // row numbers, by a row's pool and terms
	given := map[ledger.Change]int{} // row numbers, by pool and week
	number, faults := 0, &p.sheet.faults
	for _, r := range rows {
		project := r.cell(p.columns["project"])
		if strings.HasPrefix(project, "(") {
			if project == revisionRow {
				p.revision(r)
			}
			continue
		}
		if !slices.ContainsFunc(r.cells, func(text string) bool { return trimmed(text) != "" }) {
			continue
		}
		if number++; number > maxSheetRows {
			faults.add(r.number, 0, "a plan has at most %d rows", maxSheetRows)
			return
		}
		if none(project) {
			faults.add(r.number, p.columns["project"], "project: it is missing")
			continue
		}
		row := GridRow{Pool: ledger.Pool{Project: project, Step: p.name(r, "step"), User: p.name(r, "user"), Hosts: p.name(r, "hosts")}}
		termsOK := p.terms(r, &row)
		key := row.key()
		if first, twice := seen[key]; twice {
			faults.add(r.number, p.columns["project"], "%s is given a second time (first in row %d)", quotePool(row.Pool), first)
			continue
		}
		seen[key] = r.number
		if _, known := p.first[project]; !known {
			p.first[project] = r.number
			p.Projects = append(p.Projects, project)
		}
		for _, w := range p.Weeks {
			slots, err := p.slots(r, p.weeks[w])
			if err != nil {
				faults.add(r.number, p.weeks[w], "%v", err)
			}
			if slots == 0 || !termsOK {
				continue
			}
			at := ledger.Change{Pool: row.Pool, Week: w}
			if first, twice := given[at]; twice {
				faults.add(r.number, p.weeks[w], "%s in %s has slots in row %d, too", quotePool(row.Pool), w, first)
				continue
			}
			given[at] = r.number
			at.Terms = ledger.Terms{Slots: slots, SLA: row.SLA, Jobs: row.Jobs}
			p.rows[at] = r.number
			p.Allocations = append(p.Allocations, at)
		}
	}
}

// strayCells finds texts in columns without a head: they may be what a week's column was.
func (p *SheetPlan) strayCells(rows []sheetRow) {
	head := p.sheet.rows[0]
	for _, r := range rows {
		if strings.HasPrefix(r.cell(p.columns["project"]), "(") {
			continue
		}
		for i := range r.cells {
			if r.cell(i) != "" && head.cell(i) == "" {
				p.sheet.faults.add(r.number, i, "the column %s has no head: write its week into row %d, or empty it", cellName(i), head.number)
			}
		}
	}
}

// name returns what a row says in a column; "" is none.
func (p *SheetPlan) name(r sheetRow, column string) string {
	i, has := p.columns[column]
	if text := r.cell(i); has && !none(text) {
		return text
	}
	return ""
}

// terms reads a row's SLA and jobs, and reports whether they are right.
func (p *SheetPlan) terms(r sheetRow, row *GridRow) bool {
	row.SLA = plan.SLA(cmp.Or(strings.ToLower(p.name(r, "sla")), string(plan.Velocity)))
	at, faults := p.columns["sla"], &p.sheet.faults
	if text := p.name(r, "jobs"); text != "" {
		at = p.columns["jobs"]
		jobs, err := p.sheet.numbers.whole(text, "jobs")
		if err != nil {
			faults.add(r.number, at, "%v", err)
			return false
		}
		row.Jobs = jobs
	}
	if err := checkTerms(ledger.Terms{Slots: 1, SLA: row.SLA, Jobs: row.Jobs}); err != nil {
		faults.add(r.number, at, "%v", err)
		return false
	}
	return true
}

func (p *SheetPlan) slots(r sheetRow, column int) (int, error) {
	if shown, is := r.shown[column]; is {
		return 0, fmt.Errorf("it shows %s: want a plain number of slots", clipped(shown))
	}
	text := r.cell(column)
	if none(text) {
		return 0, nil
	}
	return p.sheet.numbers.whole(text, "slots")
}

// revision reads the row of the revision.
func (p *SheetPlan) revision(r sheetRow) {
	for i := p.columns["project"] + 1; i < len(r.cells); i++ {
		if text := r.cell(i); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 0 || p.Revision != 0 {
				p.sheet.faults.add(r.number, i, "%s is no revision of a plan: export the plan again, or remove this row, and no other edits are looked for", clipped(text))
			}
			p.Revision = n
			return
		}
	}
}

// quotePool is a pool whose names come from a file.
func quotePool(p ledger.Pool) string {
	return strings.Trim(clipped(p.String()), `"`)
}

// differences are what the table would change of what is planned.
func (p *SheetPlan) differences(planned []ledger.Allocation) []Difference {
	return p.Compare(slices.DeleteFunc(slices.Clone(planned), func(a ledger.Allocation) bool {
		_, has := p.weeks[a.Week]
		return !has
	}))
}

// place returns the row and column of what is wrong with a change.
func (p *SheetPlan) place(c ledger.Change, part changePart) (row, column int) {
	row, written := p.rows[c]
	if !written {
		row = p.first[c.Project]
	}
	switch part {
	case partProject, partStep, partUser, partHosts:
		if i, has := p.columns[string(part)]; has {
			return row, i
		}
	case partWeek:
		return p.sheet.rows[0].number, p.weeks[c.Week]
	case partSlots:
	}
	if !written {
		return row, p.columns["project"]
	}
	return row, p.weeks[c.Week]
}

// sheetKinds are the formats of tables.
var sheetKinds = []FileKind{CSVFile, XLSXFile}

var errNoSheet = errors.New("no sheet")

// readSheet reads a table of a kind, which is csv or xlsx.
func readSheet(weeks calendar.Reader, name string, kind FileKind, content []byte) (*SheetPlan, error) {
	if len(content) > maxSheetFile {
		return nil, fmt.Errorf("%s: it is larger than %d MB", name, maxSheetFile>>20)
	}
	parse := parseCSV
	if kind == XLSXFile {
		parse = parseXLSX
	}
	s, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.file = name
	return s.plan(weeks)
}

// Write writes the grid of an export in a format that the import reads.
func (g *Grid) Write(kind FileKind, out io.Writer) error {
	if kind == CSVFile {
		return g.WriteCSV(out)
	}
	return g.WriteXLSX(out)
}
