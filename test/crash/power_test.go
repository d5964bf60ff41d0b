package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	backend "github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/miniq"
)

// fact is a job that was acknowledged, and what else was acknowledged of it.
type fact struct {
	job
	round  int    // of the acknowledgement
	name   string // its new name; "": not renamed, or unknown
	killed bool
	ended  *backends.Job // as the queue showed it; nil: not yet
}

// request is a submission that was not acknowledged yet.
type request struct {
	key   string
	specs []backends.Spec
	files []string
}

// witness is a client of a machine that loses its power, with all that was acknowledged.
type witness struct {
	client
	facts []*fact
	open  *request
	round int
}

// outage runs a queue on machines that lose their power again and again, and whose disks
// fail.
type outage struct {
	rounds int
	seed   uint64
	faults float64
}

const witnesses = 4

// run returns what is wrong. An error says that the test did not complete.
func (o outage) run(ctx context.Context, f *farm, bin string) (report string, problems []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	began, dice := time.Now(), newDice(o.seed, 0)
	b := newBook(0)
	all := make([]*witness, witnesses)
	for i := range all {
		q := backend.Open(backend.Options{Paths: f.paths(), Config: miniq.DefaultConfig()})
		all[i] = &witness{client: client{name: fmt.Sprintf("w%d", i), f: f, q: q, book: b, dice: newDice(o.seed, i+1)}}
		defer q.Close()
	}
	g := &judge{f: f, book: b}
	for round := range o.rounds {
		m := &machine{
			Home: f.home, Bin: bin, After: filepath.Join(f.home, "after"), Boot: bootName(round),
			Seed: o.seed*1000 + uint64(round), OffAt: 1 + dice.IntN([]int{60, 600, 1800}[dice.IntN(3)]), Faults: o.faults * float64(round%2), Fault: syscall.EIO,
		}
		if round%4 == 1 {
			m.Fault = syscall.ENOSPC
		}
		r, err := m.on(ctx)
		if err != nil {
			return "", append(g.problems, fmt.Sprintf("round %d: %v", round, err)), nil
		}
		var wg sync.WaitGroup
		for _, w := range all {
			w.round = round
			wg.Go(func() { w.watch(ctx, r) })
		}
		wg.Wait()
		if err := errors.Join(ctx.Err(), b.failed()); err != nil {
			_ = r.cmd.Process.Kill()
			return "", g.problems, err
		}
		if err := r.off(dice); err != nil {
			return "", g.problems, err
		}
	}
	r, err := (&machine{Home: f.home, Bin: bin, Boot: bootName(o.rounds), Seed: o.seed}).on(ctx)
	if err != nil {
		return "", append(g.problems, err.Error()), nil
	}
	facts := 0
	for _, w := range all {
		w.round = o.rounds
		w.awaitEnds(ctx, g)
		facts += len(w.facts)
	}
	if err := errors.Join(ctx.Err(), all[0].q.Stop(ctx, true)); err != nil {
		_ = r.cmd.Process.Kill()
		return "", g.problems, err
	}
	<-r.gone
	return fmt.Sprintf("%d power failures, %d clients, %d jobs acknowledged, %d runs; %v", o.rounds, witnesses, facts, g.runs, time.Since(began).Round(time.Second)), g.problems, nil
}

// watch checks that all that was acknowledged is there, then sends requests until the
// power is lost.
func (w *witness) watch(ctx context.Context, r *running) {
	if len(w.facts) > 0 && w.check(ctx) != nil {
		return
	}
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-r.gone:
			return
		default:
		}
		if err := w.sendRequest(ctx); errors.Is(err, backends.ErrUnreachable) {
			<-r.gone // no other daemon has that socket
			return
		}
	}
}

