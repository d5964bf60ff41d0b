package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
)

// answer is what asub printed.
type answer struct {
	code           int
	stdout, stderr string
}

// bob types a command line.
func bob(t *testing.T, q *fake.Queue, stdin string, words ...string) answer {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := process{
		stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr, now: fake.Now, user: func() string { return "bob" },
		submitContext: func() (bsub.Context, error) {
			return bsub.Context{Now: fake.Now(), Dir: "/work", Env: []string{"A=1"}, Umask: 0o27}, nil
		},
		open: func(context.Context, bool) (backends.Backend, error) { return q, nil },
		submit: func(ctx context.Context, b backends.Backend, specs []backends.Spec, _ io.Writer) []submit.Result {
			var all []submit.Result
			for i, r := range b.Submit(ctx, specs) {
				all = append(all, submit.Result{Submitted: backends.Submitted{ID: r.ID, Queue: "normal", Err: r.Err}, ByDefault: specs[i].Queue == ""})
			}
			return all
		},
	}
	code := run(words, p)
	return answer{code, stdout.String(), stderr.String()}
}

func TestSubmissionCarriesDirEnvAndUmask(t *testing.T) {
	q := fake.NewQueue()
	got := bob(t, q, "", "asub", "-qlow", "-app", "p", "-n", "2", "sh", "-c", "exit 3")
	if want := (answer{0, "Job <99> is submitted to queue <normal>.\n", "asub: warning: -qlow is read as -q low\nasub: warning: option -app is ignored: there are no application profiles\n"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	want := backends.Spec{
		Name: "sh -c exit 3", Command: []string{"sh", "-c", "exit 3"}, Queue: "low", Slots: 2,
		Dir: "/work", Env: []string{"A=1"}, Umask: 0o27,
	}
	if diff := cmp.Diff([]backends.Spec{want}, q.Submitted); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	q = fake.NewQueue()
	got = bob(t, q, "#BSUB -J script\nsleep 1\n", "/usr/bin/asub")
	if len(q.Submitted) != 1 || q.Submitted[0].Name != "script" || got.stdout != "Job <99> is submitted to default queue <normal>.\n" {
		t.Errorf("a script on stdin: %+v %+v", got, q.Submitted)
	}
}

func TestUsageErrorSubmitsNothing(t *testing.T) {
	for _, words := range [][]string{{"-n", "0", "true"}, {"-zz"}, {}, {"-J", "a[1-"}, {"-J", "a[1-]", "true"}} {
		q := fake.NewQueue()
		got := bob(t, q, "", append([]string{"asub"}, words...)...)
		if got.code != 2 || len(q.Submitted) > 0 || got.stdout != "" || !strings.HasPrefix(got.stderr, "asub: ") || !strings.HasSuffix(got.stderr, "Job not submitted.\n") {
			t.Errorf("%q: %+v", words, got)
		}
	}
}

func TestUnreachableQueueExits75(t *testing.T) {
	q := fake.NewQueue()
	q.Down = fmt.Errorf("connect: %w", backends.ErrUnreachable)
	if got := bob(t, q, "", "asub", "true"); got.code != 75 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("%+v, want exit code 75 and one line", got)
	}
}

func TestHelpAndVersion(t *testing.T) {
	got := bob(t, fake.NewQueue(), "", "asub", "--help")
	if got.code != 0 || !strings.Contains(got.stdout, "EXIT CODES") || got.stderr != "" {
		t.Errorf("--help: %+v", got)
	}
	if got := bob(t, fake.NewQueue(), "", "asub", "--version"); got.code != 0 || !strings.HasPrefix(got.stdout, "asub ") {
		t.Errorf("--version: %+v", got)
	}
}
