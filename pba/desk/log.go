package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// LogQuery selects changes of the log.
type LogQuery struct {
	Project string
	Since   string // a week, from its beginning; or a date; "": all
	Limit   int    // the latest changes
	Before  int64  // only changes before this one; 0: all
}

// MaxLog is the largest number of changes that are listed at once.
const MaxLog = 10_000

// Logged is what one command changed.
type Logged struct {
	ID       int64     `json:"change"`
	At       time.Time `json:"at"`
	Who      string    `json:"who"`
	Command  string    `json:"command"`
	Comment  string    `json:"comment,omitempty"`
	Undoes   int64     `json:"undoes,omitempty"`
	UndoneBy int64     `json:"undone_by,omitempty"`
	Lines    []Line    `json:"allocations,omitempty"`
	Edits    []Edit    `json:"edits,omitempty"` // of anything else, and allocations of older versions
}

// Edit is a change of something else than an allocation.
type Edit struct {
	Subject string `json:"subject"`
	Was     string `json:"was"`
	Is      string `json:"is"`
}

// Changes lists what changed, the latest change first.
func (d *Desk) Changes(ctx context.Context, q LogQuery) ([]Logged, error) {
	if q.Limit < 1 || q.Limit > MaxLog {
		return nil, invalidf("--limit %d: want 1 to %d", q.Limit, MaxLog)
	}
	since, err := d.since(q.Since)
	if err != nil {
		return nil, err
	}
	found, err := d.ledger.Log(ctx, ledger.Query{Project: q.Project, Since: since, Limit: q.Limit, Before: q.Before})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		if err := d.requireProject(ctx, q.Project, false); err != nil {
			return nil, err
		}
	}
	order, err := d.stepOrder(ctx)
	if err != nil {
		return nil, err
	}
	undoings, err := d.ledger.Undoings(ctx)
	for i := range found {
		found[i].At = found[i].At.In(d.zone())
	}
	return logged(found, undone(undoings), order), err
}

// since reads a date or a week of the past, and returns its beginning.
func (d *Desk) since(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if day, err := time.ParseInLocation(time.DateOnly, text, d.zone()); err == nil {
		return day, nil
	}
	w, err := d.pastReader().Week(text)
	if err != nil {
		return time.Time{}, invalidf("--since: %w", err)
	}
	return calendar.PeriodOf(w, d.zone()).Begin, nil
}

// logged puts the rows of each change together.
func logged(rows []ledger.Record, undone map[int64]int64, order stepOrder) []Logged {
	all := []Logged{}
	for i := 0; i < len(rows); {
		r := rows[i]
		one := Logged{ID: r.Change, At: r.At, Who: r.Who, Command: r.Command, Comment: r.Comment, Undoes: r.Undoes, UndoneBy: undone[r.Change]}
		var cells []Difference
		for ; i < len(rows) && rows[i].Change == one.ID; i++ {
			if r := rows[i]; r.PoolID != 0 {
				cells = append(cells, Difference{ledger.Change{Pool: r.Pool, Week: r.Week, Terms: r.Is}, r.Was})
			} else {
				one.Edits = append(one.Edits, Edit{r.Subject, r.Before, r.After})
			}
		}
		if len(cells) > 0 {
			one.Lines = planLines(cells, order)
		}
		all = append(all, one)
	}
	return all
}

// undone returns the changes that are undone, with the change that did so last. All are
// the latest first: one that is undone itself undoes nothing.
func undone(all []ledger.Undoing) map[int64]int64 {
	by := map[int64]int64{}
	for _, u := range all {
		if by[u.Change] == 0 && by[u.Undoes] == 0 {
			by[u.Undoes] = u.Change
		}
	}
	return by
}

// Undo proposes to undo a change of allocations; for 0, the caller's last one that is not
// undone and undoes no other. What it changed must be as it left it.
func (d *Desk) Undo(ctx context.Context, id int64, comment string) (*Proposal, error) {
	n, err := newNote("alloc undo", comment)
	if err != nil {
		return nil, err
	}
	undoings, err := d.ledger.Undoings(ctx)
	if err != nil {
		return nil, err
	}
	by := undone(undoings)
	if id == 0 {
		if id, err = d.lastOwn(ctx, by); err != nil {
			return nil, err
		}
	}
	if by[id] != 0 {
		return nil, fmt.Errorf("undo change %d: change %d has undone it already (`pba alloc undo %d` makes it again)", id, by[id], by[id])
	}
	cells, err := d.cellsOf(ctx, id)
	if err != nil {
		return nil, err
	}
	n.undoes = id
	byWeek := func(a, b ledger.Record) int { return a.Week.Compare(b.Week) }
	first, last := slices.MinFunc(cells, byWeek).Week, slices.MaxFunc(cells, byWeek).Week
	var over []calendar.Week
	p, err := d.propose(ctx, n, func(ctx context.Context) ([]Difference, error) {
		planned, err := d.ledger.Allocations(ctx, first, last)
		if err != nil {
			return nil, err
		}
		all, past, conflicts := undoing(cells, planned, d.thisWeek())
		over = past
		if len(conflicts) > 0 {
			return nil, d.explainConflicts(ctx, id, conflicts)
		}
		return all, nil
	})
	if err != nil {
		return nil, err
	}
	p.Undoes, p.Over = id, calendar.Ranges(over)
	if len(p.Differences) == 0 {
		return nil, fmt.Errorf("undo change %d: all its weeks are over", id)
	}
	granted, err := d.ledger.GrantedBy(ctx, id, d.thisWeek())
	if len(granted) > 0 {
		p.Request = &granted[0]
	}
	return p, err
}

