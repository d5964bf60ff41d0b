package split

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split/task"
)

// numbersOf returns the numbers in a joblog, sorted as texts.
func numbersOf(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if i >= 2 {
			number, _, _ := strings.Cut(line, "\t")
			all = append(all, number)
		}
	}
	slices.Sort(all)
	return all
}

func wantNumbers(from, to int) (all []string) {
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprint(i))
	}
	slices.Sort(all)
	return all
}

// Each item stands once in the joblog, also if the process was killed between the line and
// the state, or in the middle of a line, or before the line.
func TestJoblogAfterKill(t *testing.T) {
	x := newTrial(t, newQueue("n1"))
	x.keep = true
	d := echo(1, 40, 10)
	d.Joblog = filepath.Join(x.work, "log")
	if err := Start(t.Context(), d, x.options("")); err != nil {
		t.Fatal(err)
	}
	if got := numbersOf(t, d.Joblog); !slices.Equal(got, wantNumbers(1, 40)) {
		t.Fatalf("%q", got)
	}
	text, err := os.ReadFile(d.Joblog)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut < len(text); cut += 331 {
		if err := os.Truncate(d.Joblog, int64(len(text)-cut)); err != nil {
			t.Fatal(err)
		}
		if err := x.resume(t, ""); err != nil {
			t.Fatal(err)
		}
		if got := numbersOf(t, d.Joblog); !slices.Equal(got, wantNumbers(1, 40)) {
			t.Fatalf("cut by %d: %q", cut, got)
		}
	}
	other := echo(1, 2, 2)
	other.Joblog = d.Joblog
	if err := Start(t.Context(), other, x.options("")); err == nil || !strings.Contains(err.Error(), "it is another split's") {
		t.Errorf("error is %v", err)
	}
}

// The items that failed are run again with their numbers, unchanged.
func TestFailedItems(t *testing.T) {
	x := newTrial(t, newQueue("n1", "n2"))
	d := Definition{
		Argv: []string{"sh", "-c", `case $1 in bad*) exit 9; esac`, "sh", "{}", "{#}"}, Mode: task.Each, Input: Input{Kind: Stdin, Null: true},
		Slots: 2, Balance: metrics.Options{RoundItems: 4}, Joblog: filepath.Join(x.work, "log"), Retries: 1,
	}
	if err := Start(t.Context(), d, x.options("a\x00bad \t\n\x1b\xff\x00c\x00bad\x00e")); !errors.Is(err, ErrItems) {
		t.Fatal(err)
	}
	again, err := FailedItems(d.Joblog)
	if err != nil || !slices.Equal(again.Input.Numbers, []int64{2, 4}) || again.Token != "" || again.Joblog != "" || again.Retries != 1 {
		t.Fatalf("%+v, %v", again, err)
	}
	again.Argv = []string{"printf", "%s=%s|", "{#}", "{}"}
	if err := Start(t.Context(), again, x.options("")); err != nil || x.out.String() != "2=bad \t\n\x1b\xff|4=bad|" {
		t.Errorf("%q, %v", x.out.String(), err)
	}
}

func TestFailedItemsBounds(t *testing.T) {
	log := func(d Definition, lines ...string) string {
		path := filepath.Join(t.TempDir(), "log")
		d.Token, d.Joblog = "t", path
		l, err := openJoblog(&d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.file.WriteString(strings.Join(lines, "")); err != nil {
			t.Fatal(err)
		}
		_ = l.close()
		return path
	}
	line := func(text string) string {
		return joblogLine(1, task.Record{Status: 1, Began: time.Unix(1, 0)}, &Task{N: 1, Host: "n1"}, text)
	}
	var many []string
	for i := range int64(MaxAgain + 1) {
		many = append(many, joblogLine(i, task.Record{Status: 1}, &Task{N: 1, Host: "n1"}, "x"))
	}
	long := line(strings.Repeat("x", maxJoblogItem+1))
	for want, path := range map[string]string{
		"can't be run again: its text is missing (it is longer than 131072 bytes)": log(echo(1, 2, 1), long),
		"more than 100000 items failed":                                            log(echo(1, 2, 1), many...),
		"{start} and {count}, which stand":                                         log(Definition{Argv: []string{"x"}, Mode: task.Whole}, line("x")),
		"its first two lines are not whole":                                        filepath.Join(t.TempDir(), "empty"),
		"a line is longer than 525312":                                             log(echo(1, 2, 1), strings.Repeat("x", maxJoblogLine+1)),
		"item 1 stands twice":                                                      log(echo(1, 2, 1), line("x"), line("x")),
		"a line has 2 fields instead of 8":                                         log(echo(1, 2, 1), "1\tx\n"),
	} {
		if strings.HasSuffix(path, "empty") {
			_ = os.WriteFile(path, nil, 0o600)
		}
		if _, err := FailedItems(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %.200v, want %q", err, want)
		}
	}
	if _, err := FailedItems(log(echo(1, 2, 1), line(strings.Repeat("\xff", maxJoblogItem)))); err != nil {
		t.Errorf("the longest item: %.100v", err)
	}
}

func FuzzParseFailed(f *testing.F) {
	head := joblogMagic + `{"Argv":["x"],"Mode":"each","Input":{"Kind":"stdin"}}` + "\n" + joblogHeading + "\n"
	f.Add([]byte(head + joblogLine(3, task.Record{Status: 1}, &Task{N: 1, Host: "n1"}, "a")))
	f.Add([]byte(head + "1\t-\t0\t1\th\t1\t1\t-\n"))
	f.Add([]byte("# something else\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, items, err := parseFailed(bytes.NewReader(data), "log")
		if err != nil {
			return
		}
		separator := []byte{'\n'}
		if d.Input.Null {
			separator = []byte{0}
		}
		if got := bytes.Count(items, separator); got != len(d.Input.Numbers) || got > MaxAgain {
			t.Fatalf("%d items, %d numbers", got, len(d.Input.Numbers))
		}
	})
}

func TestHaltDue(t *testing.T) {
	for text, due := range map[string][]int64{ // ended and failed, pairs; the last is not due
		"never": {9, 9}, "now,fail=1": {1, 1, 5, 0}, "soon,fail=3": {3, 3, 100, 2}, "soon,fail=50%": {4, 2, 3, 2, 2, 2}, "now,fail=100%": {3, 3, 100, 99},
	} {
		h, err := ParseHalt(text)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(due); i += 2 {
			if got := h.Due(due[i], due[i+1]); got != (i+2 < len(due)) {
				t.Errorf("%s: %d ended, %d failed: %v", text, due[i], due[i+1], got)
			}
		}
	}
}

func FuzzParseHalt(f *testing.F) {
	for _, text := range []string{"never", "now,fail=1", "soon,fail=10%", "soon,fail=0", "now,fail=9999999999", "now,fail=101%", "x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ParseHalt(text)
		if err != nil {
			return
		}
		if h.When != "" && !(h.Fails >= 1 && h.Fails <= MaxFails && h.Percent == 0 || h.Fails == 0 && h.Percent >= 1 && h.Percent <= 100) {
			t.Errorf("%q: %+v", text, h)
		}
	})
}

