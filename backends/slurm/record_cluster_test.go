package slurm_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/cluster"
)

// TestRecordFiles: a record names what a job executes and writes as Slurm does it, for
// an element of an array, too, whose default files squeue names wrongly (22.05).
func TestRecordFiles(t *testing.T) {
	t.Parallel()
	cluster.Needed(t)
	c := cluster.New(t, cluster.Options{Nodes: 1})
	queue := open(c, "")
	dir := dirForJobs(t)
	script := filepath.Join(dir, "job.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	submit := func(args ...string) backends.ID {
		out, err := c.Run(t.Context(), append([]string{"sbatch", "--parsable", "--hold", "--chdir=" + dir}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		id, err := backends.ParseID(strings.TrimSpace(out))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	for name, test := range map[string]struct {
		args         []string
		element      int
		in, out, err string
		command      string
	}{
		"by default":            {args: []string{script}, in: "/dev/null", out: "slurm-JOB.out", command: script},
		"named":                 {args: []string{"--input=in", "--output=o-%j", "--error=e", script, "an argument"}, in: "in", out: "o-%j", err: "e", command: script + " an argument"},
		"of an array":           {args: []string{"--array=3", script}, element: 3, in: "/dev/null", out: "slurm-JOB_3.out", command: script},
		"of an array's element": {args: []string{"--array=0,4", script}, element: backends.ZeroIndex, in: "/dev/null", out: "slurm-JOB_0.out", command: script},
	} {
		t.Run(name, func(t *testing.T) {
			id := submit(test.args...)
			id.Index = test.element
			record, err := queue.Abilities().Record(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			at := func(file string) string {
				if filepath.IsAbs(file) {
					return file
				}
				return filepath.Join(dir, file)
			}
			test.out = strings.Replace(test.out, "JOB", strconv.FormatInt(id.Job, 10), 1)
			if test.err == "" {
				test.err = test.out
			}
			s := record.Spec
			if s.Dir != dir || s.Stdin != at(test.in) || s.Stdout != at(test.out) || s.Stderr != at(test.err) {
				t.Errorf("dir %q, files %q %q %q", s.Dir, s.Stdin, s.Stdout, s.Stderr)
			}
			// 24.11 shows no arguments.
			if bare, _, _ := strings.Cut(test.command, " "); len(s.Command) != 1 || s.Command[0] != test.command && s.Command[0] != bare {
				t.Errorf("command %q, want %q", s.Command, test.command)
			}
		})
	}
}
