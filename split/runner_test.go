package split

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split/task"
)

// recorder records messages and rounds.
type recorder struct {
	logged []string
	rounds []RoundReport
}

func (w *recorder) Log(text string)     { w.logged = append(w.logged, text) }
func (*recorder) Progress(Progress)     {}
func (w *recorder) Round(r RoundReport) { w.rounds = append(w.rounds, r) }

// trial is a run of a split in a directory of its own.
type trial struct {
	q         *queue
	work      string
	recorder  *recorder
	out, errs *bytes.Buffer // of the last run: the delivery of one that was interrupted may still write
	report    *Report
	keep      bool
	measure   Measure
}

func newTrial(t *testing.T, q *queue) *trial {
	work := t.TempDir()
	if err := os.Chmod(work, 0o700); err != nil {
		t.Fatal(err)
	}
	return &trial{q: q, work: work, recorder: new(recorder)}
}

func (x *trial) options(stdin string) Options {
	x.out, x.errs = new(bytes.Buffer), new(bytes.Buffer)
	return Options{
		Work: x.work, Queue: x.q, Program: []string{"task"}, Stdin: strings.NewReader(stdin), Stdout: x.out, Stderr: x.errs,
		Reporter: x.recorder, Report: func(r *Report) error { x.report = r; return nil }, Keep: x.keep, Measure: x.measure,
		pace: pace{snapshot: 10 * time.Millisecond, start: 50 * time.Millisecond, measure: time.Minute, rest: 500 * time.Millisecond, waiting: 20 * time.Millisecond, slow: 20 * time.Millisecond},
	}
}

// resume resumes the latest split.
func (x *trial) resume(t *testing.T, stdin string) error {
	t.Helper()
	found, err := Find(t.Context(), x.work, "")
	if err != nil {
		t.Fatal(err)
	}
	return found.Resume(t.Context(), x.options(stdin))
}

func echo(from, to int64, round int) Definition {
	return Definition{
		Argv: []string{"echo", "{}"}, Mode: task.Each, Input: Input{Kind: Range, From: from, To: to}, Slots: 1,
		Balance: metrics.Options{RoundItems: round},
	}
}

func lines(from, to int64) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func (x *trial) hasLogged(part string) bool {
	return slices.ContainsFunc(x.recorder.logged, func(line string) bool { return strings.Contains(line, part) })
}

func TestRange(t *testing.T) {
	x := newTrial(t, newQueue("n1", "n2", "n3"))
	if err := Start(t.Context(), echo(-5, 94, 20), x.options("")); err != nil {
		t.Fatal(err)
	}
	if got := x.out.String(); got != lines(-5, 94) {
		t.Errorf("got %q", got)
	}
	if x.report.Items != 100 || x.report.Failed != 0 || len(x.report.Rounds) < 5 || len(x.recorder.rounds) != len(x.report.Rounds) {
		t.Errorf("%+v", x.report)
	}
	if left, err := os.ReadDir(x.work); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestModesAndInputs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("a\nb\nc"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		argv  string
		input Input
		stdin string
		want  string
	}{
		"lines of stdin":        {"echo {}", Input{Kind: Stdin}, "a b\n$(c)\n\nd", "a b\n$(c)\n\nd\n"},
		"NUL-parted":            {"printf %s| {}", Input{Kind: Stdin, Null: true}, "a\nb\x00c\x00", "a\nb|c|"},
		"a file":                {"echo {}", Input{Kind: Lines, Path: file}, "not this\n", "a\nb\nc\n"},
		"on stdin":              {"cat", Input{Kind: Stdin}, "a\nb\nc\n", "a\nb\nc\n"},
		"a range on stdin":      {"cat", Input{Kind: Range, From: 9, To: 12}, "", "9\n10\n11\n12\n"},
		"a range in tasks":      {"echo {start}+{count}:", Input{Kind: Range, From: 9, To: 9}, "", "9+1:\n"},
		"lines by their number": {"echo {start}+{count}:", Input{Kind: Stdin}, "a\n", "1+1:\n"},
		"nothing":               {"echo {}", Input{Kind: Stdin}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			y := newTrial(t, newQueue("n1"))
			argv := strings.Split(x.argv, " ")
			mode, err := task.ModeOf(argv)
			if err != nil {
				t.Fatal(err)
			}
			d := Definition{Argv: argv, Mode: mode, Input: x.input, Slots: 1, Balance: metrics.Options{RoundItems: 1}}
			if err := Start(t.Context(), d, y.options(x.stdin)); err != nil {
				t.Fatal(err)
			}
			if got := y.out.String(); got != x.want {
				t.Errorf("got %q, want %q", got, x.want)
			}
		})
	}
}

