package desk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/pba/ledger"
)

// FileKind is a format that plans are written in.
type FileKind string

// The formats.
const (
	YAMLFile FileKind = "yaml"
	CSVFile  FileKind = "csv"
	XLSXFile FileKind = "xlsx"
)

// KindOf returns the format that a user names, or else that of a file's ending, or YAML.
func KindOf(format, file string) (FileKind, error) {
	if format == "" {
		format = strings.ToLower(strings.TrimPrefix(filepath.Ext(file), "."))
		if kind := FileKind(format); kind == CSVFile || kind == XLSXFile {
			return kind, nil
		}
		return YAMLFile, nil
	}
	if kind := FileKind(format); kind == YAMLFile || kind == CSVFile || kind == XLSXFile {
		return kind, nil
	}
	return "", invalidf("--format %q: want %s, %s or %s", format, YAMLFile, CSVFile, XLSXFile)
}

// tableHead matches a first line with columns: a plan in YAML never begins so.
var tableHead = regexp.MustCompile(`^(\x{feff})?(sep=.\r?\n)?"?(?i:project)"?[,;\t]`)

// readKind returns the format of a file that is read, by its ending or else its content:
// managers that run pba through sudo pass it by standard input.
func readKind(file string, content []byte) FileKind {
	switch kind, _ := KindOf("", file); {
	case kind != YAMLFile:
		return kind
	case bytes.HasPrefix(content, []byte("PK\x03\x04")):
		return XLSXFile
	case tableHead.Match(content):
		return CSVFile
	}
	return YAMLFile
}

// clash is a cell that was changed in the file and, since it was exported, in the plan.
type clash struct {
	difference Difference
	edit       ledger.Record // the first by another user
}

// merge sorts out what a table changes by what other users edited since it was exported. A
// cell that has still what was exported keeps what they planned (kept); one that has not
// is a clash. The caller's own edits, by who, don't count.
func merge(all []Difference, edits []ledger.Record, who string) (changes []Difference, clashes []clash, kept []Difference) {
	first := firstEdits(edits, func(e *ledger.Record) bool { return person(e.Who) != person(who) })
	for _, d := range all {
		e, edited := first[cell{d.Pool, d.Week}]
		switch {
		case !edited, d.Was == e.Was: // or it was changed back
			changes = append(changes, d)
		case d.Terms == e.Was:
			kept = append(kept, d)
		default:
			changes = append(changes, d)
			clashes = append(clashes, clash{d, e})
		}
	}
	return changes, clashes, kept
}

// firstEdits returns the first edit of each cell that counts.
func firstEdits(edits []ledger.Record, counts func(*ledger.Record) bool) map[cell]ledger.Record {
	first := map[cell]ledger.Record{}
	for i := range edits {
		e := &edits[i]
		at := cell{e.Pool, e.Week}
		if _, known := first[at]; !known && counts(e) {
			first[at] = *e
		}
	}
	return first
}

// person is an editor, by whatever way.
func person(who string) string { return strings.TrimSuffix(strings.TrimSuffix(who, bySudo), byPage) }

// errOtherPlan is returned for a table of a plan that is newer than this ledger's.
var errOtherPlan = errors.New("its revision is newer than the plan's: it was exported from another ledger, or before a backup was restored; export the plan again, or apply the file with --force")

// sheetDifferences are what a table would change now. Clashes and another ledger's revision
// are errors unless forced.
func (d *Desk) sheetDifferences(ctx context.Context, p *SheetPlan, force bool) (changes, kept []Difference, err error) {
	planned, err := d.ledger.Allocations(ctx, p.From, p.To)
	if err != nil {
		return nil, nil, err
	}
	all := p.differences(planned)
	if p.Revision == 0 {
		return all, nil, nil
	}
	edits, newest, err := d.ledger.EditedSince(ctx, p.Revision)
	if err != nil {
		return nil, nil, err
	}
	if newest < p.Revision && !force {
		return nil, nil, fmt.Errorf("%s: %w", p.sheet.file, errOtherPlan)
	}
	changes, clashes, kept := merge(all, edits, d.Caller.String())
	if len(clashes) > 0 && !force {
		return nil, nil, p.clashed(clashes, d)
	}
	return changes, kept, nil
}

