package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// Proposal is how the plan would change: checked, shown, and not made yet.
type Proposal struct {
	Differences []Difference
	Undoes      int64            // the change that it undoes; 0: none
	Request     *ledger.Request  // that this change granted, or opened again; nil: none
	Over        []calendar.Range // weeks that are over and stay as they are
	Lines       []Line           // the differences, joined where they are the same in weeks in a row

	applied func(context.Context) (int64, error) // of one that a server made; nil: of a desk

	planner *planner
	note    note
	again   func(context.Context) ([]Difference, error) // what it would be now
}

// propose checks what would change. It changes nothing.
func (d *Desk) propose(ctx context.Context, n note, differences func(context.Context) ([]Difference, error)) (*Proposal, error) {
	p := &Proposal{note: n, again: differences}
	var err error
	if p.Differences, err = differences(ctx); err != nil || len(p.Differences) == 0 {
		return p, err
	}
	order, err := d.stepOrder(ctx)
	if err != nil {
		return nil, err
	}
	p.Lines = planLines(p.Differences, order)
	changes := p.changes()
	if p.planner, err = d.planner(ctx, changes); err == nil {
		err = p.planner.checkAll(ctx, changes)
	}
	return p, err
}

func (p *Proposal) changes() []ledger.Change {
	all := make([]ledger.Change, len(p.Differences))
	for i, x := range p.Differences {
		all[i] = x.Change
	}
	return all
}

// ProposalOf returns a proposal that a server made, which this function applies.
func ProposalOf(shown Proposal, apply func(context.Context) (int64, error)) *Proposal {
	shown.applied = apply
	return &shown
}

// Apply changes the plan as was shown, or nothing. It returns the number of the change in
// the log.
func (p *Proposal) Apply(ctx context.Context) (int64, error) {
	if p.applied != nil {
		return p.applied(ctx)
	}
	return p.planner.apply(ctx, p.note, p.changes(), func() error {
		now, err := p.again(ctx)
		if err == nil && !slices.Equal(now, p.Differences) {
			err = fmt.Errorf("%s: another edit changed the plan meanwhile: nothing is applied; run it again", strings.TrimPrefix(p.note.command, "alloc "))
		}
		return err
	})
}

// note is what the log says of a change.
type note struct {
	command string // alloc set …
	comment string
	undoes  int64 // the change that it undoes; 0: none
}

// maxComment is the largest number of characters of a comment.
const maxComment = 200

// newNote checks a comment, which is shown on terminals.
func newNote(command, comment string) (note, error) {
	comment = strings.TrimSpace(comment)
	switch {
	case utf8.RuneCountInString(comment) > maxComment:
		return note{}, invalidf("--comment: %d characters: at most %d", utf8.RuneCountInString(comment), maxComment)
	case strings.ContainsFunc(comment, printable.Hidden):
		return note{}, invalidf("--comment: %s: want one line without control characters", printable.Text(comment))
	}
	return note{command: command, comment: comment}, nil
}

// maxNamed is the number of faults that an error names.
const maxNamed = 10

// wrongChanges are all that keeps changes from being made.
type wrongChanges []*changeError

func (all wrongChanges) Error() string {
	texts := make([]string, len(all))
	for i, f := range all {
		texts[i] = f.Error()
	}
	return faultText(texts)
}

// faultText has a line for each different fault, up to maxNamed.
func faultText(texts []string) string {
	var lines []string
	more := 0
	seen := map[string]bool{}
	for _, text := range texts {
		switch {
		case seen[text]:
			continue
		case len(lines) < maxNamed:
			lines = append(lines, text)
		default:
			more++
		}
		seen[text] = true
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults.
func (all wrongChanges) Unwrap() []error {
	errs := make([]error, len(all))
	for i, f := range all {
		errs[i] = f
	}
	return errs
}

// Copy proposes that weeks have the plan of another one: that of some projects, or of all
// that have slots in it. Where those have other slots in these weeks, these are withdrawn;
// other projects keep theirs. When is a number of weeks after the other one, or the weeks.
func (d *Desk) Copy(ctx context.Context, week, weeks string, projects []string, comment string) (*Proposal, error) {
	n, err := newNote("alloc copy", comment)
	if err != nil {
		return nil, err
	}
	for _, name := range projects {
		if _, err := d.project(ctx, name); err != nil {
			return nil, err
		}
	}
	from, err := d.reader().Week(week)
	if err != nil {
		return nil, invalidf("%w", err)
	}
	when := When{Weeks: weeks}
	if weeks == "" || weekCount.MatchString(weeks) {
		when.Week = calendar.AddWeeks(from, 1).String()
	}
	to, err := d.plannable(when)
	if err != nil {
		return nil, err
	}
	if to = slices.DeleteFunc(to, func(w calendar.Week) bool { return w == from }); len(to) == 0 {
		return nil, invalidf("--weeks: %s can't be copied to itself", from)
	}
	return d.propose(ctx, n, func(ctx context.Context) ([]Difference, error) {
		source, err := d.ledger.Allocations(ctx, from, from)
		if err != nil {
			return nil, err
		}
		there, err := d.ledger.Allocations(ctx, to[0], to[len(to)-1])
		if err != nil {
			return nil, err
		}
		if all, ok := copied(source, there, to, projects); ok {
			return all, nil
		}
		return nil, errors.New(nothingIn(from, projects))
	})
}

func nothingIn(from calendar.Week, projects []string) string {
	if len(projects) == 0 {
		return fmt.Sprintf("copy %s: no slots are planned in it", from)
	}
	return fmt.Sprintf("copy %s: it has no slots for %s", from, strings.Join(projects, ", "))
}

// copied returns what changes if weeks get the plan of source: that of some projects, or
// of all that are in it; and false if it has none of them. There is what is planned.
func copied(source, there []ledger.Allocation, weeks []calendar.Week, projects []string) ([]Difference, bool) {
	taken := map[string]bool{}
	for _, name := range projects {
		taken[name] = true
	}
	var wanted []ledger.Change
	concerned := map[string]bool{}
	for _, a := range source {
		if len(projects) > 0 && !taken[a.Project] {
			continue
		}
		concerned[a.Project] = true
		for _, w := range weeks {
			wanted = append(wanted, ledger.Change{Pool: a.Pool, Week: w, Terms: a.Terms})
		}
	}
	in := map[calendar.Week]bool{}
	for _, w := range weeks {
		in[w] = true
	}
	return differ(wanted, there, func(a ledger.Allocation) bool { return concerned[a.Project] && in[a.Week] }), len(wanted) > 0
}
