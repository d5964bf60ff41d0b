package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/ask"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/printable"
)

func exportCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "export", Usage: "print the state of all jobs that you may read, a line of JSON each",
		Description: "For a central store of the site's own. It reads the jobs whose state the farm's hosts hold, in the order of their\n" +
			"numbers there, 25 a second. On the bundled queue ajobs -a -l --json prints the same.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "after", Usage: "begin after this `JOB` of an earlier export, such as slurm/12"},
		},
		Action: func(c *cli.Context) error {
			if _, err := commands.Args(c, 0, 0); err != nil {
				return err
			}
			after := c.String("after")
			if after != "" {
				if _, _, err := parseName(after); err != nil {
					return shell.Usagef("option --after: %w", err)
				}
			}
			return p.export(c.Context, after, c.App.ErrWriter)
		},
	}
}

// exported is a line of an export.
type exported struct {
	Name string `json:"name"` // by which --after begins behind it
	*ask.State
}

// export prints one job after the other. A job that can't be read now is reported, and makes the
// export fail at its end: all others are there.
func (p process) export(ctx context.Context, after string, stderr io.Writer) error {
	socket, _, err := p.allotd()
	if err != nil {
		return err
	}
	failed := 0
	for {
		names, next, err := ask.States(ctx, socket, after)
		if err != nil {
			return err
		}
		for _, name := range names {
			s, err := stateNow(ctx, socket, name)
			switch {
			case errors.Is(err, ask.ErrNotFound): // it was purged meanwhile
				continue
			case err != nil:
				return fmt.Errorf("%w; what follows on %s is left out", err, name)
			case s.Record == nil && s.Denied:
				continue
			case s.Record == nil:
				failed++
				fmt.Fprintf(stderr, "astate: the state of job %s can't be read now: %s\n", name, shell.OneLine(s.Why))
				continue
			}
			line, err := json.Marshal(exported{name, s})
			if err == nil {
				_, err = fmt.Fprintf(p.out, "%s\n", line)
			}
			if err != nil {
				return err
			}
		}
		if after = next; next == "" {
			break
		}
	}
	if failed > 0 {
		return fmt.Errorf("%s left out: export again later", printable.Count(failed, "job"))
	}
	return nil
}

// exportEvery keeps below what allotd lets a user ask (30 a second).
const exportEvery = 40 * time.Millisecond

func stateNow(ctx context.Context, socket, name string) (*ask.State, error) {
	queue, id, err := parseName(name)
	if err != nil {
		return nil, fmt.Errorf("allotd lists a job that is none: %w", err)
	}
	select {
	case <-time.After(exportEvery):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return ask.StateOf(ctx, socket, queue, id)
}

// parseName reads the name of a job in a list of states, as state.ParseJob does: this program is
// built without SQLite, which that package needs.
func parseName(name string) (queue string, id backends.ID, err error) {
	queue, text, _ := strings.Cut(name, "/")
	number, index, element := strings.Cut(text, ".")
	id.Job, err = strconv.ParseInt(number, 10, 64)
	if err == nil && element {
		id.Index, err = strconv.Atoi(index)
	}
	if err != nil || queue == "" || id.Job <= 0 {
		return "", backends.ID{}, fmt.Errorf("%.40q is no name of a job, such as slurm/12", name)
	}
	return queue, id, nil
}