// lastOwn finds the caller's last change that may be undone without its number.
func (d *Desk) lastOwn(ctx context.Context, undone map[int64]int64) (int64, error) {
	direct := person(d.Caller.String())
	all, err := d.ledger.ByEditors(ctx, direct, direct+bySudo, direct+byPage)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(all, func(id int64) bool { return undone[id] == 0 })
	if i < 0 {
		return 0, fmt.Errorf("undo: the log has no change of allocations by %s that is not undone: see `pba alloc log`", direct)
	}
	return all[i], nil
}

// cellsOf returns what a change did to allocations.
func (d *Desk) cellsOf(ctx context.Context, id int64) ([]ledger.Record, error) {
	rows, err := d.ledger.Log(ctx, ledger.Query{Change: id, Limit: 1})
	if err != nil {
		return nil, err
	}
	cells := slices.DeleteFunc(slices.Clone(rows), func(r ledger.Record) bool { return r.PoolID == 0 })
	switch {
	case len(rows) == 0:
		return nil, fmt.Errorf("undo change %d: the log has no such change: see `pba alloc log`", id)
	case len(cells) == 0 && rows[0].What == "alloc grant":
		return nil, fmt.Errorf("undo change %d: it granted a request, and changed no allocation: there is nothing to undo", id)
	case len(cells) == 0 && (rows[0].What == "alloc set" || rows[0].What == "alloc unset"):
		return nil, fmt.Errorf("undo change %d: an older version of Allotment made it, which did not record what is needed", id)
	case len(cells) == 0 && rows[0].What == "project rename":
		return nil, fmt.Errorf("undo change %d: to give the project its former name again: pba project rename %s %s", id, rows[0].After, rows[0].Before)
	case len(cells) == 0:
		return nil, fmt.Errorf("undo change %d: %q: only changes of allocations can be undone", id, rows[0].What)
	}
	return cells, nil
}

// conflict is what a change did to an allocation that is not as it left it.
type conflict struct {
	ledger.Record
	now ledger.Terms
}

// undoing returns what undoes a change of cells from this week on, the weeks before, and
// the conflicts: cells that are not as the change left them.
func undoing(cells []ledger.Record, planned []ledger.Allocation, this calendar.Week) (all []Difference, over []calendar.Week, conflicts []conflict) {
	now := map[cell]ledger.Terms{}
	for _, a := range planned {
		now[cell{a.Pool, a.Week}] = a.Terms
	}
	for _, c := range cells {
		has := now[cell{c.Pool, c.Week}]
		switch {
		case c.Week.Compare(this) < 0:
			over = append(over, c.Week)
		case has != c.Is:
			conflicts = append(conflicts, conflict{c, has})
		default:
			all = append(all, Difference{ledger.Change{Pool: c.Pool, Week: c.Week, Terms: c.Was}, has})
		}
	}
	slices.SortFunc(over, calendar.Week.Compare)
	return all, slices.Compact(over), conflicts
}

// explainConflicts says what the conflicts are, and who changed it last.
func (d *Desk) explainConflicts(ctx context.Context, id int64, all []conflict) error {
	texts := []string{fmt.Sprintf("undo change %d: nothing is undone, since its allocations changed after it", id)}
	for i, c := range all {
		text := fmt.Sprintf("%s in %s: it left %s, now %s", c.Pool, c.Week, slotsInWords(c.Is), slotsInWords(c.now))
		if i < maxNamed {
			last, err := d.ledger.LastOf(ctx, c.PoolID, c.Week)
			if err != nil {
				return err
			}
			for _, r := range last {
				text += fmt.Sprintf(" (change %d by %s)", r.Change, r.Who)
			}
		}
		texts = append(texts, text)
	}
	return errors.New(faultText(texts))
}

func slotsInWords(t ledger.Terms) string {
	if t.Slots == 0 {
		return "no slots"
	}
	return InWords(t)
}
