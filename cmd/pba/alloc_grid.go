package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// gridFlags are those of `pba alloc list --grid`.
func gridFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "grid", Usage: "print a table of projects and weeks, with the slots that are free", DisableDefaultText: true},
		&cli.BoolFlag{Name: "steps", Usage: "with --grid: a row for each step", DisableDefaultText: true},
		&cli.BoolFlag{Name: "users", Usage: "with --grid: a row for each user", DisableDefaultText: true},
		&cli.StringFlag{Name: "hosts", Usage: "with --grid: only slots on the hosts of this `SET`; '' for those in none"},
	}
}

// listAction is the action of `pba alloc list`: a line for each allocation, or the grid.
func listAction(p process) cli.ActionFunc {
	list := tableAction(p.ask, listAllocs)
	return func(c *cli.Context) error {
		if c.Bool("grid") {
			return printGrid(c, p)
		}
		for _, name := range []string{"steps", "users", "hosts"} {
			if c.IsSet(name) {
				return shell.Usagef("--%s goes with --grid", name)
			}
		}
		return list(c)
	}
}

func printGrid(c *cli.Context, p process) error {
	format, err := table.FormatOf(c)
	if err != nil {
		return err
	}
	q := desk.GridQuery{ByStep: c.Bool("steps"), ByUser: c.Bool("users")}
	if name := c.String("project"); name != "" {
		q.Projects = []string{name}
	}
	if c.IsSet("hosts") {
		set := c.String("hosts")
		q.Hosts = &set
	}
	return p.ask(c, func(ctx context.Context, d answers) error {
		g, err := d.Grid(ctx, q, when(c))
		if err != nil {
			return err
		}
		if g.Away != nil {
			fmt.Fprintf(c.App.ErrWriter, "pba: what is free is not known: %s\n", shell.OneLine(g.Away.Error()))
		}
		if format != table.Text {
			return table.Print(c.App.Writer, format, gridTable(g, q), g)
		}
		gridText(c.App.Writer, g, q, screenWidth(c.App.Writer))
		return nil
	})
}

// screenWidth returns the columns of the terminal that a writer ends at, and 80 of another.
func screenWidth(w io.Writer) int {
	if shell.Terminal(w) {
		if n, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && n >= 40 {
			return n
		}
	}
	return 80
}

// gridTable is the grid for programs.
func gridTable(g *desk.Grid, q desk.GridQuery) *table.Table {
	columns := gridNames(q)
	for _, w := range g.Weeks {
		columns = append(columns, w.String())
	}
	t := table.New(append(columns, "total")...)
	for _, r := range g.Rows {
		cells := []any{}
		for _, name := range rowNames(r, q) {
			cells = append(cells, name)
		}
		for _, slots := range r.Slots {
			cells = append(cells, slots)
		}
		t.Row(append(cells, r.Total)...)
	}
	return t
}

// gridNames are the heads of the columns before the weeks.
func gridNames(q desk.GridQuery) []string {
	names := []string{"project"}
	if q.ByStep {
		names = append(names, "step")
	}
	if q.ByUser {
		names = append(names, "user")
	}
	return names
}

func rowNames(r desk.GridRow, q desk.GridQuery) []string {
	names := []string{r.Project}
	if q.ByStep {
		names = append(names, dash(r.Step))
	}
	if q.ByUser {
		names = append(names, dash(r.User))
	}
	return names
}

// gridLine is a line of the grid on a terminal: names, and a cell for each week.
type gridLine struct {
	names, cells []string
	total        string
}

