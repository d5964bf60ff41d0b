package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// Pool names slots of a project, or of one of its users, steps, or both.
type Pool = ledger.Pool

// Allocation is what a pool has in a week.
type Allocation = ledger.Allocation

// Change is what a pool gets in a week.
type Change = ledger.Change

// Allocations lists what is planned, for a project or for all, in the weeks that are
// named, else from this week on: by week, project, step in the flow's order, user and host
// set.
func (d *Desk) Allocations(ctx context.Context, project string, when When) ([]ledger.Allocation, error) {
	if err := d.requireProject(ctx, project, false); err != nil {
		return nil, err
	}
	from, to := d.thisWeek(), forever
	var weeks []calendar.Week
	if when != (When{}) {
		var err error
		if weeks, err = when.weeks(d.reader(), 1); err != nil {
			return nil, err
		}
		from, to = weeks[0], weeks[len(weeks)-1]
	}
	all, err := d.ledger.Allocations(ctx, from, to)
	all = slices.DeleteFunc(all, func(a ledger.Allocation) bool {
		return project != "" && a.Project != project || len(weeks) > 0 && !slices.Contains(weeks, a.Week)
	})
	if err != nil {
		return nil, err
	}
	order, err := d.stepOrder(ctx)
	slices.SortFunc(all, func(a, b ledger.Allocation) int { return cmp.Or(a.Week.Compare(b.Week), order.compare(a.Pool, b.Pool)) })
	return append([]ledger.Allocation{}, all...), err
}

// forever is a week after all that can be planned.
var forever = calendar.Week{Year: math.MaxInt32, Week: 53}

// SetAllocation sets a pool's terms in the weeks that are named, which it returns: this
// one where none is. Zero terms withdraw its slots.
func (d *Desk) SetAllocation(ctx context.Context, pool Pool, terms Terms, when When, comment string) ([]calendar.Week, error) {
	n, err := newNote("", comment)
	if err != nil {
		return nil, err
	}
	if pool.Step != "" {
		if err := checkName("step", pool.Step); err != nil {
			return nil, err
		}
	}
	all, err := d.plannable(when)
	if err != nil {
		return nil, err
	}
	project, err := d.project(ctx, pool.Project)
	if err == nil {
		err = d.mayPlan(project)
	}
	if err == nil {
		err = d.MayWrite()
	}
	if err != nil {
		return nil, err
	}
	var changes []ledger.Change
	for _, w := range all {
		changes = append(changes, ledger.Change{Pool: pool, Week: w, Terms: terms})
	}
	p, err := d.planner(ctx, changes)
	if err != nil {
		return nil, err
	}
	_, err = p.apply(ctx, n, changes, func() error { return d.checkCells(ctx, changes) })
	return all, err
}

// Export is what some projects have in some weeks. No projects: all that have slots
// there. The weeks are in a row: up to the last that may be planned, unless they are given.
func (d *Desk) Export(ctx context.Context, projects []string, when When) (*PlanFile, error) {
	for _, name := range projects {
		if _, err := d.project(ctx, name); err != nil {
			return nil, err
		}
	}
	weeks, err := when.weeks(d.reader(), 1)
	if err == nil {
		err = inARow("a plan file", weeks)
	}
	if err != nil {
		return nil, err
	}
	from, to := weeks[0], weeks[len(weeks)-1]
	if when.Weeks == "" && d.horizon().Compare(to) > 0 {
		to = d.horizon()
	}
	planned, err := d.ledger.Allocations(ctx, from, to)
	if err != nil {
		return nil, err
	}
	f := &PlanFile{From: from, To: to, Projects: projects}
	if f.Steps, err = d.stepsOfProjects(ctx); err != nil {
		return nil, err
	}
	for _, a := range planned {
		if len(projects) > 0 && !slices.Contains(projects, a.Project) {
			continue
		}
		f.Allocations = append(f.Allocations, ledger.Change{Pool: a.Pool, Week: a.Week, Terms: a.Terms})
		if !slices.Contains(f.Projects, a.Project) {
			f.Projects = append(f.Projects, a.Project)
		}
	}
	return f, nil
}

