package leased

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/lease"
	"github.com/allotment-hpc/allotment/lease/client"
	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split"
	"github.com/allotment-hpc/allotment/split/task"
	"github.com/allotment-hpc/allotment/split/try"
)

// said is a split's reporter.
type said struct{ bytes.Buffer }

func (s *said) Log(text string)       { fmt.Fprintln(s, text) }
func (*said) Progress(split.Progress) {}
func (*said) Round(split.RoundReport) {}

// A job splits itself over 40 workers, as many as its limit allows of those that it asks for, side by side,
// and gives all of them back.
func TestSplitOverForty(t *testing.T) {
	const limit = 40
	built := t.TempDir()
	if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", built+"/", "github.com/allotment-hpc/allotment/cmd/asplit-task").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	at, _ := manager(t, lease.Limits{Held: limit})
	for n := range 2 * limit {
		bring(t, at, fmt.Sprintf("w%d", n), fmt.Sprintf(`exec %s/asplit-task "$@"`, built))
	}
	q := open(t, at, 2*limit)
	work, here := t.TempDir(), t.TempDir()
	if err := os.Chmod(work, 0o700); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	var log said
	d := split.Definition{
		// An item waits until as many have begun.
		Argv: []string{"sh", "-c", `touch "$0/$1"; until set -- "$1" "$0"/* && [ $# -gt 40 ]; do sleep 0.05; done; echo "$1"`, here, "{}"},
		Mode: task.Each, Slots: 1, Leased: 2 * limit, Input: split.Input{Kind: split.Range, From: 1, To: 5 * limit},
		Balance: metrics.Options{Rule: metrics.Equal, RoundItems: limit},
	}
	err := split.Start(t.Context(), d, split.Options{
		Work: work, Queue: q, Spec: backends.Spec{Dir: work, Env: os.Environ()}, Program: []string{filepath.Join(built, "asplit-task")},
		Stdout: &out, Stderr: &log, Reporter: &log,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	var want strings.Builder
	for n := range 5 * limit {
		fmt.Fprintln(&want, n+1)
	}
	if out.String() != want.String() || log.Len() > 0 {
		t.Errorf("%q\n%s", out.String(), log.String())
	}
	var v lease.View
	if err := client.New(t.Context(), at.Socket).Call("GET", "view", "", &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Leases)+len(v.Waiting) > 0 || len(v.Workers) != 2*limit {
		t.Errorf("%+v", v)
	}
}

// Settings are tried on leased slots as on hosts: each block on one of them.
func TestTryOverLeases(t *testing.T) {
	built := t.TempDir()
	if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", built+"/", "github.com/allotment-hpc/allotment/cmd/asplit-task").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	at, _ := manager(t, lease.Limits{})
	for n := range 3 {
		bring(t, at, fmt.Sprintf("w%d", n), fmt.Sprintf(`exec %s/asplit-task "$@"`, built))
	}
	q := open(t, at, 3)
	work := t.TempDir()
	if err := os.Chmod(work, 0o700); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	var log said
	var report *split.Report
	d := split.Definition{
		Argv: []string{"sh", "-c", `[ $threads = 8 ] || sleep 0.1; echo $threads`, "sh", "{}"},
		Mode: task.Each, Slots: 1, Leased: 3, Input: split.Input{Kind: split.Range, From: 1, To: 100},
		Balance: metrics.Options{Rule: metrics.Equal, RoundItems: 30}, Try: []try.Variable{{Name: "threads", Values: []string{"4", "8"}}},
	}
	err := split.Start(t.Context(), d, split.Options{
		Work: work, Queue: q, Spec: backends.Spec{Dir: work, Env: os.Environ()}, Program: []string{filepath.Join(built, "asplit-task")},
		Stdout: &out, Stderr: &log, Reporter: &log, Report: func(r *split.Report) error { report = r; return nil },
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	slow := int64(strings.Count(out.String(), "4\n"))
	if r := report.Trial; r.Best != "threads=8" || r.Tried > 10 || slow < 3 || slow > r.Tried || strings.Count(out.String(), "8\n")+int(slow) != 100 {
		t.Errorf("%+v\n%s", r, out.String())
	}
}
