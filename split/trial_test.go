package split

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split/task"
	"github.com/allotment-hpc/allotment/split/try"
)

// trying is a split of items that say which setting they have; those without the fast one sleep.
func trying(to int64, script string) Definition {
	return Definition{
		Argv: []string{"sh", "-c", script, "sh", "{}"}, Mode: task.Each, Input: Input{Kind: Range, From: 1, To: to}, Slots: 1,
		Balance: metrics.Options{RoundItems: 40}, Try: []try.Variable{{Name: "threads", Values: []string{"1", "2", "4", "8"}}},
	}
}

const sleepers = `case $threads in 4) ;; *) sleep 0.1;; esac; echo $1 $threads`

// settingsOf returns the items of each setting, by what the items wrote; all of them are there, in order.
func settingsOf(t *testing.T, out string, items int) map[string]int {
	t.Helper()
	count := map[string]int{}
	all := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	for i, line := range all {
		number, setting, _ := strings.Cut(line, " ")
		if number != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
		count[setting]++
	}
	if len(all) != items {
		t.Fatalf("%d results of %d items", len(all), items)
	}
	return count
}

// checkBest checks that a trial of trying's settings found the fast one, and used a tenth of the items.
func (x *trial) checkBest(t *testing.T, items int) {
	t.Helper()
	r := x.report.Trial
	if r == nil || r.Best != "threads=4" || !r.Over || r.Tried > int64(items/10) || len(r.Settings) != 4 {
		t.Fatalf("the trial found %+v", r)
	}
	count := settingsOf(t, x.out.String(), items)
	others := count["1"] + count["2"] + count["8"]
	if count["4"]+others != items || others > int(r.Tried) || min(count["1"], count["2"], count["8"]) < 3 {
		t.Errorf("items by their settings: %v; %+v", count, r)
	}
	for _, s := range r.Settings {
		if s.Setting == "threads=4" && s.Ratio != 1 || s.Setting != "threads=4" && s.Ratio <= 1 {
			t.Errorf("%+v", s)
		}
	}
	if !x.hasLogged(r.Text) || !strings.HasPrefix(r.Text, "threads=4 is the best of 4 settings: ") || !strings.Contains(r.Text, fmt.Sprintf("after %d of %d items", r.Tried, items)) {
		t.Errorf("%q; logged: %q", r.Text, x.recorder.logged)
	}
}

func TestTry(t *testing.T) {
	for name, change := range map[string]func(*Definition){
		"": func(*Definition) {}, "copies": func(d *Definition) { d.Copies = 2 }, "stragglers": func(d *Definition) { d.Speculate = true },
	} {
		t.Run(name, func(t *testing.T) {
			x := newTrial(t, newQueue("n1", "n2", "n3"))
			d := trying(240, sleepers)
			change(&d)
			if err := Start(t.Context(), d, x.options("")); err != nil {
				t.Fatal(err)
			}
			x.checkBest(t, 240)
		})
	}
}

// A run that is interrupted within the trial goes on with it: the items that were tried keep their settings,
// and no more of them are tried.
func TestTryIsResumed(t *testing.T) {
	q := newQueue("n1", "n2")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var begun atomic.Int32
	first := make(chan struct{})
	q.run = func(ctx context.Context, host, dir string, n int64) int {
		if begun.Add(1) > 1 {
			<-first
			cancel()
			<-ctx.Done()
			return killTask(dir, n)
		}
		defer close(first)
		return runTask(ctx, host, dir, n)
	}
	x := newTrial(t, q)
	if err := Start(ctx, trying(240, sleepers), x.options("")); err == nil {
		t.Fatal("it was not interrupted")
	}
	q.awaitEnded(t)
	found, err := Find(t.Context(), x.work, "")
	if err != nil {
		t.Fatal(err)
	}
	before, err := found.store.Core(t.Context(), metrics.Options{})
	var had []string
	if err == nil {
		err = found.store.Tasks(t.Context(), func(w row) error {
			if _, wrong := os.Stat(task.File(found.dir.Path, w.N, task.KindResult)); wrong == nil {
				for i := range w.Count {
					had = append(had, fmt.Sprintf("%d %d\n", w.First+i+1, 1<<w.variant(i).Variant))
				}
			}
			return nil
		})
	}
	if err != nil || before.Trial.Used < 4 || len(had) < 4 || before.Trial.Over {
		t.Fatalf("%+v: %q, %v", before.Trial, had, err)
	}
	if err := found.Close(); err != nil {
		t.Fatal(err)
	}
	q.run = runTask
	if err := x.resume(t, ""); err != nil {
		t.Fatal(err)
	}
	x.checkBest(t, 240)
	for _, line := range had {
		if !strings.Contains("\n"+x.out.String(), "\n"+line) {
			t.Errorf("%q was the setting of an item before", line)
		}
	}
}

