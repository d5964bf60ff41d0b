package main

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/internal/quantile"
)

// columns are what the judge reads of sacct, which shows each run of a requeued job by
// --duplicates. Times are in seconds since 1970.
const columns = "JobIDRaw,JobName,Submit,Start,End,State"

// allowed is the longest wait, in seconds, of a guaranteed job that started in time: the threshold, two
// cycles, and one until the first saw it, which is two minutes of the site.
const allowed = int64((threshold + 3*cycle) / 1e9)

// accounted is a job in Slurm's accounting. Times are seconds since 1970.
type accounted struct {
	job
	submitted int64 // first
	runs      []run // in their order
}

// run is one run of a job.
type run struct {
	start, end int64
	state      string
}

// evicted reports whether the run was preempted.
func (r run) evicted() bool { return r.state == "PREEMPTED" || r.state == "REQUEUED" }

// parse reads the output of sacct for a run of the comparison, in which each job has ended.
func parse(text string) ([]*accounted, error) {
	byID := map[string]*accounted{}
	var all []*accounted
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		fields := strings.Split(line, "|")
		if len(fields) != strings.Count(columns, ",")+1 {
			return nil, fmt.Errorf("sacct printed %q: want %s", line, columns)
		}
		a := byID[fields[0]]
		if a == nil {
			j, err := parseName(fields[1])
			if err != nil {
				return nil, err
			}
			a = &accounted{job: j}
			byID[fields[0]] = a
			all = append(all, a)
		}
		submitted, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("sacct printed %q: a job without a time of submission", line)
		}
		if a.submitted == 0 || submitted < a.submitted { // that of a requeued job is of its requeue
			a.submitted = submitted
		}
		if fields[3] == "None" || fields[3] == "Unknown" { // cancelled before it ran
			continue
		}
		state, _, _ := strings.Cut(fields[5], " ") // CANCELLED by 0
		r := run{state: state}
		for i, to := range []*int64{&r.start, &r.end} {
			if *to, err = strconv.ParseInt(fields[3+i], 10, 64); err != nil {
				return nil, fmt.Errorf("sacct printed %q: a run without a begin or an end", line)
			}
		}
		a.runs = append(a.runs, r)
	}
	for _, a := range all {
		slices.SortStableFunc(a.runs, func(a, b run) int { return int(a.start - b.start) })
		a.runs = joined(a.runs)
	}
	return all, nil
}

// joined returns a job's runs with the parts of each as one. An update of a job's nodes just
// as it starts is a change of its size to slurmctld, and a new record (22.05).
func joined(parts []run) (runs []run) {
	for i, r := range parts {
		if i > 0 && parts[i-1].state == "RESIZING" {
			r.start = runs[len(runs)-1].start
			runs = runs[:len(runs)-1]
		}
		runs = append(runs, r)
	}
	return runs
}

// ended reports whether sacct has so many jobs, and the end of each run. Slurm's accounting
// is some seconds late.
func ended(text string, jobs int) bool {
	ids := map[string]bool{}
	for line := range strings.Lines(text) {
		fields := strings.Split(line, "|")
		if len(fields) > 4 && fields[4] == "Unknown" {
			return false
		}
		ids[fields[0]] = true
	}
	return len(ids) >= jobs
}

// outcome is what a policy brought about in one run. Times are in seconds as they passed.
type outcome struct {
	guaranteed, background []int64 // waits
	inTime                 float64 // share of the guaranteed jobs that waited at most allowed
	evictions              int
	ownEvictions           int     // of guaranteed jobs
	lost, useful           float64 // shares of the window's slot-seconds
	failed                 int     // jobs that neither completed nor ran on until the window's end

	late, longer int64 // 95 % of the submissions were at most so late, of the complete runs so much longer than asked
}

// judge computes the outcome of a run whose window begins at from.
//
// A job's wait is from its submission to the begin of the run that counts: the one that
// completed, or that still ran when the window ended. Without one it is until the
// window's end.
func judge(all []*accounted, from int64) (o outcome) {
	to := from + int64(window.Seconds())
	within := func(r run) int64 { return max(0, min(r.end, to)-max(r.start, from)) }
	var useful, lost int64
	var late, longer []int64
	inTime := 0
	for _, a := range all {
		late = append(late, max(0, a.submitted-from-int64(a.at.Seconds())))
		began := to
		for _, r := range a.runs {
			switch {
			case r.start >= to: // before all jobs were cancelled
			case r.evicted():
				lost += within(r)
				o.evictions++
				if a.guaranteed {
					o.ownEvictions++
				}
			case r.state == "COMPLETED" || r.state == "CANCELLED" && r.end >= to:
				useful += within(r)
				began = r.start
				if r.state == "COMPLETED" {
					longer = append(longer, max(0, r.end-r.start-int64(a.length.Seconds())))
				}
			default:
				lost += within(r)
				o.failed++
			}
		}
		wait := max(0, began-a.submitted)
		if !a.guaranteed {
			o.background = append(o.background, wait)
			continue
		}
		o.guaranteed = append(o.guaranteed, wait)
		if wait <= allowed {
			inTime++
		}
	}
	whole := float64(slots) * window.Seconds()
	o.useful, o.lost = float64(useful)/whole, float64(lost)/whole
	o.inTime = float64(inTime) / float64(max(1, len(o.guaranteed)))
	o.late, o.longer = percentile(late, 95), percentile(longer, 95)
	return o
}

// percentile returns a quantile of waits; 0: there are none.
func percentile(values []int64, percent int) int64 {
	if len(values) == 0 {
		return 0
	}
	return quantile.Of(values, percent)
}