// An item that fails is reported where its result would stand.
func TestItemsThatFail(t *testing.T) {
	x := newTrial(t, newQueue("n1", "n2"))
	d := echo(1, 20, 5)
	d.Argv = []string{"sh", "-c", "echo out$1; if [ $1 = 7 ]; then echo err >&2; exit 3; fi", "sh", "{}"}
	err := Start(t.Context(), d, x.options(""))
	if !errors.Is(err, ErrItems) || !strings.Contains(err.Error(), "1 of 20") {
		t.Errorf("error is %v", err)
	}
	if want := strings.ReplaceAll("\n"+lines(1, 20), "\n", "\nout"); "\n"+x.out.String()+"out" != want || x.errs.String() != "err\n" || !x.hasLogged("item 7: exit status 3: 7") {
		t.Errorf("%q %q %q", x.out.String(), x.errs.String(), x.recorder.logged)
	}
}

// An item that kills its tasks is isolated, and no other item loses its result.
func TestItemsThatKill(t *testing.T) {
	q := newQueue("n1", "n2", "n3")
	var mu sync.Mutex
	deaths := 0
	q.run = func(ctx context.Context, host, dir string, n int64) int {
		f, err := os.Open(task.File(dir, n, task.KindOrder))
		if err != nil {
			return 1
		}
		defer f.Close()
		o, _, err := task.ReadOrder(f)
		if err != nil {
			return 1
		}
		if o.First <= 33 && 33 < o.First+o.Count {
			mu.Lock()
			deaths++
			mu.Unlock()
			return killTask(dir, n)
		}
		return runTask(ctx, host, dir, n)
	}
	x := newTrial(t, q)
	err := Start(t.Context(), echo(1, 100, 60), x.options(""))
	if !errors.Is(err, ErrItems) || x.report.Killers != 1 || !x.hasLogged("item 33 killed its task") {
		t.Errorf("error is %v; %q", err, x.recorder.logged)
	}
	if want := lines(1, 32) + lines(34, 100); x.out.String() != want {
		t.Errorf("got %q", x.out.String())
	}
	if deaths > 12 {
		t.Errorf("%d tasks died", deaths)
	}
}

// A host where all tasks fail loses no item, and is excluded.
func TestHostWhereAllTasksFail(t *testing.T) {
	q := newQueue("bad", "good")
	q.run = func(ctx context.Context, host, dir string, n int64) int {
		if host == "bad" {
			_ = os.WriteFile(task.File(dir, n, task.KindLog), []byte("no such\nprogram \x1b[2J"), 0o600)
			return 1
		}
		return runTask(ctx, host, dir, n)
	}
	x := newTrial(t, q)
	if err := Start(t.Context(), echo(1, 100, 10), x.options("")); err != nil {
		t.Fatal(err)
	}
	if x.out.String() != lines(1, 100) || !x.hasLogged("bad is left out") || !x.hasLogged(`: no such; program \x1b[2J`) {
		t.Errorf("%q, %q", x.out.String(), x.recorder.logged)
	}
}

func TestNoHostRunsIt(t *testing.T) {
	q := newQueue("n1", "n2")
	q.run = func(context.Context, string, string, int64) int { return 1 }
	x := newTrial(t, q)
	if err := Start(t.Context(), echo(1, 100, 10), x.options("")); err == nil || !strings.Contains(err.Error(), "no host is left") || !strings.Contains(err.Error(), "asplit --resume ") {
		t.Errorf("error is %v", err)
	}
	x = newTrial(t, newQueue("n1"))
	x.q.refuse = func(string) error { return errors.New("no such queue") }
	if err := Start(t.Context(), echo(1, 100, 10), x.options("")); err == nil || !strings.Contains(err.Error(), "no such queue") {
		t.Errorf("error is %v", err)
	}
	x = newTrial(t, newQueue("n1"))
	d := echo(1, 100, 10)
	d.Hosts = []string{"n9"}
	if err := Start(t.Context(), d, x.options("")); err == nil || !strings.Contains(err.Error(), "no such host, or it is down: n9") {
		t.Errorf("error is %v", err)
	}
}

// A job that was accepted, but not acknowledged, is found by its name and not submitted
// again.
func TestLostAcknowledgement(t *testing.T) {
	x := newTrial(t, newQueue("n1", "n2"))
	x.q.lost = 2
	if err := Start(t.Context(), echo(1, 50, 10), x.options("")); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, j := range x.q.all() {
		if names[j.Name] {
			t.Errorf("%s was submitted twice", j.Name)
		}
		names[j.Name] = true
	}
	if x.out.String() != lines(1, 50) || !x.hasLogged("can't be reached") {
		t.Errorf("%q, %q", x.out.String(), x.recorder.logged)
	}
}

