package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
)

// A job's output is hostile: on a terminal it is made visible, in whatever parts it comes.
func TestOutputIsVisibleOnTerminal(t *testing.T) {
	const text = "größe\x1b[2J\tx\r\nbad \xff end\n\xe4\xb8"
	const want = "größe\\x1b[2J\tx\nbad \\xff end\n"
	for size := 1; size < 5; size++ {
		var b strings.Builder
		v := &visibleWriter{w: &b}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if _, err := v.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if b.String() != want {
			t.Errorf("in parts of %d bytes: got %q, want %q", size, b.String(), want)
		}
	}
}

// The queue names a job's file to its owner alone; one that does not know the file says so.
func TestPeekRefuses(t *testing.T) {
	q := fake.NewQueue()
	if got := bob(t, q, "apeek", "1"); got.code != 1 || got.stderr != "apeek: show a job's output: not possible on this queue: the queue does not say where it is; on LSF use bpeek\n" {
		t.Errorf("%+v", got)
	}
	file := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(file, []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	q.Extra.Output = func(_ context.Context, id backends.ID) (string, error) {
		switch id.Job {
		case 6:
			return "", backends.ErrDenied
		case 3:
			return "", nil
		}
		return file, nil
	}
	for line, want := range map[string]answer{
		"apeek 1":      {0, "text\n", ""},
		"apeek 2":      {0, "", "Job <2> has not started yet\n"},
		"apeek 3":      {1, "", "apeek: job 3 has no output file: it is at a terminal\n"},
		"apeek 6":      {1, "", "apeek: read the output of job 6: permission denied: it is another user's\n"},
		"apeek 5":      {0, "<< output of job 5[1] >>\ntext\n<< output of job 5[3] >>\ntext\n", "1 of 3 jobs have not started yet\n"},
		"apeek -f 8":   {0, "text\n", ""},
		"apeek -f 5":   {2, "", "apeek: -f follows one job: name an element of the array, such as 5[1]\n"},
		"apeek 1 2":    {2, "", "apeek: name one job, such as 12, or 12[3] of an array\n"},
		"apeek 99[2]":  {1, "", "Job <99[2]> is not found\n"},
		"apeek 0":      {2, "", "apeek: name one job, such as 12, or 12[3] of an array\n"},
		"apeek --nope": {2, "", "apeek: unknown option --nope: see apeek --help\n"},
	} {
		if got := bob(t, q, strings.Fields(line)...); got != want {
			t.Errorf("%s: %+v, want %+v", line, got, want)
		}
	}
}
