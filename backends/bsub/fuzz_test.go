package bsub_test

import (
	"strings"
	"testing"
	"unicode/utf8"

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
		"-m\nh1+2 h2!\n-env\nall,~A,B=1\nx y", "-é\n\xff", "-R\n\xff\x1b&&[[]]\ntrue",
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
