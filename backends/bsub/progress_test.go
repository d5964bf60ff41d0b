package bsub_test

import (
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

// The progress is a column of its own, sorted by its number, and as hostile as any text.
func TestProgressColumn(t *testing.T) {
	f, err := bsub.ParseFormat("jobid progress:12 delimiter='|'")
	if err != nil {
		t.Fatal(err)
	}
	order, err := bsub.ParseOrder("-progress")
	if err != nil {
		t.Fatal(err)
	}
	var rows []bsub.Row
	for i, progress := range []string{"", "9", "100 all \x1b[31m", "20 " + strings.Repeat("long ", 10), "x"} {
		rows = append(rows, bsub.Row{Job: &backends.Job{ID: backends.ID{Job: int64(i + 1)}, State: backends.Running, Progress: progress}})
	}
	order.Sort(rows, "h", time.UTC, submitted)
	var b strings.Builder
	if err := (bsub.FormatTable{Format: f, NoHeader: true}).Write(&b, rows); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "3|100% all \\x1b[31m\n4|20% "+strings.TrimRight(strings.Repeat("long ", 10), " ")+"\n2|9%\n1|-\n5|-\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	f, err = bsub.ParseFormat("progress:12 jobid:3")
	if err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := (bsub.FormatTable{Format: f, NoHeader: true}).Write(&b, rows[1:2]); err != nil {
		t.Fatal(err)
	}
	if b.String() != "20% long lo* 4\n" {
		t.Errorf("a column of 12: %q", b.String())
	}
}

// What a job wrote into its state is in its details, with the run and the host that wrote it.
func TestOwnDetails(t *testing.T) {
	at := submitted.Add(time.Hour)
	r := &backends.Record{
		Settings: []backends.SettingRecord{{Key: "phase", Value: "solve \x1b[31m", At: at, Run: 2, Host: "h2"}, {Key: "progress", Value: "40", At: at}},
		Files:    []backends.FileRecord{{Name: "clean-up", Size: 2048, Executable: true, At: at, Run: 1}},
		History:  []backends.HistoryLine{{At: at, Run: 1, Event: "start", Detail: "on h1", Host: "h1"}, {At: at, Event: "submitted"}},
	}
	var b strings.Builder
	j := &backends.Job{ID: backends.ID{Job: 1}, State: backends.Running, Submitted: submitted, Progress: "40 half"}
	if err := (bsub.Detail{FromHost: "h"}).Write(&b, j, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"progress 40% half", "\n SETTINGS:\n  phase: solve \\x1b[31m (Nov 20 23:54:18, run 2 on h2)\n  progress: 40 (Nov 20 23:54:18)\n",
		"\n FILES:\n  clean-up: 2 K, a program (Nov 20 23:54:18, run 1)\n", ": h1: run 1: start, on h1;", ": submitted;",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
