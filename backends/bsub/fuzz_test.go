package bsub_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

// sound fails unless a request is one that a queue can be given.
func sound(t *testing.T, r bsub.Request) {
	t.Helper()
	s := r.Spec
	if s.Slots < 1 || s.Memory < 0 || s.RunLimit < 0 || s.Priority < 0 || s.Priority > 20 {
		t.Errorf("a number out of range: %+v", s)
	}
	if (len(s.Command) == 0) == (len(s.Script) == 0) {
		t.Errorf("command %q and script %q", s.Command, s.Script)
	}
	if s.Array != nil {
		for i, index := range s.Array.Indices {
			if index < 1 || i > 0 && index <= s.Array.Indices[i-1] {
				t.Errorf("indices %v", s.Array.Indices)
			}
		}
	}
	for _, text := range append([]string{s.Name, s.Project, s.Queue, s.Description, s.Stdin, s.Stdout, s.Stderr, s.Dir, s.After}, s.Command...) {
		if strings.ContainsRune(text, 0) {
			t.Errorf("a NUL in %q", text)
		}
	}
	for _, line := range r.Warnings {
		safe(t, line)
	}
}

func safe(t *testing.T, line string) {
	t.Helper()
	if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Errorf("not safe to print: %q", line)
	}
}

func FuzzArgs(f *testing.F) {
	for _, line := range []string{
		"-n\n4\n-R\nrusage[mem=4G/task] span[hosts=1]\nsleep\n3", "-J\na[1-9:2]%3\ntrue", "-b\n2:29:1:00\n-W\n1:30/h\nx", "-Hx\n-qnormal\n-Jd\nt\n--\n-x",
		"-m\nh1+2 h2!\n-env\nall,~A,B=1\nx y", "-é\n\xff", "--min\ncpu=2,disk=300M\n--min=net=1\xffK\ntrue", "--deadline\n07:00\n--deadline=+1\xffh\ntrue", "-R\n\xff\x1b&&[[]]\ntrue",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, words string) {
		r, err := parsed("", strings.Split(words, "\n")...)
		if err != nil {
			safe(t, err.Error())
			return
		}
		sound(t, r)
	})
}

func FuzzBSUBLines(f *testing.F) {
	for _, script := range []string{
		"#!/bin/sh\n#BSUB -J \"a b\" -n 4 # c\necho\n", "#BSUB\t-o 'x y'\\\n", "#BSUB -J \"\\\"\\\\\"\ntrue", "#BSUBx\r\n#BSUB -q a\r\ntrue\x00",
	} {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script string) {
		r, err := parsed(script)
		if err != nil {
			safe(t, err.Error())
			return
		}
		sound(t, r)
		if string(r.Spec.Script) != script {
			t.Errorf("the script was changed")
		}
	})
}

func FuzzChange(f *testing.F) {
	for _, line := range []string{"-n\n4\n12", "-R\nrusage[mem=4G]\n-Jd\nx\n1[2-3]\n0", "-Wn\n5", "-b\n2:29:1:00\n-Mn\n1", "-w\ndone(1)\n2", "-\n--\n\xff"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, words string) {
		line, err := bsub.ScanChange(strings.Split(words, "\n"))
		if err != nil {
			safe(t, err.Error())
			return
		}
		now := backends.Job{ID: backends.ID{Job: 1}, Slots: 2, Memory: 1 << 30}
		change, warnings, err := line.Change(bsub.Context{Now: time.Unix(1e9, 0), Dir: "/"}, &now)
		if err != nil {
			safe(t, err.Error())
			return
		}
		for _, warning := range warnings {
			safe(t, warning)
		}
		for _, n := range []*int64{change.Memory, change.MemoryLimit} {
			if n != nil && *n < 0 {
				t.Errorf("%q: a size of %d", words, *n)
			}
		}
		if change.Slots != nil && *change.Slots < 1 || change.RunLimit != nil && *change.RunLimit < 0 {
			t.Errorf("%q: %+v", words, change)
		}
	})
}

