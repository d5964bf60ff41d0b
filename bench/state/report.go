package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Metrics, in the order of the table.
const (
	seconds       = "time (s)"
	eventsSecond  = "events/s"
	centreBytes   = "written at the centre (bytes an event)"
	walBytes      = "  of these PostgreSQL's WAL"
	centreSyncs   = "syncs at the centre (of 1,000 events)"
	totalBytes    = "written in total (bytes an event)"
	totalSyncs    = "syncs in total (of 1,000 events)"
	sentBytes     = "sent to the centre (bytes an event)"
	receivedBytes = "sent back by it (bytes an event)"
	deviceWritten = "written to the disk by the whole machine (bytes an event)"
	stateMedian   = "state of a job: p50 (ms)"
	stateHigh     = "state of a job: p99 (ms)"
	stateRate     = "state of a job: answers/s"
	whereMedian   = "where a job is: p50 (ms)"
	whereHigh     = "where a job is: p99 (ms)"
	whereRate     = "where a job is: answers/s"
)

// figures are what one turn of one side was measured as, by metric.
type figures map[string]float64

func figuresOf(o options, took time.Duration, centre, total Use, sent, received, device int64) figures {
	events := float64(o.jobs * eventsOfJob)
	each := func(n int64) float64 { return float64(n) / events }
	return figures{
		seconds: took.Seconds(), eventsSecond: events / took.Seconds(),
		centreBytes: each(centre.Bytes), centreSyncs: 1000 * each(centre.Syncs), totalBytes: each(total.Bytes), totalSyncs: 1000 * each(total.Syncs),
		sentBytes: each(sent), receivedBytes: each(received), deviceWritten: each(device),
	}
}

// ask measures both questions.
func (m figures) ask(o options, ask func(Queries) (*Latencies, error)) error {
	for _, q := range []struct {
		state              bool
		median, high, rate string
	}{{true, stateMedian, stateHigh, stateRate}, {false, whereMedian, whereHigh, whereRate}} {
		l, err := ask(Queries{State: q.state, Clients: o.clients, Jobs: o.jobs, Lasts: o.lasts})
		if err != nil {
			return err
		}
		m[q.median], m[q.high] = float64(l.quantile(0.5))/1e6, float64(l.quantile(0.99))/1e6
		m[q.rate] = float64(l.Count) / o.lasts.Seconds()
	}
	return nil
}

// The sides, in the order of the table: two that write each event by itself, two that gather.
const (
	oursApart      = "Allotment"
	theirsApart    = "PostgreSQL"
	oursTogether   = "Allotment, 5 s"
	theirsTogether = "PostgreSQL, 5 s"
)

var sides = []string{oursApart, theirsApart, oursTogether, theirsTogether}

// results are the figures of all rounds, by side.
type results map[string][]figures

// median returns a side's median of a metric; false: it was not measured.
func (r results) median(side, metric string) (float64, bool) {
	var list []float64
	for _, m := range r[side] {
		if v, ok := m[metric]; ok {
			list = append(list, v)
		}
	}
	if len(list) == 0 {
		return 0, false
	}
	slices.Sort(list)
	return list[len(list)/2], true
}

// ratio returns the median of what one side's figure is of another's in the same round.
func (r results) ratio(side, other, metric string) (float64, bool) {
	var list []float64
	for i := range min(len(r[side]), len(r[other])) {
		if a, ok := r[side][i][metric]; ok && r[other][i][metric] > 0 {
			list = append(list, a/r[other][i][metric])
		}
	}
	if len(list) == 0 {
		return 0, false
	}
	slices.Sort(list)
	return list[len(list)/2], true
}

func (r results) print(out io.Writer) {
	fmt.Fprintf(out, "\n%-58s", "")
	for _, side := range sides {
		fmt.Fprintf(out, "%16s", side)
	}
	fmt.Fprintln(out)
	for _, metric := range []string{
		seconds, eventsSecond, centreBytes, walBytes, centreSyncs, totalBytes, totalSyncs, sentBytes, receivedBytes, deviceWritten,
		stateMedian, stateHigh, stateRate, whereMedian, whereHigh, whereRate,
	} {
		fmt.Fprintf(out, "%-58s", metric)
		for _, side := range sides {
			if v, ok := r.median(side, metric); ok {
				fmt.Fprintf(out, "%16s", number(v))
			} else {
				fmt.Fprintf(out, "%16s", "-")
			}
		}
		fmt.Fprintln(out)
	}
}

// number has three digits, or all before the point.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}

// budget bounds one side's figure by another's.
type budget struct {
	metric, side, other string
	times               float64
	atMost              bool // else at least
}

// budgets are those of docs/design.md.
func budgets() []budget {
	return []budget{
		{centreBytes, oursApart, theirsApart, 0.1, true},
		{centreBytes, oursTogether, theirsTogether, 0.1, true},
		{eventsSecond, oursTogether, theirsApart, 1, false},
	}
}

// judge prints each budget with its verdict; false: one is missed.
func (r results) judge(out io.Writer) bool {
	met := true
	fmt.Fprintln(out, "\nbudgets")
	for _, b := range budgets() {
		sign := "≥"
		if b.atMost {
			sign = "≤"
		}
		text := fmt.Sprintf("%s: %s %s %g × %s", b.metric, b.side, sign, b.times, b.other)
		ratio, ok := r.ratio(b.side, b.other, b.metric)
		if !ok {
			fmt.Fprintf(out, "  not judged  %s: not measured\n", text)
			continue
		}
		verdict := "met"
		if ratio > b.times && b.atMost || ratio < b.times && !b.atMost {
			verdict, met = "missed", false
		}
		fmt.Fprintf(out, "  %-10s  %s: it is %.3f\n", verdict, text, ratio)
	}
	return met
}

// printMachine prints what the figures depend on. A file system in memory is an error: nothing
// would wait for a disk there.
func printMachine(out io.Writer, o options, postgres string) error {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	nice, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return err
	}
	busy, _, _ := strings.Cut(string(load), " ")
	fmt.Fprintf(out, "%d processors, Linux %s, %s, %s, load %s before, nice %d\n", runtime.NumCPU(), strings.TrimSpace(string(release)), runtime.Version(), postgres, busy, 20-nice)
	fmt.Fprintf(out, "%d jobs of %d events on %d hosts; %d clients for %v; medians of %d\n", o.jobs, eventsOfJob, o.hosts, o.clients, o.lasts, o.rounds)
	var fs syscall.Statfs_t
	if err := syscall.Statfs(o.below, &fs); err != nil {
		return fmt.Errorf("stat the file system of %s: %w", o.below, err)
	}
	const inMemory = 0x01021994
	if fs.Type == inMemory {
		return fmt.Errorf("%s is in memory, where no write waits for a disk: set TMPDIR to a directory on a disk", o.below)
	}
	return nil
}
