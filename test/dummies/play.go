package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/diary"
	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/judge"
)

const (
	cycle = time.Second
	// tick is how often the diaries are read.
	tick = 100 * time.Millisecond
	// cleanupCycles is the number of cycles that clean up after the last job, with one that may have begun
	// when it ends.
	cleanupCycles = 3
	// patience is how long the queue may take to forget the last of them.
	patience = 30 * time.Second
)

// stage is a farm that is played on.
type stage struct {
	name    string
	options farm.Options
	load    amount
	submit  func(ctx context.Context, f *farm.Farm, w jobSpec, job []string) (int64, error)
	limit   time.Duration // of one play
}

// bundled returns the bundled queue, configured to schedule slots and no memory.
func bundled() stage {
	return stage{
		name: "the bundled queue (schedule_by: slots)",
		options: farm.Options{Config: `miniq:
  schedule_by: slots
  nodes: ["n1:4:16G", "n2:4:16G", "n3:4:16G", "n4:4:16G"]
`},
		load: amount{others: 40, shortest: 3 * time.Second},
		submit: func(ctx context.Context, f *farm.Farm, w jobSpec, job []string) (int64, error) {
			line := append([]string{"-P", "A", "-J", w.name, "-M", gigabytes(w), "-o", "/dev/null"}, job...)
			out, err := f.Run(ctx, "asub", line...)
			if err != nil {
				return 0, err
			}
			return farm.Submitted(out)
		},
		limit: 3 * time.Minute,
	}
}

// onSlurm returns a Slurm cluster that schedules CPUs alone.
func onSlurm() stage {
	return stage{
		name: "Slurm (SelectTypeParameters=CR_CPU)",
		options: farm.Options{
			Config: "filter:\n  low_queue: \"\"\n",
			Slurm:  &farm.Slurm{Nodes: hosts, Slots: slots, Conf: []string{"SelectTypeParameters=CR_CPU"}},
		},
		load: amount{others: 20, shortest: 6 * time.Second},
		submit: func(ctx context.Context, f *farm.Farm, w jobSpec, job []string) (int64, error) {
			line := []string{"sbatch", "--parsable", "-A", "A", "-J", w.name, "--mem", gigabytes(w), "-o", "/dev/null", "--wrap", strings.Join(job, " ")}
			out, err := f.RunSlurm(ctx, line...)
			if err != nil {
				return 0, err
			}
			return strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		},
		limit: 5 * time.Minute, // Slurm's time limits are minutes, checked twice in one
	}
}

func gigabytes(w jobSpec) string { return strconv.Itoa(w.memory) + "G" }

// play is one run of the load.
type play struct {
	name, title string
	config      string
	kills       bool // the engine is killed now and then
	forGood     bool // it is killed once and does not come back
	most        int  // cycles until it is killed
	judge       func(*evidence) []judge.Check
}

const reserve = "dummies:\n  mode: reserve\n  max_gathering: 100%\n"

func all() []play {
	return []play{
		{name: "without", title: "without dummy jobs", judge: (*evidence).without},
		{name: "with", title: "with dummy jobs", config: reserve, judge: (*evidence).with},
		{name: "killed", title: "with dummy jobs and an engine that is killed now and then", config: reserve, kills: true, most: 2, judge: (*evidence).killed},
		{
			name: "gone", title: "with dummy jobs and an engine that is killed for good",
			// The dummy jobs' limit is the shortest that is allowed.
			config: reserve + "  limit: 1m\n", forGood: true, most: 10, judge: (*evidence).gone,
		},
	}
}

// actor is one job: what it is to do, and what it wrote.
type actor struct {
	jobSpec
	*diary.Diary
	id backends.ID
}

// scene is a play in progress.
type scene struct {
	*farm.Farm
	play
	out       io.Writer
	queue     backends.Backend
	random    *rand.Rand
	limit     time.Duration
	actors    []*actor
	snapshots []snapshot
	kills     []time.Time

	engine     *farm.Rebalance
	reports    <-chan farm.Report // nil: no engine runs
	restarted  bool               // its next cycle is the first since it was killed
	cyclesLeft int                // cycles until it is killed
	next       time.Time          // of a kill, or of a restart; zero: none is planned
	actions    map[string]int     // actions, by verb
}

