package split

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/split/task"
)

// delivery writes results in a goroutine of its own: a slow reader keeps no host
// waiting.
type delivery struct {
	out, errs io.Writer
	dir       *Dir
	source    source
	input     Input
	log       func(string)
	tag       bool
	gather    *gather // of a resident job; nil: it is none

	mu     sync.Mutex
	wake   *sync.Cond
	queue  []*Task
	closed bool
	done   chan struct{}

	// Only loop uses these, until done is closed.
	items, failed, killers int64
	err                    error
}

func startDelivery(d *delivery) *delivery {
	d.wake, d.done = sync.NewCond(&d.mu), make(chan struct{})
	go d.loop()
	return d
}

// add queues tasks whose results are next.
func (d *delivery) add(tasks []*Task) {
	d.mu.Lock()
	d.queue = append(d.queue, tasks...)
	d.mu.Unlock()
	d.wake.Signal()
}

// finish ends the delivery, once all results are written. With now it does not wait,
// and writes no more of them.
func (d *delivery) finish(now bool) error {
	d.mu.Lock()
	d.closed = true
	if now {
		d.queue = nil
	}
	d.mu.Unlock()
	d.wake.Signal()
	if now {
		select {
		case <-d.done:
		default: // its write may block for ever
			return nil
		}
	}
	<-d.done
	return d.err
}

func (d *delivery) loop() {
	defer close(d.done)
	for {
		d.mu.Lock()
		for len(d.queue) == 0 && !d.closed {
			d.wake.Wait()
		}
		if len(d.queue) == 0 {
			d.mu.Unlock()
			return
		}
		t := d.queue[0]
		d.queue = d.queue[1:]
		d.mu.Unlock()
		if d.err = d.deliver(t); d.err != nil {
			return
		}
	}
}

// deliver writes the results of one task.
func (d *delivery) deliver(t *Task) error {
	if source, ok := d.source.(*periods); ok {
		return d.collect(t, source)
	}
	d.items += t.Count
	if t.State == Killer {
		d.failed++
		d.killers++
		d.log(fmt.Sprintf("item %d killed its task %d times and has no result: %s", d.input.Number(t.First), maxKills, d.shown(t.First)))
		return nil
	}
	result, err := task.OpenResult(task.File(d.dir.Path, t.N, task.KindResult), d.input.Number(t.First), t.Count)
	if err != nil {
		return fmt.Errorf("deliver results: %w", err)
	}
	to := bufio.NewWriterSize(d.out, 64<<10)
	err = result.Each(func(r task.Record) error {
		tag := d.tagOf(t.First + r.Item)
		if _, err := io.Copy(tagged(to, tag), result.Output(r)); err != nil {
			return err
		}
		if r.Err == 0 && r.Status == 0 {
			return nil
		}
		if err := to.Flush(); err != nil { // the item's standard error goes behind its output
			return err
		}
		if _, err := io.Copy(tagged(d.errs, tag), result.Errors(r)); err != nil {
			return err
		}
		if r.Status != 0 {
			d.failed += r.Count
			d.log(d.failure(t.First+r.Item, r))
		}
		return nil
	})
	if err == nil {
		err = to.Flush()
	}
	if err = errors.Join(err, result.Close()); err != nil {
		return fmt.Errorf("deliver the results of items %d to %d: %w", d.input.Number(t.First), d.input.Number(t.First+t.Count-1), err)
	}
	return nil
}

func (d *delivery) failure(item int64, r task.Record) string {
	if r.Count == 1 {
		return fmt.Sprintf("item %d: exit status %d: %s", d.input.Number(item), r.Status, d.shown(item))
	}
	return fmt.Sprintf("items %d to %d: exit status %d", d.input.Number(item), d.input.Number(item+r.Count-1), r.Status)
}

// shown returns the beginning of an item's text, printable.
func (d *delivery) shown(item int64) string { return printable.Text(d.source.text(item)) }

// tagOf returns what the lines of an item's output begin with.
func (d *delivery) tagOf(item int64) string {
	if !d.tag {
		return ""
	}
	return d.shown(item) + "\t"
}

// tagged returns a writer that writes each line behind a tag. A tag of "" changes nothing.
func tagged(to io.Writer, tag string) io.Writer {
	if tag == "" {
		return to
	}
	return &tagWriter{to: to, tag: tag}
}

type tagWriter struct {
	to     io.Writer
	tag    string
	within bool // a line
}

func (w *tagWriter) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		if !w.within {
			if _, err := io.WriteString(w.to, w.tag); err != nil {
				return 0, err
			}
		}
		if _, err := w.to.Write(line); err != nil {
			return 0, err
		}
		w.within = line[len(line)-1] != '\n'
	}
	return len(p), nil
}
