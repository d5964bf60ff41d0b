package split

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split/task"
)

// resident is what a run keeps of a resident job (R55).
type resident struct {
	source *periods
	beat   beat
	late   bool      // the user knows that a period took too long
	due    time.Time // when the period is due that is being waited for; zero: none is

	starved bool // a period is due, and there is no host
}

// restoreResident restores the period that is under way, once the core is.
func (r *runner) restoreResident() {
	source, ok := r.source.(*periods)
	if !ok {
		return
	}
	if r.core.Blocks == nil {
		r.core.Blocks = &Blocks{First: r.def.Input.From, Last: r.def.Input.To}
	}
	b := r.core.Blocks
	source.begin(b.Period, b.order())
	r.resident = &resident{source: source, beat: beat{every: r.def.Resident.Period}}
	if b.Period > b.Written { // it goes on at once
		r.resident.beat.begin(time.Now())
	}
	r.sequencer.next = b.items(b.Written)
	r.delivery.gather.written.Store(b.Written)
}

// written reports whether a task is of a period whose results were written.
func (r *runner) written(t *Task) bool {
	return r.core.Blocks != nil && t.First+t.Count <= r.core.Blocks.items(r.core.Blocks.Written)
}

// nextPeriod begins the next period once the last one is written and it is time. over reports that there
// is none.
func (r *runner) nextPeriod(ctx context.Context, ended bool) (round []*Task, over bool, err error) {
	b, now := r.core.Blocks, time.Now()
	if err := r.settle(ctx, now); err != nil || b.Written < b.Period {
		return nil, false, err
	}
	if ended {
		return nil, true, nil
	}
	r.resident.due = time.Time{}
	if now.Before(r.resident.beat.next) {
		r.resident.due = r.resident.beat.next
		return nil, false, nil
	}
	round, moved := r.core.BeginPeriod()
	r.resident.starved = len(round) == 0
	if r.resident.starved {
		return nil, false, nil
	}
	r.resident.beat.begin(now)
	r.resident.source.begin(b.Period, b.order())
	for _, m := range moved {
		r.log(movedText(b.Period, m))
	}
	return round, false, nil
}

// movedText says which blocks moved.
func movedText(period int64, m metrics.Move) string {
	const most = 10
	var blocks []string
	for _, block := range m.Blocks[:min(len(m.Blocks), most)] {
		blocks = append(blocks, strconv.FormatInt(block, 10))
	}
	more := ""
	if len(m.Blocks) > most {
		more = fmt.Sprintf(" and %d more", len(m.Blocks)-most)
	}
	return fmt.Sprintf("period %d: blocks moved from %s to %s: %s%s", period, shown(m.From), shown(m.To), strings.Join(blocks, ", "), more)
}

// waits reports whether work waits for a host.
func (r *runner) waits(have int64) bool {
	return r.core.Waiting(have) > 0 || r.resident != nil && r.resident.starved
}

// settle removes all that is left of periods that were written.
func (r *runner) settle(ctx context.Context, now time.Time) error {
	b, written := r.core.Blocks, r.delivery.gather.written.Load()
	if written == b.Written {
		return nil
	}
	if now.After(r.resident.beat.next) && !r.resident.late {
		r.resident.late = true
		r.log(fmt.Sprintf("period %d took longer than --period %v: such a period delays the next one (this is said once)", written, r.def.Resident.Period))
	}
	b.Written = written
	if err := r.save(ctx); err != nil {
		return err
	}
	r.forgetWorkers(ctx)
	stand := map[int64]bool{} // they are found again by the task that their job began with
	for _, m := range r.crew.members {
		stand[m.N] = true
	}
	for _, w := range r.stood {
		stand[w.N] = true
	}
	if err := r.dir.sweep(r.core.Tasks, stand); err != nil {
		return err
	}
	return r.store.Prune(ctx, b.items(written), r.core.Closed, stand)
}

// forgetWorkers forgets the workers that have ended.
func (r *runner) forgetWorkers(ctx context.Context) {
	var left []int64 // that may have ended
	for _, m := range r.crew.members {
		if m.left && !m.ended && m.given == 0 && m.Job != 0 {
			left = append(left, m.Job)
		}
	}
	if len(left) > 0 {
		if stand, err := r.standingJobs(ctx, left); err == nil { // else the next period asks again
			for _, m := range r.crew.members {
				if slices.Contains(left, m.Job) && !slices.Contains(stand, backends.ID{Job: m.Job}) {
					m.ended = true
				}
			}
		}
	}
	for n, m := range r.crew.members {
		if m.ended && m.given == 0 {
			delete(r.crew.members, n)
		}
	}
}

// endPeriod has an interrupted run write a period whole that it is writing, unless the reader waits long.
func (r *runner) endPeriod() error {
	if r.resident == nil {
		return nil
	}
	close(r.delivery.gather.stop)
	select {
	case <-r.delivery.done:
	case <-time.After(byeTime):
	}
	return r.settle(context.Background(), time.Now())
}

// sweep removes the files of all tasks up to a number, but for the logs of those that are named. Orders go
// first: what has none can't begin.
func (d *Dir) sweep(last int64, keep map[int64]bool) error {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return fmt.Errorf("remove what is left of a period: %w", err)
	}
	for _, orders := range []bool{true, false} {
		for _, e := range entries {
			number, kind, _ := strings.Cut(e.Name(), ".")
			n, err := strconv.ParseInt(number, 10, 64)
			order := strings.HasPrefix(kind, task.KindOrder)
			if err != nil || n < 1 || n > last || order != orders || keep[n] && kind == task.KindLog {
				continue
			}
			if err := os.Remove(d.file(e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove what is left of a period: %w", err)
			}
		}
	}
	return nil
}

// itemsText names the items of a task.
func (r *runner) itemsText(t *Task) string {
	if r.resident == nil {
		return fmt.Sprintf("items %d to %d", r.def.Input.Number(t.First), r.def.Input.Number(t.First+t.Count-1))
	}
	return fmt.Sprintf("period %d, %d of its blocks, the first is %s", r.core.Blocks.Period, t.Count, r.source.text(t.First))
}

// said returns a line for users, or "" if there were too many of them.
func (r *runner) said(text string) string {
	if r.trickle == nil {
		return text
	}
	return r.trickle.pass(text, time.Now())
}
