package desk

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/xuri/excelize/v2"

	"github.com/allotment-hpc/allotment/pba/ledger"
)

// someBook is an export as a spreadsheet program opens it.
func someBook(t *testing.T, in gridInput) *excelize.File {
	t.Helper()
	var out bytes.Buffer
	if err := exportOf(in).WriteXLSX(&out); err != nil {
		t.Fatal(err)
	}
	f, err := excelize.OpenReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestWorkbookShowsWhatIsFree: what is free follows what is typed, also in rows that are
// added, and what projects have that are not in the file counts.
func TestWorkbookShowsWhatIsFree(t *testing.T) {
	in := someGridInput()
	in.sets = []string{"gpu"}
	in.planned = slices.DeleteFunc(in.planned, func(a ledger.Allocation) bool { return a.Hosts == "gone" })
	g := makeGrid(in, GridQuery{Projects: []string{"chipA"}, ByStep: true, ByUser: true, ByHosts: true, ByTerms: true})
	var out bytes.Buffer
	if err := g.WriteXLSX(&out); err != nil {
		t.Fatal(err)
	}
	f, err := excelize.OpenReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	row := func(n int) string {
		var cells []string
		for _, column := range []string{"G", "H", "I"} {
			text, err := f.CalcCellValue(planSheet, fmt.Sprint(column, n))
			if err != nil {
				t.Fatal(err)
			}
			cells = append(cells, text)
		}
		return strings.Join(cells, " ")
	}
	want := func(what string, rows ...string) {
		t.Helper()
		for i, text := range rows {
			if got := row(3 + i); got != text {
				t.Errorf("%s: row %d is %s, want %s", what, 3+i, got, text)
			}
		}
	}
	want("as exported", "80 80 80", "12 90 7", "68 -10 73", "10 10 10", "0 2 0", "10 8 10")
	if err := errors.Join(f.SetCellInt(planSheet, "G9", 25), f.SetCellStr(planSheet, "A200", "chipA"), f.SetCellInt(planSheet, "H200", 3), f.SetCellStr(planSheet, "D201", "gpu"), f.SetCellInt(planSheet, "I201", 11)); err != nil {
		t.Fatal(err)
	}
	was := 5 // of the row with a step mask, the first in the flow's order
	want("edited", "80 80 80", fmt.Sprint(12-was+25, " 93 7"), fmt.Sprint(68+was-25, " -13 73"), "10 10 10", "0 2 11", "10 8 -1")
}

// TestWorkbookIsFitForEditing: the head stays on the screen, the revision is hidden, and no
// cell has a user's text as a formula.
func TestWorkbookIsFitForEditing(t *testing.T) {
	in := someGridInput()
	in.planned = append(in.planned, somePlanned(ledger.Pool{Project: "chipB", User: "=HYPERLINK(1)", Step: "1e3"}, 0, 1440))
	f := someBook(t, in)
	panes, err := f.GetPanes(planSheet)
	if err != nil || !panes.Freeze || panes.XSplit != 1 || panes.YSplit < 1 {
		t.Errorf("%+v, %v", panes, err)
	}
	if visible, err := f.GetRowVisible(planSheet, 2); err != nil || visible {
		t.Errorf("the revision is visible, %v", err)
	}
	comments, err := f.GetComments(planSheet)
	if err != nil || len(comments) != 6 {
		t.Errorf("%d comments, %v", len(comments), err)
	}
	checks, err := f.GetDataValidations(planSheet)
	if err != nil || len(checks) != 1 || checks[0].Type != "whole" {
		t.Errorf("%+v, %v", checks, err)
	}
	rows, err := f.GetRows(planSheet)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for i, row := range rows {
		for k, text := range row {
			cell := cellName(k) + fmt.Sprint(i+1)
			formula, err := f.GetCellFormula(planSheet, cell)
			if err != nil || strings.Contains(formula, "HYPERLINK") {
				t.Errorf("%s is a formula: %s, %v", cell, formula, err)
			}
			found = found || text == "1,440"
		}
	}
	if !found {
		t.Error("numbers have no separators")
	}
}

// TestWorkbookFaults: what spreadsheets do to a plan is found, each by its cell.
func TestWorkbookFaults(t *testing.T) {
	in := someGridInput()
	in.limits, in.sets, in.planned = nil, nil, in.planned[:2] // rows: head, revision, allocated, mask, logic
	set := func(cell string, value any) func(*excelize.File) error {
		return func(f *excelize.File) error { return f.SetCellValue(planSheet, cell, value) }
	}
	styled := func(cell string, value any, format int) func(*excelize.File) error {
		return func(f *excelize.File) error {
			style, err := f.NewStyle(&excelize.Style{NumFmt: format})
			return errors.Join(err, f.SetCellValue(planSheet, cell, value), f.SetCellStyle(planSheet, cell, cell, style))
		}
	}
	both := func(all ...func(*excelize.File) error) func(*excelize.File) error {
		return func(f *excelize.File) (err error) {
			for _, one := range all {
				err = errors.Join(err, one(f))
			}
			return err
		}
	}
	from1904 := func(f *excelize.File) error {
		yes := true
		return f.SetWorkbookProps(&excelize.WorkbookPropsOptions{Date1904: &yes})
	}
	for name, c := range map[string]struct {
		edit func(*excelize.File) error
		want []string // none: it is a plan
	}{
		"nothing":           {set("A1", "project"), nil},
		"letters":           {set("G4", "12a"), []string{`p: sheet Plan, cell G4: "12a" is no number of slots`}},
		"a text of digits":  {set("G4", " 12 "), nil},
		"a group as a text": {set("G4", "1,440"), []string{`p: sheet Plan, cell G4: "1,440" may be 1440 or 1.440: write it without a separator`}},
		"half a slot":       {set("G4", 1.5), []string{`p: sheet Plan, cell G4: "1.5" is no whole number of slots`}},
		"12.0":              {set("G4", 12.0), nil},
		"grouped":           {styled("G4", 1440, 3), nil},
		"two decimals":      {styled("G4", 12, 2), nil},
		"a date":            {styled("G4", 46154, 14), []string{`p: sheet Plan, cell G4: it shows "05-12-26": want a plain number of slots`}},
		"a percentage":      {styled("G4", 12, 9), []string{`p: sheet Plan, cell G4: it shows "1200%": want a plain number of slots`}},
		"TRUE":              {set("G4", true), []string{`p: sheet Plan, cell G4: it shows "TRUE": want a plain number of slots`}},
		"a date as week":    {styled("H1", 46384, 14), nil}, // 2026-12-28, shown as 12-28-26
		"the same week":     {styled("H1", 46380, 14), []string{"p: sheet Plan, cell H1: the week 2026-W52 is given a second time (first in column G)"}},
		"days from 1904":    {both(from1904, styled("H1", 46380-1462, 14)), []string{"p: sheet Plan, cell H1: the week 2026-W52 is given a second time (first in column G)"}},
		"merged":            {func(f *excelize.File) error { return f.MergeCell(planSheet, "G4", "H5") }, []string{`p: sheet Plan, cell G4: the cells "G4:H5" are merged: split them`}},
		"a new formula": {func(f *excelize.File) error {
			return errors.Join(f.SetCellValue(planSheet, "G4", nil), f.SetCellFormula(planSheet, "G4", "12+8"))
		}, []string{"p: sheet Plan, cell G4: the formula has no value yet"}},
		"a computed formula": {both(set("G4", 20), func(f *excelize.File) error { return f.SetCellFormula(planSheet, "G4", "12+8") }), nil},
		"three":              {both(set("G4", "12a"), set("H5", "-"), set("I5", "O"), set("A6", "chipA"), set("B6", "logic")), []string{"p: sheet Plan, cell G4", "p: sheet Plan, cell I5", "p: sheet Plan, cell A6: chipA:logic is given a second time (first in row 5)"}},
		"a row far below":    {both(set("A900", "chipB"), set("G900", 4)), nil},
		"a column far right": {set("XFD4", 1), []string{"p: row 4 has 16384 columns: want at most 200"}},
		"another sheet": {func(f *excelize.File) error {
			_, err := f.NewSheet("A note")
			return errors.Join(err, f.MoveSheet("A note", planSheet))
		}, nil},
	} {
		f := someBook(t, in)
		if err := c.edit(f); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		content, err := f.WriteToBuffer()
		if err != nil {
			t.Fatal(err)
		}
		_, err = readSheet(someWeeks, "p", XLSXFile, content.Bytes())
		var lines []string
		var faults *FileFaults
		if errors.As(err, &faults) {
			lines = faults.Lines()
		} else if err != nil {
			lines = []string{err.Error()}
		}
		if len(lines) != len(c.want) || slices.ContainsFunc(lines, func(line string) bool {
			return !slices.ContainsFunc(c.want, func(want string) bool { return strings.HasPrefix(line, want) })
		}) {
			t.Errorf("%s: %q, want %q", name, lines, c.want)
		}
	}
}

// packed is a workbook of these parts.
func packed(t *testing.T, parts map[string]string) []byte {
	t.Helper()
	parts["[Content_Types].xml"] = `<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="xml" ContentType="application/xml"/></Types>`
	parts["_rels/.rels"] = `<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>`
	parts["xl/styles.xml"] = `<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"/>`
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for name, text := range parts {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestHostileWorkbooks: no file takes more memory than its bound, or ends the program.
func TestHostileWorkbooks(t *testing.T) {
	const (
		namespaces = `xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"`
		workbook   = `<workbook ` + namespaces + `><sheets><sheet name="Plan" sheetId="1" r:id="rId1"/></sheets></workbook>`
		relations  = `<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>`
	)
	of := func(data string) map[string]string {
		return map[string]string{"xl/workbook.xml": workbook, "xl/_rels/workbook.xml.rels": relations, "xl/worksheets/sheet1.xml": `<worksheet ` + namespaces + `><sheetData>` + data + `</sheetData></worksheet>`}
	}
	plain := `<row r="1"><c r="A1" t="str"><v>project</v></c><c r="B1" t="str"><v>2026-W52</v></c></row><row r="2"><c r="A2" t="str"><v>chipA</v></c><c r="B2"><v>3</v></c></row>`
	if p, err := readSheet(someWeeks, "p", XLSXFile, packed(t, of(plain))); err != nil || len(p.Allocations) != 1 {
		t.Fatalf("a small workbook: %v", err)
	}
	for name, content := range map[string][]byte{
		"a bomb":       packed(t, map[string]string{"xl/workbook.xml": workbook, "xl/_rels/workbook.xml.rels": relations, "xl/worksheets/sheet1.xml": strings.Repeat(" ", maxSheetFile+1)}),
		"many rows":    packed(t, of(plain+strings.Repeat(`<row><c t="str"><v>x</v></c></row>`, 12000))),
		"no sheet":     packed(t, map[string]string{"xl/workbook.xml": "<workbook/>"}),
		"no XML":       packed(t, of("<row")),
		"a bad cell":   packed(t, of(`<row r="1"><c r="ZZZZZZ1"><v>1</v></c></row>`)),
		"a far row":    packed(t, of(`<row r="99999999"><c r="A1"><v>1</v></c></row>`)),
		"no zip":       []byte("PK\x03\x04 and no more"),
		"an old one":   []byte("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
		"a text":       []byte("project,2026-W52\n"),
		"nothing":      nil,
		"a bad string": packed(t, of(`<row r="1"><c r="A1" t="s"><v>99</v></c></row>`)),
		"no relations": packed(t, map[string]string{"xl/workbook.xml": workbook}),
	} {
		_, err := readSheet(someWeeks, "p", XLSXFile, content)
		if err == nil || !strings.HasPrefix(err.Error(), "p: ") || name == "a bomb" && !strings.Contains(err.Error(), "unzip size exceeds") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzReadWorkbook: a sheet's XML is read, or its error names the file.
func FuzzReadWorkbook(f *testing.F) {
	var out bytes.Buffer
	if err := exportOf(someGridInput()).WriteXLSX(&out); err != nil {
		f.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		f.Fatal(err)
	}
	parts := map[string][]byte{}
	for _, file := range z.File {
		r, err := file.Open()
		if err != nil {
			f.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := b.ReadFrom(r); err != nil {
			f.Fatal(err)
		}
		parts[file.Name] = b.Bytes()
	}
	const sheetXML = "xl/worksheets/sheet1.xml"
	f.Add(parts[sheetXML])
	f.Fuzz(func(t *testing.T, content []byte) {
		var book bytes.Buffer
		w := zip.NewWriter(&book)
		for name, text := range parts {
			if name == sheetXML {
				text = content
			}
			part, err := w.Create(name)
			if err == nil {
				_, err = part.Write(text)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		p, err := readSheet(someWeeks, "plan.xlsx", XLSXFile, book.Bytes())
		if err != nil && !strings.Contains(err.Error(), "plan.xlsx") {
			t.Error(err)
		}
		if err == nil && len(p.Weeks) == 0 {
			t.Error("no plan, and no error")
		}
	})
}
