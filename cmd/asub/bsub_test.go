package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
)

// execCall is what asub executes on a queue with a bsub of its own.
type execCall struct {
	answer
	argv, env string
}

func bobOnLSF(t *testing.T, program, stdin string, terminal bool, words ...string) execCall {
	t.Helper()
	q := fake.NewQueue()
	q.Extra.Bsub = func(context.Context) (backends.Bsub, error) {
		return backends.Bsub{Program: program, Env: []string{"LSF_ENVDIR=/lsf"}, Options: map[string]backends.OptionMeaning{
			"-app": {Note: "as LSF documents it"}, "-gpu": {Treatment: backends.Refused, Note: "lava's bsub does not know it"},
			"-Ne": {Treatment: backends.Ignored, Note: "lava's bsub does not know it"},
		}}, nil
	}
	var stdout, stderr bytes.Buffer
	got := execCall{}
	p := process{
		stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr, stdinTerminal: terminal, now: fake.Now,
		submitContext: func() (bsub.Context, error) {
			return bsub.Context{Now: fake.Now(), Dir: "/work", Env: []string{"A=1", "LSF_ENVDIR=/my/own", "ALLOTMENT_PREEMPT=suspend", "LC_ALL=de_DE"}}, nil
		},
		open: func(context.Context, bool) (backends.Backend, error) { return q, nil },
		exec: func(argv, env []string) error {
			got.argv, got.env = strings.Join(argv, "|"), strings.Join(env, " ")
			return nil
		},
	}
	code := run(append([]string{"asub"}, words...), p)
	got.answer = answer{code, stdout.String(), stderr.String()}
	if len(q.Submitted) > 0 {
		t.Errorf("%q: the backend was asked to submit: %+v", words, q.Submitted)
	}
	return got
}

// asub executes the real bsub, which runs the filter itself: asub runs none.
func TestAsubExecsNativeBsub(t *testing.T) {
	const env = "A=1 ALLOTMENT_PREEMPT=suspend LC_ALL=de_DE LSF_ENVDIR=/lsf"
	for line, want := range map[string]execCall{
		"-P chipA:synthesis -n4 -Is -app x sh -c a;b": {argv: "/lsf/bin/bsub|-P|chipA:synthesis|-n|4|-Is|-app|x|sh -c 'a;b'", env: env},
		"-K -Ne true":                   {argv: "/lsf/bin/bsub|-K|true", env: env, answer: answer{stderr: "asub: warning: option -Ne is ignored: lava's bsub does not know it\n"}},
		"-B -N -u ann@example.org true": {argv: "/lsf/bin/bsub|-B|-N|-u|ann@example.org|true", env: env},
		"-N -u -oQ true":                {answer: answer{code: 2, stderr: "asub: option -u: \"-oQ\" is no mail address: want one such as ann@example.org, or an account of this machine. Job not submitted.\n"}},
		"-gpu n true":                   {answer: answer{code: 2, stderr: "asub: option -gpu is not possible on this queue: lava's bsub does not know it. Job not submitted.\n"}},
		"--min disk=1024K true":         {argv: "/lsf/bin/bsub|true", env: "A=1 ALLOTMENT_PREEMPT=suspend LC_ALL=de_DE LSF_ENVDIR=/lsf ALLOTMENT_MIN=disk=1M"},                                                // R48
		"--deadline +1x true":           {answer: answer{code: 2, stderr: "asub: option --deadline: \"+1x\": it is no time: say 07:00, 2026-12-01T07:00, 2026-12-01T07:00:00Z or +3h. Job not submitted.\n"}}, // R48
		"-zz true":                      {answer: answer{code: 2, stderr: "asub: unknown option -zz; see --help. Job not submitted.\n"}},
		"-J script":                     {argv: "/lsf/bin/bsub|-J|script", env: env},
	} {
		if got := bobOnLSF(t, "/lsf/bin/bsub", "sleep 1\n", false, strings.Fields(line)...); got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", line, got, want)
		}
	}
	if got := bobOnLSF(t, "/lsf/bin/bsub", "", true, "-J", "x"); got.code != 2 || got.argv != "" || !strings.Contains(got.stderr, "no command") {
		t.Errorf("a terminal is no script: %+v", got)
	}
	if got := bobOnLSF(t, "/lsf/bin/bsub", "", false, "--help"); got.code != 0 || !strings.Contains(got.stdout, "-app PROFILE") {
		t.Errorf("--help does not know LSF's own options:\n%s", got.stdout)
	}
}

// Each line of a batch is passed to a bsub of its own, after all lines were checked.
func TestBatchRunsNativeBsubPerLine(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "bsub")
	record := filepath.Join(dir, "said")
	script := fmt.Sprintf("#!/bin/sh\nprintf '%%s|' \"$@\" >>%s\necho \" $LSF_ENVDIR $LC_ALL$ALLOTMENT_MIN\" >>%s\n[ \"$2\" != bad ] || { echo 'bad: No such queue. Job not submitted.' >&2; exit 255; }\necho 'Job <7> is submitted to default queue <normal>.'\n", record, record)
	jobs := filepath.Join(dir, "jobs")
	if err := errors.Join(os.WriteFile(program, []byte(script), 0o755), os.WriteFile(jobs, []byte("-q bad one\n--min cpu=2 -n 2 sh -c 'exit 3'\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	got := bobOnLSF(t, program, "", false, "--batch", jobs)
	want := execCall{answer: answer{code: 1, stdout: "Job <7> is submitted to default queue <normal>.\n", stderr: "bad: No such queue. Job not submitted.\n"}}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	text, err := os.ReadFile(record)
	if want := "-q|bad|one| /lsf de_DE\n-n|2|sh -c 'exit 3'| /lsf de_DEcpu=2\n"; err != nil || string(text) != want {
		t.Errorf("bsub was called with %q, %v; want %q", text, err, want)
	}
	if got := bobOnLSF(t, program, "true\n-gpu n true\n", false, "--batch", "-"); got.code != 2 || got.stdout != "" || !strings.Contains(got.stderr, "-: line 2: option -gpu") {
		t.Errorf("%+v", got)
	}
	if got := bobOnLSF(t, "/no/such/bsub", "true\n", false, "--batch", "-"); got.code != 1 || !strings.Contains(got.stderr, "/no/such/bsub") {
		t.Errorf("%+v", got)
	}
}

// An unreachable queue can't report its bsub.
func TestUnreachableLSFExits75(t *testing.T) {
	q := fake.NewQueue()
	q.Extra.Bsub = func(context.Context) (backends.Bsub, error) { return backends.Bsub{}, backends.ErrUnreachable }
	if got := bob(t, q, "", "asub", "true"); got.code != 75 {
		t.Errorf("%+v", got)
	}
}
