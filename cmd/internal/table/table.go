// Package table prints answers in rows: for people, and for programs. A program
// without tables does not import it: the library behind it is slow to start.
package table

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// Format is how a command prints its answer.
type Format int

// The formats: for people, and for programs.
const (
	Text Format = iota
	JSON
	CSV
)

// Flags are the options --json and --csv.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true},
		&cli.BoolFlag{Name: "csv", Usage: "print comma-separated values with a heading", DisableDefaultText: true},
	}
}

// FormatOf is the format that Flags were given for.
func FormatOf(c *cli.Context) (Format, error) {
	switch asJSON, asCSV := c.Bool("json"), c.Bool("csv"); {
	case asJSON && asCSV:
		return 0, shell.Usagef("--json and --csv exclude each other")
	case asJSON:
		return JSON, nil
	case asCSV:
		return CSV, nil
	}
	return Text, nil
}

// Table is an answer in rows. Its columns have snake_case names, which CSV shows
// as they are and people see as words in capitals.
type Table struct {
	columns []string
	numeric []bool // all cells so far were numbers: aligned to the right
	rows    [][]string
}

// New is a table without rows.
func New(columns ...string) *Table {
	t := &Table{columns: columns, numeric: make([]bool, len(columns))}
	for i := range t.numeric {
		t.numeric[i] = true
	}
	return t
}

// Row adds a row with one cell for each column; it panics on another number. A
// cell is printed as fmt prints it.
func (t *Table) Row(cells ...any) {
	if len(cells) != len(t.columns) {
		panic(fmt.Sprintf("a row of %d cells in a table of %d columns", len(cells), len(t.columns)))
	}
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
		if _, err := strconv.ParseFloat(strings.TrimSuffix(row[i], "%"), 64); err != nil && row[i] != "" && row[i] != "-" {
			t.numeric[i] = false
		}
	}
	t.rows = append(t.rows, row)
}

// Print writes an answer in the format that was asked for: value as JSON, or the
// table.
func Print(w io.Writer, format Format, t *Table, value any) error {
	switch format {
	case JSON:
		return shell.PrintJSON(w, value)
	case CSV:
		return t.csv(w)
	default:
		return t.text(w)
	}
}

// csv keeps texts as they are for programs, and makes them printable on a
// terminal.
func (t *Table) csv(w io.Writer) error {
	show := func(cell string) string { return cell }
	if shell.Terminal(w) {
		show = shell.Printable
	}
	out := csv.NewWriter(w)
	if err := out.Write(t.columns); err != nil {
		return err
	}
	for _, row := range t.rows {
		if err := out.Write(mapped(row, show)); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// text writes aligned columns without borders.
func (t *Table) text(w io.Writer) error {
	var b bytes.Buffer
	align := make([]tw.Align, len(t.columns))
	for i := range align {
		align[i] = tw.AlignLeft
		if t.numeric[i] && len(t.rows) > 0 {
			align[i] = tw.AlignRight
		}
	}
	cells := tw.CellConfig{
		Alignment:  tw.CellAlignment{PerColumn: align},
		Formatting: tw.CellFormatting{AutoWrap: tw.WrapNone, AutoFormat: tw.Off},
		Padding:    tw.CellPadding{Global: tw.Padding{Right: "  ", Overwrite: true}},
	}
	out := tablewriter.NewTable(&b,
		tablewriter.WithConfig(tablewriter.Config{Header: cells, Row: cells}),
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.BorderNone,
			Settings: tw.Settings{Lines: tw.LinesNone, Separators: tw.SeparatorsNone},
		})))
	out.Header(mapped(t.columns, func(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "_", " ")) }))
	for _, row := range t.rows {
		if err := out.Append(mapped(row, shell.OneLine)); err != nil {
			return fmt.Errorf("write a table: %w", err)
		}
	}
	if err := out.Render(); err != nil {
		return fmt.Errorf("write a table: %w", err)
	}
	for line := range strings.Lines(b.String()) {
		if _, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

func mapped(cells []string, f func(string) string) []string {
	result := make([]string, len(cells))
	for i, cell := range cells {
		result[i] = f(cell)
	}
	return result
}
