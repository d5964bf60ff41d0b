package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// printDetails prints all that is known of each job: ajobs -l.
func printDetails(ctx context.Context, p process, o jobsOptions, queue backends.Backend, jobs []backends.Job, out io.Writer) error {
	records := readRecords(ctx, p, queue, jobs)
	if queue.Abilities().Set == nil {
		addStates(ctx, p, jobs, records)
	}
	if o.json {
		return shell.PrintJSON(out, detailsJSON(jobs, records))
	}
	detail := bsub.Detail{FromHost: p.host(), Zone: p.now().Location(), Width: shell.Width(out)}
	if o.unfolded {
		detail.Width = 0
	}
	detail.Outlook = p.outlook(ctx, jobs)
	for i := range jobs {
		if i > 0 {
			if _, err := io.WriteString(out, bsub.Separator); err != nil {
				return err
			}
		}
		if err := detail.Write(out, &jobs[i], records[i]); err != nil {
			return err
		}
	}
	return nil
}

// mostForeseen bounds the jobs of one list whose start is foreseen.
const mostForeseen = 10

// outlook asks pba for the place in the queue of the first jobs that wait. What it does not
// answer is left out: the list then names the command.
func outlook(ctx context.Context, jobs []backends.Job) map[backends.ID]string {
	var ids []backends.ID
	for i := range jobs {
		if j := &jobs[i]; j.State == backends.Pending && !j.IsDummy() && len(ids) < mostForeseen {
			ids = append(ids, j.ID)
		}
	}
	known := map[backends.ID]string{}
	for id, s := range explained(ctx, ids, false) {
		known[id] = s.Outlook.Text
	}
	return known
}

// readRecords reads what the queue has kept of each job; nil where there is nothing. Records
// that can't be read, such as those of other users' jobs, are reported in one line.
func readRecords(ctx context.Context, p process, queue backends.Backend, jobs []backends.Job) []*backends.Record {
	records := make([]*backends.Record, len(jobs))
	read := queue.Abilities().Record
	if read == nil {
		return records
	}
	failed := 0
	var first error
	var firstID backends.ID
	for i := range jobs {
		record, err := read(ctx, jobs[i].ID)
		if err != nil {
			if failed++; failed == 1 {
				first, firstID = err, jobs[i].ID
			}
			if errors.Is(err, backends.ErrUnreachable) { // each other one would wait as long
				failed += len(jobs) - 1 - i
				break
			}
			continue
		}
		records[i] = record
	}
	switch failed {
	case 0:
	case 1:
		fmt.Fprintf(p.stderr, "ajobs: the record of job <%s> can't be read: %s\n", firstID, shell.OneLine(first.Error()))
	default:
		fmt.Fprintf(p.stderr, "ajobs: the records of %d jobs can't be read; the first, of job <%s>: %s\n", failed, firstID, shell.OneLine(first.Error()))
	}
	return records
}
