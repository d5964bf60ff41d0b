package split

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/split/task"
)

// gather collects the results of a resident job's periods (R55).
type gather struct {
	reduce  string        // line of /bin/sh; "": none
	stop    chan struct{} // ends the reduce command
	written atomic.Int64  // the last period whose results were written
	news    chan struct{} // it rose

	// Only the delivery's loop uses these.
	tasks []*Task
	items int64 // of them
}

// blockResult is the result of a block.
type blockResult struct {
	block  int64
	item   int64
	result *task.Result // nil: it killed its tasks
	record task.Record
}

// collect adds a task whose results are next, and writes the period if it was the last.
func (d *delivery) collect(t *Task, source *periods) error {
	g, blocks := d.gather, source.blocks
	g.tasks, g.items = append(g.tasks, t), g.items+t.Count
	if g.items < blocks {
		return nil
	}
	period := t.First/blocks + 1
	if err := d.writePeriod(period, source); err != nil {
		return fmt.Errorf("period %d: %w", period, err)
	}
	g.tasks, g.items = nil, 0
	g.written.Store(period)
	signal(g.news)
	return nil
}

// writePeriod writes what the blocks wrote, in their order, or what the reduce command makes of it.
func (d *delivery) writePeriod(period int64, source *periods) (err error) {
	var all []blockResult
	defer func() {
		for _, b := range all {
			if b.result != nil && b.record.Item == 0 { // each result once
				err = errors.Join(err, b.result.Close())
			}
		}
	}()
	for _, t := range d.gather.tasks {
		if all, err = d.openBlocks(all, t, source); err != nil {
			return err
		}
	}
	slices.SortFunc(all, func(a, b blockResult) int { return cmp.Compare(a.block, b.block) })
	if d.gather.reduce != "" {
		return d.reducePeriod(period, all)
	}
	return d.writeBlocks(d.out, period, all)
}

// openBlocks adds the results of a task's blocks.
func (d *delivery) openBlocks(all []blockResult, t *Task, source *periods) ([]blockResult, error) {
	add := func(b blockResult) (err error) {
		b.item = t.First + b.record.Item
		if b.block, err = source.block(b.item); err == nil {
			all = append(all, b)
		}
		return err
	}
	if t.State == Killer {
		return all, add(blockResult{})
	}
	result, err := task.OpenResult(task.File(d.dir.Path, t.N, task.KindResult), d.input.Number(t.First), t.Count)
	if err != nil {
		return all, fmt.Errorf("read results: %w", err)
	}
	had := len(all)
	err = result.Each(func(r task.Record) error { return add(blockResult{result: result, record: r}) })
	if err != nil && len(all) == had {
		err = errors.Join(err, result.Close())
	}
	return all, err
}

// writeBlocks writes what blocks wrote, and reports those that failed in one line.
func (d *delivery) writeBlocks(out io.Writer, period int64, all []blockResult) error {
	const most = 3
	var failed []string
	failures := 0
	to := bufio.NewWriterSize(out, 64<<10)
	for _, b := range all {
		d.items++
		failure := fmt.Sprintf("%d killed its tasks", b.block)
		if b.result == nil {
			d.killers++
		} else {
			if err := d.writeBlock(to, b); err != nil {
				return err
			}
			if b.record.Status == 0 {
				continue
			}
			failure = fmt.Sprintf("%d: exit status %d", b.block, b.record.Status)
		}
		d.failed++
		if failures++; failures <= most {
			failed = append(failed, failure)
		}
	}
	if err := to.Flush(); err != nil {
		return err
	}
	if failures > most {
		failed = append(failed, "…")
	}
	if failures > 0 {
		d.log(fmt.Sprintf("period %d: blocks that failed: %d of %d (%s)", period, failures, len(all), strings.Join(failed, "; ")))
	}
	return nil
}

func (d *delivery) writeBlock(to *bufio.Writer, b blockResult) error {
	tag := d.tagOf(b.item)
	if _, err := io.Copy(tagged(to, tag), b.result.Output(b.record)); err != nil {
		return err
	}
	if b.record.Err == 0 {
		return nil
	}
	if err := to.Flush(); err != nil { // its standard error goes behind its output
		return err
	}
	_, err := io.Copy(tagged(d.errs, tag), b.result.Errors(b.record))
	return err
}

// fileReduce begins the names of the files of the reduce command: its standard input, output and error.
const fileReduce = "reduce."

// reducePeriod writes what the reduce command writes, once it has ended well: nothing of a period is
// written if it fails.
func (d *delivery) reducePeriod(period int64, all []blockResult) (err error) {
	var files [3]*os.File // standard input, output and error
	for i := range files {
		if files[i], err = os.OpenFile(d.dir.file(fileReduce+strconv.Itoa(i)), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
			return fmt.Errorf("make room for the reduce command: %w", err)
		}
		defer func() { err = errors.Join(err, files[i].Close()) }()
	}
	if err := d.writeBlocks(files[0], period, all); err != nil {
		return err
	}
	if _, err := files[0].Seek(0, io.SeekStart); err != nil {
		return err
	}
	env := (&task.Order{Period: period}).Environ(os.Environ())
	status, _, err := command.AttachedUntil("/bin/sh", []string{"sh", "-c", d.gather.reduce}, env, files[0], files[1], files[2], 0, d.gather.stop)
	if err != nil {
		return err
	}
	for i, to := range []io.Writer{nil, d.out, d.errs} {
		if i == 0 || i == 1 && status != 0 {
			continue
		}
		if _, err := files[i].Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(to, files[i]); err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
	}
	if status != 0 {
		return fmt.Errorf("the reduce command failed with exit status %d, and nothing of the period is written", status)
	}
	return nil
}
