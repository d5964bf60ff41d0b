package main

import (
	"slices"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/state"
)

func TestQuantile(t *testing.T) {
	var l Latencies
	for i := range 1000 {
		l.add(time.Duration(i+1) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := l.quantile(q); got < want || got > want*103/100 {
			t.Errorf("quantile %v is %v: want %v, or up to 3 %% more", q, got, want)
		}
	}
}

func TestCheckpointSyncs(t *testing.T) {
	const log = `2026-11-27 17:00:01.123 UTC [7] LOG:  checkpoint starting: immediate force wait
2026-11-27 17:00:01.456 UTC [7] LOG:  checkpoint complete: wrote 44 buffers (0.3%); 0 WAL file(s) added, 0 removed, 1 recycled; write=0.010 s, sync=0.003 s, total=0.020 s; sync files=11, longest=0.002 s, average=0.001 s; distance=260 kB, estimate=260 kB
2026-11-27 17:00:09.456 UTC [7] LOG:  checkpoint complete: wrote 2 buffers (0.0%); 0 WAL file(s) added, 0 removed, 0 recycled; write=0.010 s, sync=0.003 s, total=0.020 s; sync files=2, longest=0.002 s, average=0.001 s; distance=1 kB, estimate=200 kB
`
	if got := checkpointSyncs([]byte(log)); got != 13 {
		t.Errorf("checkpoints have synced %d files: want 13", got)
	}
}

// Each job is on one host, and what happens to it can be written into its object.
func TestFarm(t *testing.T) {
	var jobs []int64
	for _, h := range farm(100, 7) {
		jobs = append(jobs, h.jobs...)
		for n := range eventsOfJob {
			for _, f := range h.facts(n) {
				if len(f.text()) != 40 {
					t.Errorf("the text %q has %d bytes: want 40", f.text(), len(f.text()))
				}
				c := f.change()
				if c.Set == nil {
					continue
				}
				if err := state.CheckSetting(*c.Set); err != nil {
					t.Error(err)
				}
			}
		}
	}
	slices.Sort(jobs)
	if len(jobs) != 100 || len(slices.Compact(jobs)) != 100 {
		t.Errorf("jobs %v: want each from 1 to 100 once", jobs)
	}
}