// A split that halts runs no further item, prints what there is, and goes on with what is
// left when it is resumed.
func TestSplitHalts(t *testing.T) {
	for _, when := range []string{"now,fail=2", "soon,fail=2", "soon,fail=20%"} {
		x := newTrial(t, newQueue("n1", "n2"))
		d := echo(1, 120, 12)
		good := filepath.Join(x.work, "good")
		d.Argv = []string{"sh", "-c", `echo $1; test -e ` + good + ` || test $(($1 % 10)) != 5`, "sh", "{}"}
		var err error
		if d.Halt, err = ParseHalt(when); err != nil {
			t.Fatal(err)
		}
		// In reach of 20 % only once more items fail.
		if d.Halt.Percent > 0 {
			d.Argv[2] = `echo $1; test -e ` + good + ` || test $(($1 % 2)) = 0`
		}
		err = Start(t.Context(), d, x.options(""))
		if !errors.Is(err, ErrHalted) || !strings.Contains(err.Error(), "asplit --resume ") {
			t.Fatalf("%s: %v", when, err)
		}
		if n := strings.Count(x.out.String(), "\n"); n < 3 || n > 60 {
			t.Errorf("%s: %d results", when, n)
		}
		if err := os.WriteFile(good, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		// An item that was ended by now has failed, and may have done so before it printed.
		err = x.resume(t, "")
		var failed int
		if _, scanned := fmt.Sscanf(strings.TrimPrefix(fmt.Sprint(err), ErrItems.Error()), ": %d of 120", &failed); !errors.Is(err, ErrItems) || scanned != nil {
			t.Fatalf("%s: resumed: %v", when, err)
		}
		unprinted := 0
		if d.Halt.When == task.HaltNow {
			unprinted = failed - 2 // of those that failed by themselves
		}
		got := strings.Fields(x.out.String())
		left := slices.DeleteFunc(strings.Fields(lines(1, 120)), func(line string) bool {
			if len(got) > 0 && got[0] == line {
				got = got[1:]
				return true
			}
			return false
		})
		if len(got) > 0 || len(left) > unprinted {
			t.Errorf("%s: resumed: %v, %v are missing in %q", when, err, left, x.out.String())
		}
	}
}

func TestTag(t *testing.T) {
	var b bytes.Buffer
	for _, part := range []string{"a\nb", "c\n", "\n"} {
		w := tagged(&b, "x\t")
		if _, err := w.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	w := tagged(&b, "y\t")
	for _, part := range []string{"a", "b\nc"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got, want := b.String(), "x\ta\nx\tbx\tc\nx\t\ny\tab\ny\tc"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEachItem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("f1\nf2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, in := range map[string]Input{
		"1:s|2:|":          {Kind: Stdin},
		"1:f1|2:f2|":       {Kind: Lines, Path: file},
		"1:5|2:6|":         {Kind: Range, From: 5, To: 6},
		"1:f1|2:f2|3:w x|": {Kind: Several, Sources: []Source{{Kind: Lines, Path: file}, {Kind: Words, Words: []string{"w x"}}}},
	} {
		got := ""
		err := EachItem(in, strings.NewReader("s\n\n"), func(n int64, text string) error {
			got += fmt.Sprintf("%d:%s|", n, text)
			return nil
		})
		if got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}
