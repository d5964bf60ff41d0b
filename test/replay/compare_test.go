package main

import (
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/test/diary"
)

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// ended returns a job that was submitted at a time and had these runs, in ms.
func ended(t *testing.T, user, slots, submitted int, runs ...[2]int) played {
	t.Helper()
	var text strings.Builder
	for i, r := range runs {
		fmt.Fprintf(&text, "start %d 1 n1 %d\nat %d\n", ms(r[0]), i, ms(r[1]))
	}
	fmt.Fprintf(&text, "end %d\n", ms(runs[len(runs)-1][1]))
	path := filepath.Join(t.TempDir(), "job")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	d := diary.New("job", path)
	if err := d.Update(); err != nil {
		t.Fatal(err)
	}
	return played{Diary: d, user: user, slots: slots, submitted: time.Unix(0, 0).Add(ms(submitted))}
}

var four = options{user: 4, guarantee: 32, arrivals: 3, rest: 1}

func TestOutcomes(t *testing.T) {
	got := outcomes(four, []played{
		ended(t, 4, 16, 0, [2]int{500, 2000}),
		ended(t, 4, 32, 1000, [2]int{1900, 3000}),                    // while the first one still ran
		ended(t, 5, 8, 1000, [2]int{1000, 1500}, [2]int{4000, 5000}), // lost 0.5 s on 8 slots
		ended(t, 4, 32, 3000, [2]int{3000, 3500}),                    // both have just ended
		ended(t, 4, 1, 3100, [2]int{3200, 3300}),                     // no room until 3500
		ended(t, 4, 32, 3300, [2]int{4200, 5000}),
	})
	want := []outcome{
		{user: 4, within: true, wait: ms(500), due: ms(500)},
		{user: 4, wait: ms(900)},
		{user: 5, wait: ms(3000), requeues: 1, lost: ms(4000)},
		{user: 4, within: true},
		{user: 4, wait: ms(100)},
		{user: 4, within: true, wait: ms(900), due: ms(700)},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
}

func TestRow(t *testing.T) {
	var all []outcome
	for i := 100; i > 0; i-- {
		all = append(all, outcome{user: i % 2, wait: ms(i), requeues: i / 100, lost: ms(1)})
	}
	got := rowOf("x", all, func(f *outcome) bool { return f.user == 0 }, func(f *outcome) time.Duration { return f.wait })
	want := row{label: "x", jobs: 50, requeued: 1, median: ms(50), p95: ms(96), max: ms(100), lost: ms(50)}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := rowOf("none", all, func(*outcome) bool { return false }, nil); got != (row{label: "none"}) {
		t.Errorf("none: %+v", got)
	}
}

// A replay that shows nothing fails with an error that names a heavier load.
func TestReport(t *testing.T) {
	quick, slow, requeued := ended(t, 4, 1, 0, [2]int{100, 200}), ended(t, 4, 1, 0, [2]int{5000, 6000}), ended(t, 5, 1, 0, [2]int{0, 100}, [2]int{300, 400})
	twice := ended(t, 5, 1, 0, [2]int{0, 100})
	twice.Ends = 2
	for name, c := range map[string]struct {
		without, with []played
		want          string
	}{
		"good":              {[]played{slow}, []played{quick, requeued}, ""},
		"no job waited":     {[]played{quick}, []played{quick, requeued}, "no job waited for more than 1s: load it more: go run ./test/replay --rest 2 --arrivals 3 FILE"},
		"nothing reclaimed": {[]played{slow}, []played{quick}, "nothing was reclaimed: load it more: go run ./test/replay --rest 2 --arrivals 3 FILE"},
		"requeued without":  {[]played{slow, requeued}, []played{quick, requeued}, "jobs were requeued without pba"},
		"ended twice":       {[]played{slow}, []played{quick, requeued, twice}, "with pba: job 0 ended 2 times"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := report(&out, four, &play{name: "without pba", jobs: c.without}, &play{name: "with pba", jobs: c.with})
			if fmt.Sprint(err) != c.want && (err != nil || c.want != "") {
				t.Errorf("error is %v, want %q", err, c.want)
			}
			if strings.Count(out.String(), "Waits ") != 2 {
				t.Errorf("not two tables:\n%s", out.String())
			}
		})
	}
}

// load returns the first jobs that are not too wide, with times scaled and from the first
// of them on.
func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.swf.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	for i, line := range []string{"0 -1 60 128", "600 -1 60 32", "1200 -1 -1 4", "2400 -1 6 1", "4200 -1 6 1"} {
		user := 4 + i/3
		fmt.Fprintf(z, "%d %s -1 -1 -1 -1 -1 1 %d 1 1 -1 -1 -1 -1\n", i, line, user)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	o := options{trace: path, arrivals: 3, speed: 600, jobs: 2, rest: 2, widest: 32, user: 4}
	got, err := load(o)
	if err != nil {
		t.Fatal(err)
	}
	want := []played{
		{user: 4, slots: 32, takes: ms(100), copies: 1},
		{user: 5, slots: 1, at: time.Second, takes: ms(10), copies: 2},
		{user: 5, slots: 1, at: time.Second, takes: ms(10)},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(played{})); diff != "" {
		t.Error(diff)
	}
	o.jobs = 4
	if _, err := load(o); err == nil || !strings.Contains(err.Error(), "only 3 jobs of at most 32 slots") {
		t.Errorf("too few: %v", err)
	}
}
