package desk

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/pba/ledger"
)

// parseCSV reads comma-separated values, or those of European spreadsheets, which semicolons
// separate, or tabs.
func parseCSV(content []byte) (*sheet, error) {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	if !utf8.Valid(content) {
		return nil, errors.New("it is no text in UTF-8: save it as “CSV UTF-8”")
	}
	s := &sheet{numbers: english}
	comma, hint := ',', 0
	if rest, is := bytes.CutPrefix(content, []byte("sep=")); is && len(rest) > 1 {
		comma, _ = utf8.DecodeRune(rest)
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		if strings.TrimSpace(string(line)) != string(comma) || !strings.ContainsRune(",;\t", comma) {
			return nil, fmt.Errorf("its first line names %s as the separator: want , or ; or a tab", clipped(string(line)))
		}
		content, hint = after, 1
	} else {
		comma = separatorOf(content)
	}
	if comma != ',' {
		s.numbers = unknown
	}
	if comma == ';' {
		s.numbers = european
	}
	r := csv.NewReader(bytes.NewReader(content))
	r.Comma, r.FieldsPerRecord = comma, -1
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		var bad *csv.ParseError
		if errors.As(err, &bad) {
			return nil, fmt.Errorf("line %d: %w", bad.Line+hint, bad.Err)
		}
		if err != nil {
			return nil, err
		}
		line, _ := r.FieldPos(0)
		if len(cells) > maxSheetColumns {
			return nil, fmt.Errorf("row %d has %d columns: want at most %d", line, len(cells), maxSheetColumns)
		}
		if len(s.rows) > 2*maxSheetRows {
			return nil, fmt.Errorf("it has more than %d rows", 2*maxSheetRows)
		}
		s.rows = append(s.rows, sheetRow{number: line, cells: cells})
	}
}

// separatorOf is what separates the values of the first line.
func separatorOf(content []byte) rune {
	line, _, _ := bytes.Cut(content, []byte("\n"))
	best := ','
	for _, r := range ";\t" {
		if bytes.ContainsRune(line, r) && bytes.Count(line, []byte(string(r))) > bytes.Count(line, []byte(string(best))) {
			best = r
		}
	}
	return best
}

// WriteCSV writes the grid of an export, which the import reads.
func (g *Grid) WriteCSV(out io.Writer) error {
	w := csv.NewWriter(out)
	head := append([]string{}, sheetColumns...)
	for _, week := range g.Weeks {
		head = append(head, week.String())
	}
	all := [][]string{append(head, totalColumn), {revisionRow, strconv.FormatInt(g.Revision, 10)}}
	for _, h := range g.HostSets {
		line := func(what string, slots []int) {
			all = append(all, append([]string{what, "", "", safe(h.Hosts), "", ""}, texts(slots)...))
		}
		if h.Capacity != nil {
			capacity := make([]int, len(g.Weeks))
			for i := range capacity {
				capacity[i] = *h.Capacity
			}
			line(capacityRow, capacity)
		}
		line(allocatedRow, h.Allocated)
		if h.Capacity != nil {
			line(freeRow, h.Free)
		}
	}
	for _, r := range g.Rows {
		names := []string{safe(r.Project), safe(r.Step), safe(r.User), safe(r.Hosts), string(r.SLA), jobsText(r.Jobs)}
		slots := texts(r.Slots)
		for i, n := range r.Slots {
			if n == 0 {
				slots[i] = ""
			}
		}
		all = append(all, append(append(names, slots...), strconv.Itoa(r.Total)))
	}
	if err := w.WriteAll(all); err != nil {
		return err
	}
	return w.Error()
}

// safe is a name that no spreadsheet takes for a formula.
func safe(name string) string {
	if risky(name) {
		return "'" + name
	}
	return name
}

func texts(all []int) []string {
	line := make([]string, len(all))
	for i, n := range all {
		line[i] = strconv.Itoa(n)
	}
	return line
}

func jobsText(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// ExportGrid is what some projects have in some weeks as a table: a row for each pool and its
// terms. No projects: all that have slots there, and those that the caller may plan. A
// project that the caller may plan has a row for each step of its flow, or one, also where
// nothing is planned yet.
func (d *Desk) ExportGrid(ctx context.Context, projects []string, when When) (*Grid, error) {
	q := GridQuery{Projects: projects, ByStep: true, ByUser: true, ByHosts: true, ByTerms: true}
	in, err := d.gridInput(ctx, q, when)
	if err != nil {
		return nil, err
	}
	all, err := d.ledger.Projects(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		pool := ledger.Pool{Project: p.Name}
		if !q.wants(pool) || d.mayPlan(p) != nil {
			continue
		}
		if len(in.steps[p.Name]) == 0 {
			in.blank = append(in.blank, pool)
		}
		for _, step := range in.steps[p.Name] {
			in.blank = append(in.blank, ledger.Pool{Project: p.Name, Step: step})
		}
	}
	return d.grid(ctx, in, q)
}
