package main

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// from is the begin of the window of testdata/preempt.sacct, which Slurm 22.05.8 wrote.
const from = 1795573203

// The record has a job that was preempted twice and then completed, one that still ran at the
// window's end, one that started then, and two that never did.
func TestJudge(t *testing.T) {
	record, err := os.ReadFile("testdata/preempt.sacct")
	if err != nil {
		t.Fatal(err)
	}
	const whole = float64(slots * (window / 1e9))
	want := func() outcome {
		return outcome{
			guaranteed: []int64{1, 1}, inTime: 1,
			background: []int64{0, 0, 65, 45, 3, 47, 47},
			evictions:  2,
			lost:       (10 + 14) / whole,
			useful:     (26 + 10 + 20 + 11 + 15 + 52) / whole,
			longer:     1,
		}
	}
	failed, late, slow, own := want(), want(), want(), want()
	failed.failed, failed.background[1] = 1, 480
	failed.useful, failed.lost = (26+20+11+15+52)/whole, (10+14+10)/whole
	slow.guaranteed[0], slow.inTime = 13, 0.5
	late.late, late.background[0], late.useful = 2, 0, (24+10+20+11+15+52)/whole
	own.evictions, own.ownEvictions, own.guaranteed[1], own.inTime = 3, 1, 459, 0.5
	own.useful, own.lost = (26+10+20+11+52)/whole, (10+14+15)/whole
	for _, c := range []struct {
		name     string
		old, new string
		want     outcome
	}{
		{"as recorded", "", "", want()},
		{"requeued by scontrol", "PREEMPTED", "REQUEUED", want()},
		{"resized", "28|guaranteed-21.6-11.0|1795573224|1795573225|1795573236|", "28|guaranteed-21.6-11.0|1795573224|1795573225|1795573227|RESIZING\n28|guaranteed-21.6-11.0|1795573224|1795573227|1795573236|", want()},
		{"failed", "1795573213|COMPLETED", "1795573213|FAILED", failed},
		{"late submission", "1795573203|1795573203|1795573229", "1795573205|1795573205|1795573229", late},
		{"slow start", "1795573225|1795573236", "1795573237|1795573248", slow},
		{"a guaranteed job is evicted", "1795573240|COMPLETED", "1795573240|PREEMPTED", own},
	} {
		text := strings.ReplaceAll(string(record), c.old, c.new)
		if c.old == "" {
			text = string(record)
		}
		jobs, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := judge(jobs, from); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%+v\nwant\n%+v", c.name, got, c.want)
		}
	}
}

func TestEnded(t *testing.T) {
	const text = "1|a|1|2|3|PREEMPTED\n1|a|3|4|5|COMPLETED\n2|b|1|None|4|CANCELLED by 0\n"
	if !ended(text, 2) || ended(text, 3) || ended(strings.Replace(text, "5|COMPLETED", "Unknown|RUNNING", 1), 2) || ended("", 1) {
		t.Error("jobs that are missing or run are not seen")
	}
}

func TestParseErrors(t *testing.T) {
	for _, line := range []string{
		"", "1|guaranteed-1.0-2.0|1|2|3", "1|night|1|2|3|COMPLETED", "1|guaranteed-1.0-2.0|Unknown|2|3|COMPLETED",
		"1|guaranteed-1.0-2.0|1|2|Unknown|RUNNING", "1|guaranteed-1.0-2.0|1|x|3|COMPLETED",
	} {
		if jobs, err := parse(line + "\n"); err == nil {
			t.Errorf("%q is read as %+v", line, jobs)
		}
	}
}

func TestSpread(t *testing.T) {
	of := []outcome{{useful: 0.30}, {useful: 0.10}, {useful: 0.20}}
	useful := func(o *outcome) float64 { return 100 * o.useful }
	if got := spread(of, 1, useful); got != "20.0 (10.0–30.0)" {
		t.Error(got)
	}
	if got := spread(of[:1], 0, useful); got != "30" {
		t.Error(got)
	}
}

// A policy's figures are compared only if all policies had the machine to themselves.
func TestDoubts(t *testing.T) {
	c := cell{scenes()[0], policies()[0], 3}
	if d := doubts([]result{{cell: c, outcome: outcome{late: trustworthy, longer: trustworthy}}}); len(d) > 0 {
		t.Error(d)
	}
	for _, o := range []outcome{{late: trustworthy + 1}, {longer: trustworthy + 1}, {failed: 1}, {ownEvictions: 1}} {
		if d := doubts([]result{{cell: c, outcome: o}}); len(d) != 1 || !strings.HasPrefix(d[0], "short-fair-share-3: ") {
			t.Errorf("%+v: %q", o, d)
		}
	}
}
