package split

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split/task"
)

// residentJob has twelve blocks, whose command is a line of a shell; $1 is the block.
func residentJob(line string, n int64) Definition {
	return Definition{
		Name: "res", Argv: []string{"sh", "-c", line, "sh", "{}"}, Mode: task.Each, Input: Input{Kind: Periods, From: 1, To: 12}, Slots: 1,
		Balance: metrics.Options{Rule: metrics.Half, RoundItems: 12}, Resident: &Resident{Period: MinPeriod, Periods: n},
	}
}

// periodLines returns what the command echo $ALLOTMENT_PERIOD:$1 writes in periods.
func periodLines(from, to int) string {
	var b strings.Builder
	for p := from; p <= to; p++ {
		for block := 1; block <= 12; block++ {
			fmt.Fprintf(&b, "%d:%d\n", p, block)
		}
	}
	return b.String()
}

func TestResident(t *testing.T) {
	t.Setenv(task.EnvPeriod, "99") // of a job that this one was started in
	x := newTrial(t, newQueue("n1", "n2", "n3"))
	if err := Start(t.Context(), residentJob("echo $ALLOTMENT_PERIOD:$1", 5), x.options("")); err != nil {
		t.Fatal(err)
	}
	if got := x.out.String(); got != periodLines(1, 5) {
		t.Errorf("got %q", got)
	}
	if left, err := os.ReadDir(x.work); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if len(x.recorder.rounds) > 0 {
		t.Errorf("a line for each period: %+v", x.recorder.rounds)
	}
}

// The reduce command gets each period's results, in the order of the blocks, and writes instead of them.
func TestReduce(t *testing.T) {
	x := newTrial(t, newQueue("n1", "n2"))
	d := residentJob("echo $1; echo block >&2", 3)
	d.Resident.Reduce = "echo to stderr >&2; echo $ALLOTMENT_PERIOD: $(cat)"
	if err := Start(t.Context(), d, x.options("")); err != nil {
		t.Fatal(err)
	}
	if got, want := x.out.String(), "1: 1 2 3 4 5 6 7 8 9 10 11 12\n2: 1 2 3 4 5 6 7 8 9 10 11 12\n3: 1 2 3 4 5 6 7 8 9 10 11 12\n"; got != want {
		t.Errorf("got %q", got)
	}
	if n := strings.Count(x.errs.String(), "to stderr\n"); n != 3 || strings.Count(x.errs.String(), "block\n") != 36 {
		t.Errorf("standard error: %q", x.errs.String())
	}

	// One that fails writes nothing, and the period is reduced again.
	ok := filepath.Join(t.TempDir(), "ok")
	d.Resident.Reduce = `echo $(wc -l); test $ALLOTMENT_PERIOD != 2 || test -e ` + ok
	err := Start(t.Context(), d, x.options(""))
	if err == nil || !strings.Contains(err.Error(), "period 2: the reduce command failed with exit status 1, and nothing of the period is written") ||
		!strings.Contains(err.Error(), "asplit --resume res continues it") || x.out.String() != "12\n" {
		t.Fatalf("%v; %q", err, x.out.String())
	}
	if err := os.WriteFile(ok, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := len(x.q.all())
	if err := x.resume(t, ""); err != nil || x.out.String() != "12\n12\n" {
		t.Errorf("%v; %q", err, x.out.String())
	}
	if ran := len(x.q.all()) - before; ran != 2 {
		t.Errorf("%d tasks ran for the last period alone", ran)
	}
}

// The source's fig. 3: blocks 9 to 12 take long, and two of them move to the first host, once.
func TestBlocksMove(t *testing.T) {
	x := newTrial(t, newQueue("n1", "n2", "n3"))
	if err := Start(t.Context(), residentJob("test $1 -lt 5 || sleep 0.02; test $1 -lt 9 || sleep 0.2; echo $ALLOTMENT_PERIOD:$1", 2), x.options("")); err != nil {
		t.Fatal(err)
	}
	if got := x.out.String(); got != periodLines(1, 2) {
		t.Errorf("got %q", got)
	}
	if !x.hasLogged("period 2: blocks moved from n3 to n1: 9, 10") {
		t.Errorf("%q", x.recorder.logged)
	}
	if n := len(slices.DeleteFunc(x.recorder.logged, func(s string) bool { return !strings.Contains(s, "took longer than --period") })); n != 1 {
		t.Errorf("that a period took too long is said %d times", n)
	}
}

// Tasks die, jobs fail and are lost, a host goes down and comes back, and the run is interrupted again and
// again: each block stands once in each period, and what was written leaves nothing behind.
func TestResidentWithFaults(t *testing.T) {
	const all = 25
	q := newQueue("n1", "n2", "n3")
	var tasks atomic.Int64
	interrupt := make(chan struct{}, 1)
	q.run = func(ctx context.Context, host, dir string, n int64) int {
		switch now := tasks.Add(1); {
		case now%5 == 0:
			return killTask(dir, n)
		case now%17 == 0:
			return 1
		case now%23 == 0:
			signal(interrupt)
		case now%31 == 0:
			q.mu.Lock()
			for i := range q.hosts {
				if q.hosts[i].State = backends.HostUp; q.hosts[i].Name == "n2" && now%2 == 0 {
					q.hosts[i].State = backends.HostDown
				}
			}
			q.mu.Unlock()
		}
		return runTask(ctx, host, dir, n)
	}
	x := newTrial(t, q)
	d := residentJob("echo $ALLOTMENT_PERIOD:$1", all)
	d.Balance.Rule = metrics.Rate
	run := func(ctx context.Context) error { return Start(ctx, d, x.options("")) }
	got, runs := "", 0
	for {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			select {
			case <-interrupt:
			case <-ctx.Done():
			}
			cancel()
		}()
		err := run(ctx)
		cancel()
		got += x.out.String()
		runs++
		if err == nil {
			break
		}
		if !errors.Is(err, ErrInterrupted) {
			t.Fatal(err)
		}
		q.awaitEnded(t)
		x.checkBounded(t)
		run = func(ctx context.Context) error {
			found, err := Find(ctx, x.work, "res")
			if err != nil {
				return err
			}
			return found.Resume(ctx, x.options(""))
		}
	}
	if got != periodLines(1, all) {
		t.Errorf("got %q", got)
	}
	if runs < 3 {
		t.Errorf("%d runs", runs)
	}
}

