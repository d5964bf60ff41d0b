package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/pba/simulate/trace"
	"github.com/allotment-hpc/allotment/test/diary"
	"github.com/allotment-hpc/allotment/test/farm"
)

type options struct {
	trace           string
	arrivals, speed float64
	jobs, widest    int
	rest            int
	user, guarantee int
}

// The farm, and times that are too short to be divided by the speed.
const (
	slots     = 128
	cycle     = time.Second
	threshold = 2 * time.Second
	tick      = 100 * time.Millisecond
)

// config returns a config file with all times but cycle and threshold divided by the
// speed. A cap for a cycle, or for an hour, is for as much of the trace's time.
func config(o options) string {
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) / o.speed) }
	return fmt.Sprintf(`pba:
  every: %v
  pending_threshold: %v
  min_runtime: %v
  start_bucket: %v
  max_victims: %d
  max_victims_per_project: %d
miniq:
  nodes: ["n1:%d"]
  reserve_after: %v
`, cycle, threshold, scaled(time.Minute), scaled(5*time.Minute), int(20*o.speed*cycle.Seconds()/20), int(100*o.speed), slots, scaled(10*time.Minute))
}

// played is one job of the trace as it is played.
type played struct {
	*diary.Diary
	user, slots int
	at          time.Duration // of its submission
	takes       time.Duration
	copies      int // 0: it is an element of the array of the job before it
	submitted   time.Time
	number      int64
}

func (j *played) end() time.Time { return j.Runs[len(j.Runs)-1].End }

// load returns the jobs to be played.
func load(o options) ([]played, error) {
	f, err := os.Open(o.trace)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(o.trace, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("read %s: %w", o.trace, err)
		}
	}
	var jobs []played
	var count int
	var first time.Duration
	for j, err := range trace.ReadSWF(in) {
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", o.trace, err)
		}
		if j.Slots < 1 {
			j.Slots = j.AskedSlots
		}
		if j.Slots < 1 || j.Slots > o.widest || j.Run < 0 || j.Submitted < 0 {
			continue
		}
		if len(jobs) == 0 {
			first = j.Submitted
		}
		job := played{
			user: j.User, slots: j.Slots, copies: 1,
			at:    time.Duration(float64(j.Submitted-first) / o.speed / o.arrivals),
			takes: time.Duration(float64(j.Run) / o.speed).Round(time.Millisecond),
		}
		if j.User != o.user {
			job.copies = o.rest
		}
		jobs = append(jobs, job)
		for job.copies--; job.copies > 0; job.copies-- {
			element := job
			element.copies = 0
			jobs = append(jobs, element)
		}
		if count++; count == o.jobs {
			break
		}
	}
	if count < o.jobs {
		return nil, fmt.Errorf("read %s: it has only %d jobs of at most %d slots", o.trace, count, o.widest)
	}
	slices.SortStableFunc(jobs, func(x, y played) int { return int(x.at - y.at) })
	return jobs, nil
}

// play is one replay on a farm of its own.
type play struct {
	*farm.Farm
	name         string
	rebalances   bool // pba rebalance runs
	printf       func(format string, args ...any)
	jobs         []played
	engine       *farm.Rebalance
	began        time.Time
	lastProgress time.Time      // when its progress was printed last
	actions      map[string]int // what pba did, by verb
}

// run plays all jobs and returns when they have ended. It leaves nothing behind.
func (p *play) run(ctx context.Context, o options, group, self string) (err error) {
	p.Farm, err = farm.Start(ctx, farm.Options{Programs: "bin", Config: config(o)})
	if err != nil {
		return err
	}
	defer func() {
		if p.engine != nil {
			p.engine.Stop()
		}
		err = errors.Join(err, p.Close())
	}()
	if err := p.prepare(ctx, o, group); err != nil {
		return err
	}
	last := p.jobs[len(p.jobs)-1].at
	for i := range p.jobs {
		last = max(last, p.jobs[i].at+p.jobs[i].takes)
	}
	limit := 2*last + time.Minute
	if p.rebalances {
		if p.engine, err = p.Rebalance(ctx, cycle, 2*limit); err != nil {
			return err
		}
	}
	p.began = time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not over after %v", limit))
	defer cancel()
	if err := p.submitAll(ctx, self); err != nil {
		return err
	}
	return p.await(ctx)
}

