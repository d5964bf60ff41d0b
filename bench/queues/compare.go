package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/allotment-hpc/allotment/internal/quantile"
)

// slots is the number of slots of every queue, on nodes of perNode each.
const (
	nodes   = 4
	perNode = 4
	slots   = nodes * perNode
)

type options struct {
	programs              string
	below                 string // where directories are made
	jobs, pending, rounds int
	only                  string
	alone                 bool
}

func (o *options) wants(part string) bool { return o.only == "" || o.only == part }

// queue is one of the queues that are compared. A queue is full while jobs are submitted
// or listed, so that nothing else is measured.
type queue interface {
	name() string
	// submit submits jobs that stay pending, one at a time by each of so many clients at
	// once, and returns when the last one is acknowledged.
	submit(ctx context.Context, clients, jobs int) error
	// run submits jobs that do nothing, by eight clients at once, and returns when the
	// last one has ended.
	run(ctx context.Context, jobs int) error
	// list lists so many pending jobs as its users would, and returns the number of
	// bytes and the time that it took.
	list(ctx context.Context, pending int) (int, time.Duration, error)
	// block fills all slots; clear ends all jobs.
	block(ctx context.Context) error
	clear(ctx context.Context) error
	close() error
}

// clientsAtOnce is the number of concurrent clients, where there is more than one.
const clientsAtOnce = 8

// compare runs the whole comparison; false: a budget is missed.
func compare(ctx context.Context, out io.Writer, o options) (met bool, err error) {
	b := &bench{options: o, out: out, figures: map[figure][]float64{}}
	if err := b.printMachine(); err != nil {
		return false, err
	}
	own, err := startMiniq(ctx, &o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, own.close()) }()
	b.queues = []queue{own}
	if !o.alone {
		others, err := b.startOthers(ctx)
		defer func() {
			for _, q := range others {
				err = errors.Join(err, q.close())
			}
		}()
		if err != nil {
			return false, err
		}
		b.queues = append(b.queues, others...)
	}
	for _, part := range []struct {
		name    string
		measure func(context.Context) error
	}{
		{"submit", b.measureSubmissions},
		{"asub", func(ctx context.Context) error { return b.measureCommands(ctx, own) }},
		{"list", b.measureListings},
		{"run", b.measureRuns},
		{"scale", b.measureScale},
		{"pause", b.measurePauses},
		{"ended", b.measureRestarts},
	} {
		if !o.wants(part.name) {
			continue
		}
		if err := part.measure(ctx); err != nil {
			return false, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return b.judge(), nil
}

// startOthers starts the other queues that are installed.
func (b *bench) startOthers(ctx context.Context) ([]queue, error) {
	var all []queue
	for _, start := range []func(context.Context, options) (queue, string, error){startSlurm, startSpooler} {
		q, missing, err := start(ctx, b.options)
		if err != nil {
			return all, err
		}
		if missing != "" {
			b.printf("skipped: %s", missing)
			continue
		}
		all = append(all, q)
	}
	return all, nil
}

// bench is a comparison, with its figures so far.
type bench struct {
	options
	out     io.Writer
	queues  []queue
	figures map[figure][]float64
	pause   []time.Duration // longest answers while the journal was shortened
	memory  int             // MiB, of the daemon of a full queue; 0: not measured

	restarts []restart
}

// figure names a measured value and the queue that it is of.
type figure struct{ metric, queueName string }

func (b *bench) printf(format string, args ...any) { fmt.Fprintf(b.out, format+"\n", args...) }

func (b *bench) add(metric, queueName string, value float64) {
	f := figure{metric, queueName}
	b.figures[f] = append(b.figures[f], value)
}

// median returns the median of what was measured; false: it was not.
func (b *bench) median(metric, queueName string) (float64, bool) {
	return median(b.figures[figure{metric, queueName}])
}

func median(values []float64) (float64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	return quantile.Median(values), true
}

// ratio returns miniq's figure ÷ another queue's: the median of the rounds' ratios, where
// both were measured in each, since the machine itself changes from one to the next.
func (b *bench) ratio(metric, queueName string) (float64, bool) {
	ours, theirs := b.figures[figure{metric, miniqName}], b.figures[figure{metric, queueName}]
	if len(ours) != len(theirs) {
		own, ok := median(ours)
		other, also := median(theirs)
		return own / other, ok && also
	}
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / theirs[i]
	}
	return median(ratios)
}

// Names of the queues.
const (
	miniqName   = "miniq"
	slurmName   = "Slurm"
	spoolerName = "task-spooler"
	bareName    = "bare keepers"
)

// The figures.
const (
	submitOne  = "submissions/s, 1 client"
	submitMany = "submissions/s, 8 clients"
	submitPack = "submissions/s, 8 clients, 100 jobs a request"
	oneCommand = "one submission by command, ms"
	listing    = "listing of pending jobs, ms"
	completion = "jobs/s from submission to end"
	asArray    = "jobs/s from submission to end, one array"
)

// submissionCount returns the number of submissions to measure: fewer of queues that take
// milliseconds for one.
func submissionCount(q queue, clients int) int {
	if q.name() == miniqName {
		return 1000 * min(clients, 4)
	}
	return 100 * min(clients, 4)
}