// play plays one run. It leaves nothing behind, also after an error.
func (on stage) play(ctx context.Context, out io.Writer, p play, seed uint64) (e *evidence, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, on.limit, fmt.Errorf("not over after %v", on.limit))
	defer cancel()
	o := on.options
	o.Programs = "bin"
	holdLimit := 2 * time.Minute // longer than an engine that is killed is away
	if p.forGood {
		holdLimit = 10 * time.Second
	}
	o.Config = fmt.Sprintf("pba:\n  every: %v\n  hold_limit: %v\n", cycle, holdLimit) + p.config + o.Config
	f, err := farm.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &scene{
		Farm: f, play: p, out: out, queue: f.Queue(), limit: on.limit,
		random: rand.New(rand.NewPCG(seed, 2)), actions: map[string]int{},
	}
	defer func() { err = errors.Join(err, s.end()) }()
	if err := s.begin(ctx, on, load(seed, on.load)); err != nil {
		return nil, err
	}
	if err := s.await(ctx, "every job to end", s.over); err != nil {
		s.printState()
		return nil, err
	}
	return s.gather(ctx)
}

// begin configures the farm, starts the engine and submits the load.
func (s *scene) begin(ctx context.Context, on stage, load []jobSpec) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	group, err := farm.OwnGroup()
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(s.Home, "jobs"), 0o700); err != nil {
		return err
	}
	for _, line := range [][]string{{"init"}, {"project", "add", "A", "--group", group}} {
		if _, err := s.Run(ctx, "pba", line...); err != nil {
			return err
		}
	}
	if on.options.Slurm != nil {
		if _, err := s.InstallHook(); err != nil {
			return err
		}
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	// Until the engine's first cycle the filter has no policy.
	if err := s.await(ctx, "the engine's first cycle", func() bool { return len(s.snapshots) > 0 }); err != nil {
		return err
	}
	for _, w := range load {
		path := filepath.Join(s.Home, "jobs", w.name)
		number, err := on.submit(ctx, s.Farm, w, []string{self, "job", path, w.work.String()})
		if err != nil {
			return err
		}
		s.actors = append(s.actors, &actor{w, diary.New(w.name, path), backends.ID{Job: number}})
		if err := s.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// start starts the engine.
func (s *scene) start(ctx context.Context) (err error) {
	s.engine, err = s.Rebalance(ctx, cycle, 2*s.limit)
	if err != nil {
		return err
	}
	s.reports, s.next = s.engine.Reports, time.Time{}
	s.cyclesLeft = 1 + s.random.IntN(max(s.most, 1))
	return nil
}

// over reports whether every job has ended and its dummy jobs are gone: by the engine's
// next cycles, or, without an engine, by the queue itself.
func (s *scene) over() bool {
	var last time.Time
	for _, a := range s.actors {
		if !a.Ended() {
			return false
		}
		last = maxTime(last, a.Runs[len(a.Runs)-1].End)
	}
	if s.forGood {
		return len(s.kills) == 0 || len(s.listJobs(context.Background())) == 0
	}
	after := 0
	for _, l := range s.snapshots {
		if l.cycle.After(last) {
			after++
		}
	}
	return after >= cleanupCycles
}

// await plays on until so returns true.
func (s *scene) await(ctx context.Context, what string, done func() bool) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		if err := s.step(ctx); err != nil {
			return err
		}
		if done() {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		}
	}
}

// step reads what is new, and kills the engine or brings it back when it is time.
func (s *scene) step(ctx context.Context) error {
	for _, a := range s.actors {
		if err := a.Update(); err != nil {
			return err
		}
	}
	select {
	case r, ok := <-s.reports:
		if !ok {
			return s.engine.Err()
		}
		if err := s.observeCycle(ctx, r); err != nil {
			return err
		}
	default:
	}
	switch {
	case s.next.IsZero() || time.Now().Before(s.next):
	case s.reports != nil:
		s.kills = append(s.kills, time.Now())
		s.markMixed() // by a cycle that will have no report
		s.reports, s.next = nil, time.Time{}
		if !s.forGood {
			s.next = time.Now().Add(time.Duration(s.random.Int64N(int64(2 * cycle))))
		}
		return s.engine.Kill()
	default:
		s.restarted = true
		return s.start(ctx)
	}
	return nil
}

