package keeper

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/internal/proc"
)

func signalled(s syscall.Signal) Want { return Want{Verb: Signal, Signal: s} }

// What is wanted of a run merges, and a kill comes first.
func TestWishesMerge(t *testing.T) {
	usr1, cont, stop, tstp := signalled(syscall.SIGUSR1), signalled(syscall.SIGCONT), signalled(syscall.SIGSTOP), signalled(syscall.SIGTSTP)
	kill := func(grace time.Duration) Want { return Want{Verb: Kill, Grace: grace} }
	halt, on := Want{Verb: Stop}, Want{Verb: Continue}
	note := func(text string) Want { return Want{Verb: Note, Text: text} }
	for name, c := range map[string]struct{ added, want []Want }{
		"equal signals":                  {[]Want{usr1, signalled(2), usr1, usr1}, []Want{usr1, signalled(2)}},
		"a kill overtakes":               {[]Want{usr1, halt, kill(5), note("x")}, []Want{kill(5), usr1, halt, note("x")}},
		"the sooner kill":                {[]Want{kill(5), usr1, kill(3), kill(9)}, []Want{kill(3), usr1}},
		"the last of stop and continue":  {[]Want{halt, usr1, on, halt, on}, []Want{usr1, on}},
		"a signal that continues":        {[]Want{stop, tstp, usr1, cont}, []Want{usr1, cont}},
		"signals that stop":              {[]Want{cont, tstp, stop, tstp}, []Want{stop, tstp}},
		"a user's signal, then our stop": {[]Want{cont, halt, cont}, []Want{halt, cont}},
		"notes":                          {[]Want{note("1"), note("2"), note("3"), note("4"), note("5")}, []Want{note("2"), note("3"), note("4"), note("5")}},
		"what is none":                   {[]Want{signalled(0), signalled(65), signalled(-1), {Verb: "dance"}}, nil},
	} {
		var w Wishes
		for _, next := range c.added {
			w.Add(next)
		}
		if got := w.PopAll(); !slices.Equal(got, c.want) || !w.Empty() {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// However many are added, few are kept, and of them the last signal and the kill.
func TestWishesAreBounded(t *testing.T) {
	var w Wishes
	verbs := []Verb{Stop, Continue, Note, Signal, Signal, Signal}
	long := strings.Repeat("x", 1<<20)
	for range 100_000 {
		w.Add(Want{Verb: verbs[rand.N(len(verbs))], Signal: syscall.Signal(rand.N(100)), Text: long})
	}
	w.Add(Want{Verb: Kill})
	if got := w.PopKill(); len(got) != maxNotes+1 || got[maxNotes].Verb != Kill || w.Has(Note) || w.Has(Kill) {
		t.Errorf("taken %d wishes, want the notes and then the kill", len(got))
	}
	all, size := w.PopAll(), 0
	for _, want := range all {
		size += len(want.Line())
	}
	if len(all) > lastSignal+1+maxNotes || size > 10<<10 {
		t.Errorf("%d wishes wait, in %d bytes", len(all), size)
	}
}

// A record may be huge: damaged, or written without bound. Reading it takes neither its
// size in memory nor long; its beginning and its end count.
func TestHugeRecord(t *testing.T) {
	head := "\nr 7.0.1\nk 100 2000\nu 5\nj 101 2001 5\n"
	end := End{Code: 3, At: time.Unix(5, 6)}
	for name, fill := range map[string]func(f *os.File) error{
		"a hole":   func(f *os.File) error { return f.Truncate(1 << 40) },
		"one line": func(f *os.File) error { _, err := f.WriteString(strings.Repeat("x", 3*MaxRecord)); return err },
		"signals": func(f *os.File) error {
			_, err := f.WriteString(strings.Repeat("w sig 10\n", 2*MaxRecord/9))
			return err
		},
		"all signals": func(f *os.File) error {
			_, err := f.WriteString(strings.Repeat("w sig 10\nw sig 12\n", MaxRecord/30))
			return err
		},
		"long notes": func(f *os.File) error {
			_, err := f.WriteString(strings.Repeat("w note \""+strings.Repeat("x", 1<<20)+"\"\n", 40))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "record")
			f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteString(head); err != nil {
				t.Fatal(err)
			}
			if err := fill(f); err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString("\n" + end.line()); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := ReadRecord(path)
			if err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			if r.Run != "7.0.1" || r.Keeper != (proc.Process{PID: 100, Start: 2000}) || r.Job != (proc.Process{PID: 101, Start: 2001}) || r.User != 5 || r.End == nil || r.End.Code != 3 {
				t.Errorf("read was %+v, %+v", r, r.End)
			}
			runtime.KeepAlive(r)
			if held := int64(after.Sys) - int64(before.Sys); held > 64<<20 {
				t.Errorf("%d MiB were taken to read it", held>>20)
			}
		})
	}
}

// A follower reads each line once, however it is cut while it is written.
func TestFollower(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := "x 1 1 1 1 1 \"\"\n\nr 1.0.2\nk 50 60\nw sig 10\nw stop\nw note \"" + strings.Repeat("a", 20<<10) + "\"\nw cont\nj 70 80 90\n"
	var follow Follower
	var got []Want
	for len(text) > 0 {
		n := min(1+rand.N(3000), len(text))
		if rand.N(2) == 0 {
			n = min(n, 7)
		}
		if _, err := f.WriteString(text[:n]); err != nil {
			t.Fatal(err)
		}
		if err := follow.Read(f); err != nil {
			t.Fatal(err)
		}
		text = text[n:]
		got = append(got, follow.Wanted.PopAll()...)
	}
	follow.Wanted = Wishes{}
	got = slices.DeleteFunc(got, func(w Want) bool { return w.Verb == Stop }) // it may have been taken before, or not
	if want := []Want{signalled(10), {Verb: Continue}}; !slices.Equal(got, want) {
		t.Errorf("wanted was %v, want %v", got, want)
	}
	if r := follow.Record; r.Run != "1.0.2" || r.Keeper.PID != 50 || r.Job.PID != 70 || r.End != nil {
		t.Errorf("read was %+v", r)
	}
}