// A setting with which items fail is not the best, though it is fast; with --retries its items are executed again
// with another one, and else they fail.
func TestTryWithFailures(t *testing.T) {
	for _, retries := range []int{0, 1} {
		t.Run(fmt.Sprint(retries), func(t *testing.T) {
			x := newTrial(t, newQueue("n1", "n2"))
			d := trying(240, `[ $threads != 1 ] || exit 1; echo $1 $threads`)
			d.Retries = retries
			err := Start(t.Context(), d, x.options(""))
			r := x.report.Trial
			if r == nil || r.Best == "threads=1" || r.Settings[0].Failed != r.Settings[0].Executed || r.Settings[0].Failed < 3 {
				t.Fatalf("%+v", r)
			}
			if !strings.Contains(r.Text, fmt.Sprintf("with threads=1 %d of %d executions failed", r.Settings[0].Failed, r.Settings[0].Executed)) {
				t.Errorf("%q", r.Text)
			}
			if retries > 0 {
				if count := settingsOf(t, x.out.String(), 240); err != nil || count["1"] > 0 {
					t.Errorf("%v, %v", count, err)
				}
				return
			}
			if err == nil || x.report.Failed != r.Settings[0].Failed {
				t.Errorf("%d items failed, and %+v: %v", x.report.Failed, r.Settings[0], err)
			}
		})
	}
}

// A setting that kills tasks is found, and costs no items.
func TestTryWithKills(t *testing.T) {
	q := newQueue("n1", "n2")
	q.run = func(ctx context.Context, host, dir string, n int64) int {
		f, err := os.Open(task.File(dir, n, task.KindOrder))
		if err != nil {
			return 1
		}
		defer f.Close()
		order, _, err := task.ReadOrder(f)
		if err != nil {
			t.Error(err)
		}
		if slices.ContainsFunc(order.Try, func(s []string) bool { return s[0] == "threads=1" }) {
			return killTask(dir, n)
		}
		return runTask(ctx, host, dir, n)
	}
	x := newTrial(t, q)
	if err := Start(t.Context(), trying(60, `echo $1 $threads`), x.options("")); err != nil {
		t.Fatal(err)
	}
	if count := settingsOf(t, x.out.String(), 60); count["1"] > 0 {
		t.Errorf("%v", count)
	}
	if r := x.report.Trial; r.Best == "threads=1" || r.Settings[0].Failed == 0 {
		t.Errorf("%+v", r)
	}
}

// An execution counts for the setting that it had: the first one of an item for that of its cell, the others for
// the next ones of the task, whose times are not compared.
func TestExecutions(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	settings := [][]string{{"a=0"}, {"a=2"}, {"a=3"}}
	o := task.Order{
		Argv: []string{"sh", "-c", `[ $a = 3 ]`, "sh", "{}"}, Mode: task.Each, First: 1, Count: 3, Slots: 1, Numbers: true,
		Retries: 1, Try: settings, Tries: []int{1, 2, 0},
	}
	head, err := o.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(task.File(dir, 1, task.KindOrder), head, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := task.Run(dir, 1); err != nil {
		t.Fatal(err)
	}
	result, err := task.OpenResult(task.File(dir, 1, task.KindResult), 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer result.Close()
	w := Task{N: 1, Count: 3, Cells: []try.Cell{{Block: 7, Variant: 2}, {Block: 7, Variant: 3}, {Block: 8, Variant: 0}}}
	all, err := w.executions(result)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range all {
		got = append(got, fmt.Sprintf("%d of block %d: %v", e.cell.Variant, e.cell.Block, e.failed))
	}
	want := []string{"2 of block 7: true", "3 of block 0: false", "3 of block 7: false", "0 of block 8: true", "2 of block 0: true"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	w.Cells = w.Cells[:2]
	if _, err := w.executions(result); err == nil {
		t.Error("three items with two settings are accepted")
	}
}
