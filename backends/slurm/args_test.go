package slurm

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
)

func TestArguments(t *testing.T) {
	spec := backends.Spec{
		Name: "a b", Project: "chipA:synth", Queue: "main", Description: "mine; $(id)", Slots: 3, Memory: 100 << 20, Hosts: []string{"n1", "n3"},
		Command: []string{"echo", "$HOME `id`", "--export=NONE", "", "new\nline"}, Dir: "/tmp/x y", Env: []string{"A=b c", "bad"}, Umask: 0o27,
		Stdout: "out.%J.%I.%x", RunLimit: 61 * time.Second, BeginTime: time.Unix(1795307972, 5), Hold: true, NoRequeue: true, After: "done(12) && ended(13[4])",
		Array: &backends.Array{Indices: []int{1, 2, 3, 7}, Limit: 2},
	}
	sub, err := newSubmission(&spec, FromAccount, []string{"n1", "n2", "n3"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"sbatch", "--parsable", "--job-name=a b", "--partition=main", "--account=chipA", "--comment=mine; $(id)", "--ntasks=3", "--mem-per-cpu=34M",
		"--exclude=n2", "--chdir=/tmp/x y", "--input=/dev/null", "--output=out.%A.%a.%%x", "--open-mode=append", "--time=2", "--begin=2026-11-22T00:39:32", "--hold", "--no-requeue",
		"--dependency=afterok:12,afterany:13_4", "--array=1-3,7%2", "/dev/stdin", "0027", "echo", "$HOME `id`", "--export=NONE", "", "new\nline",
	}
	if d := cmp.Diff(want, sub.argv); d != "" {
		t.Error(d)
	}
	if string(sub.script) != launcher || strings.Contains(launcher, "HOME") || !strings.HasPrefix(string(sub.env), "A=b c\x00") || strings.Contains(string(sub.env), "bad") || !strings.Contains(string(sub.env), stepVariable+"=synth\x00") {
		t.Errorf("script %q, environment %q: nothing of a user's may stand in the script", sub.script, sub.env)
	}
	spec.OneHost, spec.Array, spec.Hosts = true, nil, []string{"n2"}
	sub, err = newSubmission(&spec, FromComment, []string{"n1", "n2", "n3"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--nodes=1-1", "--cpus-per-task=3", "--mem=100M", "--nodelist=n2", "--comment=chipA mine; $(id)", "--output=out.%A.0.%%x"} {
		if !slices.Contains(sub.argv, want) {
			t.Errorf("no %s in %q", want, sub.argv)
		}
	}
}

func TestMailArguments(t *testing.T) {
	for what, x := range map[string]struct {
		mail backends.Mail
		want []string
	}{
		"nothing":    {},
		"begin":      {backends.Mail{Begin: true}, []string{"--mail-type=BEGIN"}},
		"failed":     {backends.Mail{Failed: true}, []string{"--mail-type=FAIL"}},
		"end":        {backends.Mail{End: true, Failed: true}, []string{"--mail-type=END,REQUEUE,FAIL"}},
		"to another": {backends.Mail{Begin: true, End: true, To: "ann@example.org"}, []string{"--mail-type=BEGIN,END,REQUEUE,FAIL", "--mail-user=ann@example.org"}},
	} {
		sub, err := newSubmission(&backends.Spec{Command: []string{"true"}, Slots: 1, Mail: x.mail}, FromAccount, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, word := range sub.argv {
			if strings.HasPrefix(word, "--mail") {
				got = append(got, word)
			}
		}
		if d := cmp.Diff(x.want, got); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
}

// TestResources: how a job's slots lie on nodes, GPUs and features.
func TestResources(t *testing.T) {
	gpus := []backends.Amount{{Name: "gpu", Count: 2}, {Name: "tape", Count: 1}}
	for _, test := range []struct {
		spec backends.Spec
		want string
	}{
		{backends.Spec{Slots: 4, PerHost: 2}, "--ntasks=4 --nodes=2-2 --ntasks-per-node=2"},
		{backends.Spec{Slots: 5, PerHost: 2, Memory: 5 << 20}, "--ntasks=5 --nodes=3-3 --ntasks-per-node=2 --mem-per-cpu=1M"},
		{backends.Spec{Slots: 2, PerHost: 2, Memory: 1 << 20}, "--nodes=1-1 --ntasks=1 --cpus-per-task=2 --mem=1M"},
		{backends.Spec{Slots: 2, Needs: gpus}, "--ntasks=2 --gres=gpu:2,tape:1"},
		{backends.Spec{Slots: 2, Features: []string{"big", "fast"}}, "--ntasks=2 --constraint=big&fast"},
		{backends.Spec{Slots: 2, Select: "big || fast"}, "--ntasks=2 --constraint=big|fast"},
	} {
		test.spec.Command = []string{"true"}
		sub, err := newSubmission(&test.spec, FromAccount, nil)
		if err != nil {
			t.Errorf("%s: %v", test.want, err)
			continue
		}
		if got := strings.Join(sub.argv, " "); !strings.Contains(got, "--job-name=true "+test.want+" --output") && !strings.Contains(got, "--job-name=true "+test.want+" --") {
			t.Errorf("want %s: %s", test.want, got)
		}
	}
}

// TestKeeps: what a pending job asks of its nodes stays.
func TestKeeps(t *testing.T) {
	gpu := []backends.Amount{{Name: "gpu", Count: 1}}
	j := &listedJob{request: &request{features: []string{"big", "fast"}, onHost: gpu, tasksPerNode: 2}}
	two, big, none, either := 2, []string{"fast", "big"}, []string{}, "a || b"
	for _, c := range []backends.Change{{}, {PerHost: &two, Features: &big, Needs: &gpu, Same: &none, Select: new(string)}} {
		if what := j.keeps(&c); what != "" {
			t.Errorf("%+v: %s", c, what)
		}
	}
	for _, c := range []backends.Change{{PerHost: new(int)}, {Features: &none}, {Needs: &[]backends.Amount{}}, {Same: &big}, {Select: &either}} {
		if j.keeps(&c) == "" {
			t.Errorf("%+v was taken", c)
		}
	}
}

func TestUnsupportedSubmissions(t *testing.T) {
	for what, change := range map[string]func(*backends.Spec){
		"a terminal":         func(s *backends.Spec) { s.Terminal = "/run/x" },
		"the lowest level":   func(s *backends.Spec) { s.Priority = backends.At(backends.LevelLow, 20) },
		"a hold of ours":     func(s *backends.Spec) { s.HeldUntil = time.Unix(1795307972, 0) },
		"a backslash":        func(s *backends.Spec) { s.Stdout = `a\b` },
		"both modes":         func(s *backends.Spec) { s.Stdout, s.Stderr, s.Truncate.Stdout = "a", "b", true },
		"a mixed dependency": func(s *backends.Spec) { s.After = "done(1) && done(2) || done(3)" },
		"a job's name":       func(s *backends.Spec) { s.After = "done(name)" },
		"the same rack":      func(s *backends.Spec) { s.Same = []string{"rack"} },
		"a number of cores":  func(s *backends.Spec) { s.Select = "ncpus >= 8" },
		"both joints":        func(s *backends.Spec) { s.Features, s.Select = []string{"a"}, "b || c" },
		"a feature's name":   func(s *backends.Spec) { s.Features = []string{"a|b"} },
		"a resource's name":  func(s *backends.Spec) { s.Needs = []backends.Amount{{Name: "gpu:a100,x", Count: 1}} },
		"an index":           func(s *backends.Spec) { s.Array = &backends.Array{Indices: []int{1 << 30}} },
	} {
		s := backends.Spec{Command: []string{"true"}, Slots: 1}
		change(&s)
		if _, err := newSubmission(&s, FromAccount, nil); !errors.Is(err, backends.ErrUnable) {
			t.Errorf("%s: %v, want %v", what, err, backends.ErrUnable)
		}
	}
	if _, err := newSubmission(&backends.Spec{Slots: 1}, FromAccount, nil); err == nil {
		t.Error("a job without a command was taken")
	}
	if _, err := newSubmission(&backends.Spec{Command: []string{"true"}, Hosts: []string{"nowhere"}}, FromAccount, []string{"n1"}); err == nil {
		t.Error("a host that there is not was taken")
	}
}

func TestScripts(t *testing.T) {
	ours := exports + "umask 0022\n"
	for text, want := range map[string]string{
		"echo":                       "#!/bin/sh\n" + ours + "echo",
		"#!/bin/bash -e\necho":       "#!/bin/bash -e\n" + ours + "echo",
		"#!/usr/bin/env bash\necho":  "#!/usr/bin/env bash\n" + ours + "echo",
		"#!/usr/bin/python3\nprint(": "#!/usr/bin/python3\nprint(",
		"#!/bin/csh\n":               "#!/bin/csh\n",
	} {
		if got, err := script([]byte(text), 0o22); err != nil || string(got) != want {
			t.Errorf("%q became %q, %v, want %q", text, got, err, want)
		}
	}
}