// A begin time never lies before now, unless its year says so.
func FuzzBegin(f *testing.F) {
	for _, s := range []string{"10:30", "29:1:00", "2:29:1:00", "2030:2:29:1:00", "24:00", "1:2:3:4:5:6", ":"} {
		f.Add(s, int64(1e9))
	}
	f.Fuzz(func(t *testing.T, s string, unix int64) {
		now := time.Unix(unix%(1<<34), 0).UTC()
		at, err := bsub.ParseBegin(s, now)
		if err == nil && strings.Count(s, ":") < 4 && at.Before(now.Truncate(time.Minute)) {
			t.Errorf("%q at %v is %v", s, now, at)
		}
	})
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"4G", "1.5t", "512", "10MB", "0", ".", "1e9", "1..2K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := bsub.ParseSize(s); err == nil && (n < 1 || n >= 1<<60) {
			t.Errorf("%q is %d bytes", s, n)
		}
	})
}

// Names of arrays and words that name jobs: indices ascend, and there are never
// more than a queue takes.
func FuzzIndices(f *testing.F) {
	for _, s := range []string{"a[1-9:2]%3", "a[1,1,2]", "12[1-3,7]", "0", "[1]", "a[1-1000000]", "a[2-1]", "a[1-2147483647]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, array, err := bsub.ParseName(s)
		if err == nil && array == nil && name != s {
			t.Errorf("%q is named %q", s, name)
		}
		var lists [][]int
		if err == nil && array != nil {
			lists = append(lists, array.Indices)
			if array.Indices[0] < 1 {
				t.Errorf("%q begins with %d", s, array.Indices[0])
			}
		}
		if arg, err := bsub.ParseJobArg(s); err == nil {
			lists = append(lists, arg.Indices)
			if len(arg.Indices) == 0 && !arg.All && len(arg.IDs()) != 1 {
				t.Errorf("%q names %v", s, arg.IDs())
			}
		}
		for _, list := range lists {
			if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) || len(list) > 0 && list[0] < 0 || len(list) > 1_000_000 {
				t.Errorf("%q has %d indices", s, len(list))
			}
		}
	})
}

// Whatever is typed at ajobs -o and --sort, what is printed of a hostile job is safe, a line for it.
func FuzzFormat(f *testing.F) {
	for _, text := range []string{
		"jobid stat:-5 job_name:20 pend_reason delimiter='^'", "id:", "jobid:-", "name:1 cmd:2", "run_time,-user", "-cpu_used", "delimiter=^ jobid", "jobid:99999999999\xff\x1b",
		"job wait run lost cpu maxmem hosts ended reason",
	} {
		f.Add(text, "name\x1b\n^")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		j := backends.Job{ID: backends.ID{Job: 1}, Name: name, User: name, Queue: name, Reason: name, Hosts: []backends.Placement{{Host: name, Slots: 2}}, State: backends.Running}
		record := backends.Record{Spec: backends.Spec{Command: []string{name}, Stdout: name, Dir: name}, Runs: []backends.RunRecord{{Why: name}}}
		rows := []bsub.Row{{Job: &j, Record: &record}, {Job: &j}}
		order, err := bsub.ParseOrder(text)
		if err != nil {
			safe(t, err.Error())
		} else {
			order.Sort(rows, name, nil, submitted)
		}
		format, err := bsub.ParseFormat(text)
		if err != nil {
			safe(t, err.Error())
			return
		}
		for _, wide := range []bool{false, true} {
			var b strings.Builder
			if err := (bsub.FormatTable{Format: format, Wide: wide, FromHost: name, Now: submitted}).Write(&b, rows); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
			if len(lines) != len(rows)+1 {
				t.Errorf("%q: %d lines", text, len(lines))
			}
			for _, line := range lines {
				safe(t, line)
			}
		}
		var b strings.Builder
		if err := (bsub.Detail{}).WritePast(&b, &backends.Past{Job: j, Record: &record}, submitted); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			safe(t, strings.TrimSuffix(line, "\n"))
		}
	})
}