// check compares the facts with what the queue shows.
func (w *witness) check(ctx context.Context) error {
	ids := make([]backends.ID, len(w.facts))
	for i, fact := range w.facts {
		ids[i] = fact.id
	}
	jobs, err := w.q.Jobs(ctx, ids)
	if err != nil {
		return err
	}
	now := make(map[backends.ID]*backends.Job)
	for i := range jobs {
		now[jobs[i].ID] = &jobs[i]
	}
	for _, fact := range w.facts {
		if err := fact.compare(now[fact.id], w.round); err != nil {
			w.book.fail(&brokenError{err})
		}
	}
	one := w.facts[w.dice.IntN(len(w.facts))]
	record, err := w.q.Record(ctx, one.id)
	if err != nil && !errors.Is(err, backends.ErrUnreachable) {
		return nil // it could not be written yet
	}
	if err == nil && (!slices.Equal(record.Spec.Command, one.spec.Command) || len(record.History) == 0) {
		w.book.fail(&brokenError{fmt.Errorf("the state object of job %v has command %q and %d lines of history", one.id, record.Spec.Command, len(record.History))})
	}
	return err
}

// brokenError is the loss of something that was acknowledged.
type brokenError struct{ error }

func (f *fact) compare(now *backends.Job, round int) error {
	switch {
	case now == nil:
		return fmt.Errorf("job %v was acknowledged in round %d, and is lost in round %d", f.id, f.round, round)
	case f.name != "" && now.Name != f.name:
		return fmt.Errorf("job %v was renamed to %s, and is called %s in round %d", f.id, f.name, now.Name, round)
	case f.killed && now.State != backends.Exited:
		return fmt.Errorf("job %v was killed, and is %v in round %d", f.id, now.State, round)
	case f.ended != nil && (now.State != f.ended.State || now.ExitCode != f.ended.ExitCode || !now.Ended.Equal(f.ended.Ended)):
		return fmt.Errorf("job %v had ended as %v, %d; in round %d it is %v, %d", f.id, f.ended.State, f.ended.ExitCode, round, now.State, now.ExitCode)
	}
	return nil
}

// sendRequest sends one request, and records the answer.
func (w *witness) sendRequest(ctx context.Context) error {
	if w.open != nil || len(w.facts) == 0 {
		return w.submitJobs(ctx)
	}
	fact := w.facts[w.dice.IntN(len(w.facts))]
	switch w.dice.IntN(8) {
	case 0:
		name := fmt.Sprintf("%s-%d", w.name, w.dice.Int())
		change := backends.Change{Name: &name}
		err := w.q.Abilities().Modify(ctx, []backends.ID{fact.id}, change).First()
		switch {
		case err == nil:
			fact.name = name
		case errors.Is(err, backends.ErrUnreachable), strings.Contains(err.Error(), "may be done after all"):
			fact.name = "" // it may have either name now
		}
		return err
	case 1:
		if fact.spec.Hold {
			err := w.q.Kill(ctx, []backends.ID{fact.id}).First()
			fact.killed = fact.killed || err == nil
			return err
		}
	case 2, 3:
		if !fact.spec.Hold && fact.ended == nil {
			waiting, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			jobs, err := w.q.Jobs(waiting, []backends.ID{fact.id})
			if err == nil && len(jobs) == 1 && jobs[0].State.Ended() {
				fact.ended = &jobs[0]
			}
			return err
		}
	}
	return w.submitJobs(ctx)
}

// submitJobs submits a few jobs, or those that were not acknowledged the last time.
func (w *witness) submitJobs(ctx context.Context) error {
	if w.open == nil {
		w.open = &request{}
		for range 1 + w.dice.IntN(4) {
			spec, file := w.spec(w.dice.IntN(60))
			spec.Hold = w.dice.IntN(2) == 0
			spec.Rerunnable = w.dice.IntN(3) == 0
			spec.Env = append(spec.Env, "PADDING="+strings.Repeat("x", w.dice.IntN(1500)))
			w.open.key = spec.Name
			w.open.specs, w.open.files = append(w.open.specs, *spec), append(w.open.files, file)
		}
	}
	results := w.q.SubmitOnce(ctx, w.open.key, w.open.specs)
	for _, r := range results {
		if r.Err != nil {
			if !errors.Is(r.Err, backends.ErrUnreachable) && !strings.Contains(r.Err.Error(), "free some space") {
				w.book.fail(&brokenError{fmt.Errorf("job %s is refused: %w", w.open.key, r.Err)})
			}
			return r.Err
		}
	}
	for i, r := range results {
		w.facts = append(w.facts, &fact{job: job{id: r.ID, spec: &w.open.specs[i], file: w.open.files[i]}, round: w.round})
	}
	w.open = nil
	return nil
}