// observeCycle takes a snapshot of the queue after a cycle, and may plan the engine's next kill.
func (s *scene) observeCycle(ctx context.Context, r farm.Report) error {
	for _, a := range r.Actions {
		s.actions[a.Verb]++
		if a.Error != "" {
			fmt.Fprintf(s.out, "pba: %s %s: %s (%s)\n", a.Verb, a.Job, a.Reason, a.Error)
		}
	}
	for _, w := range r.Warnings {
		fmt.Fprintln(s.out, "pba warns:", w)
	}
	if r.Note != "" {
		fmt.Fprintln(s.out, "pba:", r.Note)
		return nil
	}
	took := time.Since(r.At)
	if n := len(s.snapshots); n > 0 && !s.snapshots[n-1].listed.Before(r.At) {
		s.markMixed()
	}
	l := snapshot{cycle: r.At, restarted: s.restarted}
	s.restarted = false
	state, err := s.queue.Snapshot(ctx, time.Now())
	if err != nil {
		return err
	}
	l.listed = time.Now()
	l.ended, l.hosts = map[backends.ID]bool{}, map[backends.ID]string{}
	for _, a := range s.actors {
		l.ended[a.id] = true
	}
	for _, j := range state.Jobs {
		delete(l.ended, j.ID)
		switch {
		case len(j.Hosts) > 0:
			l.hosts[j.ID] = j.Hosts[0].Host
		case len(j.Pinned) == 1:
			l.hosts[j.ID] = j.Pinned[0]
		}
		if j.IsDummy() && !j.Ending {
			l.dummies = append(l.dummies, dummyJob{j.ID, j.DummyFor})
		}
	}
	s.snapshots = append(s.snapshots, l)
	if s.mayKill(&l) {
		if s.cyclesLeft--; s.cyclesLeft == 0 {
			s.next = r.At.Add(cycle + s.phase(took))
		}
	}
	return nil
}

// markMixed marks the last snapshot: it may show half of a cycle.
func (s *scene) markMixed() {
	if n := len(s.snapshots); n > 0 {
		s.snapshots[n-1].mixed = true
	}
}

// mayKill reports whether the engine still has work that a kill can disturb.
func (s *scene) mayKill(l *snapshot) bool {
	some := func(of func(*actor) bool) bool {
		return slices.ContainsFunc(s.actors, func(a *actor) bool { return a.memory == heavy && of(a) })
	}
	if s.forGood {
		return len(s.kills) == 0 && len(l.dummies) > 0 && some(func(a *actor) bool { return len(a.Runs) == 0 })
	}
	return s.play.kills && some(func(a *actor) bool { return !a.Ended() })
}

// phase returns when the engine is killed, from the start of a cycle on: at random during
// the cycle, if that takes as long as the one before, or in the pause before it.
func (s *scene) phase(took time.Duration) time.Duration {
	if s.random.IntN(2) == 0 {
		return time.Duration(s.random.Int64N(int64(took)))
	}
	return -time.Duration(s.random.Int64N(int64(cycle)))
}

// listJobs describes all jobs of the queue that have not ended.
func (s *scene) listJobs(ctx context.Context) []string {
	state, err := s.queue.Snapshot(ctx, time.Now())
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for _, j := range state.Jobs {
		text := fmt.Sprintf("job %s (%s)", j.ID, j.State)
		if j.IsDummy() {
			text += fmt.Sprintf(", a dummy of %s", j.DummyFor)
		}
		all = append(all, text)
	}
	return all
}

// gather returns the evidence, once the queue is empty or patience is over.
func (s *scene) gather(ctx context.Context) (*evidence, error) {
	e := &evidence{snapshots: s.snapshots, kills: s.kills}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	await.Every(waiting, tick, func() bool { e.left = s.listJobs(ctx); return len(e.left) == 0 })
	for _, a := range s.actors {
		if err := a.Update(); err != nil {
			return nil, err
		}
		j := job{name: a.name, id: a.id, memory: a.memory, ends: a.Ends}
		for _, r := range a.Runs {
			j.runs = append(j.runs, run{r.Host, r.Start, r.Last})
		}
		e.jobs = append(e.jobs, j)
	}
	most, seen := 0, 0
	for _, l := range e.snapshots {
		most, seen = max(most, len(l.dummies)), seen+len(l.dummies)
	}
	fmt.Fprintf(s.out, "%d cycles; what the engine did: %v; dummy jobs: at most %d at a time, %d on average\n", len(e.snapshots), s.actions, most, seen/max(1, len(e.snapshots)))
	return e, nil
}

// printState prints the state of a play that did not end in time.
func (s *scene) printState() {
	for _, a := range s.actors {
		if !a.Ended() {
			fmt.Fprintf(s.out, "%s (job %s) has not ended: %d runs\n", a.name, a.id, len(a.Runs))
		}
	}
	for _, line := range [][]string{{"ajobs", "-u", "all"}, {"pba", "status"}} {
		if text, err := s.Run(context.Background(), line[0], line[1:]...); err != nil {
			fmt.Fprintln(s.out, err)
		} else {
			fmt.Fprint(s.out, text)
		}
	}
	fmt.Fprintln(s.out, s.Log())
}

// end stops the engine and removes the farm.
func (s *scene) end() error {
	if s.reports != nil {
		s.engine.Stop()
	}
	if err := errors.Join(s.queue.Close(), s.Close()); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