// checkBounded checks that nothing is left of periods that were written.
func (x *trial) checkBounded(t *testing.T) {
	t.Helper()
	dir := filepath.Join(x.work, Folder, "res")
	s, err := openStore(filepath.Join(dir, fileState))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := s.Core(t.Context(), metrics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Blocks == nil {
		return
	}
	rows, rounds := map[int64]bool{}, 0
	err = errors.Join(s.Tasks(t.Context(), func(w row) error {
		if rows[w.N] = true; w.First < c.Blocks.items(c.Blocks.Written) {
			t.Errorf("task %+v is left, and period %d was written", w, c.Blocks.Written)
		}
		return nil
	}), s.Rounds(t.Context(), func(endedRound) error { rounds++; return nil }))
	if err != nil || len(rows) > 40 || rounds > 20 {
		t.Errorf("%d rows, %d rounds, %v", len(rows), rounds, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		number, _, _ := strings.Cut(f.Name(), ".")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil && !rows[n] {
			t.Errorf("%s is left", f.Name())
		}
	}
}

// Blocks that fail are reported in a line a period, and those lines become rare.
func TestFailingBlocks(t *testing.T) {
	x := newTrial(t, newQueue("n1"))
	err := Start(t.Context(), residentJob("echo $1; test $1 -lt 9", 30), x.options(""))
	if !errors.Is(err, ErrItems) || !strings.Contains(err.Error(), "120 of 360") {
		t.Error(err)
	}
	if got := x.out.String(); got != strings.Repeat(lines(1, 12), 30) {
		t.Errorf("got %q", got)
	}
	if !x.hasLogged("period 1: blocks that failed: 4 of 12 (9: exit status 1; 10: exit status 1; 11: exit status 1; …)") || len(x.recorder.logged) > trickleLines+1 {
		t.Errorf("%d lines: %q", len(x.recorder.logged), x.recorder.logged)
	}
}

func TestResidentWithoutHosts(t *testing.T) {
	x := newTrial(t, newQueue())
	if err := Start(t.Context(), residentJob("true", 1), x.options("")); err == nil || !strings.Contains(err.Error(), "the farm has no host that is up") {
		t.Error(err)
	}
}

func TestBeat(t *testing.T) {
	start := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	b := beat{every: 10 * time.Second}
	for _, x := range []struct{ at, next int }{{0, 10}, {10, 20}, {24, 30}, {30, 40}, {75, 80}, {80, 90}, {89, 90}} {
		if b.begin(start.Add(time.Duration(x.at) * time.Second)); b.next.Sub(start) != time.Duration(x.next)*time.Second {
			t.Errorf("after a period that began at %d s: %v, want %d s", x.at, b.next.Sub(start), x.next)
		}
	}
}

func TestTrickle(t *testing.T) {
	var tr trickle
	now := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	var got []string
	for range 7 * 24 * 360 { // a week, a line each ten seconds
		if line := tr.pass("x", now); line != "" {
			got = append(got, line)
		}
		now = now.Add(10 * time.Second)
	}
	if len(got) > 7*24*60+trickleLines || got[0] != "x" || got[len(got)-1] != "x (lines left out before this one: 5)" {
		t.Errorf("%d lines, the last is %q", len(got), got[len(got)-1])
	}
}