// clashed is the error for clashes, by cell.
func (p *SheetPlan) clashed(all []clash, d *Desk) error {
	var found faults
	for _, c := range all {
		row, column := p.place(c.difference.Change, partSlots)
		found.add(row, column, "%s in %s: %s changed it from %s to %s on %s, after this file was exported; here it is %s: export the plan again, or apply the file with --force",
			quotePool(c.difference.Pool), c.difference.Week, c.edit.Who, orNone(c.edit.Before), orNone(c.difference.Was.String()),
			c.edit.At.In(d.zone()).Format("2006-01-02 15:04"), orNone(c.difference.Terms.String()))
	}
	return found.of(p.sheet.file, p.sheet.tab)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// checkSheet returns all that is wrong with what a table would change, as a *FileFaults.
func (p *planner) checkSheet(ctx context.Context, s *SheetPlan, changes []ledger.Change) error {
	all, err := p.wrong(ctx, changes)
	if err != nil {
		return err
	}
	var found faults
	for _, e := range all {
		part, text := e.part, e.Error()
		if e.sum != "" {
			part, text = partWeek, e.sum
		}
		row, column := s.place(e.change, part)
		if _, written := s.rows[e.change]; !written && part != partWeek && part != partProject {
			text = fmt.Sprintf("it withdraws %s in %s: %s", quotePool(e.change.Pool), e.change.Week, text)
		}
		found.add(row, column, "%s", text)
	}
	return found.of(s.sheet.file, s.sheet.tab)
}

// unknownProjects returns an error for the projects of a table that do not exist.
func (d *Desk) unknownProjects(ctx context.Context, s *SheetPlan) error {
	projects, err := d.ledger.Projects(ctx)
	if err != nil {
		return err
	}
	var found faults
	for _, name := range s.Projects {
		if _, err := named(projects, name); err != nil {
			found.add(s.first[name], s.columns["project"], "%v", err)
		}
	}
	return found.of(s.sheet.file, s.sheet.tab)
}

// importSheet compares a table with the plan, and checks all that it would change. What is
// wrong with the file itself, and with what can be read of it, comes as one error.
func (d *Desk) importSheet(ctx context.Context, i *Import, kind FileKind, content []byte) (*Import, error) {
	s, err := readSheet(d.reader(), i.name, kind, content)
	if s == nil {
		return nil, err
	}
	err = joinFaults(err, d.unknownProjects(ctx, s))
	i.sheet = s
	var other error
	if i.Differences, i.Kept, other = d.sheetDifferences(ctx, s, i.force || err != nil); other != nil {
		return nil, joinFaults(err, other)
	}
	for _, x := range i.Differences {
		i.changes = append(i.changes, x.Change)
	}
	if len(i.changes) == 0 {
		return i, err
	}
	if i.planner, other = d.planner(ctx, i.changes); other != nil {
		return nil, joinFaults(err, other)
	}
	return i, joinFaults(err, i.planner.checkSheet(ctx, s, i.changes))
}

// joinFaults puts the faults of one file together, each once. Another error counts alone.
func joinFaults(first, second error) error {
	var a, b *FileFaults
	switch {
	case !errors.As(first, &a):
		return second
	case !errors.As(second, &b):
		if second != nil {
			return second
		}
		return first
	}
	for _, fault := range b.Faults {
		if !slices.ContainsFunc(a.Faults, func(f Fault) bool { return f.What == fault.What }) {
			a.Faults = append(a.Faults, fault)
		}
	}
	a.More += b.More
	sortFaults(a.Faults)
	return a
}