// Hosts leave and join between rounds; another host gets the items of one that is down.
func TestHostsComeAndGo(t *testing.T) {
	q := newQueue("n1", "n2")
	var once sync.Once
	hang := make(chan struct{})
	q.run = func(ctx context.Context, host, dir string, n int64) int {
		if host == "n2" {
			once.Do(func() {
				q.change(func() {
					q.hosts[1].State = backends.HostDown
					q.hosts = append(q.hosts, backends.Host{Name: "n3", Slots: 1})
				})
				close(hang)
				<-ctx.Done() // until it is killed
			})
			if ctx.Err() != nil {
				return 137
			}
		}
		<-hang
		return runTask(ctx, host, dir, n)
	}
	x := newTrial(t, q)
	d := echo(1, 40, 10)
	if err := Start(t.Context(), d, x.options("")); err != nil {
		t.Fatal(err)
	}
	if x.out.String() != lines(1, 40) || !x.hasLogged("n2, which is down") || !x.hasLogged("n2 no longer takes part") || !x.hasLogged("n3 takes part from now on") {
		t.Errorf("%q, %q", x.out.String(), x.recorder.logged)
	}
}

// A host that has no room for its task keeps no other host waiting.
func TestHostWithoutFreeSlots(t *testing.T) {
	q := newQueue("n1", "full")
	q.pend = func(host string) bool { return host == "full" }
	x := newTrial(t, q)
	o := x.options("")
	o.pace.rest = time.Hour // the run may take longer than a short one, and the host be tried again
	if err := Start(t.Context(), echo(1, 40, 10), o); err != nil {
		t.Fatal(err)
	}
	if x.out.String() != lines(1, 40) || !x.hasLogged("full no longer takes part") {
		t.Errorf("%q, %q", x.out.String(), x.recorder.logged)
	}
	waited := slices.DeleteFunc(q.all(), func(j backends.Job) bool { return j.ExitCode != 137 })
	if len(waited) != 1 {
		t.Errorf("it was tried %d times: %+v", len(waited), waited)
	}
}

// A host may be measured, and take part later than others.
func TestMeasured(t *testing.T) {
	x := newTrial(t, newQueue("n1", "n2", "n3"))
	x.measure = func(_ context.Context, _, host string, slots int) (metrics.Measures, error) {
		if host == "n3" {
			return metrics.Measures{}, errors.New("no room")
		}
		return metrics.Measures{metrics.CPU: map[string]float64{"n1": 10, "n2": 30}[host] * float64(slots)}, nil
	}
	d := echo(1, 40, 40)
	d.Hosts, d.Balance.Factors = []string{"n1", "n2"}, metrics.Factors{metrics.CPU: 1}
	if err := Start(t.Context(), d, x.options("")); err != nil {
		t.Fatal(err)
	}
	if x.out.String() != lines(1, 40) {
		t.Errorf("%q", x.out.String())
	}
	x = newTrial(t, x.q)
	x.measure = func(context.Context, string, string, int) (metrics.Measures, error) {
		return metrics.Measures{}, errors.New("no room")
	}
	if err := Start(t.Context(), echo(1, 4, 2), x.options("")); err != nil || !x.hasLogged("n3 could not be measured; its share will follow its rate: no room") {
		t.Errorf("%v, %q", err, x.recorder.logged)
	}
}

// An interrupted split ends its jobs and can be resumed: no item that has a result is
// run again, and each result is written once more, in order.
func TestInterruptAndResume(t *testing.T) {
	q := newQueue("n1", "n2")
	ctx, cancel := context.WithCancel(t.Context())
	ran := filepath.Join(t.TempDir(), "ran")
	var mu sync.Mutex
	tasks := 0
	q.run = func(ctx context.Context, host, dir string, n int64) int {
		mu.Lock()
		tasks++
		last := tasks == 4
		mu.Unlock()
		if last {
			cancel()
			<-ctx.Done()
			return 137
		}
		return runTask(ctx, host, dir, n)
	}
	x := newTrial(t, q)
	d := echo(1, 60, 10)
	d.Input, d.Name = Input{Kind: Stdin}, "mine"
	d.Argv = []string{"sh", "-c", "echo $1 | tee -a " + ran, "sh", "{}"}
	err := Start(ctx, d, x.options(lines(1, 60)))
	if !errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(), "asplit --resume mine") {
		t.Fatalf("error is %v", err)
	}
	q.awaitEnded(t)
	q.run = runTask
	if _, err := Find(t.Context(), x.work, "unknown"); err == nil || !strings.Contains(err.Error(), "no split unknown in") {
		t.Errorf("error is %v", err)
	}
	found, err := Find(t.Context(), x.work, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Find(t.Context(), x.work, "mine"); !errors.Is(err, ErrBusy) {
		t.Errorf("error is %v", err)
	}
	if err := found.Resume(t.Context(), x.options(lines(1, 60))); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(ran)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(text))
	slices.Sort(all)
	if x.out.String() != lines(1, 60) || len(all) != 60 || len(slices.Compact(all)) != 60 {
		t.Errorf("%q; ran %q", x.out.String(), all)
	}
}