func (p *play) prepare(ctx context.Context, o options, group string) error {
	if err := os.Mkdir(filepath.Join(p.Home, "jobs"), 0o700); err != nil {
		return err
	}
	if _, err := p.Run(ctx, "pba", "init"); err != nil {
		return err
	}
	known := map[int]bool{}
	for i := range p.jobs {
		u := p.jobs[i].user
		if known[u] {
			continue
		}
		known[u] = true
		if _, err := p.Run(ctx, "pba", "project", "add", project(u), "--group", group); err != nil {
			return err
		}
	}
	if !known[o.user] {
		return fmt.Errorf("none of these jobs belongs to user %d", o.user)
	}
	_, err := p.Run(ctx, "pba", "alloc", "set", project(o.user), strconv.Itoa(o.guarantee), "--weeks", "2")
	return err
}

// project returns the project of a user of the trace: here one user submits all jobs.
func project(user int) string { return "u" + strconv.Itoa(user) }

// submitAll submits each job when it is due, copies of one as an array.
func (p *play) submitAll(ctx context.Context, self string) error {
	for i := 0; i < len(p.jobs); {
		j := &p.jobs[i]
		if err := p.awaitTime(ctx, p.began.Add(j.at)); err != nil {
			return err
		}
		name := fmt.Sprintf("j%d", i)
		path := filepath.Join(p.Home, "jobs", name)
		if j.copies > 1 {
			name += fmt.Sprintf("[1-%d]", j.copies)
		}
		now := time.Now()
		out, err := p.Run(ctx, "asub", "-P", project(j.user), "-n", strconv.Itoa(j.slots), "-J", name, self, "job", path, j.takes.String())
		if err != nil {
			return err
		}
		number, err := farm.Submitted(out)
		if err != nil {
			return err
		}
		for k := 1; k <= j.copies; k++ {
			own := path
			if j.copies > 1 {
				own += "." + strconv.Itoa(k)
			}
			element := &p.jobs[i+k-1]
			element.number, element.submitted, element.Diary = number, now, diary.New(filepath.Base(own), own)
		}
		i += j.copies
	}
	return nil
}

// awaitTime waits for a time and meanwhile reads what is written.
func (p *play) awaitTime(ctx context.Context, at time.Time) error {
	for {
		if err := p.readDiaries(); err != nil {
			return err
		}
		left := time.Until(at)
		if left <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(left, tick)):
		}
	}
}

// readDiaries reads the diaries of the jobs that have not ended, and pba's reports.
func (p *play) readDiaries() error {
	for i := range p.jobs {
		if d := p.jobs[i].Diary; d != nil && !d.Ended() {
			if err := d.Update(); err != nil {
				return err
			}
		}
	}
	p.progress()
	for p.engine != nil {
		select {
		case r, ok := <-p.engine.Reports:
			if !ok {
				return p.engine.Err()
			}
			for _, a := range r.Actions {
				what := a.Verb
				if a.Outcome != "done" {
					what += " (" + a.Outcome + ")"
				}
				p.actions[what]++
			}
		default:
			return nil
		}
	}
	return nil
}

func (p *play) await(ctx context.Context) error {
	for slices.ContainsFunc(p.jobs, func(j played) bool { return !j.Ended() }) {
		if err := p.awaitTime(ctx, time.Now().Add(tick)); err != nil {
			return fmt.Errorf("%s: %w: these jobs have not ended: %s; miniqd's log: %s", p.name, err, strings.Join(p.unfinished(), " "), p.Log())
		}
	}
	return nil
}

// progress prints the progress every 20 s.
func (p *play) progress() {
	const often = 20 * time.Second
	now := time.Now()
	if now.Sub(p.lastProgress) < often {
		return
	}
	p.lastProgress = now
	var submitted, waiting, running, ended int
	for i := range p.jobs {
		switch d := p.jobs[i].Diary; {
		case d == nil:
			continue
		case len(d.Runs) == 0:
			waiting++
		case d.Ended():
			ended++
		default:
			running++
		}
		submitted++
	}
	p.printf("%4.0f s  %-11s %3d of %d jobs submitted, %d wait, %d run, %d ended", now.Sub(p.began).Seconds(), p.name, submitted, len(p.jobs), waiting, running, ended)
}

// unfinished names the jobs that have not ended.
func (p *play) unfinished() []string {
	var names []string
	for i := range p.jobs {
		if j := &p.jobs[i]; j.Diary != nil && !j.Ended() {
			names = append(names, fmt.Sprintf("%s (job %d, %d starts)", j.Name, j.number, len(j.Runs)))
		}
	}
	return names
}
