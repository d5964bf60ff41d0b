package main

import (
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split"
)

func progressOf(items, total int64) split.Progress {
	return split.Progress{
		Items: items, Total: total, Rate: 10, Left: time.Duration(total-items) * time.Second / 10, Round: 3, Gap: 0.025, HasGap: true,
		Shares: []metrics.Share{{Host: "n\x1b1", Percent: 25}, {Host: "n2", Percent: 75}},
	}
}

func TestPrintableText(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a\n\tb\n": "a\n\tb\n", "a\x1b[2Jb\r\n": `a\x1b[2Jb\r` + "\n", "\u202e": `\u202e`, "\n\n": "\n\n", "\xff\n": `\xff` + "\n", "é": "é",
	} {
		if got := printableText(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// The progress line is erased completely before other output.
func TestScreenOfATerminal(t *testing.T) {
	var b strings.Builder
	s := &screen{to: &b, terminal: true}
	p := progressOf(50, 200)
	s.Progress(p)
	s.Log("hello")
	if _, err := s.Write([]byte("err\x1b[2J\n")); err != nil {
		t.Error(err)
	}
	s.close()
	line := "[#####...............]  50/200  10/s  ETA 15.0s  round 3  gap 2.5 %  n\\x1b1 25%  n2 75%"
	if len(line) > 79 {
		line = line[:79]
	}
	want := line + eraseLine + "asplit: hello\n" + line + eraseLine + "err\\x1b[2J\n" + line + eraseLine
	if b.String() != want {
		t.Errorf("got\n%q\nwant\n%q", b.String(), want)
	}
}

func TestProgressOfPeriods(t *testing.T) {
	p := progressOf(3, 12)
	p.Period, p.Left, p.Shares = 7, 0, nil
	if got, want := progressLine(p), "[#####...............]  3/12  10/s  period 7  gap 2.5 %"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