// An input that differs from that of before is an error.
func TestDifferentInput(t *testing.T) {
	for name, other := range map[string]string{"different": "1\n2\nx\n", "shorter": "1\n2\n"} {
		t.Run(name, func(t *testing.T) {
			q := newQueue("n1")
			ctx, cancel := context.WithCancel(t.Context())
			q.run = func(ctx context.Context, _, _ string, _ int64) int { cancel(); <-ctx.Done(); return 137 }
			x := newTrial(t, q)
			d := echo(0, 0, 1)
			d.Input = Input{Kind: Stdin}
			o := x.options("")
			in, feed, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			defer feed.Close()
			if _, err := feed.WriteString("1\n2\n3\n"); err != nil {
				t.Fatal(err)
			}
			o.Stdin = in
			if err := Start(ctx, d, o); !errors.Is(err, ErrInterrupted) {
				t.Fatal(err)
			}
			q.run = runTask
			if err := x.resume(t, other); err == nil || !strings.Contains(err.Error(), "give the same input again") {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// gate is an input that does not come before it is opened.
type gate struct {
	opened <-chan struct{}
	io.Reader
}

func (g gate) Read(into []byte) (int, error) {
	<-g.opened
	return g.Reader.Read(into)
}

// Hosts that joined before there was an item are there when the split is resumed in
// its first round.
func TestResumedInTheFirstRound(t *testing.T) {
	q := newQueue("n1", "n2")
	ctx, cancel := context.WithCancel(t.Context())
	q.run = func(ctx context.Context, _, _ string, _ int64) int { cancel(); <-ctx.Done(); return 137 }
	x := newTrial(t, q)
	d := echo(0, 0, 2)
	d.Input = Input{Kind: Stdin}
	o := x.options("")
	q.snapshots = make(chan int, 3)
	joined := make(chan struct{})
	o.Stdin = gate{joined, strings.NewReader(lines(1, 9))}
	go func() {
		defer close(joined)
		for n := range q.snapshots {
			if n == 3 { // the second snapshot was received: the first one is applied
				return
			}
			q.change(func() {})
		}
	}()
	if err := Start(ctx, d, o); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	q.run = runTask
	if err := x.resume(t, lines(1, 9)); err != nil {
		t.Fatal(err)
	}
	if x.out.String() != lines(1, 9) {
		t.Errorf("got %q", x.out.String())
	}
	for _, r := range x.report.Rounds {
		if r.Began.Before(x.report.Began) || r.Ended.Before(r.Began) {
			t.Errorf("round %d was from %v to %v", r.Round, r.Began, r.Ended)
		}
	}
}

// A host that rests comes back in a queue where nothing happens.
func TestOnlyHostRests(t *testing.T) {
	q := newQueue("down", "full")
	var room atomic.Bool
	q.pend = func(host string) bool { return host == "full" && !room.Load() }
	tasks := 0
	q.run = func(ctx context.Context, host, dir string, n int64) int {
		if tasks++; host == "down" && tasks == 2 {
			room.Store(true)
			q.change(func() { q.hosts[0].State = backends.HostDown })
			<-ctx.Done() // until it is killed
			return 137
		}
		return runTask(ctx, host, dir, n)
	}
	x := newTrial(t, q)
	if err := Start(t.Context(), echo(1, 40, 10), x.options("")); err != nil {
		t.Fatal(err)
	}
	if x.out.String() != lines(1, 40) || !x.hasLogged("full takes part from now on") {
		t.Errorf("%q, %q", x.out.String(), x.recorder.logged)
	}
}

// A host that takes no job for now rests: the split goes on without it, or waits where there is no other.
func TestHostIsAway(t *testing.T) {
	for name, hosts := range map[string][]string{"one of two": {"n1", "n2"}, "the only one": {"n2"}} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(hosts...)
			away := 5 // more than the failures after which a host is left out
			q.refuse = func(host string) error {
				if host != "n2" || away == 0 {
					return nil
				}
				away--
				return fmt.Errorf("n2: %w: no answer", backends.ErrHostAway)
			}
			x := newTrial(t, q)
			o := x.options("")
			o.pace.rest = time.Millisecond
			if err := Start(t.Context(), echo(1, 200, 10), o); err != nil {
				t.Fatal(err)
			}
			if got := x.out.String(); got != lines(1, 200) {
				t.Errorf("got %q", got)
			}
			if !x.hasLogged("n2: the host takes no job for now: no answer") || x.hasLogged("is left out") || len(hosts) == 1 && away > 0 {
				t.Errorf("away for %d more: %q", away, x.recorder.logged)
			}
		})
	}
}