// Import is a plan's file beside what is planned.
type Import struct {
	Differences []Difference
	Kept        []Difference // of a table: cells that others changed since it was exported, and the file did not
	Cells       bool         // it is a table
	Lines       []Line       // of another file: the differences, joined where they are the same in weeks in a row

	note    note
	force   bool
	sheet   *SheetPlan // nil: no table
	planner *planner
	name    string
	file    *PlanFile
	changes []ledger.Change
}

// maxPlanFile is more bytes than any plan has.
const maxPlanFile = 64 << 20

// Import reads a plan's file, stdin for -, and checks all that it would change. It
// changes nothing. A table whose cells were changed in the plan, too, since it was exported is
// an error unless forced.
func (d *Desk) Import(ctx context.Context, file string, stdin io.Reader, force bool, comment string) (*Import, error) {
	n, err := newNote("alloc import", comment)
	if err != nil {
		return nil, err
	}
	i := &Import{name: file, force: force, note: n}
	var content []byte
	if file == "-" {
		i.name = "standard input"
		content, err = io.ReadAll(io.LimitReader(stdin, maxPlanFile))
	} else {
		if err := d.MayName("read the plan"); err != nil {
			return nil, fmt.Errorf("%w; or pass the plan by standard input: sudo … pba alloc import --yes - <%s", err, file)
		}
		content, err = d.readNamed("read the plan", file, maxPlanFile)
	}
	if err != nil {
		return nil, err
	}
	if kind := readKind(file, content); kind != YAMLFile {
		i.Cells = true
		return d.importSheet(ctx, i, kind, content)
	}
	if i.file, err = ReadPlan(i.name, content); err != nil {
		return nil, err
	}
	for k, project := range i.file.Projects {
		if _, err := d.project(ctx, project); errors.Is(err, ledger.ErrUnknownProject) {
			return nil, &config.Error{File: i.name, Line: i.file.ProjectLines[k], Why: err.Error()}
		} else if err != nil {
			return nil, err
		}
	}
	if i.Differences, err = d.differences(ctx, i.file); err != nil || len(i.Differences) == 0 {
		return i, err
	}
	order, err := d.stepOrder(ctx)
	if err != nil {
		return nil, err
	}
	i.Lines = planLines(i.Differences, order)
	for _, x := range i.Differences {
		i.changes = append(i.changes, x.Change)
	}
	if i.planner, err = d.planner(ctx, i.changes); err == nil {
		err = i.planner.checkAll(ctx, i.changes)
	}
	return i, i.inFile(err)
}

// Apply changes the plan as was shown, or nothing.
func (i *Import) Apply(ctx context.Context) (int64, error) {
	id, err := i.planner.apply(ctx, i.note, i.changes, func() error {
		again, err := i.now(ctx)
		if err == nil && !slices.Equal(again, i.Differences) {
			err = errors.New("import: another edit changed the plan meanwhile: nothing is applied; run the import again")
		}
		return err
	})
	return id, i.inFile(err)
}

// now returns what the file would change now.
func (i *Import) now(ctx context.Context) (all []Difference, err error) {
	if i.sheet == nil {
		return i.planner.differences(ctx, i.file)
	}
	all, _, err = i.planner.sheetDifferences(ctx, i.sheet, i.force)
	return all, err
}

// inFile adds to faults where the file says it.
func (i *Import) inFile(err error) error {
	var all wrongChanges
	if !errors.As(err, &all) {
		return err
	}
	texts := make([]string, len(all))
	for k, f := range all {
		texts[k] = i.place(f).Error()
	}
	return errors.New(faultText(texts))
}

// place adds to a fault where the file says it.
func (i *Import) place(f *changeError) error {
	if i.sheet != nil {
		row, column := i.sheet.place(f.change, f.part)
		return fmt.Errorf("%s: cell %s%d: %w", i.name, cellName(column), row, f)
	}
	if line, ok := i.file.Lines[f.change]; ok {
		return &config.Error{File: i.name, Line: line, Why: f.Error()}
	}
	return &config.Error{File: i.name, Why: fmt.Sprintf("it withdraws %s in %s: %v", f.change.Pool, f.change.Week, f)}
}

// differences are what a plan would change now.
func (d *Desk) differences(ctx context.Context, f *PlanFile) ([]Difference, error) {
	planned, err := d.ledger.Allocations(ctx, f.From, f.To)
	return f.Compare(planned), err
}
