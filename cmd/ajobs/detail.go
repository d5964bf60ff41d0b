package main

import (
	"context"
	"fmt"
	"io"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// printDetails prints all that is known of each job: ajobs -l.
func printDetails(ctx context.Context, p process, o jobsOptions, queue backends.Backend, jobs []backends.Job, out io.Writer) error {
	records := make([]*backends.Record, len(jobs))
	read := queue.Abilities().Record
	for i := range jobs {
		if read == nil {
			break
		}
		var err error
		if records[i], err = read(ctx, jobs[i].ID); err != nil {
			fmt.Fprintf(p.stderr, "ajobs: the record of job <%s> can't be read: %s\n", jobs[i].ID, shell.OneLine(err.Error()))
		}
	}
	if o.json {
		return shell.PrintJSON(out, detailsJSON(jobs, records))
	}
	detail := bsub.Detail{FromHost: p.host(), Zone: p.now().Location()}
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
