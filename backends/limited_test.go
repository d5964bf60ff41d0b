package backends

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// R47: limits are of a run on a host: those are in force that have begun there, and not ended, and the run has not.
func TestLimited(t *testing.T) {
	at := time.Date(2026, 11, 29, 3, 21, 13, 0, time.UTC)
	line := func(run int, host, event, detail string) HistoryLine {
		return HistoryLine{At: at, Run: run, Event: event, Detail: detail, Host: host}
	}
	const lasts = " since 03:21:13, until that is not needed any more"
	disk := line(1, "n1", "limited", "disk, by rate 7: slurm 1 waits")
	for name, x := range map[string]struct {
		history []HistoryLine
		want    []string
	}{
		"none":                {},
		"one":                 {[]HistoryLine{line(1, "n1", "started", "on n1"), disk}, []string{"disk, by rate 7: slurm 1 waits, on n1" + lasts}},
		"it ends":             {[]HistoryLine{disk, line(1, "n1", "unlimited", "disk, by rate, since then")}, nil},
		"another ends":        {[]HistoryLine{disk, line(1, "n1", "unlimited", "CPU, by rate, since then")}, []string{"disk, by rate 7: slurm 1 waits, on n1" + lasts}},
		"another rung":        {[]HistoryLine{disk, line(1, "n1", "limited", "disk, by duty 9: b")}, []string{"disk, by duty 9: b, on n1" + lasts}},
		"the next run":        {[]HistoryLine{disk, line(2, "n2", "started", "on n2")}, nil},
		"the run ends":        {[]HistoryLine{disk, line(1, "n1", "ended", "")}, nil},
		"on two hosts":        {[]HistoryLine{disk, line(1, "n2", "started", "on n2"), line(1, "n2", "limited", "disk, by rate 8: c")}, []string{"disk, by rate 7: slurm 1 waits, on n1" + lasts, "disk, by rate 8: c, on n2" + lasts}},
		"on one of two":       {[]HistoryLine{disk, line(1, "n2", "limited", "disk, by rate 8: c"), line(1, "n1", "unlimited", "disk, by rate, since then")}, []string{"disk, by rate 8: c, on n2" + lasts}},
		"ends on one of two":  {[]HistoryLine{disk, line(1, "n2", "ended", "")}, []string{"disk, by rate 7: slurm 1 waits, on n1" + lasts}},
		"bytes that are none": {[]HistoryLine{line(1, "n1", "limited", "disk, \xff")}, []string{Escape("disk, \xff, on n1" + lasts)}},
	} {
		if got := (&Record{History: x.history}).Limited(time.UTC); !slices.Equal(got, x.want) {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
	r := &Record{}
	for i := range 100 {
		r.History = append(r.History, line(1, "n1", "limited", fmt.Sprint(i, ",", strings.Repeat("é", 40_000))))
	}
	got := r.Limited(time.UTC)
	if len(got) != maxLimited || !strings.HasPrefix(got[maxLimited-1], "99,é") || len(got[0]) > maxLimitedText+len(lasts)+20 {
		t.Errorf("%d, %.20q, %d bytes", len(got), got[len(got)-1], len(got[0]))
	}
}
