package keeper

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// A kill that asks the run to save its work is read as it was written; to a keeper of an earlier
// version, which passes over the line before it, it is a kill.
func TestRecordOfASave(t *testing.T) {
	for _, want := range []Want{
		{Verb: Kill, Grace: 30 * time.Second, Signal: syscall.SIGUSR1},
		{Verb: Kill, Grace: time.Second, Text: "/opt/save it \"now\"\xff"},
		{Verb: Kill, Grace: time.Second},
	} {
		line := want.Line()
		r := ParseRecord([]byte("r 1.0.1\n" + line))
		if got := r.Wanted.PopKill(); len(got) != 1 || got[0] != want {
			t.Errorf("%q is read as %+v, want %+v", line, got, want)
		}
		before, after, saves := strings.Cut(line, "\nw kill ")
		if saves {
			r = ParseRecord([]byte("w kill " + after))
			if got := r.Wanted.PopKill(); len(got) != 1 || got[0] != (Want{Verb: Kill, Grace: want.Grace}) {
				t.Errorf("without %q it is read as %+v", before, got)
			}
		}
		var f Record // in two parts
		for i := range len(line) - 1 {
			f = newRecord()
			n := f.consume([]byte(line[:i+1]))
			f.consume([]byte(line[n:]))
			if got := f.Wanted.PopKill(); len(got) != 1 || got[0] != want {
				t.Errorf("%q, read in two parts at %d, is %+v", line, i, got)
			}
		}
	}
	r := ParseRecord([]byte("w save 10 \"\"\nw kill 5\nw kill 3\n"))
	if got := r.Wanted.PopKill(); len(got) != 1 || got[0] != (Want{Verb: Kill, Grace: 3 * time.Millisecond}) {
		t.Errorf("a sooner kill is %+v", got)
	}
	for _, bad := range []string{"w save x \"\"\n", "w save -1 \"\"\n", "w save 65 \"\"\n", "w save 10\n", "w save 10 x\n"} {
		r := ParseRecord([]byte(bad + "w kill 5\n"))
		if got := r.Wanted.PopKill(); len(got) != 1 || got[0].saves() {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

func TestRecordOfTheEndOfASave(t *testing.T) {
	for _, want := range []End{
		{Code: 85, Asked: true}, {Code: 137, Asked: true, Saved: true}, {Code: 0, Self: true, Asked: true}, {Code: 1},
	} {
		want.At = time.Unix(5, 0)
		r := ParseRecord([]byte("r 1.0.1\na\nv\nr 1.0.2\n" + want.line())) // the first run's lines don't count
		if r.End == nil || *r.End != want {
			t.Errorf("%q is read as %+v", want.line(), r.End)
		}
	}
}
