package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/command"
)

// printDetails prints all that is known of each job: ajobs -l.
func printDetails(ctx context.Context, p process, o jobsOptions, queue backends.Backend, jobs []backends.Job, out io.Writer) error {
	records := readRecords(ctx, p, queue, jobs)
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
	for id, s := range explained(ctx, ids) {
		known[id] = s.Outlook.Text
	}
	return known
}

// story is what of pba explain --json is used here.
type story struct {
	ID      string `json:"id"`
	Outlook struct {
		Text string `json:"text"`
	} `json:"outlook"`
}

// explained asks pba about jobs, all at once. Those that it does not explain are left out; all are
// if the farm has no pba, or it does not answer in time.
func explained(ctx context.Context, ids []backends.ID) map[backends.ID]story {
	program, err := command.Sibling("pba")
	if err != nil || len(ids) == 0 {
		return nil
	}
	argv := []string{program, "explain", "--json"}
	for _, id := range ids {
		argv = append(argv, id.String())
	}
	const patience = 10 * time.Second
	data, _ := command.Run(ctx, command.Command{Argv: argv, Timeout: patience}) // an error is about jobs that it left out
	return parseStories(data, len(ids) > 1)
}

// parseStories reads what pba explain --json prints of one job, or of several.
func parseStories(data []byte, several bool) map[backends.ID]story {
	all := make([]story, 1)
	var err error
	if several {
		err = json.Unmarshal(data, &all)
	} else {
		err = json.Unmarshal(data, &all[0])
	}
	if err != nil {
		return nil
	}
	known := map[backends.ID]story{}
	for _, s := range all {
		if id, err := backends.ParseID(s.ID); err == nil {
			known[id] = s
		}
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