// gridText prints the grid for people. Weeks that are too many for the width are in
// further tables below.
func gridText(out io.Writer, g *desk.Grid, q desk.GridQuery, width int) {
	head := gridLine{names: upper(gridNames(q)), total: "TOTAL"}
	for _, w := range g.Weeks {
		text := fmt.Sprintf("W%02d", w.Week)
		if w == g.This {
			text += "*"
		}
		head.cells = append(head.cells, text)
	}
	lines := []gridLine{head}
	for _, r := range g.Rows {
		lines = append(lines, gridLine{oneLines(rowNames(r, q)), numbers(r.Slots), number(r.Total)})
	}
	lines = append(lines, gridLine{[]string{"TOTAL"}, numbers(g.Slots), number(g.Total)})
	for _, h := range g.HostSets {
		if h.Capacity != nil {
			lines = append(lines, gridLine{[]string{freeOn(h.Hosts)}, numbers(h.Free), ""})
		}
	}
	for at := 0; at < len(g.Weeks); {
		if at > 0 {
			fmt.Fprintln(out)
		}
		at = gridBlock(out, lines, at, width)
	}
	fmt.Fprintf(out, "\nSlots in the weeks %s to %s; * is this week, - none. TOTAL is in slot-weeks.\n", g.Weeks[0], g.Weeks[len(g.Weeks)-1])
	for _, h := range g.HostSets {
		if h.Capacity != nil {
			fmt.Fprintf(out, "%s is what all projects leave of the %d slots that may be allocated there.\n", freeOn(h.Hosts), *h.Capacity)
		}
	}
}

func freeOn(set string) string {
	if set == "" {
		return "FREE"
	}
	return "FREE on " + set
}

// gridBlock prints as many weeks from one on as the width holds, four at least, and the
// total after the last. It returns the next week.
func gridBlock(out io.Writer, lines []gridLine, at, width int) (next int) {
	names := widths(lines)
	used := -1
	for _, w := range names {
		used += w + 1
	}
	weeks := lines[0].cells
	total := columnWidth(lines, func(l gridLine) string { return l.total })
	var cells []int
	for next = at; next < len(weeks); next++ {
		w := columnWidth(lines, func(l gridLine) string { return l.cells[next] })
		need := used + 1 + w
		if next == len(weeks)-1 {
			need += 1 + total
		}
		if need > width && len(cells) >= 4 {
			break
		}
		used += 1 + w
		cells = append(cells, w)
	}
	for _, l := range lines {
		text := nameCells(l.names, names)
		for i, w := range cells {
			text += fmt.Sprintf(" %*s", w, l.cells[at+i])
		}
		if next == len(weeks) {
			text += fmt.Sprintf(" %*s", total, l.total)
		}
		fmt.Fprintln(out, strings.TrimRight(text, " "))
	}
	return next
}

// nameCells are a line's names in columns of these widths. A line of one name, such as that
// of the totals, may use all of them.
func nameCells(names []string, columns []int) string {
	last, all := len(names)-1, len(columns)-1
	text := ""
	for i, name := range names[:last] {
		text += fmt.Sprintf("%-*s ", columns[i], name)
	}
	for _, w := range columns {
		all += w
	}
	return fmt.Sprintf("%-*s", all, text+names[last])
}

// widths are those of the columns of names: the last is as wide as the lines of one name need.
func widths(lines []gridLine) []int {
	columns := make([]int, len(lines[0].names))
	for _, l := range lines {
		if len(l.names) != len(columns) {
			continue
		}
		for i, name := range l.names {
			columns[i] = max(columns[i], utf8.RuneCountInString(name))
		}
	}
	all := len(columns) - 1
	for _, w := range columns {
		all += w
	}
	for _, l := range lines {
		if len(l.names) == 1 {
			if more := utf8.RuneCountInString(l.names[0]) - all; more > 0 {
				columns[len(columns)-1] += more
				all += more
			}
		}
	}
	return columns
}

func columnWidth(lines []gridLine, cell func(gridLine) string) int {
	w := 0
	for _, l := range lines {
		w = max(w, utf8.RuneCountInString(cell(l)))
	}
	return w
}

func upper(texts []string) []string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = strings.ToUpper(text)
	}
	return all
}

func oneLines(texts []string) []string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = shell.OneLine(text)
	}
	return all
}

func numbers(all []int) []string {
	texts := make([]string, len(all))
	for i, n := range all {
		texts[i] = number(n)
	}
	return texts
}

func number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