// measureSubmissions measures submissions of jobs that stay pending.
func (b *bench) measureSubmissions(ctx context.Context) error {
	for _, q := range b.queues {
		if err := q.block(ctx); err != nil {
			return err
		}
	}
	abandoned := map[queue]bool{}
	for range b.rounds {
		for _, q := range b.queues {
			if abandoned[q] {
				continue
			}
			for metric, clients := range map[string]int{submitOne: 1, submitMany: clientsAtOnce} {
				n := submissionCount(q, clients)
				began := time.Now()
				err := q.submit(ctx, clients, n)
				if err != nil && q.name() == spoolerName && ctx.Err() == nil {
					b.printf("left out: %s did not accept %d more jobs: %.200v", q.name(), n, err)
					abandoned[q] = true
					break
				}
				if err != nil {
					return fmt.Errorf("%s: %w", q.name(), err)
				}
				b.add(metric, q.name(), float64(n)/time.Since(began).Seconds())
				if err := awaitIdle(ctx, q); err != nil {
					return err
				}
			}
			if q.name() == spoolerName { // its server serves a thousand waiting jobs
				if err := errors.Join(q.clear(ctx), q.block(ctx)); err != nil {
					return err
				}
			}
			if own, ok := q.(*miniqQueue); ok {
				const n = 16000
				began := time.Now()
				if err := own.submitPacked(ctx, clientsAtOnce, n, 100); err != nil {
					return err
				}
				b.add(submitPack, q.name(), n/time.Since(began).Seconds())
				if err := awaitIdle(ctx, q); err != nil {
					return err
				}
			}
		}
	}
	b.printTable(submitOne, submitMany, submitPack)
	return b.clearAll(ctx)
}

// awaitIdle waits until the bundled queue writes nothing while the next one is measured.
func awaitIdle(ctx context.Context, q queue) error {
	if own, ok := q.(*miniqQueue); ok {
		return own.awaitIdle(ctx)
	}
	return nil
}

func (b *bench) clearAll(ctx context.Context) error {
	for _, q := range b.queues {
		if err := q.clear(ctx); err != nil {
			return fmt.Errorf("%s: %w", q.name(), err)
		}
		if err := awaitIdle(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// measureCommands measures one asub and one sbatch in turn.
func (b *bench) measureCommands(ctx context.Context, own *miniqQueue) error {
	const times = 50
	all := []interface {
		name() string
		command(ctx context.Context) error
	}{own}
	for _, q := range b.queues {
		if s, ok := q.(*slurmQueue); ok {
			all = append(all, s)
		}
		if err := q.block(ctx); err != nil {
			return err
		}
	}
	for range times {
		for _, q := range all {
			began := time.Now()
			if err := q.command(ctx); err != nil {
				return fmt.Errorf("%s: %w", q.name(), err)
			}
			b.add(oneCommand, q.name(), time.Since(began).Seconds()*1000)
		}
	}
	b.printTable(oneCommand)
	return b.clearAll(ctx)
}

// measureListings measures listings of pending jobs.
func (b *bench) measureListings(ctx context.Context) error {
	for _, q := range b.queues {
		if err := q.block(ctx); err != nil {
			return err
		}
		pending := b.pending
		if q.name() == spoolerName {
			pending = min(pending, spoolerPending)
		}
		for i := range b.rounds {
			size, took, err := q.list(ctx, pending)
			if err != nil {
				return fmt.Errorf("%s: %w", q.name(), err)
			}
			b.add(listing, q.name(), took.Seconds()*1000)
			if i == 0 {
				b.printf("%s lists %d pending jobs in %d KB", q.name(), pending, size>>10)
			}
		}
		if err := q.clear(ctx); err != nil {
			return fmt.Errorf("%s: %w", q.name(), err)
		}
	}
	b.printTable(listing)
	return nil
}

// measureRuns measures jobs that do nothing, from the first submission to the last end.
func (b *bench) measureRuns(ctx context.Context) error {
	for i := range b.rounds {
		rate, err := bareRate(ctx, &b.options)
		if err != nil {
			return fmt.Errorf("%s: %w", bareName, err)
		}
		b.add(completion, bareName, rate)
		for _, q := range b.queues {
			if q.name() == slurmName && i > 0 {
				continue // a minute is enough of it
			}
			took, err := b.timeRun(ctx, q)
			if err != nil {
				return fmt.Errorf("%s: %w", q.name(), err)
			}
			if err := awaitIdle(ctx, q); err != nil {
				return err
			}
			b.printf("%s has run %d jobs in %.2f s", q.name(), b.jobs, took.Seconds())
			b.add(completion, q.name(), float64(b.jobs)/took.Seconds())
			if own, ok := q.(*miniqQueue); ok {
				if err := b.measureArray(ctx, own); err != nil {
					return err
				}
			}
		}
	}
	b.printTable(completion, asArray)
	return b.clearAll(ctx)
}

// timeRun returns the time that a queue took for its jobs. Task-spooler's server was seen to
// die of many submissions: it is started again, for up to three tries.
func (b *bench) timeRun(ctx context.Context, q queue) (time.Duration, error) {
	for tries := 1; ; tries++ {
		began := time.Now()
		err := q.run(ctx, b.jobs)
		if err == nil || q.name() != spoolerName || tries == 3 || ctx.Err() != nil {
			return time.Since(began), err
		}
		b.printf("again: %s did not run %d jobs: %.200v", q.name(), b.jobs, err)
		if err := q.clear(ctx); err != nil {
			return 0, err
		}
	}
}

func (b *bench) measureArray(ctx context.Context, own *miniqQueue) error {
	before := own.usage(ctx)
	began := time.Now()
	if err := own.runArray(ctx, b.jobs); err != nil {
		return err
	}
	b.add(asArray, miniqName, float64(b.jobs)/time.Since(began).Seconds())
	b.printf("miniq's processor time a job: %v", own.usage(ctx).since(before, b.jobs))
	return own.awaitIdle(ctx)
}
