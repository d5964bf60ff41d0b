package split

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split/task"
	"github.com/allotment-hpc/allotment/split/try"
)

// tried returns the sizes of the next round if it is one of a trial (R49): each host gets whole blocks, such
// that all end early, and a host for which there is none waits. Items at which tasks were killed come before:
// what kills them is known when the trial is judged.
func (c *Core) tried(have int64, more bool, without []string) []metrics.Task {
	if c.Trial == nil || c.Trial.Over {
		return nil
	}
	killed := int64(0)
	for _, p := range c.Front {
		if p.Kills > 0 && p.available(have) {
			killed += p.Count
		}
	}
	if killed > 0 {
		return c.Balance.Next(int(min(killed, task.MaxItems)), true, without...)
	}
	hosts := slices.DeleteFunc(c.Balance.Shares(), func(s metrics.Share) bool { return slices.Contains(without, s.Host) })
	cells, unit := c.Trial.Next(have, more, len(hosts))
	if cells == 0 || len(hosts) == 0 {
		return nil
	}
	sizes := make([]metrics.Task, len(hosts))
	for n, h := range hosts {
		sizes[n].Host = h.Host
	}
	for ; cells > 0; cells -= unit {
		first, least := 0, math.Inf(1)
		for n, h := range hosts {
			if end := float64(sizes[n].Items+unit) / max(h.Percent, 0.01); end < least {
				first, least = n, end
			}
		}
		sizes[first].Items += min(unit, cells)
	}
	return slices.DeleteFunc(sizes, func(t metrics.Task) bool { return t.Items == 0 })
}

// cells returns which settings the items of a piece have. At those at which tasks were killed nothing is
// measured: each time all of them have another setting, so that one that kills is found.
func (c *Core) cells(p *Piece) []try.Cell {
	if c.Trial == nil {
		return nil
	}
	if p.Kills == 0 && !c.Trial.Over {
		if cells := c.Trial.Deal(int(p.Count)); len(cells) > 0 {
			for int64(len(cells)) < p.Count {
				cells = append(cells, try.Cell{Variant: c.Trial.Spare(0)})
			}
			return cells
		}
	}
	return []try.Cell{{Variant: c.Trial.Spare(p.Kills)}}
}

// variant returns the setting of an item of a task, which counts from 0.
func (t *Task) variant(item int64) try.Cell {
	if len(t.Cells) == 1 {
		return t.Cells[0]
	}
	return t.Cells[item]
}

// variants returns the settings of a task's items, in their order: an item that is executed again gets the
// next one of them.
func (t *Task) variants() (all []int) {
	for _, cell := range t.Cells {
		if !slices.Contains(all, cell.Variant) {
			all = append(all, cell.Variant)
		}
	}
	slices.Sort(all)
	return all
}

// blame has a task's death count against the setting that its items have, if all have the same.
func (c *Core) blame(t *Task) {
	if all := t.variants(); c.Trial != nil && len(all) == 1 {
		c.Trial.Record(try.Cell{Variant: all[0]}, 0, true)
	}
}

// execution is an execution of an item of a task.
type execution struct {
	cell   try.Cell
	record task.Record
	failed bool
}

// executions returns what a task's result says of the settings of its items.
func (t *Task) executions(result *task.Result) (all []execution, err error) {
	variants := t.variants()
	err = result.Each(func(r task.Record) error {
		if r.Item >= int64(len(t.Cells)) && len(t.Cells) != 1 {
			return errors.New("it has more items than settings")
		}
		cell := t.variant(r.Item)
		at := slices.Index(variants, cell.Variant)
		for n := range max(r.Tries, 1) {
			e := execution{cell: cell, record: r, failed: n+1 < r.Tries || r.Status != 0}
			if e.cell.Variant = variants[(at+n)%len(variants)]; n > 0 { // what came before may help it, or not
				e.cell.Block = 0
			}
			all = append(all, e)
		}
		return nil
	})
	return all, err
}

// beginTrial begins the trial of a split, unless an earlier run did.
func (r *runner) beginTrial() error {
	if len(r.def.Try) == 0 {
		return nil
	}
	if err := try.Check(r.def.Try); err != nil {
		return fmt.Errorf("settings to try: %w", err)
	}
	r.settings = try.Variants(r.def.Try)
	if r.core.Trial == nil {
		h := fnv.New64a()
		_, _ = h.Write([]byte(r.def.Token)) // no hash fails
		r.core.Trial = try.New(len(r.settings), h.Sum64())
	}
	if n := r.core.Trial.Variants; n != len(r.settings) {
		return fmt.Errorf("the split's state has %d settings, its definition %d", n, len(r.settings))
	}
	r.trialTold = r.core.Trial.Over
	return nil
}

// trySettings adds to a task's order which settings its items have.
func (r *runner) trySettings(w *row, o *task.Order) {
	variants := w.variants()
	for _, v := range variants {
		o.Try = append(o.Try, r.settings[v])
	}
	if len(variants) < 2 {
		return
	}
	for i := range w.Count {
		o.Tries = append(o.Tries, slices.Index(variants, w.variant(i).Variant))
	}
}

// fitTrial tells the trial how many items run side by side on a host, on that with the fewest.
func (r *runner) fitTrial() {
	if r.core.Trial == nil || len(r.core.Hosts) == 0 {
		return
	}
	least := math.MaxInt
	for _, host := range r.core.Hosts {
		least = min(least, r.slotsOn(host))
	}
	r.core.Trial.Slots = least
}

// tellTrial logs the trial's result, once.
func (r *runner) tellTrial(have int64) {
	if r.core.Trial != nil && r.core.Trial.Over && !r.trialTold {
		r.trialTold = true
		r.log(r.trialReport(have).Text)
	}
}

// trialReport returns what the trial found, of so many items.
func (r *runner) trialReport(have int64) *TrialReport {
	t := r.core.Trial
	if t == nil {
		return nil
	}
	text := func(v int) string { return shown(strings.Join(r.settings[v], " ")) }
	report := &TrialReport{Best: text(t.Leader), Sure: t.Sure, Tried: t.Used, Over: t.Over}
	next := -1
	for v := range t.Variants {
		report.Settings = append(report.Settings, SettingReport{Setting: text(v), Executed: t.Ran[v], Failed: t.Failed[v], Ratio: t.Ratio[v]})
		if v != t.Leader && t.Ratio[v] > 0 && (next < 0 || t.Ratio[v] < t.Ratio[next]) {
			next = v
		}
	}
	percent := min(int(100*t.Sure), 99)
	after := fmt.Sprintf("after %d of %d items", t.Used, have)
	switch {
	case t.Sure < 1-try.Level:
		report.Text = fmt.Sprintf("no difference between %d settings was found that is sure: %s goes on, sure to %d %% only, %s", t.Variants, report.Best, percent, after)
	case next < 0:
		report.Text = fmt.Sprintf("%s is the best of %d settings: the others fail, sure to %d %%, %s", report.Best, t.Variants, percent, after)
	default:
		report.Text = fmt.Sprintf("%s is the best of %d settings: %.0f %% faster than %s, sure to %d %%, %s", report.Best, t.Variants, 100*(t.Ratio[next]-1), text(next), percent, after)
	}
	if worst := slices.MaxFunc(report.Settings, func(a, b SettingReport) int { return cmp.Compare(a.Failed*b.Executed, b.Failed*a.Executed) }); worst.Failed > 0 {
		report.Text += fmt.Sprintf("; with %s %d of %d executions failed", worst.Setting, worst.Failed, worst.Executed)
	}
	return report
}
