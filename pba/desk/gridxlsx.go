package desk

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xuri/excelize/v2"

	"github.com/allotment-hpc/allotment/pba/calendar"
)

const (
	planSheet  = "Plan" // the workbook's sheet
	maxSetRows = 9      // of capacity, that stay on the screen beside the head
)

// parseXLSX reads the sheet Plan of a workbook, or its first.
func parseXLSX(content []byte) (s *sheet, err error) {
	defer func() {
		if r := recover(); r != nil { // the library was not made for hostile files
			s, err = nil, fmt.Errorf("it can't be read as a workbook: %v", r)
		}
	}()
	if bytes.HasPrefix(content, []byte("\xd0\xcf\x11\xe0")) {
		return nil, errors.New("it is an old or an encrypted workbook: save it as .xlsx without a password")
	}
	if !bytes.HasPrefix(content, []byte("PK\x03\x04")) {
		return nil, errors.New("it is no workbook: want .xlsx")
	}
	f, err := excelize.OpenReader(bytes.NewReader(content), excelize.Options{UnzipSizeLimit: maxSheetFile, UnzipXMLSizeLimit: maxSheetFile})
	if err != nil {
		return nil, fmt.Errorf("it can't be read as a workbook: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	tabs := f.GetSheetList()
	if len(tabs) == 0 {
		return nil, errors.New("the workbook has no sheet")
	}
	s = &sheet{tab: tabs[0], numbers: unknown}
	if slices.Contains(tabs, planSheet) {
		s.tab = planSheet
	}
	if err := s.readCells(f); err != nil {
		return nil, err
	}
	return s, s.readMarkup(f)
}

// readCells reads the cells as they are stored, and notes those that are shown otherwise.
func (s *sheet) readCells(f *excelize.File) error {
	raw, err := f.Rows(s.tab)
	if err != nil {
		return err
	}
	defer func() { _ = raw.Close() }() // nothing was written
	nice, err := f.Rows(s.tab)
	if err != nil {
		return err
	}
	defer func() { _ = nice.Close() }() // nothing was written
	book, err := f.GetWorkbookProps()
	if err != nil {
		return err
	}
	since1904 := book.Date1904 != nil && *book.Date1904
	for number := 1; raw.Next() && nice.Next(); number++ {
		cells, err := raw.Columns(excelize.Options{RawCellValue: true})
		if err != nil {
			return fmt.Errorf("row %d: %w", number, err)
		}
		shown, err := nice.Columns()
		if err != nil {
			return fmt.Errorf("row %d: %w", number, err)
		}
		for len(cells) > 0 && trimmed(cells[len(cells)-1]) == "" {
			cells = cells[:len(cells)-1]
		}
		if len(cells) == 0 {
			continue
		}
		if len(cells) > maxSheetColumns {
			return fmt.Errorf("row %d has %d columns: want at most %d", number, len(cells), maxSheetColumns)
		}
		if len(s.rows) > 2*maxSheetRows {
			return fmt.Errorf("it has more than %d rows", 2*maxSheetRows)
		}
		r := sheetRow{number: number, cells: cells}
		for i, cell := range cells {
			if i < len(shown) && !sameNumber(cell, shown[i]) {
				if r.shown == nil {
					r.shown = map[int]string{}
				}
				r.shown[i] = shown[i]
				if len(s.rows) == 0 && looksLikeDate(shown[i]) { // of a week
					r.shown[i] = cellDay(cell, shown[i], since1904)
				}
			}
		}
		s.rows = append(s.rows, r)
	}
	return errors.Join(raw.Error(), nice.Error())
}

// cellDay returns the day that a cell has, such as 2026-11-25; what is shown if it has none.
func cellDay(cell, shown string, since1904 bool) string {
	number, err := strconv.ParseFloat(cell, 64)
	if err != nil {
		return shown
	}
	day, err := excelize.ExcelDateToTime(number, since1904)
	if err != nil {
		return shown
	}
	return day.Format(time.DateOnly)
}

// sameNumber reports whether a cell is shown as the number that it is, though perhaps rounded:
// no date, no percentage. A text is always shown as it is.
func sameNumber(raw, shown string) bool {
	if raw == shown {
		return true
	}
	n, err := strconv.ParseFloat(raw, 64)
	if err != nil {
		return true
	}
	digits := strings.NewReplacer(",", "", " ", "", "\u00a0", "", "'", "").Replace(shown)
	m, err := strconv.ParseFloat(digits, 64)
	return err == nil && math.Abs(n-m) < 1
}

// xmlCell is what is read of a cell besides its value.
type xmlCell struct {
	Name    string    `xml:"r,attr"`
	Formula *struct{} `xml:"f"`
	Value   *string   `xml:"v"`
	Inline  *struct{} `xml:"is"`
}

// readMarkup finds what a sheet's rows don't say: cells that are merged, and formulas without
// a value, which a program wrote and no spreadsheet has computed.
func (s *sheet) readMarkup(f *excelize.File) error {
	part, err := sheetPart(f, s.tab)
	if err != nil {
		return err
	}
	summary := map[int]bool{} // rows that are not read
	for _, r := range s.rows {
		summary[r.number] = strings.HasPrefix(r.cell(0), "(")
	}
	for d := xml.NewDecoder(bytes.NewReader(part)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("it can't be read as a workbook: %w", err)
		}
		start, is := token.(xml.StartElement)
		if !is {
			continue
		}
		switch start.Name.Local {
		case "mergeCell":
			for _, a := range start.Attr {
				first, _, _ := strings.Cut(a.Value, ":")
				if column, row, err := excelize.CellNameToCoordinates(first); a.Name.Local == "ref" && err == nil {
					s.faults.add(row, column-1, "the cells %s are merged: split them", clipped(a.Value))
				}
			}
		case "c":
			var c xmlCell
			if err := d.DecodeElement(&c, &start); err != nil {
				return fmt.Errorf("it can't be read as a workbook: %w", err)
			}
			column, row, err := excelize.CellNameToCoordinates(c.Name)
			if err == nil && c.Formula != nil && c.Inline == nil && (c.Value == nil || *c.Value == "") && !summary[row] && !s.ignored(column-1) {
				s.faults.add(row, column-1, "the formula has no value yet: save the file in a spreadsheet program, or write the number")
			}
		}
	}
}

// ignored reports whether a column's head is in parentheses.
func (s *sheet) ignored(column int) bool {
	return len(s.rows) > 0 && strings.HasPrefix(s.rows[0].cell(column), "(")
}

// sheetPart returns the XML of a sheet.
func sheetPart(f *excelize.File, tab string) ([]byte, error) {
	part := func(name string) []byte {
		content, _ := f.Pkg.Load(name)
		text, _ := content.([]byte)
		return text
	}
	var book struct {
		Sheets []struct {
			Name string `xml:"name,attr"`
			ID   string `xml:"http://schemas.openxmlformats.org/officeDocument/2006/relationships id,attr"`
		} `xml:"sheets>sheet"`
	}
	var relations struct {
		All []struct {
			ID     string `xml:"Id,attr"`
			Target string `xml:"Target,attr"`
		} `xml:"Relationship"`
	}
	err := errors.Join(xml.Unmarshal(part("xl/workbook.xml"), &book), xml.Unmarshal(part("xl/_rels/workbook.xml.rels"), &relations))
	for _, sheet := range book.Sheets {
		for _, r := range relations.All {
			if sheet.Name != tab || r.ID != sheet.ID {
				continue
			}
			name := path.Join("xl", r.Target)
			if strings.HasPrefix(r.Target, "/") {
				name = r.Target[1:]
			}
			if text := part(name); text != nil {
				return text, nil
			}
		}
	}
	return nil, fmt.Errorf("it can't be read as a workbook: no XML of the sheet %s: %w", clipped(tab), errors.Join(err, errNoSheet))
}

// book writes the grid of an export as a workbook.
type book struct {
	*excelize.File
	g     *Grid
	first int // the first row with a plan
	head, name, number, sum,
	left int // styles
}

// WriteXLSX writes the grid of an export as a workbook, which the import reads. What is free
// is a formula: it changes with what is typed. No formula has a user's text in it.
func (g *Grid) WriteXLSX(out io.Writer) error {
	f := &book{File: excelize.NewFile(), g: g}
	defer func() { _ = f.Close() }() // nothing of it is kept
	err := f.fill()
	if err == nil {
		err = f.File.Write(out)
	}
	if err != nil {
		return fmt.Errorf("write the workbook: %w", err)
	}
	return nil
}

func (f *book) fill() error {
	if err := f.SetSheetName(f.GetSheetName(0), planSheet); err != nil {
		return err
	}
	f.first = 3
	for _, h := range f.g.HostSets {
		f.first++
		if h.Capacity != nil {
			f.first += 2
		}
	}
	if err := errors.Join(f.styles(), f.comments(), f.checks()); err != nil {
		return err
	}
	w, err := f.NewStreamWriter(planSheet)
	if err != nil {
		return err
	}
	if err := f.rows(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	all := true
	return f.SetCalcProps(&excelize.CalcPropsOptions{FullCalcOnLoad: &all})
}

func (f *book) styles() (err error) {
	text, number := 49, 3 // "@" and "#,##0" of the built-in number formats
	for _, s := range []struct {
		to    *int
		style excelize.Style
	}{
		{&f.head, excelize.Style{Font: &excelize.Font{Bold: true}, Fill: excelize.Fill{Type: "pattern", Pattern: 1, Color: []string{"DDE6F0"}}, NumFmt: text}},
		{&f.name, excelize.Style{NumFmt: text}},
		{&f.number, excelize.Style{NumFmt: number}},
		{&f.sum, excelize.Style{NumFmt: number, Font: &excelize.Font{Italic: true, Color: "555555"}, Fill: excelize.Fill{Type: "pattern", Pattern: 1, Color: []string{"F2F2F2"}}}},
	} {
		if *s.to, err = f.NewStyle(&s.style); err != nil {
			return err
		}
	}
	f.left, err = f.NewConditionalStyle(&excelize.Style{Font: &excelize.Font{Color: "C00000", Bold: true}})
	return err
}

// comments explains the head to the editor.
func (f *book) comments() error {
	say := func(column, row int, text string) error {
		return f.AddComment(planSheet, excelize.Comment{Author: "Allotment", Cell: cellName(column) + strconv.Itoa(row), Text: text, Width: 260, Height: 90})
	}
	err := errors.Join(
		say(0, 1, "Change numbers of slots, and add rows, then run `pba alloc import FILE`. It is the whole plan of the projects and weeks that it names: an empty cell is no allocation. What stands in (parentheses) is not imported."),
		say(3, 1, "The host set; empty: the hosts in no set."),
		say(4, 1, "velocity: the slots are guaranteed at any time; throughput: so many jobs are to be done in the week."))
	for i, w := range f.g.Weeks {
		text := "From Monday, " + calendar.PeriodOf(w, time.UTC).Begin.Format("2 January 2006") + "."
		if w == f.g.This {
			text += " This week."
		}
		err = errors.Join(err, say(len(sheetColumns)+i, 1, text))
	}
	return err
}

// checks has the spreadsheet refuse what is no number of slots, and show in red what is too
// much.
func (f *book) checks() error {
	last := cellName(len(sheetColumns) + len(f.g.Weeks) - 1)
	cells := cellName(len(sheetColumns)) + strconv.Itoa(f.first) + ":" + last + strconv.Itoa(maxSheetRows)
	slots := excelize.NewDataValidation(true)
	slots.SetSqref(cells)
	if err := slots.SetRange(0, 1<<31-1, excelize.DataValidationTypeWhole, excelize.DataValidationOperatorBetween); err != nil {
		return err
	}
	slots.SetError(excelize.DataValidationErrorStyleStop, "Slots", "Want a whole number of slots, or nothing.")
	sums := cellName(len(sheetColumns)) + "3:" + last + strconv.Itoa(f.first-1)
	return errors.Join(f.AddDataValidation(planSheet, slots),
		f.SetConditionalFormat(planSheet, sums, []excelize.ConditionalFormatOptions{{Type: "cell", Criteria: "<", Value: "0", Format: &f.left}}))
}

func (f *book) rows(w *excelize.StreamWriter) error {
	head := []any{}
	for _, name := range sheetColumns {
		head = append(head, excelize.Cell{Value: name, StyleID: f.head})
	}
	for _, week := range f.g.Weeks {
		head = append(head, excelize.Cell{Value: week.String(), StyleID: f.head})
	}
	head = append(head, excelize.Cell{Value: totalColumn, StyleID: f.head})
	frozen := f.first - 1
	if frozen-2 > maxSetRows {
		frozen = 1
	}
	corner := "B" + strconv.Itoa(frozen+1)
	err := errors.Join(
		w.SetColWidth(1, 3, 14), w.SetColWidth(4, 6, 10), w.SetColWidth(len(sheetColumns)+1, len(head), 10),
		w.SetPanes(&excelize.Panes{Freeze: true, XSplit: 1, YSplit: frozen, TopLeftCell: corner, ActivePane: "bottomRight"}),
		w.SetRow("A1", head),
		w.SetRow("A2", []any{revisionRow, f.g.Revision}, excelize.RowOpts{Hidden: true}))
	if err != nil {
		return err
	}
	row := 3
	for _, h := range f.g.HostSets {
		if row, err = f.setRows(w, row, h); err != nil {
			return err
		}
	}
	for _, r := range f.g.Rows {
		line := []any{}
		for _, name := range []string{r.Project, r.Step, r.User, r.Hosts, string(r.SLA)} {
			line = append(line, textCell(name, f.name))
		}
		line = append(line, numberCell(r.Jobs, f.number))
		for _, n := range r.Slots {
			line = append(line, numberCell(n, f.number))
		}
		sum := fmt.Sprintf("SUM(%s%d:%s%d)", cellName(len(sheetColumns)), row, cellName(len(sheetColumns)+len(r.Slots)-1), row)
		line = append(line, excelize.Cell{Formula: sum, Value: r.Total, StyleID: f.sum})
		if err := w.SetRow("A"+strconv.Itoa(row), line); err != nil {
			return err
		}
		row++
	}
	return nil
}

// textCell is a text's cell; "" is an empty one.
func textCell(text string, style int) excelize.Cell {
	if text == "" {
		return excelize.Cell{StyleID: style}
	}
	return excelize.Cell{Value: text, StyleID: style}
}

// numberCell is a number's cell; 0 is an empty one.
func numberCell(n, style int) excelize.Cell {
	if n == 0 {
		return excelize.Cell{StyleID: style}
	}
	return excelize.Cell{Value: n, StyleID: style}
}

// setRows writes what is planned on the hosts of a set and what is left from a row on, and
// returns the next row. The set is compared with the cell that names it.
func (f *book) setRows(w *excelize.StreamWriter, row int, h GridHosts) (next int, err error) {
	line := func(what string, formula func(column string) string, values []int) {
		if err != nil {
			return
		}
		cells := []any{}
		for i := range sheetColumns {
			cells = append(cells, textCell(map[int]string{0: what, 3: h.Hosts}[i], f.sum))
		}
		for i, n := range values {
			c := excelize.Cell{Value: n, StyleID: f.sum}
			if formula != nil {
				c.Formula = formula(cellName(len(sheetColumns) + i))
			}
			cells = append(cells, c)
		}
		err = w.SetRow("A"+strconv.Itoa(row), cells)
		row++
	}
	if h.Capacity != nil {
		line(capacityRow, nil, slices.Repeat([]int{*h.Capacity}, len(f.g.Weeks)))
	}
	others, is := f.others(h), 0
	allocated := row
	line(allocatedRow, func(column string) string {
		slots := fmt.Sprintf("%s$%d:%s$%d", column, f.first, column, maxSheetRows)
		hosts := fmt.Sprintf("$D$%d:$D$%d", f.first, maxSheetRows)
		sum := fmt.Sprintf("%d+SUMIFS(%s,%s,$D%d)", others[is], slots, hosts, allocated)
		if h.Hosts == "" { // all slots less those on a set: programs differ in which cells SUMIFS takes as empty
			sum = fmt.Sprintf(`%d+SUM(%s)-SUMIFS(%s,%s,"?*")`, others[is], slots, slots, hosts)
		}
		is++
		return sum
	}, h.Allocated)
	if h.Capacity != nil {
		line(freeRow, func(column string) string {
			return fmt.Sprintf("%s%d-%s%d", column, allocated-1, column, allocated)
		}, h.Free)
	}
	return row, err
}

// others returns what projects that are not in the rows have on the hosts of a set, by week.
func (f *book) others(h GridHosts) []int {
	others := slices.Clone(h.Allocated)
	for _, r := range f.g.Rows {
		for i, n := range r.Slots {
			if r.Hosts == h.Hosts {
				others[i] -= n
			}
		}
	}
	return others
}