// awaitEnds lets every job end, on a machine that stays on, and judges its runs.
func (w *witness) awaitEnds(ctx context.Context, g *judge) {
	wrong := func(err error) {
		if err != nil {
			g.wrong("client %s: %v", w.name, err)
		}
	}
	if w.open != nil {
		wrong(w.submitJobs(ctx))
	}
	if len(w.facts) == 0 {
		return
	}
	wrong(w.check(ctx))
	var ids []backends.ID
	for _, fact := range w.facts {
		ids = append(ids, fact.id)
		if fact.spec.Hold && !fact.killed {
			_ = w.q.Release(ctx, []backends.ID{fact.id}) // an unanswered kill may have ended it
		}
	}
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	jobs, err := w.q.WaitEnded(waiting, ids)
	wrong(err)
	for i := range jobs {
		fact := w.facts[slices.Index(ids, jobs[i].ID)]
		runs, err := read(&fact.job)
		if err != nil {
			g.wrong("client %s: job %v: %v", w.name, fact.id, err)
		}
		g.runs += len(runs)
		wrong(fact.judge(&jobs[i], runs, w.round))
	}
}

// judge judges a job; the power may have been lost while it ran.
func (f *fact) judge(now *backends.Job, runs map[int]*written, round int) error {
	unknown := strings.HasPrefix(now.Reason, "exit unknown")
	var last *written // by number: the first run of a job that was run again may never have begun
	if len(runs) > 0 {
		last = runs[slices.Max(slices.Collect(maps.Keys(runs)))]
	}
	switch {
	case f.killed && len(runs) > 0:
		return fmt.Errorf("job %v ran, though it was killed while it was held", f.id)
	case !f.spec.Rerunnable && len(runs) > 1:
		return fmt.Errorf("job %v ran %d times", f.id, len(runs))
	case unknown && (f.spec.Rerunnable || f.round == round):
		return fmt.Errorf("job %v, of round %d, ended as %q", f.id, f.round, now.Reason)
	case unknown, f.killed, strings.HasPrefix(now.Reason, "killed"):
	case last == nil || last.ended.IsZero() || last.status != now.ExitCode:
		return fmt.Errorf("job %v ended with status %d (%s), and wrote %+v", f.id, now.ExitCode, now.Reason, last)
	}
	return nil
}

// TestPowerFailures: the power is lost at any instant, and with it all that was not
// synced, in rounds on the same state. In every other round writes and syncs fail, too.
// All that was acknowledged is there afterwards.
func TestPowerFailures(t *testing.T) {
	bin := build(t)
	seed := seedOf(t)
	t.Logf("CRASH_SEED=%d", seed)
	f, err := newTempFarm(t, bin)
	if err != nil {
		t.Fatal(err)
	}
	report, problems, err := outage{rounds: envNumber(t, "CRASH_ROUNDS", 24), seed: seed, faults: 0.05}.run(t.Context(), f, bin)
	if err != nil {
		t.Error(err)
	}
	for _, p := range problems[:min(len(problems), 20)] {
		t.Error(p)
	}
	if t.Failed() {
		data, _ := os.ReadFile(filepath.Join(f.home, "log"))
		t.Logf("%s", data[max(0, len(data)-3000):])
	}
	t.Log(report)
}
