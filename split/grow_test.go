package split

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split/task"
)

// tree is a split whose items add two others each, up to a last one. It prints each.
func tree(last, round int) Definition {
	script := `echo $1; for n in $(($1 * 2)) $(($1 * 2 + 1)); do [ $n -gt ` + strconv.Itoa(last) + ` ] || echo $n >>"${ASPLIT_ADD%%:*}"; done`
	return Definition{
		Argv: []string{"sh", "-c", script, "sh", "{}"}, Mode: task.Each, Input: Input{Kind: Range, From: 1, To: 1}, Slots: 1, Adds: true,
		Balance: metrics.Options{RoundItems: round},
	}
}

// checkTree checks that each item of a tree was printed once.
func checkTree(t *testing.T, out string, last int) {
	t.Helper()
	var got []int
	for text := range strings.FieldsSeq(out) {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, n)
	}
	slices.Sort(got)
	if len(got) != last || got[0] != 1 || got[last-1] != last || len(slices.Compact(got)) != last {
		t.Errorf("%d results: %v", len(got), got)
	}
}

// Items that items add are executed, once, however often the run is interrupted (R56).
func TestAdds(t *testing.T) {
	const last = 63
	for range 10 {
		q := newQueue("n1", "n2", "n3")
		x := newTrial(t, q)
		ctx, cancel := context.WithCancel(t.Context())
		var tasks atomic.Int64
		stop := 1 + rand.Int64N(20)
		q.run = func(ctx context.Context, host, dir string, n int64) int {
			if tasks.Add(1) == stop {
				cancel()
			}
			return runTask(ctx, host, dir, n)
		}
		err := Start(ctx, tree(last, 6), x.options(""))
		for err != nil && tasks.Load() >= stop {
			stop = tasks.Load() + 1 + rand.Int64N(20)
			if ctx, cancel = context.WithCancel(t.Context()); tasks.Load() > 200 {
				stop = -1
			}
			var found *Existing
			if found, err = Find(ctx, x.work, ""); err == nil {
				err = found.Resume(ctx, x.options(""))
			}
		}
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		checkTree(t, x.out.String(), last)
		q.awaitEnded(t)
	}
}

// Of an item that is tried again, what the last try added counts; of one that fails, nothing. Items may
// come from any input, also where one execution has them all.
func TestAddsOfInputs(t *testing.T) {
	add := `echo "$1"; case $1 in *.) ;; *) echo "$1." >>"${ASPLIT_ADD%%:*}";; esac`
	for name, x := range map[string]struct {
		script string
		mode   task.Mode
		input  Input
		stdin  string
		change func(*Definition)
		want   string
	}{
		"a range":       {add, task.Each, Input{Kind: Range, From: -1, To: 1}, "", nil, "-1\n0\n1\n-1.\n0.\n1.\n"},
		"lines":         {add, task.Each, Input{Kind: Stdin}, "a\nb", nil, "a\nb\na.\nb.\n"},
		"none":          {add, task.Each, Input{Kind: Stdin}, "", nil, ""},
		"with numbers":  {strings.Replace(add, `echo "$1";`, `echo "$1" "$2";`, 1), task.Each, Input{Kind: Range, From: 8, To: 9}, "", func(d *Definition) { d.Argv = append(d.Argv, "{#}") }, "8 1\n9 2\n8. 3\n9. 4\n"},
		"an item fails": {add + `; [ "$1" != b ]`, task.Each, Input{Kind: Stdin}, "a\nb\nc\n", nil, "a\nb\nc\na.\nc.\n"},
		"and is retried": {
			add + `; [ "$1" != b ] || [ -e tried ] || { touch tried; false; }`, task.Each,
			Input{Kind: Stdin},
			"a\nb\nc\n",
			func(d *Definition) { d.Retries = 1 }, "a\nb\nc\na.\nb.\nc.\n",
		},
		"it is not whole": {add + `; printf x >>"${ASPLIT_ADD%%:*}"`, task.Each, Input{Kind: Stdin}, "a\n", nil, "a\n"},
		"all in one":      {`while read -r x; do echo "$x"; case $x in *.) ;; *) echo "$x." >>"${ASPLIT_ADD%%:*}";; esac; done`, task.Feed, Input{Kind: Stdin}, "a\nb\n", nil, "a\nb\na.\nb.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newTrial(t, newQueue("n1"))
			t.Chdir(y.work)
			d := Definition{Argv: []string{"sh", "-c", x.script, "sh", "{}"}, Mode: x.mode, Input: x.input, Slots: 1, Adds: true, Balance: metrics.Options{RoundItems: 2}}
			if x.change != nil {
				x.change(&d)
			}
			err := Start(t.Context(), d, y.options(x.stdin))
			if fails := strings.HasSuffix(name, "fails") || strings.HasSuffix(name, "whole"); fails != (err != nil) {
				t.Error(err)
			}
			if got := y.out.String(); got != x.want {
				t.Errorf("got %q, want %q", got, x.want)
			}
		})
	}
}

// What was added by tasks whose end was not stored does not count: they end again.
func TestOpenGrowing(t *testing.T) {
	dir := &Dir{Path: t.TempDir()}
	if err := os.WriteFile(filepath.Join(dir.Path, fileAdded), []byte("a\nbc\nlost\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := openGrowing(numbers{5, 6}, dir, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := openGrowing(numbers{5, 6}, dir, 6); err == nil {
		t.Error("what is missing was not missed")
	}
	for range 2 {
		var all strings.Builder
		items, ended, err := g.count()
		if err == nil {
			err = g.copy(&all, 1, items-1)
		}
		if items != 4 || !ended || err != nil || all.String() != "6\na\nbc\n" || g.text(0)+g.text(3) != "5bc" {
			t.Errorf("%d items, %v, %q, %v", items, ended, all.String(), err)
		}
	}
	if err := g.copy(new(strings.Builder), 2, 3); err == nil {
		t.Error("an item that does not count is there")
	}
}
