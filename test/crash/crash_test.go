package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// envNumber returns a number from the environment.
func envNumber(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// seedOf returns the test's seed: that of the environment, else another one each time.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	return uint64(envNumber(t, "CRASH_SEED", int(time.Now().UnixNano()%1_000_000)))
}

func newDice(seed uint64, who int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(who))) }

// TestKilledProcesses: clients submit jobs while daemon, nodes and keepers are killed,
// also in the middle of submissions, and record what was acknowledged to them. At the
// end each of those jobs has ended exactly once.
func TestKilledProcesses(t *testing.T) {
	bin := build(t)
	seed := seedOf(t)
	t.Logf("CRASH_SEED=%d", seed)
	f, err := newTempFarm(t, bin)
	if err != nil {
		t.Fatal(err)
	}
	o := onslaught{jobs: envNumber(t, "CRASH_JOBS", 4000), kills: envNumber(t, "CRASH_KILLS", 100), seed: seed}
	report, problems, err := o.run(t.Context(), f)
	if err != nil {
		t.Errorf("%v\n%s", err, tail(f))
	}
	for i, p := range problems {
		if t.Error(p); i == 20 {
			t.Errorf("and %d problems more", len(problems)-i-1)
			break
		}
	}
	t.Log(report)
}

// tail returns the end of the daemon's log.
func tail(f *farm) string {
	const most = 3000
	data, _ := os.ReadFile(filepath.Join(f.home, "miniq", "miniqd.log"))
	return string(data[max(0, len(data)-most):])
}

// onslaught is how many jobs a farm gets and how many kills.
type onslaught struct {
	jobs, kills int
	seed        uint64
}

const clients = 8 // of which two call asub

// run does it and judges the jobs' ends. An error says that the test did not complete.
func (o onslaught) run(ctx context.Context, f *farm) (report string, problems []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 6*time.Minute)
	defer cancel()
	began := time.Now()
	b := newBook(o.jobs)
	k := &killer{f: f, book: b, dice: newDice(o.seed, 0), keepers: map[string]bool{}, count: map[string]int{}}
	stop := context.AfterFunc(ctx, func() { b.fail(context.Cause(ctx)) })
	defer stop()
	var wg sync.WaitGroup
	for i := range clients {
		c := &client{name: fmt.Sprintf("c%d", i), f: f, q: f.client(), book: b, dice: newDice(o.seed, i+1)}
		work := c.run
		if i >= clients-2 {
			work = c.runAsub
		}
		wg.Go(func() {
			if err := work(ctx); err != nil {
				b.fail(fmt.Errorf("client %s: %w", c.name, err))
			}
			_ = c.q.Close()
		})
	}
	if err := k.run(ctx, o.kills); err != nil {
		b.fail(err)
	}
	wg.Wait()
	known, err := o.end(ctx, f, b)
	if err != nil {
		return "", nil, errors.Join(err, f.stop(context.WithoutCancel(ctx)))
	}
	g := &judge{f: f, book: b, keepers: k.keepers}
	g.all(known)
	var kinds []string
	for _, kind := range []string{"daemon", "node", "both", "keeper"} {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, k.count[kind]))
	}
	report = fmt.Sprintf("%d clients, %d jobs acknowledged, %d kills (%s), %d of them amid a submission; %d runs, %d of unknown end; %d calls of asub failed; %v",
		clients, len(b.jobs), o.kills, strings.Join(kinds, ", "), k.amid, g.runs, g.lost, len(b.maybe), time.Since(began).Round(time.Second))
	return report, g.problems, nil
}

// end waits until every acknowledged job has ended, and lists all that the queue knows.
func (o onslaught) end(ctx context.Context, f *farm, b *book) ([]backends.Job, error) {
	if err := b.failed(); err != nil {
		return nil, err
	}
	var ids []backends.ID
	for id := range b.jobs {
		ids = append(ids, id)
	}
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for len(ids) > 0 {
		n := min(len(ids), 500)
		jobs, err := f.WaitEnded(waiting, ids[:n])
		if err != nil {
			return nil, fmt.Errorf("jobs do not end: %w\n%s", err, unended(context.WithoutCancel(ctx), f))
		}
		_ = jobs
		ids = ids[n:]
	}
	snapshot, err := f.Snapshot(ctx, time.Unix(0, 0))
	if err != nil {
		return nil, err
	}
	// A record is read once all earlier events are in the state objects; a stop waits for
	// them only a short time, since the journal keeps the rest.
	for id := range b.jobs {
		if _, err := f.Record(ctx, id); err != nil {
			return nil, err
		}
		break
	}
	if err := f.stop(ctx); err != nil {
		return nil, err
	}
	return append(snapshot.Jobs, snapshot.Ended...), nil
}

// unended lists the jobs that hang.
func unended(ctx context.Context, f *farm) string {
	snapshot, err := f.Snapshot(ctx, time.Time{})
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for i, j := range snapshot.Jobs {
		if i == 10 {
			break
		}
		fmt.Fprintf(&b, "%+v\n", j)
	}
	return b.String()
}
