package task

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// directory is a split's directory with one task, number 1.
func directory(t testing.TB, o Order, texts string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	head, err := o.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(File(dir, 1, KindOrder), append(head, texts...), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// results returns a task's results, a line each: items, status, output, errors.
func results(t testing.TB, dir string, o Order) string {
	t.Helper()
	r, err := OpenResult(File(dir, 1, KindResult), o.First, o.Count)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b strings.Builder
	err = r.Each(func(record Record) error {
		out, err := io.ReadAll(r.Output(record))
		if err != nil {
			return err
		}
		errs, err := io.ReadAll(r.Errors(record))
		fmt.Fprintf(&b, "%d+%d %d %q %q\n", record.Item, record.Count, record.Status, out, errs)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Took() <= 0 {
		t.Errorf("it took %v", r.Took())
	}
	return b.String()
}

func TestRun(t *testing.T) {
	sh := func(script string, args ...string) []string {
		return append([]string{"sh", "-c", script, "sh"}, args...)
	}
	for name, x := range map[string]struct {
		order Order
		texts string
		want  string
	}{
		"one execution an item": {
			Order{Argv: []string{"echo", "a{}b", "{}"}, Mode: Each, First: 7, Count: 3},
			"x y\n$(id)\n\n",
			"0+1 0 \"ax yb x y\\n\" \"\"\n1+1 0 \"a$(id)b $(id)\\n\" \"\"\n2+1 0 \"ab \\n\" \"\"\n",
		},
		"numbers": {
			Order{Argv: []string{"echo", "{}"}, Mode: Each, First: 9, Count: 2, Numbers: true},
			"",
			"0+1 0 \"9\\n\" \"\"\n1+1 0 \"10\\n\" \"\"\n",
		},
		"NUL-parted": {
			Order{Argv: []string{"echo", "{}"}, Mode: Each, First: 1, Count: 2, Null: true},
			"a\nb\x00c\x00",
			"0+1 0 \"a\\nb\\n\" \"\"\n1+1 0 \"c\\n\" \"\"\n",
		},
		"statuses": {
			Order{Argv: sh("echo out$1; echo err$1 >&2; [ $1 = k ] && kill -9 $$; exit $1", "{}"), Mode: Each, First: 1, Count: 3},
			"0\n3\nk\n",
			"0+1 0 \"out0\\n\" \"err0\\n\"\n1+1 3 \"out3\\n\" \"err3\\n\"\n2+1 137 \"outk\\n\" \"errk\\n\"\n",
		},
		"a whole task": {
			Order{Argv: []string{"echo", "{start}", "{count}"}, Mode: Whole, First: 11, Count: 5},
			"",
			"0+5 0 \"11 5\\n\" \"\"\n",
		},
		"on standard input": {
			Order{Argv: []string{"cat"}, Mode: Feed, First: 1, Count: 2},
			"one\ntwo\n",
			"0+2 0 \"one\\ntwo\\n\" \"\"\n",
		},
		"an item without standard input": {
			Order{Argv: sh("cat; echo $1", "{}"), Mode: Each, First: 1, Count: 2},
			"one\ntwo\n",
			"0+1 0 \"one\\n\" \"\"\n1+1 0 \"two\\n\" \"\"\n",
		},
		"no argument": {
			Order{Argv: []string{"echo", "{}"}, Mode: Each, First: 1, Count: 3},
			"a\x00b\n" + strings.Repeat("x", 200_000) + "\nc\n",
			"0+1 126 \"\" \"asplit: contains a NUL byte, which no argument can: use --null if items end in NUL\\n\"\n" +
				"1+1 126 \"\" \"asplit: longer than 131071 bytes, which no argument can be: pass the items on standard input (omit {})\\n\"\n2+1 0 \"c\\n\" \"\"\n",
		},
		"a program by item": {
			Order{Argv: []string{"{}", "x"}, Mode: Each, First: 1, Count: 2},
			"echo\nno-such-program\n",
			"0+1 0 \"x\\n\" \"\"\n1+1 127 \"\" \"asplit: exec: \\\"no-such-program\\\": executable file not found in $PATH\\n\"\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			x.order.Slots = 1
			dir := directory(t, x.order, x.texts)
			if err := Run(dir, 1); err != nil {
				t.Fatal(err)
			}
			if got := results(t, dir, x.order); got != x.want {
				t.Errorf("got\n%swant\n%s", got, x.want)
			}
			if _, err := os.Stat(File(dir, 1, KindNew)); err == nil {
				t.Error("N.new is left")
			}
		})
	}
}

// The results of items that run side by side are in the items' order.
func TestItemsSideBySide(t *testing.T) {
	const count = 40
	o := Order{Argv: []string{"sh", "-c", "[ $(($1 % 4)) = 0 ] && sleep 0.05; echo $1", "sh", "{}"}, Mode: Each, First: 100, Count: count, Numbers: true, Slots: 4}
	dir := directory(t, o, "")
	if err := Run(dir, 1); err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := range count {
		fmt.Fprintf(&want, "%d+1 0 \"%d\\n\" \"\"\n", i, 100+i)
	}
	if got := results(t, dir, o); got != want.String() {
		t.Errorf("got\n%s", got)
	}
}

// Run twice, side by side too, a task executes its items once.
func TestRunTwice(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "ran")
	o := Order{Argv: []string{"sh", "-c", "echo {} >>" + mark}, Mode: Each, First: 1, Count: 20, Numbers: true, Slots: 1}
	dir := directory(t, o, "")
	errs := make(chan error)
	for range 3 {
		go func() { errs <- Run(dir, 1) }()
	}
	for range 3 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile(mark); err != nil || bytes.Count(text, []byte("\n")) != 20 {
		t.Errorf("executed: %q, %v", text, err)
	}
}

// A big output is not in memory; a result is what was written, byte by byte.
func TestBigOutput(t *testing.T) {
	const size = 64 << 20
	o := Order{Argv: []string{"head", "-c", fmt.Sprint(size), "/dev/zero"}, Mode: Feed, First: 1, Count: 1, Slots: 1}
	dir := directory(t, o, "x\n")
	if err := Run(dir, 1); err != nil {
		t.Fatal(err)
	}
	r, err := OpenResult(File(dir, 1, KindResult), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	err = r.Each(func(record Record) error {
		n, err := io.Copy(io.Discard, r.Output(record))
		if n != size {
			t.Errorf("%d bytes", n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRunErrors(t *testing.T) {
	good := Order{Argv: []string{"true"}, Mode: Feed, First: 1, Count: 1, Slots: 1}
	for name, x := range map[string]struct {
		order Order
		spoil func(dir string) error
		want  string
	}{
		"a program that is not there": {Order{Argv: []string{"no-such-program"}, Mode: Feed, First: 1, Count: 1, Slots: 1}, nil, "no-such-program"},
		"another user's directory":    {good, func(dir string) error { return os.Chmod(dir, 0o777) }, "others can write it"},
		"another user's order":        {good, func(dir string) error { return os.Chmod(File(dir, 1, KindOrder), 0o666) }, "others can write it"},
		"no task":                     {good, func(dir string) error { return os.Remove(File(dir, 1, KindOrder)) }, "no such file"},
		"half a task":                 {good, func(dir string) error { return os.Truncate(File(dir, 1, KindOrder), 10) }, "first line is not whole"},
		"fewer items than announced":  {Order{Argv: []string{"echo", "{}"}, Mode: Each, First: 1, Count: 2, Slots: 1}, nil, "read item 1: unexpected EOF"},
		"an invalid result": {good, func(dir string) error {
			return os.WriteFile(File(dir, 1, KindResult), []byte("nonsense"), 0o600)
		}, "not a complete task result"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := directory(t, x.order, "")
			if x.spoil != nil {
				if err := x.spoil(dir); err != nil {
					t.Fatal(err)
				}
			}
			if err := Run(dir, 1); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("error is %v, want %q", err, x.want)
			}
			if _, err := os.Stat(File(dir, 1, KindNew)); err == nil {
				t.Error("the .new file is left: the items would count as killers")
			}
		})
	}
}

func TestModeOf(t *testing.T) {
	for line, want := range map[string]Mode{"cat": Feed, "echo {}": Each, "x a{}b c": Each, "seq {start} {count}": Whole, "x --n={count}": Whole, "x {} {start}": ""} {
		got, err := ModeOf(strings.Fields(line))
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
}

// A process that an item leaves behind writes into no other item's result, and the task
// does not wait for it.
func TestProcessLeftByItem(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("skip: there is no setsid")
	}
	fifo := filepath.Join(t.TempDir(), "go")
	if err := exec.CommandContext(t.Context(), "mkfifo", fifo).Run(); err != nil {
		t.Skip("skip: there is no mkfifo")
	}
	// The first item leaves a process that writes when the second item runs.
	script := `if [ $1 = 1 ]; then (read x <` + fifo + `; echo late; echo done >` + fifo + `) & else echo go >` + fifo + `; read x <` + fifo + `; echo second; fi`
	o := Order{Argv: []string{"sh", "-c", script, "sh", "{}"}, Mode: Each, First: 1, Count: 2, Numbers: true, Slots: 1}
	dir := directory(t, o, "")
	if err := Run(dir, 1); err != nil {
		t.Fatal(err)
	}
	if got, want := results(t, dir, o), "0+1 0 \"\" \"\"\n1+1 0 \"second\\n\" \"\"\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func FuzzReadOrder(f *testing.F) {
	o := Order{Argv: []string{"echo", "{}"}, Mode: Each, First: 1, Count: 2, Slots: 1}
	head, err := o.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(head, "a\nb\n"...))
	f.Add([]byte("{}\n"))
	f.Add([]byte(`{"argv":["x"],"mode":"each","first":-9223372036854775808,"count":1048576,"slots":9,"null":true}` + "\n\x00"))
	f.Add([]byte(`{"argv":["x"],"mode":"each","first":1,"count":2,"slots":1,"try":[["a=1"],["a=2","b=3"]],"tries":[1,0]}` + "\nx\ny\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, length, err := ReadOrder(bytes.NewReader(data))
		if err != nil {
			return
		}
		if length < 1 || length > int64(len(data)) || data[length-1] != '\n' {
			t.Fatalf("a first line of %d of %d bytes", length, len(data))
		}
		e := &execution{order: &o, items: items{order: &o}}
		dir := directory(t, o, string(data[length:]))
		if err := e.open(File(dir, 1, KindOrder), 0); err != nil {
			t.Fatal(err)
		}
		defer e.close()
		for range 10 {
			next, more := e.nextItem()
			if !more {
				break
			}
			if next.wrong == nil && !o.Numbers && strings.ContainsAny(next.text, string(o.Separator())+"\x00") {
				t.Fatalf("item %q", next.text)
			}
			o.Arguments("x", 7)
			if len(o.Try) > 0 {
				Tried(nil, o.Try[o.setting(next.at, 1+o.Retries)])
			}
		}
	})
}

func FuzzReadResult(f *testing.F) {
	var b bytes.Buffer
	w := newWriter(&b, 5, 3)
	for i := range int64(2) {
		if err := w.add(Record{Item: i, Count: 1 + i, Status: int(i)}, nil, nil, "text", nil); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.finish(timeOf(1), timeOf(2)); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes(), false)
	f.Add(b.Bytes()[:b.Len()-1], true)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, data []byte, mend bool) {
		if mend {
			data = withChecksums(data)
		}
		r, err := ReadResult(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		next := int64(0)
		err = r.Each(func(record Record) error {
			if record.Item != next {
				t.Fatalf("item %d, want %d", record.Item, next)
			}
			next += record.Count
			for _, part := range []io.Reader{r.Output(record), r.Errors(record)} {
				if _, err := io.Copy(io.Discard, part); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || next != r.Count {
			t.Fatalf("%d of %d items, %v", next, r.Count, err)
		}
	})
}
